r"""Accelerated private methods on the synthetic problem of arXiv:2008.01989, section 5.

Question: what do momentum, stages and a divided budget gain at epsilon = 1 without subsampling?

    python -m sims.studies.accelerated --out DIR [--runs 20] [--jobs 2]

Six methods, T iterations of step c / L, from 10 in every coordinate; noise is Laplace of scale b =
D / eps_t, D = 2 max ||u||_1 / n, hence of standard deviation sqrt(2) b. (The code published with
the paper takes b for the standard deviation: its noise is too small by sqrt(2).) The two -opt
methods divide epsilon by the error bound and stop at the T' <= T that minimises it (E_0 = 10).

GD at c = 1, T = 100 hangs on the draw of the labels: from 10 in every coordinate it has to walk
against the loss where all labels are -1 (log10 -1.35), and waits for the penalty alone where most
are +1 (+1.0). The other methods move by 0.1 to 0.3 between draws. --seed draws another.

NOT PRIVATE: noise is seeded float64, and L is the paper's estimate from the rows, the largest
eigenvalue of U^T U / n + 2 lambda. Writes traces.csv, results.csv, table.txt and two figures.

The problem: rows u uniform on [0, 1]^d, so that ||u||_1 <= d; a label is the sign of <u, w> for one
standard normal w. The objective is mean_i ln(1 + exp(-y_i <u_i, w>)) + lambda ||w||^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import threadpool_limits

from protocols.updates.momentum import GradientDescent, HeavyBall
from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)
from protocols.updates.update import Update
from sims.console import refusals
from sims.many_twins import Batch
from sims.studies.scaffold import progress, save_figure, write_lines, write_rows

Floats = NDArray[np.float64]

METHODS = ("GD", "HB", "NAG", "MASG", "NAG-opt", "MASG-opt")
ROUNDS = (100, 200, 500, 1000)
STEP_SCALES = (0.1, 1.0)
START, INITIAL_ERROR, _POINTS = 10.0, 10.0, 60
# Okabe and Ito's colours, as in `sims.plots`, with a line style each.
_LOOKS = (("#009E73", ":"), ("#000000", "-."), ("#0072B2", "--"), ("#D55E00", "-"))
# log10 mean suboptimality at c = 1: the same experiment, run elsewhere with this noise scale.
EXPECTED = {
    100: (-1.44, -1.44, -1.52, -1.57, -1.87, -1.86),
    1000: (-0.55, 0.45, 0.43, -0.71, -1.87, -1.86),
}


_BLOCK = 4096
_NEWTON_STEPS = 50


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
    def positive_share(self) -> float:
        """Share of rows with the label +1; rows themselves are not negative."""
        return float((self.signed[:, 0] > 0).mean())

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
        """The minimiser by Newton's method with step halving, shape (d,)."""
        w: Floats = np.zeros(self.features)
        for _ in range(_NEWTON_STEPS):
            gradient = self.data_gradient(w[None])[0] + 2 * self.penalty * w
            p = expit(-(self.signed @ w))
            hessian = self.signed.T @ (self.signed * (p * (1 - p))[:, None]) / len(self.signed)
            hessian[np.diag_indices_from(hessian)] += 2 * self.penalty
            step = np.linalg.solve(hessian, gradient)
            if gradient @ step < 1e-24:  # twice the suboptimality
                break
            here = self.objective(w[None])[0]
            while self.objective((w - step)[None])[0] > here and step @ step > 1e-24:
                step /= 2
            w = w - step
        return np.asarray(w)

    def _blocks(self) -> Iterator[Floats]:
        for start in range(0, len(self.signed), _BLOCK):
            yield self.signed[start : start + _BLOCK]


