from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.aggregate import (
    MAX_LOG_Q_128,
    NOISE_STD,
    RLWE_STD,
    AggregateParameters,
    is_prime,
)
from protocols.aggregate.choice import choose, smallest_modulus
from protocols.aggregate.cipher import encode
from protocols.aggregate.coordinator_cipher import decode
from protocols.aggregate.wire import pack, unpack
from protocols.errors import DataError, MessageError, ParameterError
from protocols.exchange.serialise import from_plain, to_plain

SMALL = choose(parties=3, largest_sum=100.0, precision=2.0**-20)
WIDE = choose(parties=3, largest_sum=2.0**30, precision=2.0**-40)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    parties=st.integers(1, 500),
    range_bits=st.floats(-40, 40),
    bits=st.integers(1, 60),
)
def test_chosen_parameters_keep_what_they_promise(
    parties: int, range_bits: float, bits: int
) -> None:
    largest_sum, precision = 2.0**range_bits, 2.0 ** (range_bits - bits)
    p = choose(parties=parties, largest_sum=largest_sum, precision=precision)
    assert p.error_bound <= precision * (1 + 1e-9)
    assert p.max_value * parties >= largest_sum * (1 - 1e-9)
    assert math.log2(math.prod(p.primes)) <= MAX_LOG_Q_128[p.ring_dim]
    # The sum of P largest messages and the noise stays centred.
    assert 2 * (parties * p.max_units + p.noise_units) < p.modulus
    # No bit is wasted: range, noise, sign, at most 2 bits of slack; small primes are rare.
    needed = math.log2(2 * (largest_sum * 2.0**p.scale_bits + p.noise_units + parties))
    assert sum(p.widths) <= max(18, needed + 2)
    assert p.noise_units < 2**15
    assert from_plain(AggregateParameters, to_plain(p)) == p


def test_sizes() -> None:
    """Two hundred values take little more than a kilobyte; a wider range takes a larger ring."""
    p = choose(parties=10, largest_sum=2.0**12, precision=2.0**-24)
    assert (p.ring_dim, p.num_bytes(200)) == (2048, 1150)
    assert p.num_bytes(2048) < 16_000
    rings = [choose(parties=2, largest_sum=1.0, precision=2.0**-b).ring_dim for b in (30, 80, 150)]
    assert rings == [2048, 4096, 8192]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ring_dim": 1024}, "ring_dim"),
        ({"primes": ()}, "primes"),
        ({"primes": SMALL.primes[:1] * 2}, "primes"),
        ({"primes": (SMALL.primes[0] + 2,)}, "primes"),
        ({"primes": (4096 * 3 * 4096 + 1,)}, "primes"),  # = 1 mod 4096, composite
        ({"primes": smallest_modulus(2048, 1 << 60, 109)}, "128-bit"),
        ({"scale_bits": 300}, "scale_bits"),
        ({"parties": 0}, "parties"),
        ({"parties": 1 << 17}, "parties"),
        ({"primes": (12289,), "parties": 40_000}, "no range"),
    ],
)
def test_a_field_out_of_range_is_named(change: dict[str, object], field: str) -> None:
    good = {"ring_dim": 2048, "primes": SMALL.primes, "scale_bits": 30, "parties": 3}
    AggregateParameters(**good)
    with pytest.raises(ParameterError, match=field):
        AggregateParameters(**{**good, **change})


@pytest.mark.parametrize(
    ("largest_sum", "precision"), [(0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1e300, 1e-300)]
)
def test_impossible_wishes_are_refused(largest_sum: float, precision: float) -> None:
    with pytest.raises(ParameterError):
        choose(parties=2, largest_sum=largest_sum, precision=precision)


def test_primality_agrees_with_a_sieve() -> None:
    sieve = np.ones(20_000, bool)
    sieve[:2] = False
    for k in range(2, 142):
        sieve[k * k :: k] &= not sieve[k]
    assert [is_prime(k) for k in range(20_000)] == sieve.tolist()
    # 1 mod 4096 and composite, yet a base-2 pseudoprime or a product of close primes.
    assert not any(is_prime(k) for k in (1_082_401, 2_284_453, 46_337 * 46_327, 12_289 * 40_961))
    assert is_prime(2**31 - 1)


# -- fixed point ----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [SMALL, WIDE])
def test_values_round_to_the_grid_and_come_back(p: AggregateParameters) -> None:
    edge = p.max_value
    v = np.array([0.0, 1.0, -1.0, edge, -edge, edge / 3, -edge / 7, 2.0**-p.scale_bits])
    unit = math.ldexp(1.0, -p.scale_bits)
    exact = np.rint(v / unit) * unit
    assert (decode(p, encode(p, v)) == exact).all()
    for row, q in zip(encode(p, v), p.primes, strict=True):
        assert row.tolist() == [round(x / unit) % q for x in v.tolist()]


