r"""DP stochastic coordinate descent against DP-SGD: error over epsilon.

Question: at the same (epsilon, delta) and with the same number of configurations tried, which of
DP-SCD and DP-SGD has the smaller test error on ridge and logistic regression?

    python -m sims.studies.coordinate --out DIR --data adult.csv --test adult_test.csv \
        --schema docs/schemas/adult.json --target age

Without --data: scikit-learn's diabetes data and the synthetic problem only. Every method gets the
same number of random configurations from its grid, chosen by validation error with one run each;
DP-SGD, whose grid is four times as large, appears once more with four times as many. The best one
is then run with `--seeds` fresh noises. With few tries the draw of configurations decides who wins:
two draws of 24 gave opposite orders. The choice itself is not paid for in epsilon. Plaintext,
float64 noise: a comparison of algorithms that protects nobody; its figures are no end-to-end
epsilons of a deployment. Writes coordinate-*.svg and .png, coordinate.csv, coordinate.txt.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from parties.data.encode import encode_features, encode_shard
from parties.data.schema import NumericColumn, Schema
from parties.data.table import read_table
from protocols.errors import ParameterError, SchemaError
from protocols.updates.coordinate import DualPlan, Schedule
from sims.baselines import BACKENDS, DpSgd, SmoothLoss, optimum, output_perturbation
from sims.console import refusals
from sims.coordinate_baselines import train_dual, train_published
from sims.plots import BLUE, GREEN, VERMILLION
from sims.studies.scaffold import progress, save_figure, write_lines, write_rows

Array = NDArray[np.float64]

EPSILONS = (0.1, 0.5, 1.0, 2.0)
DELTA = 1e-5
LABEL_BOUND = 3.0
"""Ridge labels are (y - typical) / spread, clamped here."""
_PHISHING_ROWS, _PHISHING_COLUMNS = 11_055, 30


@dataclass(frozen=True, kw_only=True)
class Part:
    """x: float64, shape (n, d), |x_i| = 1. y: shape (n,); -1 or 1 for logistic."""

    x: Array
    y: Array


@dataclass(frozen=True, kw_only=True)
class Problem:
    """name: for tables and files. source: one sentence. fit, validation, test: disjoint rows."""

    name: str
    loss: SmoothLoss
    source: str
    fit: Part
    validation: Part
    test: Part

    @property
    def metric(self) -> str:
        """What `error` measures."""
        return "mean squared error" if self.loss == "ridge" else "misclassified share"

    def error(self, theta: Array, part: Part) -> float:
        """The metric on a part; smaller is better."""
        z = part.x @ theta
        if self.loss == "ridge":
            return float(np.mean((z - part.y) ** 2))
        return float(np.mean((z > 0) != (part.y > 0)))

    def trivial(self) -> float:
        """Test error of the best constant of the training part."""
        if self.loss == "ridge":
            return float(np.mean((self.test.y - self.fit.y.mean()) ** 2))
        return float(np.mean((self.test.y > 0) != (self.fit.y.mean() > 0)))


def unit_rows(x: Array) -> Array:
    """Every row divided by its own norm; rows of zeros stay. Needs no look at other rows."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    scaled: Array = x / np.where(norms > 0, norms, 1.0)
    return scaled


def make_problem(
    name: str,
    loss: SmoothLoss,
    source: str,
    x: Array,
    y: Array,
    rng: np.random.Generator,
    test: Part | None = None,
) -> Problem:
    """A quarter of the rows for the test unless it is given, a quarter of the rest to tune on."""
    order = rng.permutation(len(x))
    held = 0 if test is not None else len(x) // 4
    middle = held + (len(x) - held) // 4
    validation, fit = order[held:middle], order[middle:]
    return Problem(
        name=name,
        loss=loss,
        source=source,
        fit=Part(x=x[fit], y=y[fit]),
        validation=Part(x=x[validation], y=y[validation]),
        test=test or Part(x=x[order[:held]], y=y[order[:held]]),
    )


