"""Rates of rules on the quadratic gradient, and floors of curvatures: choices that take hold."""

from __future__ import annotations

from typing import Any

import pytest

from ciphercohort.job.config import SimulationConfig
from protocols.errors import ParameterError
from protocols.models.lffr import CURVATURE
from protocols.names import SECURE_AGGREGATION
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.gram import FLOOR


def template(**wanted: Any) -> Any:
    """The plan of 3 parties with 100 rows each, 4 columns of at most 1, without privacy."""
    figures = PublicFigures(
        rows_by_party=(100, 100, 100),
        num_features=5,
        norm_bound=5**0.5,
        entry_bound=1.0,
        outputs=1,
        schema={"digest": "22" * 32, "features": list("abcd")},
    )
    return calibrate(figures, Wanted(profile="fast-insecure", **wanted)).template


@pytest.mark.parametrize("protocol", ["encrypted-rows", SECURE_AGGREGATION])
def test_a_given_rate_is_the_first_of_a_quadratic_rule(protocol: str) -> None:
    where: dict[str, Any] = {"protocol": protocol, "rounds": 3}
    for update, usual in (("quadratic-gd", 1.0), ("quadratic-nag", 2.0)):
        for asked, found in ((None, usual), (1.5, 1.5)):
            plan = template(update=update, learning_rate=asked, **where)
            assert plan.update["learning_rate"] == found
    for rate in (0.5, 2.5, 4.0):
        with pytest.raises(ParameterError, match="learning_rate="):
            template(update="quadratic-gd", learning_rate=rate, **where)
    with pytest.raises(ParameterError, match="rates above 3 diverge"):
        template(update="quadratic-nag", learning_rate=3.5, **where)


@pytest.mark.parametrize("model", ["linear", "improved-lffr"])
def test_a_given_floor_is_that_of_the_gram_curvature(model: str) -> None:
    plain, lower = template(model=model), template(model=model, floor=1 / 256)
    assert (plain.floor, lower.floor) == (FLOOR, 1 / 256)
    assert lower.task.inverse.low < plain.task.inverse.low / 8
    with pytest.raises(ParameterError, match="floor=1e-08 is outside"):
        template(model=model, floor=1e-8)


def test_a_given_floor_is_lffrs_offset_over_the_largest() -> None:
    plain, other = template(model="lffr"), template(model="lffr", floor=0.125)
    largest = (plain.curvature.high - plain.curvature.offset) / CURVATURE
    assert plain.curvature.offset == 0.01
    assert other.curvature.offset == pytest.approx(0.125 * CURVATURE * largest)


def test_a_floor_goes_with_regressions_without_privacy() -> None:
    data: dict[str, Any] = {"targets": ("y",), "data": "x.csv"}
    with pytest.raises(ParameterError, match="floor=0.1 cannot be given with privacy"):
        SimulationConfig(model="linear", floor=0.1, epsilon=1.0, **data)
    with pytest.raises(ParameterError, match="floor=0.1 is an option of --model linear"):
        SimulationConfig(floor=0.1)
    assert SimulationConfig(model="linear", floor=0.1, **data).floor == 0.1
