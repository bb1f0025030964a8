"""Methods of the coordinate study and the values that the search may choose from.

All hyperparameters are tuned on validation rows without paying for it, for every method alike, so
the figures compare methods; they are not end-to-end epsilons of a deployment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.updates.coordinate import DualPlan, Schedule
from sims.baselines import BACKENDS, GradientPlan, output_perturbation
from sims.coordinate_baselines import train_dual, train_published
from sims.studies.coordinate_data import LABEL_BOUND, Problem

Array = NDArray[np.float64]
Choice = Mapping[str, float]
# (problem, choice, epsilon, delta, rng) -> theta
Train = Callable[[Problem, Choice, float, float, np.random.Generator], Array]

LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1)
BATCHES = (1, 4, 16, 64)
EPOCHS = (1, 3, 10, 30)
STEP_CLIPS = (0.03, 0.1, 0.3, 1.0, 3.0)  # C (1 + c): a ridge update from 0 is y / (1 + c)
GRADIENT_CLIPS = (0.03, 0.1, 0.3, 1.0)
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the figure.

    Attributes:
        name: for tables.
        neighbours: what its epsilon protects, and whether that is proved here.
        values: what the search may choose from, by hyperparameter.
        train: one model.
        effort: multiplies the number of tries.
    """

    name: str
    neighbours: str
    values: Mapping[str, tuple[float, ...]]
    train: Train
    effort: int = 1

    def choices(self, tries: int, rng: np.random.Generator) -> list[dict[str, float]]:
        """At most `effort * tries` different configurations, drawn without replacement from all."""
        grid = list(itertools.product(*self.values.values()))
        picked = rng.permutation(len(grid))[: self.effort * tries]
        return [dict(zip(self.values, grid[k], strict=True)) for k in picked]


def dual_plan(problem: Problem, choice: Choice, schedule: Schedule) -> DualPlan:
    """The public parameters of a choice; C in units of a step's natural size, 1 / (1 + c)."""
    batches = int(choice["batches"])
    plan = DualPlan(
        loss=problem.loss,
        lam=choice["lambda"],
        rows=len(problem.fit.x),
        batches=batches,
        rounds=int(choice["epochs"]) * batches,
        clip=1.0,
        schedule=schedule,
    )
    return replace(plan, clip=choice["clip"] / (1.0 + plan.curvature))


def _dual(schedule: Schedule) -> Train:
    def train(
        problem: Problem, choice: Choice, epsilon: float, delta: float, rng: np.random.Generator
    ) -> Array:
        plan, rows = dual_plan(problem, choice, schedule), problem.fit
        std = plan.noise_std(epsilon=epsilon, delta=delta, dim=rows.x.shape[1])
        return train_dual(plan, rows.x, rows.y, std, rng)

    return train


@lru_cache(maxsize=1024)
def _paper_multiplier(batches: int, rounds: int, epsilon: float, delta: float) -> float:
    plan = DualPlan(loss="ridge", lam=1.0, rows=batches, batches=batches, rounds=rounds, clip=1.0)
    return plan.paper_std(epsilon=epsilon, delta=delta)


def _published(
    problem: Problem, choice: Choice, epsilon: float, delta: float, rng: np.random.Generator
) -> Array:
    plan, rows = dual_plan(problem, choice, "poisson"), problem.fit
    std = plan.clip * _paper_multiplier(plan.batches, plan.rounds, epsilon, delta)
    return train_published(plan, rows.x, rows.y, std, rng)


def _sgd(
    problem: Problem, choice: Choice, epsilon: float, delta: float, rng: np.random.Generator
) -> Array:
    batches = int(choice.get("batches", 1))
    plan = GradientPlan(
        loss=problem.loss,
        lam=choice["lambda"],
        batches=batches,
        rounds=int(choice["epochs"]) * batches,
        clip=choice["clip"],
        rate=choice["rate"],
    )
    std = plan.noise_std(epsilon=epsilon, delta=delta)
    return BACKENDS["numpy"](plan, problem.fit.x, problem.fit.y, std, rng)


def _output(
    problem: Problem, choice: Choice, epsilon: float, delta: float, rng: np.random.Generator
) -> Array:
    return output_perturbation(
        problem.loss,
        choice["lambda"],
        problem.fit.x,
        problem.fit.y,
        epsilon=epsilon,
        delta=delta,
        largest_label=LABEL_BOUND,
        rng=rng,
    )


_DUAL_VALUES: dict[str, Any] = {
    "lambda": LAMBDAS,
    "batches": BATCHES,
    "epochs": EPOCHS,
    "clip": STEP_CLIPS,
}
_GD_VALUES = {"lambda": LAMBDAS, "epochs": EPOCHS, "clip": GRADIENT_CLIPS, "rate": RATES}
_REPLACE = "replace-one"

METHODS = (
    Method(
        name="DP-SCD, secret coins",
        neighbours=f"{_REPLACE}, proved",
        values=_DUAL_VALUES,
        train=_dual("poisson"),
    ),
    Method(
        name="DP-SCD, public batches",
        neighbours=f"{_REPLACE}, proved",
        values=_DUAL_VALUES,
        train=_dual("cyclic"),
    ),
    Method(
        name="DP-SCD as published",
        neighbours="omit-one, the paper's accounting, not proved here",
        values=_DUAL_VALUES,
        train=_published,
    ),
    Method(
        name="DP-SGD",
        neighbours=f"{_REPLACE}, baseline, central",
        values={**_GD_VALUES, "batches": BATCHES},
        train=_sgd,
    ),
    Method(
        name="DP-SGD, 4 x the tries",
        neighbours=f"{_REPLACE}, baseline, central",
        values={**_GD_VALUES, "batches": BATCHES},
        train=_sgd,
        effort=4,
    ),
    Method(
        name="DP-GD", neighbours=f"{_REPLACE}, baseline, central", values=_GD_VALUES, train=_sgd
    ),
    Method(
        name="output perturbation",
        neighbours=f"{_REPLACE}, baseline, central",
        values={"lambda": (*LAMBDAS, 1.0)},
        train=_output,
    ),
)
