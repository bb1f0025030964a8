"""Residues on the wire: round trips, checks, and the public uniform elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import openfhe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.objects import encrypt
from protocols.errors import MessageError

N = 512
P_VALUE = 1e-6
PARAMS = CkksParameters(ring_dim=N, depth=3, scale_bits=50, security_bits=0)
# Of 1, 2, 7 and 8 bytes; the last is an NTT prime of ring 512.
PRIMES = (251, 65521, (1 << 50) - 27, 1152921504606830593)


@pytest.fixture(scope="module")
def context() -> CkksContext:
    return CkksContext(PARAMS, "residues")


@pytest.fixture(scope="module")
def keys(context: CkksContext) -> Any:
    return context.cc.KeyGen()


def random_residues(seed: int, primes: tuple[int, ...] = PRIMES, n: int = N) -> rns.Residues:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, prime, n, dtype=np.uint64) for prime in primes])


# -- pack and unpack -----------------------------------------------------------------------------


@given(
    st.lists(st.integers(2, (1 << 61) - 1), min_size=1, max_size=6),
    st.integers(1, 64),
    st.integers(0, 2**32),
)
def test_unpack_inverts_pack(primes: list[int], n: int, seed: int) -> None:
    """For any moduli below 2^61 and any length."""
    residues = random_residues(seed, tuple(primes), n)
    data = rns.pack(residues, primes)
    assert len(data) == rns.packed_size(primes, n)
    assert (rns.unpack(data, primes, n) == residues).all()


@given(st.binary(max_size=64) | st.binary(min_size=128, max_size=128))
def test_unpack_of_any_bytes(data: bytes) -> None:
    """Residues below their primes, or MessageError; never anything else."""
    try:
        residues = rns.unpack(data, PRIMES[:2], 8)
    except MessageError:
        return
    assert residues.shape == (2, 8)
    assert (residues < np.array([[251], [65521]])).all()


def test_what_unpack_refuses() -> None:
    """A byte or a row too few or too many; a prime itself, whereas one less is a residue."""
    residues = random_residues(1)
    data = rns.pack(residues, PRIMES)
    for wrong in (data[:-1], data[:-N], data + bytes(1), data + bytes(N)):
        with pytest.raises(MessageError, match="bytes of residues, expected"):
            rns.unpack(wrong, PRIMES, N)
    for row, prime in enumerate(PRIMES):
        edge = residues.copy()
        edge[row, 77] = prime - 1
        rns.unpack(rns.pack(edge, PRIMES), PRIMES, N)
        edge[row, 77] = prime
        with pytest.raises(MessageError, match="not below its prime"):
            rns.unpack(rns.pack(edge, PRIMES), PRIMES, N)


# -- reading from and implanting into OpenFHE's objects ------------------------------------------


@pytest.mark.parametrize("kind", ["public key", "ciphertext", "evaluation key"])
def test_implant_inverts_read(context: CkksContext, keys: Any, kind: str) -> None:
    """Reading, then implanting, changes no byte of the serialised object."""
    objects = {
        "public key": lambda: keys.publicKey,
        "ciphertext": lambda: encrypt(context, keys.publicKey, np.ones(4)),
        "evaluation key": lambda: context.cc.KeySwitchGen(keys.secretKey, keys.secretKey),
    }
    blob = openfhe.Serialize(objects[kind](), openfhe.BINARY)
    residues, primes = rns.read(blob, N)
    towers = {"evaluation key": 2 * len(context.key_primes)}.get(kind, 2 * len(context.primes))
    assert residues.shape == (towers, N)
    assert (residues < np.array(primes, dtype=np.uint64)[:, None]).all()
    assert rns.implant(blob, residues) == blob


def test_an_implanted_ciphertext_decrypts(context: CkksContext, keys: Any) -> None:
    """The value moves into a frame of our own making, at every level and to 2^-30."""
    values = np.linspace(-1, 1, N // 2)
    fresh = encrypt(context, keys.publicKey, values)
    for level in range(PARAMS.num_towers):
        ct = context.cc.Compress(fresh, PARAMS.num_towers - level) if level else fresh
        moved = context.ciphertext(context.polynomials_of(ct))
        assert moved.GetLevel() == level
        moved.SetKeyTag(keys.publicKey.GetKeyTag())
        plaintext = context.cc.Decrypt(keys.secretKey, moved)
        error = np.abs(np.array(plaintext.GetRealPackedValue()) - values).max()
        assert np.log2(error) < -30


def test_an_object_from_other_residues_is_another_object(context: CkksContext, keys: Any) -> None:
    """What is read back is what was implanted, zeros and largest residues included."""
    both = context.primes * 2
    for residues in (
        random_residues(3, both),
        np.zeros((len(both), N), np.uint64),
        np.repeat(np.array(both, np.uint64)[:, None] - np.uint64(1), N, axis=1),
    ):
        ciphertext = context.ciphertext(np.split(residues, 2))
        assert (context.residues_of(ciphertext) == residues).all()


def test_what_a_frame_refuses(context: CkksContext, keys: Any) -> None:
    """Another number of towers than its own; a residue that is not reduced."""
    blob = openfhe.Serialize(keys.publicKey, openfhe.BINARY)
    for count in (1, 3, 7, 9):
        with pytest.raises(MessageError, match="residues have shape"):
            rns.implant(blob, np.zeros((count, N), np.uint64))
    residues, primes = rns.read(blob, N)
    residues[-1, -1] = primes[-1]
    with pytest.raises(MessageError, match="not below its prime"):
        rns.implant(blob, residues)


TOWERS = PARAMS.num_towers


@pytest.mark.parametrize(
    ("towers", "match"),
    [
        ((), "expected 1 to 3"),
        ((TOWERS,) * 4, "expected 1 to 3"),
        ((TOWERS, TOWERS - 1), "towers in a ciphertext"),
        ((0, 0), "towers in a ciphertext"),
        ((TOWERS + 1,) * 2, "towers in a ciphertext"),
    ],
)
def test_what_is_no_ciphertext(context: CkksContext, towers: tuple[int, ...], match: str) -> None:
    """One to three polynomials at one level that exists: OpenFHE crashes on others."""
    with pytest.raises(MessageError, match=match):
        context.ciphertext([np.zeros((count, N), np.uint64) for count in towers])


@settings(max_examples=20)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_towers_are_found_behind_any_prefix(noise: bytes, seed: int) -> None:
    """Metadata around a vector, even if it looks like a length, does not hide it."""
    prime, words = PRIMES[3], random_residues(seed, PRIMES[3:])[0].tobytes()
    length = N.to_bytes(8, "little")
    vector = length + words + prime.to_bytes(8, "little")
    towers = rns.find_towers(noise + length + b"\x01" + vector + noise, N)
    assert rns.Tower(len(noise) + 17, prime) in towers


# -- addition ------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_add_is_addition_modulo_each_prime(left: int, right: int) -> None:
    """Against Python's integers."""
    a, b = random_residues(left, n=16), random_residues(right, n=16)
    # 0 + 0, (q - 1) + (q - 1), 1 + (q - 1).
    last = np.array(PRIMES, np.uint64) - np.uint64(1)
    a[:, :3], b[:, :3] = (
        np.stack([0 * last, last, 0 * last + np.uint64(1)], 1),
        np.stack([0 * last, last, last], 1),
    )
    wanted = (a.astype(object) + b.astype(object)) % np.array(PRIMES, object)[:, None]
    assert (rns.add(a, b, PRIMES) == wanted.astype(np.uint64)).all()


