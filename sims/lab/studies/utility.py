r"""Private models as the product makes them, beside what a trusted curator could do.

Question: what do owners lose who keep their rows to themselves, in accuracy and in probabilities?

    python -m sims.lab.studies.utility adult.csv --schemas docs/schemas --out studies/utility
        --seeds 20 --epsilon 0.5 --epsilon 1 --epsilon 4 --iterations 8 --iterations 10

A data set NAME.csv goes with the schema NAME.json of the folder, and with NAME_test.csv beside it
where there is one; else every seed holds out a fifth of its own. All figures are of held-out rows.

- private: what `calibrate` chooses from public figures, with the parties' own noise, in plaintext.
- objective perturbation, DP-SGD: one curator sees all rows as encoded. Each is tuned on the
  held-out rows, which favours it and costs it no privacy: the setting of least mean log loss is
  shown, and the best accuracy of any setting. Of large tables a few seeds are for tuning.
- optimum: the best fit without privacy, on rows that are not clipped, and on those that are.
- base rate: the same probability for everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from ciphercohort.cli.console import refusals, say
from ciphercohort.cli.progress import reporting
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_EPSILON
from ciphercohort.report.plots import BLUE, GREEN, VERMILLION
from ciphercohort.results.documents import to_json
from sims.lab.studies.scaffold import save_figure, write_lines
from sims.lab.studies.utility_models import (
    BASE,
    BASELINES,
    DESCENT,
    OBJECTIVE,
    OPTIMUM,
    PRIVATE,
    Bench,
    Found,
    Task,
)

COLUMNS = {
    "accuracy": "accuracy",
    "threshold_accuracy": "threshold",
    "crossed_accuracy": "crossed",
    "auc": "AUC",
    "log_loss": "log loss",
    "brier": "Brier",
    "calibration_slope": "slope",
    "calibration_intercept": "intercept",
}
"""Of the table: figures and their headings."""


# -- all of them -----------------------------------------------------------------------------------


Work = tuple[str, Callable[[], Iterable[Found]]]


def works(
    task: Task,
    *,
    seeds: int,
    epsilons: Sequence[float],
    iterations: Sequence[int | None],
) -> Iterator[Work]:
    """What is to be done on a data set, in words, and how; the first one reads it."""
    benches: list[Bench] = []

    def read() -> Iterable[Found]:
        benches.append(Bench.of(task, seeds))
        return benches[0].references()

    yield f"{task.name}: read, fit without privacy", read
    for epsilon in epsilons:
        where = f"{task.name}, epsilon {epsilon:g}"
        for model in BASELINES:
            yield f"{where}: {model}", partial(_baseline, benches, epsilon, model)
        for rounds in iterations:
            yield f"{where}: {PRIVATE}", partial(_private, benches, epsilon, rounds)


def _baseline(benches: Sequence[Bench], epsilon: float, model: str) -> list[Found]:
    return [benches[0].baseline(epsilon, model)]


def _private(benches: Sequence[Bench], epsilon: float, iterations: int | None) -> list[Found]:
    return [benches[0].private(epsilon, iterations)]


def run_study(
    work: Sequence[Work],
    begin: Callable[[str], object] = lambda words: None,
    step: Callable[[int, int], object] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Found]:
    """All of it; begin: told of each, with the time that is left if the rest is like the past."""
    left, total = list(work), len(work)  # what is done is dropped, its rows with it
    found: list[Found] = []
    started = clock()
    while left:
        done = total - len(left)
        words, do = left.pop(0)
        seconds = (clock() - started) / done * (total - done) if done else None
        rest = "" if seconds is None else f", about {seconds:.0f} s left"
        begin(f"{words} ({done + 1} of {total}{rest})")
        step(done, total)
        found += do()
    step(total, total)
    return found


# -- for people ------------------------------------------------------------------------------------


def table_lines(found: Sequence[Found]) -> Iterator[str]:
    """A table by data set and epsilon; what is no better than the base rate is marked."""
    for name in dict.fromkeys(f.data for f in found):
        mine = [f for f in found if f.data == name]
        base = next(f for f in mine if f.model == BASE)
        yield (
            f"{name}: {base.rows:,} training rows, {base.features} features with the bias, "
            f"{base.seeds} seeds"
        )
        yield f"{'':<34}" + "".join(f"{head:>11}" for head in COLUMNS.values()) + f"{'best':>11}"
        for f in sorted(mine, key=lambda f: f.epsilon or 0.0):
            words = f.title if f.epsilon is None else f"epsilon {f.epsilon:g}: {f.title}"
            if f.refusal:
                yield f"{words:<34}  refused: {f.refusal}"
                continue
            worse = f.model != BASE and f.mean["log_loss"] >= base.mean["log_loss"]
            best = "" if f.best_accuracy is None else f"{f.best_accuracy:.4f}"
            yield (
                f"{words:<34}"
                + "".join(f"{f.mean[key]:>11.4f}" for key in COLUMNS)
                + f"{best:>11}"
                + ("  no better than the base rate" if worse else "")
            )
        yield ""
    yield "threshold: accuracy at the best threshold, chosen on the same rows, so optimistic"
    yield "crossed: the same, chosen on one half of these rows and judged on the other"
    yield "best: accuracy of the most accurate setting; the line is of the one of least log loss"


_LOOKS = {PRIVATE: (BLUE, "-", "o"), OBJECTIVE: (VERMILLION, "--", "s"), DESCENT: (GREEN, ":", "^")}


def utility_figure(found: Sequence[Found]) -> Figure:
    """Log loss and accuracy against epsilon, a column per data set; lines: optimum, base rate."""
    names = list(dict.fromkeys(f.data for f in found))
    figure = Figure(figsize=(3.2 * len(names) + 0.6, 6.2), layout="constrained")
    panels = figure.subplots(2, len(names), squeeze=False, sharex=True)
    for column, name in enumerate(names):
        mine = [f for f in found if f.data == name]
        panels[0, column].set_title(name)
        for axes, key in zip(panels[:, column], ("log_loss", "accuracy"), strict=True):
            for model, style in ((OPTIMUM, "-."), (BASE, (0, (1, 1)))):
                level = next(f.mean[key] for f in mine if f.model == model)
                words = "majority" if (model, key) == (BASE, "accuracy") else model
                axes.axhline(level, color="#444", linewidth=1.2, linestyle=style, label=words)
            drawn = [f for f in mine if f.epsilon is not None and not f.refusal]
            drawn.sort(key=lambda f: f.epsilon or 0.0)
            lines = dict.fromkeys((f.model, f.iterations) for f in drawn)
            for nth, (model, iterations) in enumerate(lines):
                points = [f for f in drawn if (f.model, f.iterations) == (model, iterations)]
                colour, style, marker = _LOOKS[model]
                axes.errorbar(
                    [f.epsilon for f in points],
                    [f.mean[key] for f in points],
                    [f.std[key] / np.sqrt(f.seeds) for f in points],
                    color=colour,
                    linestyle=style,
                    marker=marker,
                    markersize=4 + nth,
                    capsize=2,
                    label=points[0].title,
                )
            axes.set_xscale("log")
    panels[0, 0].set_ylabel("log loss [nats]")
    panels[1, 0].set_ylabel("accuracy")
    panels[0, 0].legend(fontsize=7)
    panels[1, 0].legend(fontsize=7)
    figure.supxlabel("epsilon; bars: standard error of the mean over seeds")
    return figure


def main(
    data: Annotated[list[Path], typer.Argument(help="CSV files.")],
    schemas: Annotated[Path, typer.Option(help="Folder of NAME.json, a schema for each.")],
    out: Annotated[Path, typer.Option(help="Folder for table, JSON and plot.")],
    seeds: Annotated[int, typer.Option(min=2, help="Splits and noises.")] = 20,
    epsilon: Annotated[list[float] | None, typer.Option(help="May be repeated.")] = None,
    iterations: Annotated[
        list[int] | None, typer.Option(help="T; may be repeated. Default: the product's choice.")
    ] = None,
    delta: Annotated[float, typer.Option()] = DEFAULT_DELTA,
    parties: Annotated[int, typer.Option(help="How many data owners.")] = 10,
    colluders: Annotated[int, typer.Option(help="Parties that may pool what they know.")] = 3,
    update: Annotated[str, typer.Option(help="Update rule. Default: the product's.")] = "",
) -> None:
    """Accuracy and log loss of private models: utility.json, table.txt, utility.svg and .png."""
    with refusals() as console, threadpool_limits(limits=1):
        options: dict[str, Any] = {"parties": parties, "colluders": colluders, "delta": delta}
        options |= {"update": update} if update else {}
        tasks = [Task.of(path, schemas, **options) for path in data]
        out.mkdir(parents=True, exist_ok=True)
        asked: dict[str, Any] = {"seeds": seeds, "epsilons": epsilon or [DEFAULT_EPSILON]}
        asked["iterations"] = iterations or [None]
        with reporting(console, unit="runs") as reporter:
            work = [each for task in tasks for each in works(task, **asked)]
            found = run_study(work, reporter.begin, reporter.step)
        (out / "utility.json").write_text(to_json([asdict(f) for f in found]), encoding="utf-8")
        write_lines(out / "table.txt", table_lines(found), shown=True)
        save_figure(out / "utility", utility_figure, found)
        say(console, f"written to {out}")


if __name__ == "__main__":
    typer.run(main)
