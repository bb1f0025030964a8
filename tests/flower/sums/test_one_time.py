"""One-time sums: exact against integers, and what opens against linear algebra and brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from scipy import stats

from protocols.aggregate import NOISE_STD, largest, one_time, packed, residues, words
from protocols.aggregate.one_time import Round
from protocols.aggregate.quick import _table, quick_gaussian
from protocols.aggregate.quorum import Quorum
from protocols.aggregate.words import RING_DIM, add_products, num_secrets
from protocols.errors import (
    CohortError,
    MessageError,
    ParameterError,
    PolicyError,
    ProtocolError,
)
from protocols.privacy.laws import ExpandedRandomness
from protocols.privacy.laws.discrete import narrow_gaussian
from protocols.privacy.laws.seeded import SeededRandomness

CONTEXT = bytes(range(32))


class Clients:
    """Clients of one round, with keys in pairs, and what they contributed."""

    def __init__(
        self, count: int, *, lost: int, length: int, seed: int = 0, wide: bool = False
    ) -> None:
        self.quorum = Quorum(clients=count, lost=lost)
        rng = np.random.default_rng(seed)
        keys = [[b""] * count for _ in range(count)]
        for i in range(count):
            for j in range(i, count):
                keys[i][j] = keys[j][i] = rng.bytes(32)
        self.places = [Round(self.quorum, i, keys[i], CONTEXT) for i in range(count)]
        most, kind = one_time.largest_units(count, wide=wide), np.uint64 if wide else np.uint32
        signed = np.int64 if wide else np.int32
        self.values = rng.integers(-most, most, (count, length), signed, endpoint=True)
        self.numbers = [[k + 0.5, -k, 2**63] for k in range(count)]
        self.randomness = SeededRandomness(seed)
        self.words, self.sealed, self.found = [], [], []
        for place, value in zip(self.places, self.values, strict=True):
            words, sealed = self.contribute(place, value.copy().view(kind))
            self.words.append(words)
            self.sealed.append(sealed)

    def contribute(self, place: Round, message: np.ndarray) -> tuple[np.ndarray, Any]:
        exact = residues.encode(self.numbers[place.own], self.randomness)
        return one_time.contribute(place, message, exact, self.randomness)

    def answer(self, client: int, members: Sequence[int]) -> bytes:
        if not self.quorum.lost:
            return self.sealed[client][0]
        shares = [self.sealed[m][client] for m in members]
        return self.answer_by(self.places[client], members, shares)

    def answer_by(self, place: Round, members: Sequence[int], shares: list[bytes]) -> bytes:
        return one_time.answer(place, members, shares, 3, self.randomness)

    def total(self, members: Sequence[int]) -> np.ndarray:
        return np.sum([self.words[m] for m in members], axis=0, dtype=self.words[0].dtype)

    def open(self, members: Sequence[int], answers: dict[int, bytes]) -> np.ndarray:
        total = self.total(members)
        found, exact = one_time.open_sum(self.quorum, CONTEXT, members, answers, total, 3)
        wanted = [sum(self.numbers[m][k] for m in members) for k in range(3)]
        assert residues.decode(exact, len(members)) == wanted
        return found


# -- the ring --------------------------------------------------------------------------------------


# Which coefficient stands where.
ORDER = np.arange(RING_DIM).reshape(2, -1).T.ravel()


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
@pytest.mark.parametrize("secrets", [1, 3])
def test_products_are_those_of_the_ring(secrets: int, kind: Any) -> None:
    """Against integer convolution: every part by its own secret, the last, partial element too."""
    length = (2 * secrets - 1) * RING_DIM + 101
    secret = narrow_gaussian(NOISE_STD, secrets * RING_DIM, SeededRandomness(1))
    secret = secret.reshape(secrets, RING_DIM)
    total = np.zeros(length, kind)
    add_products(CONTEXT, secret, total)
    # s = 1 shows the elements.
    elements = np.zeros(2 * RING_DIM, kind)
    add_products(CONTEXT, np.eye(1, RING_DIM, dtype=np.int64), elements)
    for part in range(2 * secrets):
        a, s = np.empty((2, RING_DIM), object)
        a[ORDER] = words.signed(elements).astype(object).reshape(2, -1)[part % 2]
        s[ORDER] = secret[part // 2].astype(object)
        full = np.append(np.convolve(a, s), [0])
        size = 1 << words.modulus_bits(total)
        wanted = ((full[:RING_DIM] - full[RING_DIM:]) % size)[ORDER]
        found = total[part * RING_DIM : (part + 1) * RING_DIM].astype(object) % size
        assert len(found) and (found == wanted[: len(found)]).all()


def test_elements_are_one_stream_however_many_are_drawn_at_once() -> None:
    """Those of a long sum begin with those of a short one, and none comes twice."""
    count = 130
    found = np.zeros(count * RING_DIM, np.uint32)
    add_products(CONTEXT, np.eye(1, RING_DIM, dtype=np.int64), found)
    stream = Cipher(AES(CONTEXT), CTR(bytes(16))).encryptor().update(bytes(found.nbytes))
    assert (found == np.frombuffer(stream, "<u4")).all()


def test_shares_by_many_primes_are_those_by_each() -> None:
    """Each row opens modulo its own prime, with its own uniform values."""
    exact = residues.encode([1.5, -3.0, 7], SeededRandomness(5))
    dealt = packed.deal_rows(exact, 4, 2, 6, SeededRandomness(6), residues.MODULI)
    assert dealt.shape == (len(residues.MODULI), 6, 2)
    for row, prime, numbers in zip(dealt, residues.MODULI, exact, strict=True):
        chosen = {k: row[k] for k in (0, 2, 3, 5)}
        assert (packed.open_shares(chosen, 4, 2, 3, prime) % prime == numbers).all()
    assert len({row[0, 0] for row in dealt}) > len(dealt) // 2


def test_many_values_take_more_secrets() -> None:
    """And a sum under four of them opens: shares, seals and parts agree on how many there are."""
    counts = [num_secrets(k * RING_DIM) for k in (0, 1, 63, 64, 127, 128, 5000)]
    assert counts == [1, 1, 1, 2, 3, 4, 4]
    clients = Clients(3, lost=0, length=128 * RING_DIM)
    found = clients.open([0, 1, 2], {k: clients.answer(k, [0, 1, 2]) for k in range(3)})
    error = found - clients.values.sum(axis=0)
    assert np.abs(error).max() <= one_time.noise_units(3)
    # No two parts are under one secret: the same elements would then cancel.
    empty = np.zeros(128 * RING_DIM, np.uint32)
    masks, _ = clients.contribute(clients.places[0], empty)
    parts = masks.reshape(4, -1)
    for first, second in combinations(parts, 2):
        assert (first - second).view(np.int32).astype(float).std() > 2**28


def test_products_are_rounded_from_close_by() -> None:
    """A sum of 1024 secrets is within 2^-4 of integers, one within 2^-8."""
    rng = np.random.default_rng(0)
    element = rng.integers(-(1 << 31), 1 << 31, (64, RING_DIM))
    for clients, bound in ((1, 2**-8), (1024, 2**-4)):
        secret = np.rint(rng.normal(0, NOISE_STD * math.sqrt(clients), (1, RING_DIM)))
        left, right = np.empty((64, RING_DIM // 2), complex), np.empty((1, RING_DIM // 2), complex)
        words._forward(element, left)
        words._forward(secret, right)
        left *= right
        parts = words._inverse(left)
        assert np.abs(parts - np.rint(parts)).max() < bound


def test_errors_have_the_law_of_the_slow_sampler() -> None:
    table = _table(NOISE_STD)
    assert 0 < (table == -128).sum() < 100  # few undecided words
    drawn = quick_gaussian(NOISE_STD, 400_000, SeededRandomness(5)).astype(np.int64)
    k = np.arange(-20, 21)
    law = np.exp(-(k**2) / (2 * NOISE_STD**2))
    law /= law.sum()
    inside = drawn[np.abs(drawn) <= 20]
    counts = np.bincount(inside + 20, minlength=41)
    assert stats.chisquare(counts, law * counts.sum()).pvalue > 1e-6
    # 2 % more or less would be seen: the variance of the sum of squares is 2 / n.
    assert abs(drawn.var() / NOISE_STD**2 - 1) < 5 * math.sqrt(2 / len(drawn)) < 0.02


# -- packed sharing --------------------------------------------------------------------------------


def test_any_needed_shares_open_and_sums_of_shares_are_shares() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(-500, 500, (2, 10))
    shares = [packed.deal(s, 5, 3, 7, SeededRandomness(k)) for k, s in enumerate((first, second))]
    both = (shares[0] + shares[1]) % packed.PRIME
    for chosen in combinations(range(7), 5):
        found = packed.open_shares({k: both[k] for k in chosen}, 5, 3, 10)
        assert (found == first + second).all()
    with pytest.raises(ProtocolError, match="4 shares, needed are 5"):
        packed.open_shares({k: both[k] for k in range(4)}, 5, 3, 10)
    both[6, 0] += 1
    with pytest.raises(ProtocolError, match="do not fit"):
        packed.open_shares(dict(enumerate(both)), 5, 3, 10)


@pytest.mark.parametrize("secret", [(0, 0), (1, -1)])
def test_shares_of_the_tolerated_colluders_are_uniform(secret: tuple[int, int]) -> None:
    """t = 4, two secrets a polynomial: any two shares are uniform on all pairs."""
    dealt = packed.deal(np.tile(secret, 20_000), 4, 2, 6, SeededRandomness(3))
    for a, b in ((0, 1), (2, 5)):
        cells = dealt[a] * 8 // packed.PRIME * 8 + dealt[b] * 8 // packed.PRIME
        counts = np.bincount(cells, minlength=64)
        assert stats.chisquare(counts).pvalue > 1e-6
    # Four of them are not: the secrets follow.
    known = packed.open_shares({k: dealt[k] for k in range(4)}, 4, 2, 40_000)
    assert (known == np.tile(secret, 20_000)).all()


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "lost", "gone"), [(3, 0, 0), (10, 3, 0), (10, 3, 3), (40, 13, 13)]
)
def test_a_sum_opens_within_its_bound(count: int, lost: int, gone: int) -> None:
    """With contributors gone before, and as many answers missing as may be."""
    clients = Clients(count, lost=lost, length=3000)
    members = list(range(gone, count))
    spare = lost - gone
    answers = {k: clients.answer(k, members) for k in members[spare:]}
    found = clients.open(members, answers)
    error = found - clients.values[members].sum(axis=0)
    assert np.abs(error).max() <= one_time.noise_units(count)
    std = NOISE_STD * math.sqrt(len(members))
    assert abs(error.std() / std - 1) < 5 / math.sqrt(2 * 3000)


def test_one_answer_too_few_opens_nothing() -> None:
    clients = Clients(5, lost=1, length=10)
    members = [0, 1, 2, 3, 4]
    answers = {k: clients.answer(k, members) for k in (0, 1, 2)}
    with pytest.raises(ProtocolError, match="needed are 4 of 5"):
        clients.open(members, answers)


def test_where_none_may_vanish_covers_go_in_the_sum_of_all_alone() -> None:
    """A client's covered secret is uniform, also to all others but one; and told otherwise, noise.

    H = 4, two of them the coordinator's, who give it all their keys.
    """
    clients = Clients(4, lost=0, length=5)
    covered = {k: np.frombuffer(clients.sealed[k][0], np.uint16)[:RING_DIM] for k in range(4)}

    def looks_uniform(words: np.ndarray) -> bool:
        return stats.chisquare(np.bincount(words >> 10, minlength=64)).pvalue > 1e-6

    own = clients.places[3]
    known = [_mask(clients.places[k].key(b"cover", 0, k)) for k in (2, 3)]
    for seen in (covered[0], covered[0] - known[0] - known[1], sum(covered[k] for k in (0, 2, 3))):
        assert looks_uniform(np.asarray(seen, np.uint16))
    everything = sum(covered.values()).view(np.int16)
    assert np.abs(everything).max() <= one_time.noise_units(4)
    other = Round(own.quorum, 3, own.keys, bytes(32))
    empty = np.zeros(5, np.uint32)
    clients.sealed[3] = clients.contribute(other, empty)[1]
    answers = {k: clients.answer(k, range(4)) for k in range(4)}
    with pytest.raises(ProtocolError, match="do not add up to a short one"):
        clients.open([0, 1, 2, 3], answers)
    answers[3] = answers[3][:-2]
    with pytest.raises(ProtocolError, match="client 3 of this round sent no covered secret"):
        clients.open([0, 1, 2, 3], answers)


def test_numbers_of_a_cover_are_drawn_anew_where_they_are_too_large() -> None:
    """Words of 0xFFFF, which no prime takes, and then of 7."""
    drawn: list[int] = []

    class Words:
        def words(self, count: int) -> np.ndarray:
            drawn.append(count)
            first = [0xFFFFFFFFFFFFFFFF, 7, 65521, 5, 65393][len(drawn) - 1]
            return np.full(count, first, np.uint64)

    moduli = one_time._covered_moduli(5, 1)
    found = one_time._uniform(Words(), moduli)
    # 17 elements of 16 bits; then 64 for each of the twelve numbers.
    assert drawn == [5, 12]
    assert found.tolist() == [0xFFFF] * 5 + [7] * 12
    stream = ExpandedRandomness(bytes(32))
    prime = residues.MODULI[-1]
    many = one_time._uniform(stream, np.full(200_000, prime))
    # Residues of 16 bits would be small ones twice as often as others: 143 of 65,536.
    small = np.count_nonzero(many < (1 << 16) - prime)
    mean = 200_000 * ((1 << 16) - prime) / prime
    assert many.max() < prime and abs(small - mean) < 6 * mean**0.5


def _mask(key: bytes) -> np.ndarray:
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(2 * RING_DIM)), np.uint16)


def test_quorums() -> None:
    quorum = Quorum.of(10, 1 / 3)
    assert (quorum.needed, quorum.colluders, quorum.packed) == (7, 3, 4)
    for count in range(3, 60):
        for lost in range((count - 2) // 2 + 1):
            q = Quorum(clients=count, lost=lost)
            assert q.colluders >= 1 and q.packed >= 1
            # Two sets never both find enough honest answers; two honest clients in each sum.
            assert 2 * (q.needed - q.colluders) > count - q.colluders
            assert q.needed - q.colluders >= 2
    for bad in (
        {"clients": 2, "lost": 0},
        {"clients": 10, "lost": 5},
        {"clients": 1025, "lost": 0},
    ):
        with pytest.raises(ParameterError):
            Quorum(**bad)


# -- what a coordinator can try --------------------------------------------------------------------


def test_two_sets_of_a_round_do_not_both_open() -> None:
    """The naming attack: half the clients are told that client 0 is missing, half that it is not.

    H = 10, T = 7: whoever wants S and S without 0 needs 14 answers.
    """
    clients = Clients(10, lost=3, length=5)
    everyone, others = list(range(10)), list(range(1, 10))
    told_all = {k: clients.answer(k, everyone) for k in range(6)}
    told_some = {k: clients.answer(k, others) for k in range(6, 10)}
    for members, answers in ((everyone, told_all), (others, told_some)):
        with pytest.raises(ProtocolError, match="needed are 7"):
            clients.open(members, answers)
    # All ten answers together, whatever set they are read with: locks do not open.
    size = len(told_all[0])
    mixed = told_all | {k: answer.ljust(size, b"\0") for k, answer in told_some.items()}
    with pytest.raises(CohortError):
        clients.open(everyone, mixed)


def test_an_answer_is_not_unlocked_by_answers_for_another_set() -> None:
    """One client is told of everybody, nine that client 0 is missing: six would unlock it."""
    clients = Clients(10, lost=3, length=5)
    everyone, others = list(range(10)), list(range(1, 10))
    told = {1: clients.answer(1, everyone)} | {k: clients.answer(k, others) for k in others[1:]}
    same = {k: clients.answer(k, everyone) for k in everyone}
    for answers, sets, opens in ((told, others, False), (same, everyone, True)):
        box, pieces = one_time._parse(answers[1], 1, everyone)
        unlocking = {k: one_time._parse(answers[k], k, sets)[1] for k in others[1:]}
        parts = {
            k: packed.of_bytes((pieces[k, 0] ^ unlocking[k][sets.index(1), 1]).tobytes())
            for k in others[1:]
        }
        if opens:
            lock = packed.open_shares(parts, 6, 1, 16) % packed.PRIME
            assert one_time._unseal(packed.to_bytes(lock), box, 1)
            continue
        with pytest.raises(CohortError):
            packed.open_shares(parts, 6, 1, 16)
        six = dict(list(parts.items())[:6])
        lock = packed.open_shares(six, 6, 1, 16) % packed.PRIME
        with pytest.raises(MessageError, match="does not open"):
            one_time._unseal(packed.to_bytes(lock), box, 1)


@pytest.mark.parametrize("corrupt", [3, 4])
def test_as_many_colluders_as_promised_open_one_set_only(corrupt: int) -> None:
    """Corrupt clients answer for both sets, honest ones are told one each; 0 is the victim.

    Ten clients promise safety from three. With four, three honest answers and theirs open either
    set, and the difference is the victim's update: the bound is sharp.
    """
    clients = Clients(10, lost=3, length=50)
    honest, corrupted = range(10 - corrupt), range(10 - corrupt, 10)
    half = (len(honest) + 1) // 2
    sums = []
    for members, told in ((range(10), honest[:half]), (range(1, 10), honest[half:])):
        answers = {k: clients.answer(k, list(members)) for k in (*told, *corrupted)}
        if len(answers) >= clients.quorum.needed:
            sums.append(clients.open(list(members), answers).astype(np.int64))
    assert clients.quorum.colluders == 3
    if corrupt == 3:
        assert len(sums) == 1
    else:
        found = sums[0] - sums[1]
        assert np.abs(found - clients.values[0]).max() <= 2 * one_time.noise_units(10)


def test_shares_of_another_round_or_client_are_refused() -> None:
    clients = Clients(4, lost=1, length=5)
    members = [0, 1, 2, 3]
    swapped = [clients.sealed[m][1] for m in members]
    with pytest.raises(MessageError, match="does not open"):
        clients.answer_by(clients.places[0], members, swapped)
    place = clients.places[0]
    other = Round(place.quorum, 0, place.keys, bytes(32))
    with pytest.raises(MessageError, match="another round, model or set"):
        shares = [clients.sealed[m][0] for m in members]
        clients.answer_by(other, members, shares)


@pytest.mark.parametrize("size", [0, 3, 4096])
def test_a_share_of_another_length_names_its_dealer(size: int) -> None:
    """Sealed as it should be. The lengths of all together may well be right."""
    clients = Clients(4, lost=1, length=5)
    members = [0, 1, 2, 3]
    sealed = [clients.sealed[m][0] for m in members]
    key = clients.places[2].key(b"share", 2, 0)
    sealed[2] = one_time._seal(key, bytes(size))
    with pytest.raises(MessageError, match="client 2 of this round sealed something that is no"):
        clients.answer_by(clients.places[0], members, sealed)


@pytest.mark.parametrize(
    ("members", "reason"),
    [([0, 1], "a sum needs 3"), ([1, 2, 3], "not among"), ([0, 2, 1, 3], "no rising list")],
)
def test_sets_that_no_client_answers_for(members: list[int], reason: str) -> None:
    clients = Clients(4, lost=1, length=5)
    with pytest.raises(PolicyError, match=reason):
        clients.answer(0, members)


def test_a_contribution_alone_is_noise() -> None:
    """To whoever holds the sum of two: each half is uniform in its upper bits."""
    clients = Clients(3, lost=0, length=1 << 16)
    clients.values[:] = 0
    for k, place in enumerate(clients.places):
        message = np.zeros(1 << 16, np.uint32)
        clients.words[k], clients.sealed[k] = one_time.contribute(
            place, message, residues.encode([], ExpandedRandomness()), ExpandedRandomness()
        )
    for contributed in clients.words:
        counts = np.bincount(contributed >> np.uint32(26), minlength=64)
        assert stats.chisquare(counts).pvalue > 1e-6
    clients.randomness = ExpandedRandomness()
    repeated = clients.contribute(clients.places[0], np.zeros(1 << 16, np.uint32))[0]
    # A second encryption is under another secret: their difference is no short vector.
    assert np.abs((repeated - clients.words[0]).view(np.int32)).astype(float).std() > 2**28


# -- exact numbers ---------------------------------------------------------------------------------


def summed(rows: list[Any]) -> list[float]:
    total = sum(residues.encode(row, ExpandedRandomness()) for row in rows)
    return residues.decode(np.asarray(total), len(rows))


@pytest.mark.parametrize("clients", [3, 64, 1024])
def test_residues_sum_exactly(clients: int) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.uniform(-(2.0**32), 2.0**32, (clients, 4))
    numbers[:, 0] = np.round(numbers[:, 0])
    numbers[:, 1] = np.nextafter(residues.BOUND, 0) * (-1) ** np.arange(clients)
    found = summed(numbers.tolist())
    assert found[:2] == [math.fsum(numbers[:, k]) for k in (0, 1)]
    assert np.abs(np.array(found) - [math.fsum(n) for n in numbers.T])[2:].max() <= 2.0**-20


@pytest.mark.parametrize("clients", [3, 64, 1024])
def test_wide_integers_are_exact(clients: int) -> None:
    """Where every number is as large as its type allows, too."""
    rng = np.random.default_rng(1)
    rows = [[2**64 - 1, -(2**63), int(rng.integers(-(2**62), 2**62))] for _ in range(clients)]
    assert summed(rows) == [sum(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, residues.BOUND, -(10**400)])
def test_a_number_that_is_none_makes_its_sum_none(bad: float) -> None:
    for rows in ([[bad, 1.5], [2.0, 2.5]], [[bad, 1.5], [bad, 2.5]]):
        assert str(summed(rows)) == "[nan, 4.0]"


def test_a_sum_is_an_integer_where_all_its_numbers_are() -> None:
    found = summed([[1, 1, 2.0], [2, 2.0, 3.0]])
    assert found == [3, 3, 5] and list(map(type, found)) == [int, float, float]


def test_residues_tell_the_total_alone() -> None:
    """Equal totals are equal in every remainder, whatever the signs, sizes and carries."""
    moduli = np.array(residues.MODULI)[:, None]
    kinds: list[list[list[float]]] = [
        [[-5, 3, 8], [6, 0, 0], [2**64 - 1, -(2**63), 7 - 2**63]],
        [[-5.5, 3.0, 8.5], [6.0, 0.0, 0.0], [900000.75, -900000.0, 5.25]],
    ]
    for rows in kinds:
        sums = [
            np.sum([residues.encode([x], SeededRandomness(k)) for k, x in enumerate(row)], axis=0)
            for row in rows
        ]
        assert all((total % moduli == sums[0] % moduli).all() for total in sums)


@pytest.mark.parametrize("bad", [[0], [2], [0, 1, 2]])
def test_a_sum_with_a_broken_number_is_uniform(bad: list[int]) -> None:
    """Of whom, of how many, and of the others' numbers nothing is to be seen."""
    rows = [[math.nan if k in bad else 10.0**k] * 20_000 for k in range(3)]
    total = np.sum([residues.encode(row, ExpandedRandomness()) for row in rows], axis=0)
    for row, prime in zip(total, residues.MODULI, strict=True):
        counts = np.bincount(row % prime * 64 // prime, minlength=64)
        # Thirteen primes, drawn anew in every run. Numbers that stood there would fill one cell.
        assert stats.chisquare(counts).pvalue > 1e-8
    assert all(map(math.isnan, residues.decode(total, 3)))


def test_wide_words_open_and_are_masked_in_all_their_bits() -> None:
    """48 of them: what is above would be a mask of a modulus that is too large."""
    for lost in (0, 1):
        clients = Clients(4, lost=lost, length=70 * RING_DIM + 5, wide=True)
        members = [0, 1, 2, 3]
        found = clients.open(members, {k: clients.answer(k, members) for k in members})
        error = found - clients.values.sum(axis=0)
        assert np.abs(error).max() <= one_time.noise_units(4) and error.std() > 6
        for contributed in clients.words:
            assert contributed.max() < 1 << 48
            counts = np.bincount((contributed >> np.uint64(42)).astype(int), minlength=64)
            assert stats.chisquare(counts).pvalue > 1e-6
            data = words.to_bytes(contributed)
            assert len(data) == 6 * len(contributed)
            assert (words.of_bytes(data, wide=True) == contributed).all()


# -- the largest number ----------------------------------------------------------------------------


def largest_of(numbers: list[float], noise: int = 0) -> float:
    kind = np.dtype(np.uint32)
    words = [largest.encode(number, kind, SeededRandomness(k)) for k, number in enumerate(numbers)]
    return largest.decode((sum(words, np.uint32(0)) + np.uint32(noise % 2**32)).view(np.int32), 10)


def test_the_largest_number_is_told_to_three_digits() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        sizes = 10.0 ** rng.uniform(-3.9, 5.9, 10)
        numbers = (sizes * rng.choice([-1, 1], 10)).tolist()
        noise = one_time.noise_units(10) * int(rng.choice([-1, 1]))
        assert largest_of(numbers, noise) == float(f"{max(numbers):.2e}")
    for number, told in {
        0.0: 0.0, 9e-5: 0.0, -9e-5: 0.0, 1e-4: 1e-4, -1e-4: -1e-4, 9.996: 10.0, -9.996: -10.0,
        4.86: 4.86, 1e-3: 1e-3, 0.999: 0.999, 1e7: 999e3, -1e7: -999e3, 999_400.0: 999e3,
        math.inf: 999e3, -math.inf: -999e3,
    }.items():  # fmt: skip
        assert largest_of([number] * 10) == told
    assert math.isnan(largest_of([1.0, math.nan, 3.0]))


def test_words_of_the_largest_number_tell_nothing_else() -> None:
    """Below the largest number they are uniform, whoever else is there; above it all are 0."""
    alone, many = (
        sum(
            (largest.encode(x, np.dtype(np.uint32), ExpandedRandomness()) for x in numbers),
            np.uint32(0),
        )
        for numbers in ([5.0, -1e9, -1e9], [5.0, 5.0, 4.9])
    )
    for total in (alone, many):
        above = np.flatnonzero(total).max() + 1
        assert not total[above:].any()
        # 14,000 uniform words: the mean of 32 bits has std 2^32 / sqrt(12 * 14000).
        assert abs(total[:above].mean() / 2**32 - 0.5) < 5 / math.sqrt(12 * above)
        assert len(np.unique(total[:above])) > above - 3
