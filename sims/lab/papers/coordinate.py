r"""DP stochastic coordinate descent (arXiv:2006.07272) and what it is compared with.

**Comparison.** Every method gets the same number of random configurations from its grid; those with
the same grid get the same ones. Each is run once, the best FINALISTS by validation error AGAIN
times more, and their mean decides: the least of many single runs is a lucky one. DP-SGD, whose grid
is four times as large, has a second line with four times as many, the first ones among them. The
best one is run with fresh noises. With few tries the draw of configurations decides who wins among
those with different grids. The choice itself is not paid for in epsilon.

Plaintext, float64 noise: a comparison of algorithms that protects nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from protocols.updates.coordinate import DualPlan, Schedule
from sims.lab.baselines import DpSgd, Loss, dp_sgd, dp_sgd_course, optimum, output_perturbation
from sims.lab.papers.barrier import ORDERS
from sims.lab.papers.coordinate_baselines import (
    PrimalPlan,
    train_dual,
    train_primal,
    train_published,
    train_sequential,
    widest,
)
from sims.lab.papers.coordinate_problems import LABEL_BOUND, Part, Problem

Array = NDArray[np.float64]

EPSILONS = (0.1, 0.5, 1.0, 2.0)
DELTA = 1e-3
"""The paper's."""
FINALISTS, AGAIN = 3, 3


# -- methods, and the values that the search may choose from ---------------------------------------

Choice = Mapping[str, float]
# (problem, choice, epsilon, delta, rng) -> theta
Train = Callable[[Problem, Choice, float, float, np.random.Generator], Array]

LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1)
BATCHES = (1, 4, 16, 64)
EPOCHS = (1, 3, 10, 30)
STEP_CLIPS = (0.03, 0.1, 0.3, 1.0, 3.0)  # C (1 + c): a ridge update from 0 is y / (1 + c)
GRADIENT_CLIPS = (0.03, 0.1, 0.3, 1.0)
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Method:
    """One line of the figure.

    neighbours: what its epsilon protects, and whether that is proved here; values: what the search
    may choose from, by hyperparameter; losses: those that it can train; effort: multiplies the
    number of tries.
    """

    name: str
    neighbours: str
    values: Mapping[str, tuple[float, ...]]
    train: Train
    losses: tuple[Loss, ...]
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
    def train(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
        plan, rows = dual_plan(problem, choice, schedule), problem.fit
        std = plan.noise_std(epsilon=epsilon, delta=delta, dim=rows.x.shape[1])
        return train_dual(plan, rows.x, rows.y, std, rng)

    return train


@lru_cache(maxsize=1024)
def moments_multiplier(rate: float, rounds: int, epsilon: float, delta: float) -> float:
    """sigma over the sensitivity by the moments accountant, as in the paper's Theorem 1."""
    once = dp_accounting.PoissonSampledDpEvent
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: dp_accounting.rdp.RdpAccountant(ORDERS),
            lambda z: dp_accounting.SelfComposedDpEvent(
                once(rate, dp_accounting.GaussianDpEvent(z)), rounds
            ),
            epsilon,
            delta,
        )
    )


def published_std(plan: DualPlan, epsilon: float, delta: float) -> float:
    """`DualPlan.paper_std`, at fewer orders and cached."""
    z = moments_multiplier(1 / plan.batches, plan.rounds, epsilon, delta)
    return float(np.sqrt(2.0) * plan.clip * z)


