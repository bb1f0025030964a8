"""So many pairs of one format or protocol: how many fail, and the least of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis.errors import FlakyFailure
from hypothesis.strategies import SearchStrategy

from tests.boundaries.reading import BoundaryError

Check = Callable[[Any], bool]
"""Of a pair: whether it is one that can be checked; raises BoundaryError."""


@dataclass
class Found:
    """What was tried. pairs: that a format can hold; least: words of the smallest failure."""

    name: str
    pairs: int = 0
    failures: int = 0
    least: str = ""


def explore(name: str, check: Check, strategy: SearchStrategy[Any], count: int, by: int) -> Found:
    """Try `count` pairs by a seed; the first failure is made as small as it goes."""
    found, all_phases = Found(name), (Phase.generate, Phase.shrink)

    def settled(examples: int, *phases: Phase) -> Callable[[Any], Any]:
        options: dict[str, Any] = {
            "max_examples": examples,
            "database": None,
            "deadline": None,
            "report_multiple_bugs": False,
            "suppress_health_check": list(HealthCheck),
            "phases": phases,
        }
        return settings(**options)

    @seed(by)
    @settled(count, Phase.generate)
    @given(strategy)
    def every(pair: Any) -> None:
        try:
            is_pair = check(pair)
        except BoundaryError:
            found.failures += 1
            is_pair = True
        assume(is_pair)
        found.pairs += 1

    last: list[str] = []

    @seed(by)
    @settled(count, *all_phases)
    @given(strategy)
    def least(pair: Any) -> None:
        try:
            check(pair)
        except BoundaryError as error:
            last[:] = [f"{error}\n    {pair!r}"]
            raise

    every()
    if found.failures:
        try:
            least()
        except (BoundaryError, FlakyFailure):
            found.least = last[0]
    return found