def synthetic_problem(
    rng: np.random.Generator, *, rows: int = 100_000, features: int = 20, penalty: float = 0.01
) -> Problem:
    """A problem of the paper's kind; its sizes by default."""
    data = rng.random((rows, features))
    labels = np.where(data @ rng.standard_normal(features) < 0, -1.0, 1.0)
    return Problem(signed=data * labels[:, None], penalty=penalty, l1_bound=float(features))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method in one setting: rounds is the T that it was offered, step_scale is c."""

    method: str
    rounds: int
    step_scale: float


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
    """The problem with what all cells share: mu = 2 lambda, L, sensitivity D, epsilon, F*."""

    problem: Problem
    mu: float
    smoothness: float
    sensitivity: float
    epsilon: float
    best: float

    @classmethod
    def of(cls, problem: Problem, *, epsilon: float) -> Study:
        """The paper's choices for a problem."""
        return cls(
            problem=problem,
            mu=2 * problem.penalty,
            smoothness=estimated_smoothness(problem),
            sensitivity=2 * problem.l1_bound / len(problem.signed),
            epsilon=epsilon,
            best=float(problem.objective(problem.optimum()[None])[0]),
        )

    def rule(self, cell: Cell) -> tuple[Update, Floats]:
        """The method's rule, and the Laplace scale of every iteration: D / eps_t."""
        rule = self._rule(cell)
        if isinstance(rule, StronglyConvexNesterov) and cell.method.endswith("-opt"):
            rule = rule.shortened(
                sensitivity=self.sensitivity,
                budget=self.epsilon,
                dim=self.problem.features,
                initial_error=INITIAL_ERROR,
            )
        return rule, self.sensitivity / (self.epsilon * np.array(rule.noise_shares()))

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

    def run(
        self,
        cell: Cell,
        *,
        runs: int,
        rng: np.random.Generator,
        on_iteration: Callable[[], object] = lambda: None,
    ) -> Trace:
        """All runs of a cell at once; about 60 points of the trace are evaluated."""
        rule, scales = self.rule(cell)
        points = np.unique(np.linspace(1, rule.rounds, _POINTS).round().astype(np.int64))
        values: list[Floats] = []
        state = rule.start(Batch(np.full((runs, self.problem.features), START)))
        for t in range(rule.rounds):
            point = rule.point(state).values
            noise = rng.laplace(scale=scales[t], size=point.shape)
            gradient = rule.gradient_factor(t) * (self.problem.data_gradient(point) + noise)
            state = rule.step(Batch(gradient), state, t)
            if t + 1 in points:
                weights = rule.weights(state, t).values
                values.append(self.problem.objective(weights) - self.best)
            on_iteration()
        return Trace(cell=cell, iterations=points, suboptimality=np.array(values))


def estimated_smoothness(problem: Problem) -> float:
    """L = (largest eigenvalue of U^T U / n) + 2 lambda; NOT PRIVATE.

    Section 5 of the paper has it without the slope of 1/4: four times the curvature that there is.
    """
    rows = problem.signed
    return float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]) + 2 * problem.penalty


def all_cells(
    rounds: Sequence[int] = ROUNDS, step_scales: Sequence[float] = STEP_SCALES
) -> list[Cell]:
    """Every method in every setting, the longest first."""
    return [
        Cell(method=method, rounds=t, step_scale=c)
        for t in sorted(rounds, reverse=True)
        for c in step_scales
        for method in METHODS
    ]


def run_cells(
    study: Study,
    cells: Sequence[Cell],
    *,
    runs: int,
    seed: int = 0,
    jobs: int = 1,
    on_iteration: Callable[[], object] = lambda: None,
) -> list[Trace]:
    """Traces of all cells, in their order; each cell has its own stream, whatever `jobs` is."""
    streams = np.random.default_rng(seed).spawn(len(cells))

    def one(number: int) -> Trace:
        return study.run(cells[number], runs=runs, rng=streams[number], on_iteration=on_iteration)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(len(cells))))