def _published(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    plan, rows = dual_plan(problem, choice, "poisson"), problem.fit
    return train_published(plan, rows.x, rows.y, published_std(plan, epsilon, delta), rng)


def _sequential(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    plan, rows = dual_plan(problem, choice, "poisson"), problem.fit
    size = -(-len(rows.x) // plan.batches)
    z = moments_multiplier(1 / plan.batches, plan.rounds, epsilon, delta)
    return train_sequential(plan, rows.x, rows.y, z * widest(plan.clip, size), rng)


def _primal(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    if problem.loss == "svm":
        raise AssertionError("the hinge has no primal coordinate step")
    plan = PrimalPlan(
        loss=problem.loss,
        lam=choice["lambda"],
        size=int(choice["columns"]),
        rounds=int(choice["rounds"]),
        clip=choice["step"],
    )
    z = moments_multiplier(1.0, plan.rounds, epsilon, delta)
    std = z * widest(plan.clip, min(plan.size, problem.fit.x.shape[1]))
    return train_primal(plan, problem.fit.x, problem.fit.y, std, rng)


def _sgd(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    batches = int(choice.get("batches", 1))
    plan = DpSgd(
        loss=problem.loss,
        lam=choice["lambda"],
        batches=batches,
        rounds=int(choice["epochs"]) * batches,
        clip=choice["clip"],
        rate=choice["rate"],
    )
    std = plan.noise_std(epsilon=epsilon, delta=delta)
    return dp_sgd(plan, problem.fit.x, problem.fit.y, std, rng)


def _output(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    if problem.loss == "svm":
        raise AssertionError("output perturbation asks for a smooth loss")
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


_DUAL: dict[str, Any] = {"lambda": LAMBDAS, "batches": BATCHES, "epochs": EPOCHS}
_DUAL |= {"clip": STEP_CLIPS}
_SHORT = {**_DUAL, "batches": (16, 64), "epochs": (1, 3)}
_COLUMNS: dict[str, Any] = {"lambda": LAMBDAS, "columns": (1, 4, 16), "rounds": (10, 50, 200)}
_COLUMNS |= {"step": (0.1, 1.0, 10.0)}
_GD = {"lambda": LAMBDAS, "epochs": EPOCHS, "clip": GRADIENT_CLIPS, "rate": RATES}
_SGD, _PERTURBATION = {**_GD, "batches": BATCHES}, {"lambda": (*LAMBDAS, 1.0)}
_PROVED, _BASELINE = "replace-one, proved", "replace-one, baseline, central"
_PAPER = "omit-one, the paper's accounting, not proved here"
_SMOOTH: tuple[Loss, ...] = ("ridge", "logistic")
_ALL: tuple[Loss, ...] = (*_SMOOTH, "svm")
METHODS = (
    Method("DP-SCD, secret coins", _PROVED, _DUAL, _dual("poisson"), _ALL),
    Method("DP-SCD, public batches", _PROVED, _DUAL, _dual("cyclic"), _ALL),
    Method("DP-SCD as published", _PAPER, _DUAL, _published, _ALL),
    Method("seqDP-SCD", _PAPER, _SHORT, _sequential, _ALL),
    Method("primal DP-SCD", _PAPER, _COLUMNS, _primal, _SMOOTH),
    Method("DP-SGD", _BASELINE, _SGD, _sgd, _ALL),
    Method("DP-SGD, 4 x the tries", _BASELINE, _SGD, _sgd, _ALL, effort=4),
    Method("DP-GD", _BASELINE, _GD, _sgd, _ALL),
    Method("output perturbation", _BASELINE, _PERTURBATION, _output, _SMOOTH),
)


# -- the comparison --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One method at one epsilon: test errors over seeds, shape (seeds,), and how it was tuned."""

    method: Method
    epsilon: float
    errors: Array
    tried: int
    available: int
    choice: dict[str, float]

    @property
    def std_error(self) -> float:
        """Of the mean over seeds."""
        return float(self.errors.std(ddof=1) / np.sqrt(self.errors.size))

    @property
    def note(self) -> str:
        """The setting and what its epsilon protects."""
        chosen = " ".join(f"{k}={v:g}" for k, v in self.choice.items())
        return f"{self.method.neighbours}; {self.tried} of {self.available} tried: {chosen}"


def best_of(
    choices: Sequence[dict[str, float]], score: Callable[[Choice], float]
) -> dict[str, float]:
    """The choice of least score: the best few by one run are run again; diverged ones are last."""

    def mean(choice: Choice, runs: int) -> float:
        return float(np.nan_to_num(np.mean([score(choice) for _ in range(runs)]), nan=np.inf))

    few = sorted(choices, key=lambda choice: mean(choice, 1))[:FINALISTS]
    return min(few, key=lambda choice: mean(choice, AGAIN))


def run_method(
    problem: Problem,
    method: Method,
    epsilon: float,
    *,
    tries: int,
    seeds: int,
    delta: float = DELTA,
    seed: int = 0,
) -> Finding:
    """Tune on the validation rows, then measure on the test rows with fresh noise."""
    key = [seed, [m.name for m in METHODS].index(method.name)]
    # the same for every epsilon, and for methods with the same grid
    choices = method.choices(tries, np.random.default_rng(seed))
    rng = np.random.default_rng([*key, round(1000 * epsilon)])

    def error(choice: Choice, part: Part) -> float:
        return problem.error(method.train(problem, choice, epsilon, delta, rng), part)

    best = best_of(choices, lambda choice: error(choice, problem.validation))
    errors = [error(best, problem.test) for _ in range(seeds)]
    return Finding(
        method=method,
        epsilon=epsilon,
        errors=np.array(errors),
        tried=len(choices),
        available=int(np.prod([len(v) for v in method.values.values()])),
        choice=best,
    )


def exact(problem: Problem, lam: float) -> Array:
    """The optimum without privacy."""
    if problem.loss == "svm":
        model = LinearSVC(
            C=1 / (lam * len(problem.fit.x)),
            loss="hinge",
            fit_intercept=False,
            max_iter=20_000,
            random_state=0,
        )
        return np.asarray(model.fit(problem.fit.x, problem.fit.y).coef_[0])
    return optimum(problem.loss, lam, problem.fit.x, problem.fit.y)


def best_without_privacy(problem: Problem) -> float:
    """Test error of the exact optimum, its lambda chosen on the validation rows."""
    lams = LAMBDAS[1:] if problem.loss == "svm" else LAMBDAS
    best = min(
        (exact(problem, lam) for lam in lams), key=lambda w: problem.error(w, problem.validation)
    )
    return problem.error(best, problem.test)


def sgd_course(
    problem: Problem, plan: DpSgd, std: float, rng: np.random.Generator
) -> Iterator[Array]:
    """theta after every epoch of `dp_sgd`."""
    course = dp_sgd_course(plan, problem.fit.x, problem.fit.y, std, rng)
    return itertools.islice(course, plan.batches - 1, None, plan.batches)
