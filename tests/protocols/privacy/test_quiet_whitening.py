"""Whitening without privacy for the training: the moment's own promise, and what it buys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of, usual_of
from parties.reader.infer import infer_schema
from parties.reader.shard import encode_shard
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.numerics.whitening import Usual, guided, rescaled
from protocols.plan.kinds import plan_from_dict
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import (
    LONGER,
    MOST_FEATURES,
    QUIET_ROUNDS,
    Moment,
    moment_plan,
)
from protocols.privacy.laws.shares import NoiseSplit
from protocols.updates.momentum import accelerated
from sims.simulation import simulate
from tests.sims.tables import lopsided_frame

Array = NDArray[np.float64]
SPLIT = NoiseSplit(parties=3, colluders=1)
BOTH = pytest.mark.parametrize("protocol", [ENCRYPTED_ROWS, ENCRYPTED_MODEL])


def loss(z: Array, y: Array) -> float:
    return float(np.mean(np.logaddexp(0, z) - y * z))


# -- the plan --------------------------------------------------------------------------------------


@BOTH
def test_it_is_the_default_without_privacy(protocol: str) -> None:
    figures = PublicFigures.even(rows=300, features=5, parties=3, norm_bound=4.0)
    wanted = Wanted(protocol=protocol, update="", profile="fast-insecure")
    found = calibrate(figures, wanted)
    plan: Any = found.template
    assert found.first is not None and found.first.privacy is not None
    assert found.first.privacy.epsilon == pytest.approx(1.0, rel=1e-4)
    assert found.first.privacy.epsilon <= found.first.epsilon_in_all == 1.0
    assert plan.privacy is None and plan.moment_privacy == found.first.privacy
    assert plan.rounds == QUIET_ROUNDS <= 12 and plan.update["kind"] == "nag"
    assert plan_from_dict(plan.to_dict()) == plan
    assert (
        "moment_privacy" not in calibrate(figures, replace(wanted, update="gd")).template.to_dict()
    )


def test_what_has_no_second_moment() -> None:
    figures = PublicFigures.even(rows=300, features=5, parties=3, norm_bound=4.0)
    wide = PublicFigures.even(rows=300, features=MOST_FEATURES, parties=3)
    toy = {"profile": "fast-insecure"}
    assert calibrate(figures, Wanted(update="nag", **toy)).first is None
    assert calibrate(wide, Wanted(update="", **toy)).first is None
    assert calibrate(figures, Wanted(update="nag", moment_epsilon=0.5, **toy)).first is not None
    for wanted, match in (
        (Wanted(update="", epsilon=1.0, moment_epsilon=1.0), "with epsilon=1"),
        (Wanted(update="barrier", moment_epsilon=1.0), "barrier"),
        (Wanted(model="poisson", update="nag", moment_epsilon=1.0), "poisson"),
    ):
        with pytest.raises(ParameterError, match=match):
            calibrate(figures, wanted)
    with pytest.raises(ParameterError, match="moment_epsilon"):
        SimulationConfig(protocol=SECURE_AGGREGATION, moment_epsilon=1.0)


def test_a_plan_of_another_promise_is_refused() -> None:
    found = calibrate(
        PublicFigures.even(rows=300, features=5, parties=3),
        Wanted(update="", profile="fast-insecure"),
    )
    plan: Any = found.template
    for more in ({"moment_privacy": None}, {"whitening": None, "moment_plan": ""}):
        with pytest.raises(ParameterError, match="moment_privacy"):
            replace(plan, **more)
    with pytest.raises(ParameterError, match="moment_privacy"):
        replace(plan, privacy=plan.moment_privacy)


# -- the matrix ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.03, 1.0, 30.0])
def test_no_row_is_clipped_and_no_step_too_long(noise: float) -> None:
    """However much noise the moment has, and however wrong the schema's guess is about some."""
    rng = np.random.default_rng(3)
    d, bound = 6, 5.0
    usual = Usual(middles=(0.1, -0.4, 0.0, 0.3, 0.0), spreads=(0.5, 0.8, 0.2, 1.0, 0.6), bias=0.5)
    x = np.column_stack(
        [rng.normal(usual.middles, usual.spreads, (4000, d - 1)), np.full(4000, usual.bias)]
    )
    x *= np.minimum(1, bound / np.linalg.norm(x, axis=1))[:, None]
    e = np.triu(rng.normal(size=(d, d)) * noise / np.sqrt(2), 1)
    moment = x.T @ x / len(x) + e + e.T + np.diag(rng.normal(size=d) * noise)
    sigma = max(noise, 1e-6) / np.sqrt(SPLIT.parties / SPLIT.honest)
    made, guess = guided(moment, usual, norm_bound=bound, sigma=sigma, split=SPLIT, failure=1e-7)
    largest = guess[-1]
    whitened = x @ np.array(made.matrix)
    assert np.linalg.norm(np.array(made.matrix), 2) * bound <= 1 + 1e-9
    np.testing.assert_allclose(made.encode(x), whitened, rtol=1e-9)
    own = float(np.linalg.eigvalsh(whitened.T @ whitened / len(x))[-1])
    assert own <= made.spectrum and largest <= made.spectrum
    assert own / 2 <= largest <= 4 * own
    if noise <= 0.03:
        values = np.linalg.eigvalsh(whitened.T @ whitened / len(x))
        before = np.linalg.eigvalsh(x.T @ x / len(x))
        assert values[-1] / values[0] < 3 < 0.1 * before[-1] / before[0]