# Primes of 60 bits from end to end, of 59, 31, 30 and 2 bits.
FIELDS = (1152921504606846883, 576460752303423619, 576460752303421441, 2147483647, 1073741789, 3)


@given(st.sampled_from(FIELDS), st.data())
def test_products_and_differences_are_exact(prime: int, data: st.DataObject) -> None:
    """Against Python's integers; also where a rest is zero, or half the prime, as it is rounded."""
    ends = st.sampled_from([0, 1, 2, prime // 2, prime // 2 + 1, prime - 2, prime - 1])
    wholes = st.integers(0, 2**31).map(lambda k: (k << 30) % prime)
    numbers = st.lists(st.integers(0, prime - 1) | ends | wholes, min_size=8, max_size=8)
    left, right = data.draw(numbers), data.draw(numbers)
    for k, rest in enumerate([0, 1, prime // 2, prime // 2 + 1, prime - 1]):
        right[k] = rest * pow(left[k], -1, prime) % prime if left[k] else right[k]
    pairs = list(zip(left, right, strict=True))
    a, b = (np.array([numbers], np.uint64) for numbers in (left, right))
    assert rns.product(a, b, (prime,)).tolist() == [[x * y % prime for x, y in pairs]]
    assert rns.subtract(a, b, (prime,)).tolist() == [[(x - y) % prime for x, y in pairs]]


def test_sums_of_ciphertexts_are_openfhes(context: CkksContext, keys: Any) -> None:
    """Adding residues is EvalAdd, bit by bit."""
    parts = [encrypt(context, keys.publicKey, np.full(3, v)) for v in (0.5, 0.25)]
    summed = rns.add(*map(context.residues_of, parts), context.primes * 2)
    assert (summed == context.residues_of(context.cc.EvalAdd(*parts))).all()


# -- uniform elements ----------------------------------------------------------------------------


def test_uniform_is_frozen_and_separated() -> None:
    """The same for every party and release: a change would break running sessions.

    Another seed or label has nothing in common: at most 3 of 1024 residues agree. Rows of one
    prime differ, and an evaluation key of a deep circuit has more than 256 of them.
    """
    first = rns.uniform(b"s" * 32, "label", PRIMES[2:], N)
    assert (first == rns.uniform(b"s" * 32, "label", PRIMES[2:], N)).all()
    assert first[:, 0].tolist() == [1042909862255009, 535590250655701767]
    for seed, label in ((b"t", "label"), (b"s", "labe"), (b"s", "label/0"), (b"s", "")):
        assert (first == rns.uniform(seed * 32, label, PRIMES[2:], N)).sum() <= 3
    rows = rns.uniform(b"s" * 32, "label", PRIMES[3:] * 300, 16)
    assert len({row.tobytes() for row in rows}) == 300


@pytest.mark.parametrize("prime", [*PRIMES[2:], 576460752303415297, 3])
def test_uniform_residues_are_uniform(prime: int) -> None:
    """Chi^2 over 64 cells (or all values) and over the low bit, p = 1e-6; all below the prime."""
    values = rns.uniform(b"s" * 32, "chi", (prime,) * 100, N).ravel()
    assert values.max() < prime
    cells = min(64, prime)
    counts = np.bincount((values.astype(float) * cells / prime).astype(int), minlength=cells)
    assert stats.chisquare(counts[:cells]).pvalue > P_VALUE
    low = int((values & np.uint64(1)).sum())
    share = (prime // 2) / prime
    assert stats.binomtest(low, values.size, share).pvalue > P_VALUE


@pytest.mark.parametrize("prime", [(1 << 61) - 1, (1 << 60) + 1])
def test_words_above_the_last_multiple_are_dropped(prime: int) -> None:
    """Refused words are skipped, not wrapped: Kolmogorov-Smirnov, p = 1e-6."""
    values = rns.uniform(b"s" * 32, "edge", (prime,) * 50, N).ravel()
    assert values.max() < prime
    assert stats.kstest(values / prime, "uniform").pvalue > P_VALUE


def test_metadata_that_looks_like_a_length(context: CkksContext) -> None:
    """A length word 8 bytes early swallows a vector, unless the primes are known."""
    prime = context.primes[0]
    words = random_residues(9, (prime,))[0] >> np.uint64(20)
    # What ends an early vector is 1 mod 2n and larger than every word before it.
    words[-1] = (int(words.max()) // (2 * N) + 1) * 2 * N + 1
    length = N.to_bytes(8, "little")
    blob = b"\0" + length * 2 + words.tobytes() + prime.to_bytes(8, "little")
    assert rns.find_towers(blob, N) == [rns.Tower(9, int(words[-1]))]
    assert rns.find_towers(blob, N, context.primes) == [rns.Tower(17, prime)]
    assert (rns.read(blob, N, context.primes)[0] == words).all()