def table_lines(study: Study, traces: Sequence[Trace]) -> Iterator[str]:
    """The table, for people."""
    n, d = study.problem.signed.shape
    mu, smoothness = study.mu, study.smoothness
    yield (
        f"log10 mean suboptimality; n={n:,} d={d} epsilon={study.epsilon:g}, no subsampling, "
        f"{study.problem.positive_share:.1%} of labels are +1"
    )
    yield (
        f"mu={mu:g} L={smoothness:.4f} (kappa={smoothness / mu:.1f}), F*={study.best:.6f}, "
        f"{traces[0].suboptimality.shape[1]} runs; in brackets: standard error, T' of -opt"
    )
    by_cell = {trace.cell: trace for trace in traces}
    yield f"{'':>14}" + "".join(f"{name:>18}" for name in METHODS)
    for c in sorted({cell.step_scale for cell in by_cell}):
        for rounds in sorted({cell.rounds for cell in by_cell}):
            found = [by_cell.get(Cell(method=m, rounds=rounds, step_scale=c)) for m in METHODS]
            yield f"c={c:<4g} T={rounds:<6}" + "".join(f"{_entry(x):>18}" for x in found)
            if c == 1.0 and rounds in EXPECTED:
                yield f"{'expected':>14}" + "".join(f"{x:>18.2f}" for x in EXPECTED[rounds])


def _entry(trace: Trace | None) -> str:
    if trace is None:
        return "-"
    taken = f", {trace.iterations[-1]}" if trace.cell.method.endswith("-opt") else ""
    return f"{trace.log_mean[-1]:.2f} ({trace.log_error:.2f}{taken})"


def main(
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")],
    runs: Annotated[int, typer.Option(min=1, help="Runs per method and setting.")] = 20,
    jobs: Annotated[int, typer.Option(min=1, help="Threads.")] = 2,
    rows: Annotated[int, typer.Option(min=100, help="Rows n.")] = 100_000,
    epsilon: Annotated[float, typer.Option(min=1e-6, help="Pure differential privacy.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the rows and of the noise.")] = 0,
) -> None:
    """Six private methods, four numbers of iterations, two steps: table, CSV, figures."""
    with refusals() as console, threadpool_limits(limits=1):
        problem = synthetic_problem(np.random.default_rng(seed), rows=rows)
        study, cells = Study.of(problem, epsilon=epsilon), all_cells()
        iterations = sum(study.rule(cell)[0].rounds for cell in cells)
        with progress(console, iterations) as (describe, advance):
            describe("train")
            traces = run_cells(
                study, cells, runs=runs, seed=seed + 1, jobs=jobs, on_iteration=advance
            )
        write_all(out, study, traces)


def write_all(out: Path, study: Study, traces: Sequence[Trace]) -> None:
    """traces.csv, results.csv, table.txt, suboptimality_c_*.svg and .png in the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    heads = [{"method": x.cell.method, "c": x.cell.step_scale, "T": x.cell.rounds} for x in traces]
    steps = (
        {**head, "iteration": t, "mean_suboptimality": f"{mean:.6g}"}
        for head, x in zip(heads, traces, strict=True)
        for t, mean in zip(x.iterations, x.suboptimality.mean(axis=1), strict=True)
    )
    results = (
        {
            **head,
            "iterations": x.iterations[-1],
            "log10_mean_suboptimality": f"{x.log_mean[-1]:.4f}",
            "standard_error": f"{x.log_error:.4f}",
        }
        for head, x in zip(heads, traces, strict=True)
    )
    write_rows(out / "traces.csv", steps)
    write_rows(out / "results.csv", results)
    write_lines(out / "table.txt", table_lines(study, traces), shown=True)
    for c in sorted({trace.cell.step_scale for trace in traces}):
        mine = [x for x in traces if x.cell.step_scale == c]
        save_figure(out / f"suboptimality_c_{c:g}", trace_figure, mine, c)


def trace_figure(traces: Sequence[Trace], step_scale: float) -> Figure:
    """log10 of the mean suboptimality against the iteration; a panel per method, a line per T."""
    figure = Figure(figsize=(9.6, 5.8), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, method in zip(panels.flat, METHODS, strict=True):
        mine = sorted((x for x in traces if x.cell.method == method), key=lambda x: x.cell.rounds)
        for trace, (colour, style) in zip(mine, _LOOKS, strict=False):
            label = f"T = {trace.cell.rounds}"
            axes.plot(trace.iterations, trace.log_mean, color=colour, linestyle=style, label=label)
        axes.set_title(method, fontsize=11)
    panels[0, 0].legend()
    figure.supxlabel("iteration")
    figure.supylabel("log10 mean suboptimality")
    figure.suptitle(f"step {step_scale:g} / L")
    return figure


if __name__ == "__main__":
    typer.run(main)