def test_the_schema_says_what_columns_are_like() -> None:
    frame = lopsided_frame(2000)
    for scaling, norm in (("standard", None), ("standard", 2.0), ("range", None)):
        schema = infer_schema(frame, "y", scaling=scaling, row_norm=norm)
        usual, x = usual_of(schema), np.asarray(encode_shard(frame, schema).x)
        own = x @ usual.scaling.T
        assert len(usual.middles) == schema.num_features - 1
        if norm is None:
            np.testing.assert_allclose(own[:, -1], 1.0)
            mean_squares = np.mean(own**2, axis=0)
            assert mean_squares.max() < 2.5 and mean_squares[0] > 0.3
        np.testing.assert_allclose(
            usual.scaling @ usual.moment @ usual.scaling.T, np.eye(schema.num_features), atol=1e-9
        )


def correlated(rng: np.random.Generator) -> tuple[pd.DataFrame, Array]:
    """Columns that all correlate by .6."""
    x = rng.normal(size=(3000, 12)) @ np.linalg.cholesky(0.4 * np.eye(12) + 0.6).T
    return pd.DataFrame(x, columns=[f"x{k}" for k in range(12)]), x @ rng.normal(size=12) * 0.3


def rare_categories(rng: np.random.Generator) -> tuple[pd.DataFrame, Array]:
    """Four columns of 3 to 30 categories, most of them rare."""
    frame, z = pd.DataFrame(), np.full(4000, -0.5)
    for k in (30, 20, 8, 3):
        share = 1 / np.arange(1, k + 1) ** 1.2
        drawn = rng.choice(k, 4000, p=share / share.sum())
        frame[f"c{k}"], z = [f"v{c}" for c in drawn], z + rng.normal(size=k)[drawn] * 0.8
    return frame, z


