"""A party's secret of the aggregation: the only file where it appears.

Everything that is published and depends on it stands in the sample ledger first
(`protocols.steps.samples`): the masked secret, and every element's worth of every round.

The coordinator learns sum_p s_p and opens sums only; why is in `protocols.aggregate`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from parties.kernel.ephemeral_key import EphemeralKey
from protocols.aggregate import NOISE_STD, AggregateParameters
from protocols.aggregate.cipher import encode, mask_key_text, public_element, session_digest
from protocols.aggregate.ntt import Factor, Residues, reduce_once, ring_of
from protocols.errors import ParameterError, PolicyError
from protocols.exchange import OPENING_KEY
from protocols.exchange.signed_values import SignedValue
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import narrow_gaussian
from protocols.steps.samples import ONE, SEED, SHARE, Element, Pad, Sample, SampleLedger, Term

Masked = NDArray[np.uint16]


class AggregateShare:
    """One party's secret s_p, its masks, and its half of the cipher.

    Security: rounds must rise, so that each a_t is used once; a repeated request is answered with
    the first reply's bytes, by the caller. The masked secret is made once, for keys that all
    carry their owners' signatures. A forked child is refused: it would use a_t a second time.

    params: public parameters; name: this party's, in the roster; roster: Ed25519 verification
    keys (hex) by party name, from the agreed plan; session: name of the run; seed: joint seed, 32
    bytes; signing_key: this party's identity; randomness: of secret and errors:
    `SystemRandomness()` outside tests, whatever the privacy noise is drawn from.

    Raises:
        ParameterError: the roster does not fit.
    """

    def __init__(
        self,
        params: AggregateParameters,
        *,
        name: str,
        roster: Mapping[str, str],
        session: str,
        seed: bytes,
        signing_key: Ed25519PrivateKey,
        randomness: RandomSource,
    ) -> None:
        if len(roster) != params.parties or name not in roster:
            raise ParameterError(
                f"roster of {len(roster)} does not hold {name!r} and parties={params.parties} names"
            )
        self._params, self._name, self._roster = params, name, dict(roster)
        self._digest = session_digest(params, session, seed)
        self._randomness = randomness
        self._ring = ring_of(params)
        self._pid = os.getpid()
        self._last_round = -1
        self._ledger = SampleLedger()
        secret = narrow_gaussian(NOISE_STD, params.ring_dim, randomness)
        self._factor: Factor | None = self._ring.multiplier(secret)
        self._unmasked: NDArray[np.int64] | None = secret
        text = partial(mask_key_text, self._digest)
        self._ephemeral = EphemeralKey("mask key", text, name, signing_key)
        self._mask_key = self._ephemeral.signed()

    def __repr__(self) -> str:
        return "AggregateShare(<secret>)"

    def __reduce__(self) -> Any:
        raise PolicyError("a secret share is never serialised")

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was published, in order."""
        return self._ledger.samples

    def erase(self) -> None:
        """Overwrite and forget the secret; every later operation raises PolicyError."""
        if self._factor is not None:
            self._factor.erase()
        self._forget_masks()
        self._factor = None

    # -- set-up of the opening key ------------------------------------------------------------

    def mask_key(self) -> SignedValue:
        """This party's ephemeral X25519 key, signed with its identity."""
        return self._mask_key

    def masked_secret(self, keys: Mapping[str, SignedValue]) -> Masked:
        """s_p + sum_(q > p) M_pq - sum_(q < p) M_pq mod 2^16, shape (n,), once.

        keys: of all parties, as the coordinator relayed them.

        Raises:
            ProtocolError: a key is not its owner's. PolicyError: asked a second time, or erased.
        """
        if self._unmasked is None:
            raise PolicyError("the masked secret was already given, or erased; resend the first")
        self._refuse_forked_child()
        self._ephemeral.check(self._roster, keys)
        others = sorted(self._roster.keys() - {self._name})
        pads = (
            Pad(f"M{tuple(sorted((self._name, other)))}", 1 if self._name < other else -1)
            for other in others
        )
        term = Term(Element(ONE), SHARE)
        self._ledger.note(Sample(OPENING_KEY, (term,), pads=tuple(pads), lemma="opening key"))
        masked = self._unmasked.astype(np.uint16)  # mod 2^16
        for other in others:
            mask = self._mask(other, keys[other])
            masked = masked + mask if self._name < other else masked - mask
        self._forget_masks()
        return masked

    def _mask(self, other: str, key: SignedValue) -> Masked:
        """M_pq = M_qp: ChaCha20 under HKDF(X25519), as n 16-bit integers."""
        # Both ends sort by name: fixed-size keys first, so that the names cannot run into them.
        ends = sorted([(self._name, self._mask_key.value), (other, key.value)])
        pair = b"".join(bytes.fromhex(k) for _, k in ends) + repr([n for n, _ in ends]).encode()
        info = b"ciphercohort/mask/1\0" + pair
        derived = self._ephemeral.shared(other, key, salt=self._digest, info=info)
        # The key is used once, so the nonce may be zero.
        stream = Cipher(ChaCha20(derived, bytes(16)), mode=None).encryptor()
        return np.frombuffer(stream.update(bytes(2 * self._params.ring_dim)), "<u2")

    def _forget_masks(self) -> None:
        if self._unmasked is not None:
            self._unmasked.fill(0)
        self._unmasked = None
        self._ephemeral.forget()

    # -- rounds -------------------------------------------------------------------------------

    def encrypt(self, t: int, values: NDArray[Any]) -> Residues:
        """b_p = a_t s_p + e_p + m_p mod each prime, shape (primes, length); pack with `wire.pack`.

        t: round, above all earlier ones; values: shape (length,), as in `cipher.encode`.

        Raises:
            PolicyError: the round is over, or the secret is erased. DataError: see `encode`.
        """
        if self._factor is None:
            raise PolicyError("this secret was erased at the end of its run")
        self._refuse_forked_child()
        if t <= self._last_round:
            raise PolicyError(
                f"round t={t} is not above t={self._last_round}, which was answered; resend the "
                "first reply's bytes, never a new encryption"
            )
        message = encode(self._params, values)
        self._last_round = t
        length, ring = message.shape[1], self._ring
        names = [f"round/{t}/{k}" for k in range(self._params.num_chunks(length))]
        terms = [(Term(Element(SEED, name), SHARE),) for name in names]
        self._ledger.note(
            *(
                Sample(name, term, NOISE_STD, message="m")
                for name, term in zip(names, terms, strict=True)
            )
        )
        elements = [
            ring.inverse(self._factor.times(public_element(self._params, self._digest, t, k)))
            for k in range(len(names))
        ]
        error = ring.residues(narrow_gaussian(NOISE_STD, length, self._randomness))
        b = np.concatenate(elements, axis=1)[:, :length] + error
        return reduce_once(reduce_once(b, ring.modulus) + message, ring.modulus)

    def _refuse_forked_child(self) -> None:
        if os.getpid() != self._pid:
            raise PolicyError(
                "this process was forked from the one that made the secret; start processes with "
                "multiprocessing.get_context('spawn')"
            )