def phishing_like(rng: np.random.Generator, rows: int = _PHISHING_ROWS) -> Problem:
    """Synthetic: 30 columns in {-1, 0, 1} around five hidden traits, about 6 % label noise.

    The size and the alphabet are those of UCI's Phishing Websites; the values are made up.
    """
    traits = rng.standard_normal((rows, 5))
    loads = rng.standard_normal((5, _PHISHING_COLUMNS))
    score = traits @ loads / np.sqrt(5) + rng.standard_normal((rows, _PHISHING_COLUMNS))
    score += 0.7 * rng.standard_normal(_PHISHING_COLUMNS)
    ternary = np.sign(score) * (np.abs(score) > 0.4)
    truth = ternary @ rng.standard_normal(_PHISHING_COLUMNS)
    clean = np.where(truth > np.median(truth), 1.0, -1.0)
    y = np.where(rng.random(rows) < 0.06, -clean, clean)
    x = unit_rows(np.column_stack([ternary, np.ones(rows)]))
    source = f"synthetic, {rows:,} rows of 30 ternary features, like UCI Phishing Websites"
    return make_problem("phishing-like", "logistic", source, x, y, rng)


def diabetes(rng: np.random.Generator) -> Problem:
    """scikit-learn's diabetes data, 442 rows, scaled by their own range: for want of a file."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    low, high = x.min(axis=0), x.max(axis=0)
    scaled = np.column_stack([2 * (x - low) / (high - low) - 1, np.ones(len(x))])
    label = np.clip((y - 150.0) / 75.0, -LABEL_BOUND, LABEL_BOUND)
    return make_problem(
        "diabetes", "ridge", "scikit-learn's diabetes data", unit_rows(scaled), label, rng
    )


def from_files(
    data: Path, test: Path | None, schema: Schema, target: str, rng: np.random.Generator
) -> list[Problem]:
    """Ridge on the numeric column `target`, and logistic on the schema's label.

    Raises:
        SchemaError: `target` is not a numeric column with a typical value and spread.
    """
    names = {"data": data} if test is None else {"data": data, "test": test}
    frames = {k: read_table(path, label=schema.label.name) for k, path in names.items()}
    ridge = {k: _ridge_part(frame, schema, target) for k, frame in frames.items()}
    logistic = {k: _logistic_part(frame, schema) for k, frame in frames.items()}
    found = []
    kinds: tuple[tuple[SmoothLoss, dict[str, Part], str], ...] = (
        ("ridge", ridge, target),
        ("logistic", logistic, schema.label.name),
    )
    for loss, parts, column in kinds:
        x, y = parts["data"].x, parts["data"].y
        name, size = f"{data.stem}-{column}", f"{len(x):,} rows of {x.shape[1]} one-hot features"
        source = f"{data.name}, column {column}, {size}"
        found.append(make_problem(name, loss, source, x, y, rng, parts.get("test")))
    return found


def _logistic_part(frame: pd.DataFrame, schema: Schema) -> Part:
    shard = encode_shard(frame, replace(schema, row_norm=None))
    return Part(x=unit_rows(shard.x), y=2.0 * shard.y - 1.0)


def _ridge_part(frame: pd.DataFrame, schema: Schema, target: str) -> Part:
    found = next((c for c in schema.columns if c.name == target), None)
    if not isinstance(found, NumericColumn) or found.typical is None or found.spread is None:
        raise SchemaError(f"target={target!r} is not a numeric column with a spread in the schema")
    rest = tuple(c for c in schema.columns if c.name != target)
    x = encode_features(frame, replace(schema, columns=rest, row_norm=None))
    y = (frame[target].to_numpy(dtype=np.float64) - found.typical) / found.spread
    return Part(x=unit_rows(x), y=np.clip(y, -LABEL_BOUND, LABEL_BOUND))


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


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the figure.

    neighbours: what its epsilon protects, and whether that is proved here; values: what the search
    may choose from, by hyperparameter; look: colour, line and marker; effort: multiplies the number
    of tries.
    """

    name: str
    neighbours: str
    values: Mapping[str, tuple[float, ...]]
    train: Train
    look: tuple[str, str, str]
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
def _paper_multiplier(batches: int, rounds: int, epsilon: float, delta: float) -> float:
    plan = DualPlan(loss="ridge", lam=1.0, rows=batches, batches=batches, rounds=rounds, clip=1.0)
    return plan.paper_std(epsilon=epsilon, delta=delta)


