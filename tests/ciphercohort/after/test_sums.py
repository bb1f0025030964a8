"""What a series of sums says where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ciphercohort.after.sums import SpentError, SumSeries, UnopenedError, spent_is_told, sums_wanted
from protocols.errors import CohortError, ParameterError, PrivacyError, ProtocolError
from protocols.statistics.inference.estimate import UnclearError

REFUSED = [
    lambda: ParameterError("words"),
    lambda: PrivacyError("words"),
    lambda: UnopenedError("words"),
    lambda: UnclearError("words", np.ones(2)),
]


@pytest.mark.parametrize("made", [*REFUSED, lambda: ProtocolError("words")])
@pytest.mark.parametrize("epsilon", [None, 2.0])
@pytest.mark.parametrize("opened", [0, 1, 3])
def test_what_is_refused_after_noisy_sums_says_that_they_are_spent(
    made: Callable[[], CohortError], epsilon: float | None, opened: int
) -> None:
    """An abort waits: the series can go on, so nothing of it is lost."""
    error = made()
    sums: Any = SimpleNamespace(wanted=sums_wanted(epsilon, 1e-5, 0), done=[None] * opened)
    with pytest.raises(CohortError, match="words") as found, spent_is_told(sums):
        raise error
    told = opened > 0 and epsilon is not None and made in REFUSED
    assert ("count epsilon=2, delta=1e-05 as spent" in str(found.value)) is told
    # Where they gave no result, it is what stands on disk in its place; one that was not opened,
    # the series can go on with.
    kept = told and not isinstance(error, UnopenedError)
    assert isinstance(found.value, SpentError) is kept is (found.value is not error)


def test_options_of_a_sum_that_was_not_opened_are_no_result() -> None:
    class Refusing(SumSeries):
        def ran(self, template: Any) -> Any:
            raise ParameterError("no such session")

    sums: Any = Refusing.__new__(Refusing)
    for name, value in (("done", [None]), ("plan", lambda *_: None)):
        object.__setattr__(sums, name, value)
    with pytest.raises(UnopenedError, match="no such session"):
        SumSeries.open(sums, None)  # type: ignore[arg-type]
