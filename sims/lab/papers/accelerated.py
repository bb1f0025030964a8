r"""Accelerated private methods on the synthetic problem of arXiv:2008.01989, section 5.

Six methods, T iterations of step c / L, from 10 in every coordinate, with the gradient of m of the
n rows, drawn anew in every iteration. Noise is Laplace of scale b_t, of standard deviation
sqrt(2) b_t; `papers.fixed_batches` derives b_t. The two -opt methods divide epsilon by
the error bound and stop at the T' <= T that minimises it (E_0 = 10).

**The published code** (repository sibirbil/DPAccGradMethods) differs in three places:

- it passes b_t to a generator that takes a standard deviation: its noise is sqrt(2) too small;
- its search of T' doubles a_{T,0} and halves a_{T,t}, which is the bound with 4 E_0: T' = 136, 396
  and 89 where (32) gives 106, 303 and 89;
- the last iteration of a stage counts as the next one's.

`published` makes the first two slips, so that the published figures can be checked.

**The labels** are the sign of <u, w> for one normal w, with u uniform on [0, 1]^d. How many are -1
hangs on w, and with it how far GD has to walk from its start: at c = 1, T = 100 it ends at
log10 -1.35 where all are -1 and at +1.0 where most are +1. The published curves begin at
10^1.46 = 20 + 100 (share of -1) - F*, hence a share of 9 %; w is drawn until it is 8.5 to 9.5 %.

NOT PRIVATE: noise is seeded float64, and L is the paper's estimate from the rows, the largest
eigenvalue of U^T U / n + 2 lambda. The objective is mean_i ln(1 + exp(-y_i <u_i, w>)) + lambda
||w||^2; the paper's (35) has the penalty's sign wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.updates.momentum import GradientDescent, HeavyBall
from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)
from protocols.updates.update import Update
from sims.lab.audits.many_twins import Batch
from sims.lab.baselines import optimum
from sims.lab.papers.curves import Curve
from sims.lab.papers.fixed_batches import laplace_scale

Floats = NDArray[np.float64]

METHODS = ("GD", "HB", "NAG", "MASG", "NAG-opt", "MASG-opt")
ROUNDS = (100, 200, 500, 1000)
START, INITIAL_ERROR, _POINTS = 10.0, 10.0, 60
NEGATIVES = (0.085, 0.095)
"""Share of labels -1: where the published curves begin."""
_BLOCK = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Rows with their labels, and the regularised objective on them.

    signed: rows u_i times labels y_i = +-1, float64 array, shape (n, d).
    penalty: lambda > 0. l1_bound: public bound on every row's l1 norm.
    """

    signed: Floats
    penalty: float
    l1_bound: float

    @property
    def features(self) -> int:
        """Columns d."""
        return int(self.signed.shape[1])

    def data_gradient(self, weights: Floats) -> Floats:
        """Gradients of the mean loss without its penalty, shape of `weights`: (runs, d).

        -mean sigmoid(-m_i) y_i u_i with margins m, sigmoid(-m) = (1 - tanh(m / 2)) / 2; blocks of
        rows stay in the cache.
        """
        total = np.zeros_like(weights)
        for rows in self._blocks():
            half = rows @ (0.5 * weights.T)
            np.tanh(half, out=half)
            half -= 1.0
            total += half.T @ rows
        return total / (2 * len(self.signed))

    def batch_gradient(self, weights: Floats, size: int, rng: np.random.Generator) -> Floats:
        """The same over `size` rows, drawn without replacement for each run."""
        found = np.empty_like(weights)
        for run, w in enumerate(weights):
            drawn = rng.choice(len(self.signed), size, replace=False, shuffle=False)
            rows = self.signed[drawn]
            found[run] = (np.tanh(rows @ (0.5 * w)) - 1.0) @ rows
        return found / (2 * size)

    def objective(self, weights: Floats) -> Floats:
        """Values for every run, shape (runs,): ln(1 + e^-m) = max(-m, 0) + ln(1 + e^-|m|)."""
        total = np.zeros(len(weights))
        for rows in self._blocks():
            margin = rows @ weights.T
            total -= np.minimum(margin, 0.0).sum(axis=0)
            np.abs(margin, out=margin)
            total += np.log1p(np.exp(-margin)).sum(axis=0)
        penalty = self.penalty * np.einsum("ij,ij->i", weights, weights)
        return np.asarray(total / len(self.signed) + penalty)

    def optimum(self) -> Floats:
        """The minimiser, shape (d,)."""
        return optimum("logistic", 2 * self.penalty, self.signed, np.ones(len(self.signed)))

    def _blocks(self) -> Iterator[Floats]:
        for start in range(0, len(self.signed), _BLOCK):
            yield self.signed[start : start + _BLOCK]


