"""CKKS parameters: every bound, the 128-bit table, and OpenFHE's own figures."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from protocols.ckks import (
    MAX_LOG_QP_128,
    MIN_RING_DIM,
    REFRESH_TOWERS,
    RESERVED_BITS,
    CkksParameters,
)
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.rows import gradient_levels
from protocols.ckks.evaluation import CkksContext
from protocols.errors import ParameterError
from protocols.numerics.approximation import SIGMOID_DEGREES
from tests.support.helpers import make_link

# Depths with the numbers of digits that leave none empty.
SHAPES = [
    (depth, digits)
    for depth in (3, 6, 7, 8, 12)
    for digits in (1, 2, 3, 4)
    if math.ceil((depth + 1) / digits) * (digits - 1) < depth + 1
]
TOY = CkksParameters(ring_dim=2048, depth=7, scale_bits=50, security_bits=0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("ring_dim", (0, -1024, MIN_RING_DIM // 2, 1000, 2049, 1 << 18, 1 << 70)),
        ("depth", (0, -1, 61)),
        ("scale_bits", (19, 60)),
        ("first_mod_bits", (50, 49, 61)),
        ("num_digits", (0, 9)),
        ("security_bits", (1, 127, 129, 256)),
    ],
)
def test_out_of_range(field: str, values: tuple[int, ...]) -> None:
    """The message names the field and its value."""
    for value in values:
        with pytest.raises(ParameterError, match=f"{field}={value}"):
            replace(TOY, **{field: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"ring_dim": MIN_RING_DIM},
        {"depth": 1, "num_digits": 2},
        {"depth": 60},
        {"scale_bits": 20, "first_mod_bits": 21},
        {"scale_bits": 59, "first_mod_bits": 60},
        {"num_digits": 1},
        {"num_digits": 8},
    ],
)
def test_the_bounds_themselves_are_allowed(fields: dict[str, Any]) -> None:
    """Each bound is sharp."""
    params = replace(TOY, **fields)
    assert {name: getattr(params, name) for name in fields} == fields


def test_the_table_is_the_current_one() -> None:
    """eprint 2024/463, classical, ternary secret, 128 bits; below the table of 2018 everywhere."""
    current = (26, 53, 106, 214, 430, 868, 1747, 3523)
    assert list(MAX_LOG_QP_128.items()) == [(1 << k, q) for k, q in enumerate(current, 10)]
    older = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
    assert all(MAX_LOG_QP_128[ring] < bits for ring, bits in older.items())


@pytest.mark.parametrize(("ring_dim", "held"), [(8192, 212), (16384, 428), (32768, 866)])
def test_what_is_held(ring_dim: int, held: int) -> None:
    """Two bits below the table."""
    params = CkksParameters(ring_dim=ring_dim, depth=1, scale_bits=20, num_digits=2)
    assert params.max_log_qp == held


@pytest.mark.parametrize("ring_dim", [16384, 32768, 65536])
def test_128_bits_end_at_the_table(ring_dim: int) -> None:
    """The deepest accepted modulus leaves the reserve, one level more does not."""
    bound = MAX_LOG_QP_128[ring_dim] - RESERVED_BITS
    fits = []
    for depth in range(2, 61):
        try:
            fits.append(CkksParameters(ring_dim=ring_dim, depth=depth, scale_bits=50))
        except ParameterError as error:
            assert str(bound) in str(error)
            break
    assert fits[-1].log_qp <= bound
    more = replace(fits[-1], depth=fits[-1].depth + 1, security_bits=0)
    assert more.log_qp > bound
    # 2^9 has no entry, hence no claim.
    with pytest.raises(ParameterError, match="exceeds 0"):
        CkksParameters(ring_dim=512, depth=2)


@pytest.mark.parametrize(("depth", "digits"), SHAPES)
@pytest.mark.parametrize("scale_bits", [40, 50, 58])
def test_log_qp_is_never_below_openfhes(depth: int, digits: int, scale_bits: int) -> None:
    """log2(QP) as stated bounds what OpenFHE generates, by one special prime at most."""
    params = CkksParameters(
        ring_dim=512, depth=depth, scale_bits=scale_bits, num_digits=digits, security_bits=0
    )
    context = CkksContext(params, "parameters")
    exact = sum(math.log2(prime) for prime in context.extended_primes)
    special = len(context.extended_primes) - params.num_towers
    assert special <= params.num_special_towers <= special + 1
    assert exact <= params.log_qp + 0.01
    spare = 60 * (params.num_special_towers - special)
    assert exact == pytest.approx(params.log_qp - spare, abs=0.01)


def test_openfhes_refusal_is_a_parameter_error() -> None:
    """Where OpenFHE knows better (here: a digit without a prime), its reason is passed on."""
    with pytest.raises(ParameterError, match="OpenFHE refuses"):
        CkksContext(replace(TOY, depth=3, num_digits=3), "x")


@pytest.mark.parametrize("degree", SIGMOID_DEGREES)
def test_chosen_parameters(degree: int) -> None:
    """Secure, just deep enough, and on the smallest ring that holds the depth."""
    levels = gradient_levels(make_link(degree))
    params = choose_parameters(levels)
    assert CkksContext(params, "chosen").cc.GetRingDimension() == params.ring_dim
    assert params.security_bits == 128
    assert params.log_qp <= MAX_LOG_QP_128[params.ring_dim]
    assert params.depth == levels + REFRESH_TOWERS - 1
    with pytest.raises(ParameterError, match="fits no ring"):
        choose_parameters(levels, ring_dim=params.ring_dim // 2)


def test_what_is_chosen_stays_within_the_bound() -> None:
    """At any depth: the largest log2(QP) by ring, which SECURITY.md has."""
    largest: dict[int, int] = {}
    for levels in range(1, 45):
        params = choose_parameters(levels)
        largest[params.ring_dim] = max(params.log_qp, largest.get(params.ring_dim, 0))
        assert params.log_qp <= params.max_log_qp
    assert largest == {16384: 417, 32768: 831, 65536: 1722, 131072: 3502}


def test_chosen_parameters_go_up_to_the_largest_ring() -> None:
    """Depth that no ring holds is refused with the cure."""
    rings = [choose_parameters(levels).ring_dim for levels in range(1, 40)]
    assert rings == sorted(rings)
    assert rings[-1] == 131072
    with pytest.raises(ParameterError, match="fits no ring"):
        choose_parameters(58)


def test_an_insecure_choice_says_so_and_stays() -> None:
    """security_bits is 0 whenever no secure set was asked for."""
    assert choose_parameters(5, secure=False).security_bits == 0
    assert choose_parameters(5, secure=False, ring_dim=512).ring_dim == 512
    with pytest.raises(FrozenInstanceError):
        TOY.depth = 3  # type: ignore[misc]