def _published(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
    plan, rows = dual_plan(problem, choice, "poisson"), problem.fit
    std = plan.clip * _paper_multiplier(plan.batches, plan.rounds, epsilon, delta)
    return train_published(plan, rows.x, rows.y, std, rng)


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
    return BACKENDS["numpy"](plan, problem.fit.x, problem.fit.y, std, rng)


def _output(problem: Problem, choice: Choice, epsilon: float, delta: float, rng: Any) -> Array:
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
_GD = {"lambda": LAMBDAS, "epochs": EPOCHS, "clip": GRADIENT_CLIPS, "rate": RATES}
_SGD, _PERTURBATION = {**_GD, "batches": BATCHES}, {"lambda": (*LAMBDAS, 1.0)}
_PROVED, _BASELINE = "replace-one, proved", "replace-one, baseline, central"
_PAPER = "omit-one, the paper's accounting, not proved here"
METHODS = tuple(
    Method(name=name, neighbours=neighbours, values=values, train=train, look=look, effort=effort)
    for name, neighbours, values, train, look, effort in (
        ("DP-SCD, secret coins", _PROVED, _DUAL, _dual("poisson"), (BLUE, "-", "o"), 1),
        ("DP-SCD, public batches", _PROVED, _DUAL, _dual("cyclic"), (BLUE, "--", "s"), 1),
        ("DP-SCD as published", _PAPER, _DUAL, _published, ("#777777", ":", "v"), 1),
        ("DP-SGD", _BASELINE, _SGD, _sgd, (VERMILLION, "-", "D"), 1),
        ("DP-SGD, 4 x the tries", _BASELINE, _SGD, _sgd, (VERMILLION, "--", "^"), 4),
        ("DP-GD", _BASELINE, _GD, _sgd, ("#B58900", "--", "P"), 1),
        ("output perturbation", _BASELINE, _PERTURBATION, _output, ("#8A5A83", "-.", "x"), 1),
    )
)


# -- the comparison --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One method at one epsilon: test errors over seeds, shape (seeds,), and how it was tuned."""

    problem: str
    metric: str
    method: str
    neighbours: str
    epsilon: float
    delta: float
    errors: NDArray[np.float64]
    tried: int
    available: int
    choice: dict[str, float]

    @property
    def words(self) -> str:
        """Mean and standard deviation over seeds."""
        return f"{self.errors.mean():.4f} +- {self.errors.std(ddof=1):.4f}"

    def row(self) -> dict[str, object]:
        """One line of the CSV."""
        same = ("problem", "metric", "method", "neighbours", "epsilon", "delta")
        return {
            **{name: getattr(self, name) for name in same},
            "error_mean": float(self.errors.mean()),
            "error_std": float(self.errors.std(ddof=1)),
            "error_median": float(np.median(self.errors)),
            "seeds": self.errors.size,
            "configurations_tried": self.tried,
            "configurations_available": self.available,
            "choice": " ".join(f"{k}={v:g}" for k, v in self.choice.items()),
        }


def run_method(
    problem: Problem,
    method: Method,
    epsilon: float,
    *,
    delta: float,
    tries: int,
    seeds: int,
    seed: int = 0,
) -> Finding:
    """Tune on the validation rows, then measure on the test rows with fresh noise."""
    key = [seed, [m.name for m in METHODS].index(method.name)]
    choices = method.choices(tries, np.random.default_rng(key))  # the same for every epsilon
    rng = np.random.default_rng([*key, round(1000 * epsilon)])
    scores = [
        problem.error(method.train(problem, c, epsilon, delta, rng), problem.validation)
        for c in choices
    ]
    best = choices[int(np.argmin(np.nan_to_num(scores, nan=np.inf)))]
    errors = [
        problem.error(method.train(problem, best, epsilon, delta, rng), problem.test)
        for _ in range(seeds)
    ]
    return Finding(
        problem=problem.name,
        metric=problem.metric,
        method=method.name,
        neighbours=method.neighbours,
        epsilon=epsilon,
        delta=delta,
        errors=np.array(errors),
        tried=len(choices),
        available=int(np.prod([len(v) for v in method.values.values()])),
        choice=best,
    )


def best_without_privacy(problem: Problem) -> float:
    """Test error of the exact optimum, its lambda chosen on the validation rows."""
    models = [optimum(problem.loss, lam, problem.fit.x, problem.fit.y) for lam in LAMBDAS]
    best = min(models, key=lambda theta: problem.error(theta, problem.validation))
    return problem.error(best, problem.test)


def draw(problem: Problem, found: Sequence[Finding]) -> Figure:
    """Error over epsilon; bars are one standard deviation over seeds."""
    figure = Figure(figsize=(6.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    exact, trivial = best_without_privacy(problem), problem.trivial()
    axes.axhline(exact, color=GREEN, linestyle="--", label="without privacy")
    axes.axhline(trivial, color="#99a", linestyle=":", label="best constant")
    for method in METHODS:
        line = [f for f in found if f.method == method.name]
        color, style, marker = method.look
        axes.errorbar(
            [f.epsilon for f in line],
            [f.errors.mean() for f in line],
            yerr=[f.errors.std(ddof=1) for f in line],
            color=color,
            linestyle=style,
            marker=marker,
            markersize=5,
            capsize=2.5,
            label=method.name,
        )
    axes.set_xscale("log")
    ticks = sorted({f.epsilon for f in found})
    axes.set_xticks(ticks, [f"{e:g}" for e in ticks])
    axes.minorticks_off()
    axes.set_ylim(0.95 * exact, exact + 1.15 * (trivial - exact))
    axes.set_xlabel("epsilon (delta = 1e-5)" if found[0].delta == DELTA else "epsilon")
    axes.set_ylabel(f"test {problem.metric}")
    figure.legend(loc="outside right upper", fontsize=8.5)
    return figure


def lines(problem: Problem, found: Sequence[Finding]) -> Iterator[str]:
    """The table of one problem, and who has the smaller mean error, for people."""
    yield f"{problem.name}: {problem.source}"
    sizes = " / ".join(f"{len(p.x):,}" for p in (problem.fit, problem.validation, problem.test))
    yield f"  {sizes} rows to train, tune, test; {problem.metric}"
    exact = best_without_privacy(problem)
    yield f"  without privacy {exact:.4f}, best constant {problem.trivial():.4f}"
    epsilons = sorted({f.epsilon for f in found})
    yield f"  {'epsilon':<24}" + "".join(f"{e:>19g}" for e in epsilons)
    for name in dict.fromkeys(f.method for f in found):
        line = {f.epsilon: f for f in found if f.method == name}
        first = line[epsilons[0]]
        yield f"  {name:<24}" + "".join(f"{line[e].words:>19}" for e in epsilons)
        yield f"    {first.neighbours}; {first.tried} of {first.available} configurations tried"
    yield "  bars: noise alone; which configurations were drawn to be tried matters more"
    for e in epsilons:
        proved = [f for f in found if f.epsilon == e and "not proved" not in f.neighbours]
        winner = min(proved, key=lambda f: float(f.errors.mean()))
        yield f"  epsilon {e:g}: smallest mean error by {winner.method}, of those with a proof"


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures, CSV and text; made if missing.")],
    data: Annotated[Path | None, typer.Option(help="CSV or Parquet file.")] = None,
    test: Annotated[Path | None, typer.Option(help="File with the rows to test on.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Public column schema of --data.")] = None,
    target: Annotated[str, typer.Option(help="Numeric column for ridge.")] = "age",
    seeds: Annotated[int, typer.Option(min=2, help="Noises per figure.")] = 10,
    tries: Annotated[int, typer.Option(min=1, help="Configurations per method.")] = 100,
    epsilon: Annotated[list[float] | None, typer.Option(help="May be repeated.")] = None,
    delta: Annotated[float, typer.Option(help="Of every method.")] = DELTA,
) -> None:
    """DP-SCD against DP-SGD: figures, CSV and a short text."""
    with refusals() as console:
        if data is not None and schema is None:
            raise ParameterError("schema is missing: --data needs --schema")
        rng = np.random.default_rng(0)
        problems = [phishing_like(rng)]
        if data is None or schema is None:
            problems.insert(0, diabetes(rng))
        else:
            problems = from_files(data, test, Schema.load(schema), target, rng) + problems
        out.mkdir(parents=True, exist_ok=True)
        epsilons = tuple(epsilon or EPSILONS)
        found: list[Finding] = []
        text: list[str] = []
        with progress(console, len(problems) * len(METHODS) * len(epsilons)) as (describe, advance):
            for problem in problems:
                mine = []
                for method in METHODS:
                    describe(f"{problem.name}: {method.name}")
                    for e in epsilons:
                        mine.append(
                            run_method(problem, method, e, delta=delta, tries=tries, seeds=seeds)
                        )
                        advance()
                save_figure(out / f"coordinate-{problem.name}", draw, problem, mine)
                text += [*lines(problem, mine), ""]
                found += mine
                write_rows(out / "coordinate.csv", (f.row() for f in found))
        write_lines(out / "coordinate.txt", text[:-1], shown=True)


if __name__ == "__main__":
    typer.run(main)