@pytest.mark.parametrize("make", [correlated, rare_categories])
def test_twelve_steps_in_the_clear_reach_the_optimum(make: Any) -> None:
    """Whatever columns have in common, and however rare they are: ten draws of the noise each."""
    rng = np.random.default_rng(4)
    frame, z = make(rng)
    frame["y"] = (rng.random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)
    schema = replace(infer_schema(frame, "y"), row_norm=None)
    x, y = np.asarray(encode_shard(frame, schema).x), np.asarray(frame.y)
    wanted = Wanted(update="nag", moment_epsilon=1.0)
    figures = figures_of(schema, [len(y) // 3] * 3)
    first = moment_plan(figures, wanted)
    sigma, usual, d = first.noise_scales[0], figures.usual, x.shape[1]
    best = LogisticRegression(C=1e6, fit_intercept=False, max_iter=5000).fit(x, y).coef_[0]
    for _ in range(10):
        e = np.triu(rng.normal(size=(d, d)), 1) / np.sqrt(2)
        e = (e + e.T + np.diag(rng.normal(size=d))) * first.split.total_std(sigma)
        made, guess = guided(
            x.T @ x / len(y) + e,
            usual,
            norm_bound=figures.norm_bound,
            sigma=sigma,
            split=first.split,
            failure=1e-7,
        )
        a, w = x @ np.array(made.matrix), np.zeros(d)
        v = w
        for momentum in accelerated(QUIET_ROUNDS):
            new = v - LONGER * 4 / guess[-1] * (a.T @ (1 / (1 + np.exp(-a @ v)) - y) / len(y))
            v, w = new + momentum * (new - w), new
        assert loss(a @ w, y) <= loss(x @ best, y) + 0.003


# -- runs ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("rows", [150, 1500])
def test_twelve_iterations_reach_the_optimum(protocol: str, rows: int) -> None:
    """Log loss of the training rows within .003 of scikit-learn's, on columns of all scales."""
    frame = lopsided_frame(rows)
    config = SimulationConfig(
        data=frame,
        label="y",
        protocol=protocol,
        profile="fast-insecure",
        test_share=0,
        seed=1,
        as_trained=True,
    )
    result = simulate(config)
    assert result.plan.rounds <= 12 and result.schema.row_norm is None
    x, y = (np.asarray(part) for part in (encode_shard(frame, result.schema).x, frame.y))
    best = LogisticRegression(C=1e6, fit_intercept=False, max_iter=5000).fit(x, y).coef_[0]
    assert loss(x @ result.weights, y) <= loss(x @ best, y) + 0.003
    assert result.max_abs_diff_to_twin < 1e-3


# -- the quadratic gradient on an encrypted model --------------------------------------------------


def paper(x: Array, y: Array, b: Array, link: Any, rounds: int, accelerate: bool) -> Array:
    """Chiang's rules, mean gradients: enhanced Nesterov with N_t = 1 + .9^t, or descent, N = 1."""
    w = v = np.zeros(x.shape[1])
    alpha = 0.01
    for t in range(rounds):
        gradient = x.T @ (link(x @ v) - y) / len(y)
        new = v - (1 + 0.9**t if accelerate else 1.0) * gradient / b
        following = (1 + np.sqrt(1 + 4 * alpha**2)) / 2
        momentum = (alpha - 1) / following if accelerate and t < rounds - 1 else 0.0
        v, w, alpha = new + momentum * (new - w), new, following
    return w


@pytest.mark.parametrize("update", ["quadratic-nag", "quadratic-gd"])
def test_it_is_the_papers_rule_on_the_noisy_diagonal(update: str) -> None:
    frame = lopsided_frame(600)
    config = SimulationConfig(
        data=frame,
        label="y",
        protocol=ENCRYPTED_MODEL,
        update=update,
        rounds=6,
        profile="fast-insecure",
        test_share=0,
        schema=None,
        seed=1,
    )
    result = simulate(config)
    plan: Any = result.plan
    c = plan.whitening.square
    b = np.abs(c).sum(axis=1) / 4
    x = np.asarray(encode_shard(frame, result.schema).x)
    due = paper(x, np.asarray(frame.y), b, plan.link, 6, update == "quadratic-nag")
    np.testing.assert_allclose(result.weights, due, atol=1e-4)
    plain = simulate(replace(config, update="nag" if "nag" in update else "gd"))
    assert plain.plan.refreshes == plan.refreshes  # type: ignore[attr-defined]
    assert plain.plan.ckks.depth == plan.ckks.depth  # type: ignore[attr-defined]


def test_the_diagonal_bounds_any_symmetric_moment() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        c = rng.normal(size=(5, 5))
        c = c + c.T
        made, unit = rescaled(c, norm_bound=3.0, sigma=0.1, split=SPLIT, failure=1e-7)
        matrix = np.array(made.matrix)
        np.testing.assert_allclose(unit * np.diag(matrix) ** 2, 1 / np.abs(c).sum(axis=1))
        assert np.linalg.eigvalsh(matrix @ c @ matrix)[-1] <= 1 / unit * (1 + 1e-9)
        assert np.linalg.norm(matrix, 2) * 3.0 <= 1 + 1e-9


def test_a_moment_is_what_a_run_opened() -> None:
    figures = PublicFigures.even(rows=300, features=2, parties=3)
    first = calibrate(figures, Wanted(update="", profile="fast-insecure")).first
    assert first is not None
    assert Moment.of(np.eye(3), first).promise == first.privacy