def test_the_two_ways_to_encode_agree() -> None:
    # The same values in a ring that takes the integer path and one that takes fmod.
    assert SMALL.max_units < 2**62 < WIDE.max_units * 4
    rng = np.random.default_rng(0)
    v = rng.normal(size=50) * 3
    exact = [round(x * 2**WIDE.scale_bits) for x in v.tolist()]
    assert encode(WIDE, v).tolist() == [[m % q for m in exact] for q in WIDE.primes]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0001, -1.0001])
def test_an_entry_out_of_range_is_refused_without_being_quoted(bad: float) -> None:
    v = np.zeros(5)
    v[3] = bad * SMALL.max_value
    with pytest.raises(DataError, match="max_value") as caught:
        encode(SMALL, v)
    assert f"{v[3]:.6g}" not in str(caught.value)
    with pytest.raises(DataError, match="shape"):
        encode(SMALL, np.zeros((2, 2)))
    with pytest.raises(DataError, match="shape"):
        encode(SMALL, np.zeros(0))


# -- wire -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3, 200, 2049])
@pytest.mark.parametrize("p", [SMALL, WIDE])
def test_packing_is_exact_to_the_bit(p: AggregateParameters, length: int) -> None:
    rng = np.random.default_rng(length)
    primes = np.array(p.primes)[:, None]
    residues = rng.integers(0, primes, (len(p.primes), length)).astype(np.uint64)
    residues[:, -1] = primes[:, 0] - 1
    data = pack(p, residues)
    assert len(data) == p.num_bytes(length) == -(-length * sum(map(int.bit_length, p.primes)) // 8)
    assert (unpack(p, data, length) == residues).all()
    number, shift = 0, 0
    for row, q in zip(residues.tolist(), p.primes, strict=True):
        for x in row:
            number |= x << shift
            shift += q.bit_length()
    assert int.from_bytes(data, "little") == number


def test_malformed_bytes_are_refused() -> None:
    p, length = SMALL, 3
    good = pack(p, np.zeros((len(p.primes), length), np.uint64))
    with pytest.raises(MessageError, match="bytes"):
        unpack(p, good + b"\0", length)
    with pytest.raises(MessageError, match="below its prime"):
        unpack(p, b"\xff\xff\xff\xff" + good[4:], length)
    assert 8 * len(good) > length * sum(p.widths)
    with pytest.raises(MessageError, match="spare bit"):
        unpack(p, good[:-1] + b"\x80", length)


# -- security parameters --------------------------------------------------------------------------


def test_the_hint_leaves_an_rlwe_error_of_the_tables_std() -> None:
    """Conditional on x1 + x2 = h, x1 is centred RLWE_STD noise plus independent noise."""

    def density(sigma: float, centre: float) -> np.ndarray:
        k = np.arange(-150, 151)
        w = np.exp(-((k - centre) ** 2) / (2 * sigma**2))
        return np.asarray(w / w.sum())

    k = np.arange(-150, 151)
    for h in (0, 1, 6, 13):
        given = np.exp(-(k**2 + (h - k) ** 2) / (2 * NOISE_STD**2))
        given /= given.sum()
        assert np.average((k - h / 2) ** 2, weights=given) == pytest.approx(2 * RLWE_STD**2)
        convolved = np.convolve(density(RLWE_STD, 0), density(RLWE_STD, h / 2))[150:451]
        # 2^-143.8 is far below what float64 can show.
        assert 0.5 * np.abs(convolved - given).sum() < 1e-14
    # log2 of 2 exp(-pi^2 RLWE_STD^2)
    assert 1 - (math.pi * RLWE_STD) ** 2 / math.log(2) == pytest.approx(-143.88, abs=0.02)


def test_the_bound_on_the_hint_holds_where_it_can_be_seen() -> None:
    """At std 1 the bound 2 exp(-pi^2) = 1e-4 is visible, and neither broken nor idle."""
    k = np.arange(-60, 61)

    def density(centre: float) -> np.ndarray:
        w = np.exp(-((k - centre) ** 2) / 2)
        return np.asarray(w / w.sum())

    distances = []
    for centre in (0.0, 0.5):
        wide = np.exp(-((k - centre) ** 2) / 4)
        wide /= wide.sum()
        convolved = np.convolve(density(0), density(centre))[60:181]
        distances.append(0.5 * np.abs(convolved - wide).sum())
    assert 0.1 * 2 * math.exp(-(math.pi**2)) < max(distances) < 2 * math.exp(-(math.pi**2))
