"""A promise is divided once: forecasts, refusals and the sums themselves count the same parts."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.after.inference_cost import check_inference, inference_forecast, inference_line
from ciphercohort.after.sums import following_mu, sums_wanted
from ciphercohort.job.config import SimulationConfig
from parties.reader.schema import Label, NumericColumn, Schema
from protocols.errors import PrivacyError
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.one_sum import whole_mu
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss.accounting import GaussianEvent
from sims.simulation import simulate

SCHEMA = Schema(
    columns=(NumericColumn("age", 0.0, 1.0), NumericColumn("dose", 0.0, 1.0)),
    label=Label("died", "yes", "no"),
    scaling="range",
)
BOTH = SimulationConfig(
    protocol="secure-aggregation",
    epsilon=1.0,
    held_out=0.3,
    inference=True,
    evaluate=True,
)
FOLLOWS = [each for each in product((False, True), repeat=2) if any(each)]


def square(mechanisms: tuple[Mechanism, ...]) -> float:
    """mu^2 that they cost."""
    events = [each for mechanism in mechanisms for each in mechanism.events]
    return sum(each.mu**2 for each in events if isinstance(each, GaussianEvent))


@pytest.mark.parametrize(("inference", "evaluate"), FOLLOWS)
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_parts_and_training_are_the_promise(
    inference: bool, evaluate: bool, epsilon: float
) -> None:
    config = replace(BOTH, inference=inference, evaluate=evaluate, epsilon=epsilon)
    assert math.fsum(config.shares) == 1
    own = config.for_training()
    whole, trained = (
        whole_mu(sums_wanted(each.epsilon, each.delta, each.colluders)) for each in (config, own)
    )
    errors, judged = following_mu(config)
    assert math.hypot(trained, errors, judged) == pytest.approx(whole)
    assert (errors > 0, judged > 0) == (inference, evaluate)


@pytest.mark.parametrize(("inference", "evaluate"), FOLLOWS)
def test_sums_take_what_was_foreseen(inference: bool, evaluate: bool, tmp_path: Path) -> None:
    """What training leaves of its own part, by rounding, comes on top."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (6000, 2)), columns=["age", "dose"])
    frame["died"] = np.where(rng.random(6000) < 1 / (1 + np.exp(-frame.age)), "yes", "no")
    SCHEMA.save(tmp_path / "schema.json")
    asked: dict[str, Any] = {"parties": 2, "update": "gd", "rounds": 3, "epsilon": 8.0, "seed": 1}
    config = replace(
        BOTH,
        data=frame,
        schema=tmp_path / "schema.json",
        inference=inference,
        evaluate=evaluate,
        however_noisy=True,
        **asked,
    )
    found, foreseen = simulate(config), following_mu(config)
    spent: list[tuple[Mechanism, ...]] = [(), ()]
    if found.inference:
        spent[0] = found.inference.mechanisms
    if found.evaluation and (cost := found.evaluation.opened.mechanism):
        spent[1] = (cost,)
    for due, mechanisms in zip(foreseen, spent, strict=True):
        assert due**2 <= square(mechanisms) * 1.001 <= 1.2 * due**2 + 1e-9, mechanisms


def test_an_evaluation_beside_it_takes_from_standard_errors() -> None:
    """Between both bounds they are refused, and the plan says so, at the epsilon that they get."""
    alone = replace(BOTH, evaluate=False)
    shape = PublicFigures.even(rows=1000, features=3, parties=3)
    needs = [inference_forecast(config, shape) for config in (alone, BOTH)]
    least, more = (each["reach"]["rows_usual"] for each in needs if each)
    assert more == pytest.approx(math.sqrt(2) * least, rel=0.05)
    between = PublicFigures.even(rows=(least + more) // 2, features=3, parties=3)
    assert check_inference(alone, between) == ()
    with pytest.raises(PrivacyError, match="probably no intervals.*nothing was spent"):
        check_inference(BOTH, between)
    (found,) = (inference_forecast(BOTH, between),)
    assert found and "of the evaluation and" in inference_line(found)
    cured = replace(BOTH, epsilon=math.ceil(100 * found["reach"]["epsilon_usual"]) / 100)
    assert check_inference(cured, between) == ()