def synthetic_problem(
    rng: np.random.Generator, *, rows: int = 100_000, features: int = 20, penalty: float = 0.01
) -> Problem:
    """A problem of the paper's kind; its sizes by default; `NEGATIVES` of its labels are -1."""
    data = rng.random((rows, features))
    low, high = NEGATIVES
    while True:
        direction = rng.standard_normal(features)
        if low <= np.mean(data[:2000] @ direction < 0) <= high:
            labels = np.where(data @ direction < 0, -1.0, 1.0)
            return Problem(signed=data * labels[:, None], penalty=penalty, l1_bound=features)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method in one setting: rounds is the T that it was offered, step_scale is c.

    batch: m; None: all rows.
    """

    method: str
    rounds: int
    step_scale: float
    batch: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Suboptimality along all runs of a cell.

    iterations: where it was taken, shape (points,), the last one is T'.
    suboptimality: F(w_t) - F*, shape (points, runs).
    """

    cell: Cell
    iterations: NDArray[np.int64]
    suboptimality: Floats

    @property
    def log_mean(self) -> Floats:
        """log10 of the mean over runs, shape (points,)."""
        return np.asarray(np.log10(self.suboptimality.mean(axis=1)))

    @property
    def log_error(self) -> float:
        """Standard error of the last `log_mean`, to first order; nan with one run."""
        last = self.suboptimality[-1]
        if last.size < 2:
            return math.nan
        return float(last.std(ddof=1) / math.sqrt(last.size) / last.mean() / math.log(10))


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """The problem with what all cells share: mu = 2 lambda, L, S of one row, epsilon, F*.

    published: with the published code's noise and T'.
    """

    problem: Problem
    mu: float
    smoothness: float
    sensitivity: float
    epsilon: float
    best: float
    published: bool = False

    @classmethod
    def of(cls, problem: Problem, *, epsilon: float) -> Study:
        """The paper's choices for a problem; S = 2 max ||u||_1 (36)."""
        return cls(
            problem=problem,
            mu=2 * problem.penalty,
            smoothness=estimated_smoothness(problem),
            sensitivity=2 * problem.l1_bound,
            epsilon=epsilon,
            best=float(problem.objective(problem.optimum()[None])[0]),
        )

    def as_published(self) -> Study:
        """Noise and T' of the published code."""
        return replace(self, published=True)

    def rule(self, cell: Cell) -> tuple[Update, Floats]:
        """The method's rule, and the Laplace scale of every iteration."""
        rule, rows = self._rule(cell), len(self.problem.signed)
        if isinstance(rule, StronglyConvexNesterov) and cell.method.endswith("-opt"):
            rule = rule.shortened(
                sensitivity=self.sensitivity / rows,
                budget=self.epsilon,
                dim=self.problem.features,
                initial_error=INITIAL_ERROR * (4 if self.published else 1),
            )
        scales = laplace_scale(
            self.epsilon * np.array(rule.noise_shares()),
            sensitivity=self.sensitivity,
            batch=cell.batch or rows,
            rows=rows,
        )
        return rule, scales / math.sqrt(2) if self.published else scales

    def _rule(self, cell: Cell) -> Update:
        mu, smoothness, rounds = self.mu, self.smoothness, cell.rounds
        step = cell.step_scale / smoothness
        if cell.method == "GD":
            return GradientDescent(rounds=rounds, learning_rate=step, ridge=mu)
        if cell.method == "HB":
            root = math.sqrt(step * mu)
            beta = (1 - root) / (1 + root)
            return HeavyBall(rounds=rounds, learning_rate=step, momentum=beta, ridge=mu)
        common: dict[str, Any] = {
            **{"rounds": rounds, "mu": mu, "smoothness": smoothness, "ridge": mu},
            "step_scale": cell.step_scale,
            "division": "laplace" if cell.method.endswith("-opt") else "uniform",
        }
        if cell.method.startswith("NAG"):
            return StronglyConvexNesterov(**common)
        return MultiStage(**common, first_stage=recommended_first_stage(mu, smoothness))

    def run(self, cell: Cell, *, runs: int, rng: np.random.Generator) -> Trace:
        """All runs of a cell at once; about 60 points of the trace are evaluated."""
        rule, scales = self.rule(cell)
        points = np.unique(np.linspace(1, rule.rounds, _POINTS).round().astype(np.int64))
        values: list[Floats] = []
        state = rule.start(Batch(np.full((runs, self.problem.features), START)))
        for t in range(rule.rounds):
            point = rule.point(state).values
            noise = rng.laplace(scale=scales[t], size=point.shape)
            gradient = rule.gradient_factor(t) * (self._data_gradient(point, cell, rng) + noise)
            state = rule.step(Batch(gradient), state, t)
            if t + 1 in points:
                weights = rule.weights(state, t).values
                values.append(self.problem.objective(weights) - self.best)
        return Trace(cell=cell, iterations=points, suboptimality=np.array(values))

    def _data_gradient(self, point: Floats, cell: Cell, rng: np.random.Generator) -> Floats:
        if cell.batch is None:
            return self.problem.data_gradient(point)
        return self.problem.batch_gradient(point, cell.batch, rng)


def estimated_smoothness(problem: Problem) -> float:
    """L = (largest eigenvalue of U^T U / n) + 2 lambda; NOT PRIVATE.

    Section 5 of the paper has it without the slope of 1/4: four times the curvature that there is.
    """
    rows = problem.signed
    return float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]) + 2 * problem.penalty


def run_cells(study: Study, cells: Sequence[Cell], *, runs: int, seed: int = 0) -> list[Trace]:
    """Traces of all cells, in their order; each cell has its own stream."""
    streams = np.random.default_rng(seed).spawn(len(cells))
    return [study.run(cell, runs=runs, rng=rng) for cell, rng in zip(cells, streams, strict=True)]


def curves_of(traces: Sequence[Trace]) -> list[Curve]:
    """log10 of the mean suboptimality by iteration; a panel per step and method, a line per T."""
    return [
        Curve(
            f"{trace.cell.method}, c = {trace.cell.step_scale:g}",
            f"T = {trace.cell.rounds}",
            list(trace.log_mean),
            at=list(trace.iterations),
        )
        for trace in traces
    ]
