"""Typed objects from JSON: exactly what they were, or refused by the name of a field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from protocols.aggregate.choice import choose
from protocols.ckks import CkksParameters
from protocols.errors import MessageError, ParameterError
from protocols.exchange.serialise import from_plain, to_plain
from protocols.numerics.approximation import Polynomial
from protocols.steps.samples import SEED, Element, Pad, Sample, Term

TOY = CkksParameters(ring_dim=2048, depth=7, scale_bits=50, security_bits=0)
SUMS = choose(parties=3, largest_sum=100.0, precision=2.0**-20)
LINE = Polynomial(coefficients=(1.0, 0.1 + 0.2), center=0.0, radius=1.0)
SAMPLE = Sample("x", (Term(Element(SEED, "a"), "s", -1, 5),), 3.19, (Pad("M", 1, "T"),), "m", "l")


@pytest.mark.parametrize("value", [TOY, SUMS, LINE, SAMPLE])
def test_what_comes_back_is_equal(value: Any) -> None:
    """Every bit of it, by JSON types alone; fields with a default may be left out."""
    plain = to_plain(value)
    assert json.loads(json.dumps(plain)) == plain
    assert from_plain(type(value), plain) == value
    assert hash(from_plain(type(value), plain)) == hash(value)
    assert from_plain(CkksParameters, {"ring_dim": 32768, "depth": 7}).num_digits == 2


REFUSALS: list[tuple[Any, dict[str, Any], str]] = [
    (TOY, {"depth": True}, "depth"),
    (TOY, {"depth": 7.0}, "depth"),
    (TOY, {"depth": "7"}, "depth"),
    (TOY, {"depth": 10**400}, r"CkksParameters\.depth has 64 bits"),
    (TOY, {"more": 1}, r"CkksParameters\.more is unknown"),
    (SUMS, {"primes": "x"}, "primes"),
    (SUMS, {"primes": [3.0]}, r"primes\[0\]"),
    (SUMS, {"parties": True}, "parties"),
    (SUMS, {"more": 1}, "more is unknown"),
    (LINE, {"low": 0.0}, "low is unknown"),
    (LINE, {"coefficients": 1.0}, "coefficients"),
    (LINE, {"coefficients": ["1"]}, r"coefficients\[0\]"),
    (LINE, {"coefficients": [0.0, math.inf]}, r"Polynomial\.coefficients\[1\] is not finite"),
    (LINE, {"center": math.nan}, r"Polynomial\.center is not finite"),
    (LINE, {"radius": 10**400}, r"Polynomial\.radius has 64 bits"),
    (SAMPLE, {"pads": [{"name": "M", "more": 1}]}, r"Sample\.pads\[0\]\.more is unknown"),
]


@pytest.mark.parametrize(("value", "change", "field"), REFUSALS)
def test_what_does_not_fit_is_refused_by_name(value: Any, change: Any, field: str) -> None:
    with pytest.raises(MessageError, match=field):
        from_plain(type(value), to_plain(value) | change)


@pytest.mark.parametrize("plain", [None, 3, [], "x", {}])
def test_what_is_no_object_is_refused(plain: Any) -> None:
    with pytest.raises(MessageError, match="Polynomial is malformed"):
        from_plain(Polynomial, plain)


@pytest.mark.parametrize("plain", ["\ud800", {"\ud800": 1}, {"coefficients": "\ud800"}])
def test_text_that_is_none_is_refused(plain: Any) -> None:
    with pytest.raises(MessageError, match="Polynomial"):
        from_plain(Polynomial, plain)


def test_what_is_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MessageError, match="malformed"):
        from_plain(Polynomial, {"coefficients": deep})


def test_a_types_own_refusal_is_passed_on() -> None:
    for value, change in (
        (TOY, {"depth": 0}),
        (LINE, {"radius": 0.0}),
        (SUMS, {"primes": [3] * 9}),
    ):
        with pytest.raises(ParameterError, match=next(iter(change))):
            from_plain(type(value), to_plain(value) | change)
