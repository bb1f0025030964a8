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
float64 noise: a comparison of algorithms that protects nobody.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.progress import Progress

from parties.data.schema import Schema
from protocols.errors import ParameterError
from sims.baselines import optimum
from sims.console import refusals, say, stdout
from sims.plots import BLUE, GREEN, STYLE, VERMILLION
from sims.studies.coordinate_data import Problem, diabetes, from_files, phishing_like
from sims.studies.coordinate_methods import LAMBDAS, METHODS, Method

EPSILONS = (0.1, 0.5, 1.0, 2.0)
DELTA = 1e-5
_LOOKS = {
    "DP-SCD, secret coins": (BLUE, "-", "o"),
    "DP-SCD, public batches": (BLUE, "--", "s"),
    "DP-SCD as published": ("#777777", ":", "v"),
    "DP-SGD": (VERMILLION, "-", "D"),
    "DP-SGD, 4 x the tries": (VERMILLION, "--", "^"),
    "DP-GD": ("#B58900", "--", "P"),
    "output perturbation": ("#8A5A83", "-.", "x"),
}


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

    def row(self) -> dict[str, object]:
        """One line of the CSV."""
        return {
            "problem": self.problem,
            "metric": self.metric,
            "method": self.method,
            "neighbours": self.neighbours,
            "epsilon": self.epsilon,
            "delta": self.delta,
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


def draw(problem: Problem, found: Sequence[Finding], out: Path) -> list[Path]:
    """Error over epsilon as SVG and PNG; bars are one standard deviation over seeds."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        exact, trivial = best_without_privacy(problem), problem.trivial()
        axes.axhline(exact, color=GREEN, linestyle="--", label="without privacy")
        axes.axhline(trivial, color="#99a", linestyle=":", label="best constant")
        for name in dict.fromkeys(f.method for f in found):
            line = [f for f in found if f.method == name]
            color, style, marker = _LOOKS[name]
            axes.errorbar(
                [f.epsilon for f in line],
                [f.errors.mean() for f in line],
                yerr=[f.errors.std(ddof=1) for f in line],
                color=color,
                linestyle=style,
                marker=marker,
                markersize=5,
                capsize=2.5,
                label=name,
            )
        axes.set_xscale("log")
        ticks = sorted({f.epsilon for f in found})
        axes.set_xticks(ticks, [f"{e:g}" for e in ticks])
        axes.minorticks_off()
        axes.set_ylim(0.95 * exact, exact + 1.15 * (trivial - exact))
        axes.set_xlabel("epsilon (delta = 1e-5)" if found[0].delta == DELTA else "epsilon")
        axes.set_ylabel(f"test {problem.metric}")
        figure.legend(loc="outside right upper", fontsize=8.5)
        paths = [out / f"coordinate-{problem.name}.{kind}" for kind in ("svg", "png")]
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=150)
    return paths


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
        cells = (
            f"{line[e].errors.mean():.4f} +- {line[e].errors.std(ddof=1):.4f}" for e in epsilons
        )
        first = line[epsilons[0]]
        yield f"  {name:<24}" + "".join(f"{c:>19}" for c in cells)
        yield f"    {first.neighbours}; {first.tried} of {first.available} configurations tried"
    yield "  bars: noise alone; which configurations were drawn to be tried matters more"
    for e in epsilons:
        proved = [f for f in found if f.epsilon == e and "not proved" not in f.neighbours]
        winner = min(proved, key=lambda f: float(f.errors.mean()))
        yield f"  epsilon {e:g}: smallest mean error by {winner.method}, of those with a proof"


def write_csv(found: Sequence[Finding], path: Path) -> None:
    """All findings, one per line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(found[0].row()))
        writer.writeheader()
        writer.writerows(f.row() for f in found)


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
        with Progress(console=console, disable=not console.is_terminal) as bars:
            task = bars.add_task("", total=len(problems) * len(METHODS) * len(epsilons))
            for problem in problems:
                mine = []
                for method in METHODS:
                    words = f"{problem.name}: {method.name}"
                    bars.update(task, description=words)
                    if not console.is_terminal:
                        say(console, words)
                    for e in epsilons:
                        mine.append(
                            run_method(problem, method, e, delta=delta, tries=tries, seeds=seeds)
                        )
                        bars.advance(task)
                draw(problem, mine, out)
                text += [*lines(problem, mine), ""]
                found += mine
                write_csv(found, out / "coordinate.csv")
        (out / "coordinate.txt").write_text("\n".join(text), encoding="utf-8")
        for line in text:
            say(stdout(), line)


if __name__ == "__main__":
    typer.run(main)
