"""Dual coordinate descent among owners: optimum, sensitivity, sampling, noise, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from parties.kernel.sums.dual_steps import Loss
from protocols.errors import DataError, ParameterError, ProtocolError
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import mu_for_epsilon
from protocols.updates.coordinate import DualParty, DualPlan, cyclic_batch, move

Array = NDArray[np.float64]
LOSSES: tuple[Loss, ...] = ("ridge", "logistic", "svm")


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def problem(loss: Loss, n: int = 60, d: int = 5, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = unit(rng.normal(size=(n, d)))
    z = 3 * x @ rng.normal(size=d) + 0.4 * rng.normal(size=n)
    return x, z if loss == "ridge" else np.where(z > 0, 1.0, -1.0)


def plan_for(loss: Loss, **changes: Any) -> DualPlan:
    fields: dict[str, Any] = {
        "loss": loss,
        "lam": 0.05,
        "rows": 60,
        "batches": 60,
        "rounds": 60,
        "clip": math.inf,
        "schedule": "cyclic",
    }
    return DualPlan(**{**fields, **changes})


def owners(
    plan: DualPlan, x: Array, y: Array, parts: list[NDArray[np.intp]], sigma: float = 0.0
) -> list[DualParty]:
    split = NoiseSplit(parties=len(parts), colluders=0)
    return [
        DualParty(
            plan,
            x[p],
            y[p],
            sigma=sigma,
            split=split,
            randomness=SeededRandomness(3, f"owner {k}"),
        )
        for k, p in enumerate(parts)
    ]


def train(plan: DualPlan, parties: list[DualParty], d: int) -> Array:
    v = np.zeros(d)
    for t in range(plan.rounds):
        v = v + np.sum([p.answer(t, v) for p in parties], axis=0)
    return plan.theta(v)


def sklearn_optimum(loss: Loss, lam: float, x: Array, y: Array) -> Array:
    n = len(x)
    if loss == "ridge":
        return np.asarray(Ridge(alpha=lam * n, fit_intercept=False).fit(x, y).coef_)
    if loss == "logistic":
        model = LogisticRegression(C=1 / (lam * n), fit_intercept=False, tol=1e-10, max_iter=5000)
    else:
        model = LinearSVC(
            C=1 / (lam * n), loss="hinge", fit_intercept=False, tol=1e-9, max_iter=500_000
        )
    return np.asarray(model.fit(x, y).coef_[0])


# --- duality --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_one_row_per_round_reaches_the_optimum(loss: Loss) -> None:
    x, y = problem(loss)
    plan = plan_for(loss, rounds=60 * 150)
    found = train(plan, owners(plan, x, y, [np.arange(60)]), 5)
    np.testing.assert_allclose(found, sklearn_optimum(loss, plan.lam, x, y), atol=1e-6)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_secret_batches_reach_the_optimum(loss: Loss) -> None:
    x, y = problem(loss)
    plan = plan_for(loss, batches=4, rounds=4 * 600, schedule="poisson", clip=1.0)
    found = train(plan, owners(plan, x, y, [np.arange(20), np.arange(20, 60)]), 5)
    np.testing.assert_allclose(found, sklearn_optimum(loss, plan.lam, x, y), atol=2e-3)


# --- several owners are one owner -----------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_owners_are_one(loss: Loss, count: int) -> None:
    """The single owner's rows in the order that gives every round the same rows."""
    x, y = problem(loss)
    batches = 2
    parts = np.array_split(np.arange(60), count)
    assert all(len(p) % batches == 0 for p in parts)
    order = np.concatenate(
        [p[cyclic_batch(len(p), batches, t)] for t in range(batches) for p in parts]
    )
    plan = plan_for(loss, batches=batches, rounds=30, clip=0.05)
    alone = train(plan, owners(plan, x, y, [order]), 5)
    together = train(plan, owners(plan, x, y, parts), 5)
    np.testing.assert_allclose(together, alone, atol=1e-12)
    shuffled = train(plan, owners(plan, x, y, [order[::-1]]), 5)
    assert not np.allclose(shuffled, alone, atol=1e-6)


def test_a_full_batch_needs_no_coins() -> None:
    x, y = problem("ridge")
    found = [
        train(plan := plan_for("ridge", batches=1, rounds=8, schedule=s), owners(plan, x, y, p), 5)
        for s in ("cyclic", "poisson")
        for p in ([np.arange(60)], list(np.array_split(np.arange(60), 3)))
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-13)


