"""Sums under a secret that lives for one round: any T of H clients open one sum, nobody else any.

    contribute   <- y_i = a s_i + e_i + m_i mod (X^n + 1, Q), first coefficients only; where
                    there are many values, each of up to four parts under a secret of its own
                    and shares of s_i, and of exact numbers x_i (`residues`), for each of the H
                    clients, sealed
    open         -> the contributors U, |U| >= T, and what they sealed for this client
                 <- the sum over U of its shares, locked; and what unlocks the others'

The coordinator unlocks T answers, finds S = sum_U s_i and sum_U x_i, and opens
sum_U y_i - a S = sum_U m_i + e. Q is 2^32, or 2^48 for wide words. What opens is the sum mod Q, and
of exact numbers their total mod M, with all carries: no part of a number opens by itself.
The bulk is one product and one add a value; what is shared is as short as a secret.

Where nobody may vanish (T = H), all of that is one step: a client sends s_i and x_i with y_i, under
masks that each two clients have in common and that cancel in the sum over all H (`_covered`).

Lock. Answer h stands under a key that is shared among the others with threshold T - 1. Share g is
covered by a value that h and g derive from their common key, the round and U; g reveals it when it
answers for the same U itself. So an answer opens only beside T - 1 others for the same set.

Security. All that follows is against a coordinator that deviates as it likes, with at most
`Quorum.colluders` clients on its side, which deviate too.
1. One set. An honest client answers once a round (its caller keeps that in mind). Two sets that
   open have T - c honest answers each, of H - c: impossible for 2 T > H + c. Answers for other sets
   stay under keys that are uniform to everybody (Shamir, HMAC-SHA256 as a random function).
   For T = H the one set is that of all: an honest client covers one secret a round, and a sum
   without it keeps the masks that it has in common with other honest ones (AES-256 and HMAC-SHA256
   as random functions).
2. So of honest secrets the coordinator learns c shares each, which are independent of them
   (`packed`), and the shares of their sum over the honest part of the one set: sum s_i, and nothing
   more; for T = H that sum alone. It learns nothing of secrets of honest clients outside the set.
   The same holds of exact numbers, which are shared as secrets are.
3. Given the sum of secrets and of errors over at least two honest clients, y_i look uniform but for
   the sum of the m_i: `protocols.aggregate`, n = 2048, Q <= 2^48, one round for each secret; so
   hints never add up: 2 (H - 1) (Adv_RLWE(n, Q, 3.19; L / n samples) + N delta_hint). The elements
   a are AES-256 in counter mode under a hash of the round: uniform in the random-oracle model.
   Parts under r secrets share them. Secrets and errors are independent: part by part, with the
   others drawn by the reduction, this is r times the advantage over L / (r n) samples.
4. One round. The hash `context` stands for session, keys of all members, number and kind of round,
   those asked, plan and model. Clients who are told different ones seal under different keys and
   mask by different elements: nothing of theirs opens together. (So a coordinator cannot send one
   client's neighbours a model whose updates vanish: Pasquini et al., CCS 2022. What is not in that
   hash, or in the keys, it can still tell one client alone: callers say what they hash.)

Deviating clients can spoil a sum by what they contribute, or put any value in; nobody can prevent
that here. Of answers any one may be spoilt, where the others are enough. Sums over
different sets in different rounds differ by what the sets differ by: noise is against that.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from protocols.aggregate import NOISE_STD, TAIL, packed
from protocols.aggregate.quick import quick_gaussian
from protocols.aggregate.quorum import Quorum
from protocols.aggregate.residues import MODULI, Residues
from protocols.aggregate.words import (
    RING_DIM,
    WIDE_BITS,
    WORD_BITS,
    Words,
    add_products,
    modulus_bits,
    num_secrets,
    signed,
)
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.privacy.laws import (
    ExpandedRandomness,
    RandomSource,
    uniform_below,
)

NONCE_BYTES, TAG_BYTES, KEY_BYTES = 12, 16, 32
# A sum of 1024 secrets has 13 bits.
_COVERED = np.dtype("<u2")
_LOCK_ELEMENTS = KEY_BYTES // packed.SHARE.itemsize
# Of a secret, and of exact numbers.
_PRIMES = (packed.PRIME, *MODULI)


def noise_units(clients: int) -> int:
    """Bound on the error of a sum: TAIL deviations, and half a unit of rounding for each client."""
    return math.ceil(TAIL * NOISE_STD * math.sqrt(clients) + clients / 2)


def largest_units(clients: int, *, wide: bool = False) -> int:
    """Largest |m| of one client, so that no honest sum wraps around; exact in float32."""
    bits = WIDE_BITS if wide else WORD_BITS
    return ((1 << (bits - 1)) - 1 - noise_units(clients)) // clients & ~0xFF


@dataclass(frozen=True, slots=True)
class Round:
    """One client's place in one round.

    quorum: of those asked; own: this client among them, 0 .. H - 1; keys: the 32 bytes that it has
    in common with each of them, and one of its own; context: of the round, 32 bytes; told: what
    else the sealing keys depend on, and the coordinator need not know.
    """

    quorum: Quorum
    own: int
    keys: Sequence[bytes]
    context: bytes
    told: bytes = b""

    def __repr__(self) -> str:
        return "Round(<secret>)"

    def key(self, purpose: bytes, sender: int, receiver: int, about: bytes = b"") -> bytes:
        """32 bytes that sender and receiver alone derive; this client is one of them."""
        other = receiver if sender == self.own else sender
        text = b"%b\0%d,%d\0%b%b%b" % (purpose, sender, receiver, self.context, about, self.told)
        return hmac.digest(self.keys[other], text, "sha256")


def element_key(context: bytes) -> bytes:
    """Of the public element a."""
    return hashlib.sha256(b"ciphercohort/one-time/element/1\0" + context).digest()


def _set_digest(members: Sequence[int]) -> bytes:
    return hashlib.sha256(repr(tuple(members)).encode()).digest()


# -- client ---------------------------------------------------------------------------------------


def contribute(
    place: Round, message: Words, exact: Residues, randomness: RandomSource
) -> tuple[Words, tuple[bytes, ...]]:
    """y_i, written over the message, and what opens the sums.

    That is: the sealed shares for all H clients, in order; where nobody may vanish, the covered
    secret and exact numbers alone.

    message: m_i mod Q, shape (L,); exact: x_i, see `residues`; randomness: of secret, errors and
    shares: the operating system's outside tests.
    """
    quorum = place.quorum
    count = num_secrets(len(message)) * RING_DIM
    drawn = quick_gaussian(NOISE_STD, count + len(message), randomness)
    secret, error = drawn[:count].astype(np.int64), drawn[count:]
    add_products(element_key(place.context), secret.reshape(-1, RING_DIM), message)
    values = message.view(f"i{message.itemsize}")
    np.add(values, error, out=values)
    if modulus_bits(message) < 8 * message.itemsize:
        # In bits beyond the modulus the mask would be a sample of a larger one.
        message &= message.dtype.type((1 << modulus_bits(message)) - 1)
    if quorum.lost:
        sizes = quorum.needed, quorum.packed, quorum.clients
        shares = packed.deal(secret, *sizes, randomness)
        numbers = packed.deal_rows(exact, *sizes, randomness, MODULI)
        rows = np.concatenate([shares, *numbers], axis=1).astype(packed.SHARE)
        opens = tuple(
            _seal(place.key(b"share", place.own, k), row.tobytes()) for k, row in enumerate(rows)
        )
    else:
        opens = (_covered(place, secret, exact),)
    secret.fill(0)
    drawn.fill(0)
    return message, opens


def _moduli(elements: int, exact: int) -> NDArray[np.int64]:
    """Of each element of a share, of which the last `exact` of each of `residues.MODULI` are."""
    return np.repeat(_PRIMES, [elements - len(MODULI) * exact, *[exact] * len(MODULI)])


def _covered(place: Round, secret: NDArray[np.int64], exact: Residues) -> bytes:
    """z_i + sum_(k > i) M_ik - sum_(k < i) M_ik, two bytes each; z_i: s_i mod 2^16, x_i mod primes.

    M_ik: AES-256 in counter mode, under a key of the two clients and this round. A client whose
    memory was set back, and that covers two secrets in a round, shows their difference, hence that
    of its two messages: shares of two secrets (`_seal`) would not.
    """
    own, moduli = place.own, _covered_moduli(len(secret), exact.shape[1])
    total = np.concatenate([secret, exact.ravel()])
    for other in set(range(place.quorum.clients)) - {own}:
        key = place.key(b"cover", min(own, other), max(own, other))
        mask = _uniform(ExpandedRandomness(key), moduli)
        total += mask if own < other else -mask
    return bytes((total % moduli).astype(_COVERED).tobytes())


def _covered_moduli(count: int, exact: int) -> NDArray[np.int64]:
    """Of each element of a covered secret with its exact numbers."""
    return np.repeat([1 << 16, *MODULI], [count, *[exact] * len(MODULI)])


def _uniform(stream: RandomSource, moduli: NDArray[np.int64]) -> NDArray[np.int64]:
    """Exactly uniform below moduli of up to 2^16, by rejection of 16 bits."""
    words = stream.words(-(-len(moduli) // 4)).view(_COVERED)
    drawn: NDArray[np.int64] = words[: len(moduli)].astype(np.int64)
    bad = np.flatnonzero(drawn >= moduli)
    while bad.size:
        drawn[bad] = stream.words(bad.size) & np.uint64(0xFFFF)
        bad = bad[drawn[bad] >= moduli[bad]]
    return drawn


def answer(
    place: Round,
    members: Sequence[int],
    sealed: Sequence[bytes],
    exact: int,
    randomness: RandomSource,
) -> bytes:
    """The answer for the set of contributors `members`; once a round, and the caller sees to that.

    members: rising; sealed: what each of them sealed for this client; exact: how many exact numbers
    this client contributed.

    Raises:
        PolicyError: the set is too small, or this client is not in it. MessageError: something was
            not sealed for this client and round.
    """
    quorum, own = place.quorum, place.own
    check_members(quorum, members)
    if own not in members:
        raise PolicyError("this client is not among the contributors that it should answer for")
    if len(sealed) != len(members):
        raise MessageError(f"{len(sealed)} sealed shares of {len(members)} contributors")
    plain = {
        dealer: _unseal(place.key(b"share", dealer, own), data, dealer)
        for dealer, data in zip(members, sealed, strict=True)
    }
    for dealer, share in plain.items():
        if len(share) != len(plain[own]):
            raise MessageError(f"client {dealer} of this round sealed something that is no share")
    shares = packed.of_bytes(b"".join(plain.values())).reshape(len(plain), -1)
    total = shares.sum(axis=0) % _moduli(shares.shape[1], packed.num_blocks(exact, quorum.packed))
    lock = uniform_below(randomness, packed.PRIME, _LOCK_ELEMENTS)
    parts = packed.deal(lock, quorum.needed - 1, 1, quorum.clients, randomness)
    about, others = _set_digest(members), [other for other in members if other != own]
    covers = b"".join(place.key(b"unlock", own, other, about) for other in others)
    # For each of the others: its part of the lock, and what uncovers this client's part of its own.
    pieces = np.empty((len(others), 2, KEY_BYTES), np.uint8)
    pieces[:, 0] = _keys(packed.to_bytes(parts[others])) ^ _keys(covers)
    pieces[:, 1] = _keys(b"".join(place.key(b"unlock", other, own, about) for other in others))
    return _seal(packed.to_bytes(lock), packed.to_bytes(total)) + pieces.tobytes()


def check_members(quorum: Quorum, members: Sequence[int]) -> None:
    """Refuse what is no large enough set of those asked.

    Raises:
        PolicyError: it is not.
    """
    if list(members) != sorted({k for k in members if 0 <= k < quorum.clients}):
        raise PolicyError("the contributors are no rising list of clients of this round")
    if len(members) < quorum.needed:
        raise PolicyError(
            f"{len(members)} contributors of {quorum.clients} clients: a sum needs {quorum.needed}"
        )


# -- coordinator ----------------------------------------------------------------------------------

Opened = tuple[NDArray[np.signedinteger[Any]], Residues]
"""Sums of words, as signed integers, and of exact numbers."""
# Sums of secrets and of exact numbers.
_Secrets = tuple[NDArray[np.int64], Residues]
# Box, and by every other contributor's place among all: locked part, unlocking value.
_Parsed = tuple[bytes, NDArray[np.uint8]]


def share_bytes(quorum: Quorum, length: int, exact: int) -> int:
    """Of each of the shares that a client contributes beside `length` words."""
    count = num_secrets(length) * RING_DIM
    if not quorum.lost:
        return (count + len(MODULI) * exact) * _COVERED.itemsize
    return NONCE_BYTES + TAG_BYTES + sum(_blocks(quorum, count, exact)) * packed.SHARE.itemsize


def _blocks(quorum: Quorum, count: int, exact: int) -> list[int]:
    """By prime."""
    numbers = (count, *[exact] * len(MODULI))
    return [packed.num_blocks(each, quorum.packed) for each in numbers]


def open_sum(
    quorum: Quorum,
    context: bytes,
    members: Sequence[int],
    answers: Mapping[int, bytes],
    total: Words,
    exact: int,
    tell: Callable[[int], None] = lambda client: None,
) -> Opened:
    """sum_U m_i within `noise_units`, shape (L,), and sum_U x_i, shape (12, exact).

    total: sum_U y_i, changed; exact: how many exact numbers there are; answers: by client, at least
    T; where nobody may vanish, what each contributed, of all. tell: of clients whose answers are
    left out: malformed ones, and where the rest does not fit together one without which it does (it
    spoils others, or one other has spoilt its own).

    Raises:
        ProtocolError: too few answers, or they do not fit together.
    """
    check_members(quorum, members)
    if len(answers) < quorum.needed:
        raise ProtocolError(
            f"{len(answers)} clients answered for {len(members)} contributors; needed are "
            f"{quorum.needed} of {quorum.clients}"
        )
    count = num_secrets(len(total)) * RING_DIM
    if quorum.lost:
        secret, found = _secret_of_answers(quorum, members, answers, (count, exact), tell)
    else:
        secret, found = _short(_uncovered(answers, (count, exact)), members)
    add_products(element_key(context), -secret.reshape(-1, RING_DIM), total)
    return signed(total), found


def _short(opened: _Secrets, members: Sequence[int]) -> _Secrets:
    if int(np.abs(opened[0]).max()) > noise_units(len(members)):
        raise ProtocolError(
            "the contributors' secrets do not add up to a short one: a client deviates from the "
            "protocol"
        )
    return opened


def _uncovered(covered: Mapping[int, bytes], sizes: tuple[int, int]) -> _Secrets:
    moduli = _covered_moduli(*sizes)
    total = np.zeros(len(moduli), np.int64)
    for k, data in covered.items():
        if len(data) != len(moduli) * _COVERED.itemsize:
            raise ProtocolError(f"client {k} of this round sent no covered secret")
        total += np.frombuffer(data, _COVERED)
    secret, exact = np.split(total % moduli, sizes[:1])
    centred = secret.astype(np.uint16).view(np.int16).astype(np.int64)
    return centred, exact.reshape(len(MODULI), sizes[1])


def _secret_of_answers(
    quorum: Quorum,
    members: Sequence[int],
    answers: Mapping[int, bytes],
    sizes: tuple[int, int],
    tell: Callable[[int], None],
) -> _Secrets:
    """Of all answers that are well formed; if these do not fit together, of all but one."""
    boxes = {}
    for k, data in answers.items():
        # One that is malformed is as good as none.
        try:
            boxes[k] = _parse(data, k, members)
        except ProtocolError:
            tell(k)
    if len(boxes) < quorum.needed:
        raise ProtocolError(f"{len(answers) - len(boxes)} of {len(answers)} answers are malformed")
    try:
        return _secret_of_boxes(quorum, members, boxes, sizes)
    except (MessageError, ProtocolError):
        for k in boxes if len(boxes) > quorum.needed else ():
            others = {other: box for other, box in boxes.items() if other != k}
            with suppress(MessageError, ProtocolError):
                found = _secret_of_boxes(quorum, members, others, sizes)
                tell(k)
                return found
        raise


def _secret_of_boxes(
    quorum: Quorum,
    members: Sequence[int],
    boxes: Mapping[int, _Parsed],
    sizes: tuple[int, int],
) -> _Secrets:
    blocks = _blocks(quorum, *sizes)
    size = sum(blocks) * packed.SHARE.itemsize
    shares = {}
    for (k, (box, _)), lock in zip(boxes.items(), _locks(quorum, members, boxes), strict=True):
        share = _unseal(packed.to_bytes(lock), box, k)
        if len(share) == size:
            shares[k] = np.split(packed.of_bytes(share), np.cumsum(blocks)[:-1])
    numbers = (sizes[0], *[sizes[1]] * len(MODULI))
    secret, *exact = (
        packed.open_shares(
            {k: share[row] for k, share in shares.items()},
            quorum.needed,
            quorum.packed,
            count,
            prime,
        )
        for row, (count, prime) in enumerate(zip(numbers, _PRIMES, strict=True))
    )
    return _short((secret, np.stack(exact)), members)


def _locks(
    quorum: Quorum, members: Sequence[int], boxes: Mapping[int, _Parsed]
) -> NDArray[np.int64]:
    """Of each box, shape (boxes, elements), below p.

    The lock of holder k is f_k(-1), of degree T - 2, and k has no share of it. (x - k - 1) f_k(x)
    has degree T - 1 and is 0 for k itself: all open at the same points.
    """
    points = np.array(list(boxes)) + 1
    pieces = np.stack([found for _, found in boxes.values()])
    pieces = pieces[:, [members.index(k) for k in boxes]]
    # Entry i, j: of the lock of the j-th holder, what the i-th has; its own is 0.
    parts = packed.of_bytes((pieces[:, :, 0].swapaxes(0, 1) ^ pieces[:, :, 1]).tobytes())
    parts = parts.reshape(len(points), len(points), _LOCK_ELEMENTS)
    parts *= (points[:, None] - points)[:, :, None]
    rows = (parts % packed.PRIME).reshape(len(points), -1)
    shares = dict(zip(boxes, rows, strict=True))
    opened = packed.open_shares(shares, quorum.needed, 1, rows.shape[1])
    inverse = np.array([pow(-1 - int(point), -1, packed.PRIME) for point in points])
    locks: NDArray[np.int64] = opened.reshape(len(points), -1) * inverse[:, None] % packed.PRIME
    return locks


def _parse(data: bytes, own: int, members: Sequence[int]) -> _Parsed:
    """Box; locked part and unlocking value of every contributor, its own are 0."""
    size = len(data) - 2 * KEY_BYTES * (len(members) - 1)
    if own not in members or size <= NONCE_BYTES + TAG_BYTES:
        raise ProtocolError(f"client {own} of this round sent a malformed answer")
    pieces = np.frombuffer(data, np.uint8, offset=size).reshape(-1, 2, KEY_BYTES)
    return data[:size], np.insert(pieces, members.index(own), 0, axis=0)


# -- bytes ----------------------------------------------------------------------------------------


def _seal(key: bytes, plain: bytes) -> bytes:
    # A key serves one message; the nonce keeps that harmless where a client's memory was set back.
    nonce = os.urandom(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, None)


def _keys(data: bytes) -> NDArray[np.uint8]:
    """One a row."""
    return np.frombuffer(data, np.uint8).reshape(-1, KEY_BYTES)


def _unseal(key: bytes, data: bytes, sender: int) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], None)
    except (InvalidTag, ValueError):
        raise MessageError(
            f"what client {sender} of this round sealed does not open: it was changed on the way, "
            "or it was told of another round, model or set of clients"
        ) from None