# --- sensitivity ----------------------------------------------------------------------------

PAIRS = 4_000


def largest_move(loss: Loss, seed: int) -> float:
    """Largest |delta_v - delta_v'| / C over neighbours after a common past, adversarial v.

    One of five rows is replaced; both worlds keep their own alpha and see the same v, which is
    arbitrary, in each of three rounds. A third of the pairs has opposite labels and equal x.
    """
    rng = np.random.default_rng(seed)
    worst = 0.0
    for pair in range(PAIRS // 3):
        plan = DualPlan(
            loss=loss,
            lam=float(10 ** rng.uniform(-4, 0)),
            rows=5,
            batches=1,
            rounds=3,
            clip=float(10 ** rng.uniform(-3, 0)),
        )
        x = unit(rng.normal(size=(5, 3)))
        y = rng.normal(size=5) * 5 if loss == "ridge" else rng.choice([-1.0, 1.0], size=5)
        other_x, other_y = x.copy(), y.copy()
        other_x[2] = x[2] if pair % 3 == 0 else unit(rng.normal(size=3))
        other_y[2] = -y[2]
        alpha, other = np.zeros(5), np.zeros(5)
        for _ in range(3):  # three pairs: every round counts by itself
            v = rng.normal(size=3) * 10 ** rng.uniform(-2, 4) * plan.lam
            batch = np.arange(5)
            moved = move(plan, x, y, alpha, v, batch) - move(
                plan, other_x, other_y, other, v, batch
            )
            worst = max(worst, float(np.linalg.norm(moved)) / plan.clip)
            np.testing.assert_array_equal(np.delete(alpha, 2), np.delete(other, 2))
    return worst


@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbours_exceed_two_clips(loss: Loss) -> None:
    """And a mutant without the factor 2 would be caught: pairs come within 5 % of 2 C."""
    plan = plan_for(loss, clip=1.0)
    worst = largest_move(loss, seed=4)
    assert worst <= plan.sensitivity * (1 + 1e-12)
    mutant = plan.sensitivity / 2
    assert worst > 1.9 * mutant


def test_rounds_without_the_row_show_nothing_of_it() -> None:
    """Cyclic: given the published v, other rounds' answers are equal to the bit."""
    x, y = problem("ridge")
    plan = plan_for("ridge", batches=6, rounds=18, clip=0.1)
    other_x, other_y = x.copy(), y.copy()
    other_x[25], other_y[25] = -x[25], 7.0
    worlds = [owners(plan, a, b, [np.arange(60)])[0] for a, b in ((x, y), (other_x, other_y))]
    rng, differing = np.random.default_rng(5), []
    for t in range(18):
        v = rng.normal(size=5)
        one, two = (w.answer(t, v) for w in worlds)
        if not np.array_equal(one, two):
            differing.append(t)
    assert differing == [2, 8, 14]  # row 25 is in batch 2 of 6
    assert len(differing) == plan.draws


# --- noise and accounting -------------------------------------------------------------------


def test_cyclic_noise_is_the_closed_form() -> None:
    plan = plan_for("ridge", batches=6, rounds=20, clip=0.3)
    std = plan.noise_std(epsilon=1.0, delta=1e-5, dim=5)
    exact = 0.6 * math.sqrt(4) / mu_for_epsilon(epsilon=1.0, delta=1e-5)
    assert exact <= std <= exact * (1 + 1e-6)


def test_secret_coins_need_less_noise_and_a_full_batch_the_same() -> None:
    def std(schedule: str, batches: int) -> float:
        plan = plan_for("ridge", batches=batches, rounds=5 * batches, clip=1.0, schedule=schedule)
        return plan.noise_std(epsilon=1.0, delta=1e-5, dim=5)

    assert std("poisson", 1) == pytest.approx(std("cyclic", 1), rel=1e-12)
    # many rounds: mu = q sqrt(T) 2 C / sigma against sqrt(T / K) 2 C / sigma
    assert std("poisson", 20) / std("cyclic", 20) == pytest.approx(1 / math.sqrt(20), rel=0.01)


def test_the_papers_figure_is_smaller_than_what_is_proved() -> None:
    plan = plan_for("ridge", batches=6, rounds=60, clip=1.0, schedule="poisson")
    paper = plan.paper_std(epsilon=1.0, delta=1e-5)
    assert 0.5 < paper / plan.noise_std(epsilon=1.0, delta=1e-5, dim=5) < 0.95


@pytest.mark.parametrize("colluders", [0, 2])
def test_noise_of_the_honest_has_the_promised_std(colluders: int) -> None:
    """sigma to 5 %, by 6000 values: p = 1e-7 for a false alarm, 5 % off is seen."""
    sigma, rounds, d = 0.7, 60, 100
    split = NoiseSplit(parties=4, colluders=colluders)
    plan = plan_for("ridge", rows=4, batches=1, rounds=rounds, clip=1e-9)
    total = np.zeros((rounds, d))
    for k in range(split.honest):
        party = DualParty(
            plan,
            np.zeros((1, d)),
            np.zeros(1),
            sigma=sigma,
            split=split,
            randomness=SeededRandomness(11, f"owner {k}"),
        )
        total += [party.answer(t, np.zeros(d)) for t in range(rounds)]
    assert abs(total.std() / sigma - 1) < 0.05
    assert abs(np.corrcoef(total[:-1].ravel(), total[1:].ravel())[0, 1]) < 0.07


def test_answers_lie_on_the_grid() -> None:
    x, y = problem("ridge")
    plan = plan_for("ridge", batches=2, rounds=2, clip=0.1)
    split = NoiseSplit(parties=1, colluders=0)
    party = owners(plan, x, y, [np.arange(60)], sigma=0.9)[0]
    units = party.answer(0, np.zeros(5)) / split.grid(0.9).unit
    np.testing.assert_array_equal(units, np.rint(units))


def test_secret_batches_have_the_stated_rate() -> None:
    """Which rows moved, read from alpha by rows that are unit vectors; 5 sigma."""
    n, batches, rounds = 400, 5, 50
    plan = plan_for("ridge", rows=n, batches=batches, rounds=rounds, schedule="poisson", lam=1e-3)
    party = owners(plan, np.eye(n), np.full(n, 1e6), [np.arange(n)])[0]
    moved = np.array([party.answer(t, np.zeros(n)) != 0 for t in range(rounds)])
    spread = math.sqrt(0.2 * 0.8 / (n * rounds))
    assert abs(moved.mean() - 0.2) < 5 * spread
    assert len({row.tobytes() for row in moved}) == rounds
    assert moved.sum(axis=1).std() > 4  # Poisson: sizes vary, std 8; fixed sizes would not


# --- refusals -------------------------------------------------------------------------------


def test_one_answer_per_round_in_order() -> None:
    x, y = problem("ridge")
    plan = plan_for("ridge", rounds=2)
    party = owners(plan, x, y, [np.arange(60)])[0]
    party.answer(0, np.zeros(5))
    for t in (0, 2):
        with pytest.raises(ProtocolError, match="not the next, 1 of 2"):
            party.answer(t, np.zeros(5))
    party.answer(1, np.zeros(5))
    with pytest.raises(ProtocolError):
        party.answer(2, np.zeros(5))


@pytest.mark.parametrize("v", [np.zeros(4), np.full(5, np.nan), np.zeros((5, 1))])
def test_a_strange_v_is_refused(v: Array) -> None:
    x, y = problem("ridge")
    party = owners(plan_for("ridge"), x, y, [np.arange(60)])[0]
    with pytest.raises(ProtocolError, match="5 finite numbers"):
        party.answer(0, v)


def test_bad_rows_and_labels_are_refused() -> None:
    x, y = problem("logistic")
    every = [np.arange(60)]
    with pytest.raises(DataError, match="60 of 60 rows are longer"):
        owners(plan_for("logistic"), 1.01 * x, y, every)
    with pytest.raises(DataError, match="rows are longer"):
        owners(plan_for("logistic"), np.where(x == x[3, 1], np.nan, x), y, every)
    with pytest.raises(DataError, match="labels are not -1 or 1"):
        owners(plan_for("svm"), x, (y + 1) / 2, every)
    with pytest.raises(ParameterError, match="clip=inf"):
        owners(plan_for("logistic"), x, y, every, sigma=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "probit"},
        {"lam": 0.0},
        {"lam": math.inf},
        {"clip": 0.0},
        {"clip": math.nan},
        {"rounds": 0},
        {"batches": 0},
        {"batches": 61},
        {"schedule": "fixed"},
    ],
)
def test_bad_plans_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        replace(plan_for("ridge"), **change)
