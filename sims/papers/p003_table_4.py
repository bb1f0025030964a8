"""Table 4 and figure 2: accuracy and AUC of three private models at epsilon 1, delta 1e-5.

1. DP-GD with clipping: exact, and by the polynomial that stands in for it under encryption.
2. No clipping: Algorithm 3 at a setting that Theorem 3 certifies.
3. Output perturbation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from protocols.approximation import sigmoid_approximation
from protocols.errors import PrivacyError
from sims.papers.barrier import (
    CLIP,
    CLIP_RATE,
    CLIP_ROUNDS,
    EPSILON,
    OUTPUT_RIDGE,
    ROW_NORM,
    Floats,
    Noise,
    Rows,
    certified,
    clip_noise,
    encrypted_clip,
    exact_clip,
    present,
    short_rows,
    train_barrier,
    train_clipped,
    train_output,
)
from sims.papers.data import ADULT, ADULT_TEST, COMPAS, CREDIT, MNIST
from sims.papers.item import Item, Result, Row, Settings
from sims.plots import BLUE, VERMILLION

NEEDS = (MNIST, ADULT, COMPAS, CREDIT)
CLIPPED, NO_CLIP, OUTPUT = "clipping", "no clipping", "output perturbation"
PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    CLIPPED: {
        "mnist_3v8": (0.9579, 0.9898),
        "adult": (0.7947, 0.8692),
        "compas": (0.6486, 0.7034),
        "credit": (0.7795, 0.6411),
    },
    NO_CLIP: {
        "mnist_3v8": (0.9549, 0.9890),
        "adult": (0.8050, 0.8750),
        "compas": (0.6325, 0.6929),
        "credit": (0.7828, 0.6501),
    },
    OUTPUT: {
        "mnist_3v8": (0.7204, 0.8687),
        "adult": (0.7660, 0.8191),
        "compas": (0.5126, 0.5490),
        "credit": (0.7657, 0.6012),
    },
}
LINK = sigmoid_approximation(7, 8.0)
"""Of the encrypted clipping: margins of its iterates stay well within."""

Trained = tuple[str, str, Callable[[], tuple[Floats, str]]]


def models(rows: Rows, count: int, runs: int, quick: bool) -> Iterator[Trained]:
    """Words, the paper's model, and weights with a remark; count: N of the noise."""
    width, epsilon = rows.x.shape[1], EPSILON

    def clipped(link: object, clip: object, largest: float) -> tuple[Floats, str]:
        noise = Noise(std=clip_noise(count, CLIP_ROUNDS, epsilon, largest))
        weights = train_clipped(rows, noise, runs, clip, link)  # type: ignore[arg-type]
        margin = float(np.abs(rows.x @ weights.T).max())
        return weights, f"a row adds {largest / CLIP:.3f} C at most; |z| <= {margin:.1f} at the end"

    def without() -> tuple[Floats, str]:
        found = certified(count, width, epsilon, quick)
        setting = found.setting
        weights = train_barrier(rows, setting, Noise(std=setting.sigma), runs)
        bound = found.figures["interval"]
        return (
            weights,
            f"T = {setting.rounds}, degree {setting.sigmoid.polynomial.degree}, |z| <= {bound:.1f}",
        )

    polynomial, largest = encrypted_clip(LINK.max_error)
    yield "1. clipping, exact", CLIPPED, partial(clipped, expit, exact_clip, CLIP)
    yield (
        "1. clipping as under encryption",
        CLIPPED,
        partial(clipped, LINK.polynomial, polynomial, largest),
    )
    yield "2. no clipping, certified", NO_CLIP, without
    yield "3. output perturbation", OUTPUT, lambda: (train_output(rows, runs, epsilon, count), "")


def run(settings: Settings) -> Result:
    """All models on all tables that are there."""
    quick = settings.quick
    runs = settings.repetitions(20, 3)
    there, notes = present(NEEDS, settings)
    shown, drawn = [], []
    for need in there:
        rows = short_rows(need, settings)
        # quick: few rows, with the noise that all would have
        count = need.rows if quick else len(rows.x)
        for words, model, trained in models(rows, count, runs, quick):
            began = time.perf_counter()
            try:
                weights, remark = trained()
            except PrivacyError as error:
                shown.append(Row(quantity=f"{need.name}, {words}", ours=None, note=str(error)))
                continue
            seconds = time.perf_counter() - began
            figures = rows.figures(weights)
            for name, values, paper in zip(
                ("accuracy", "AUC"), figures, PAPER[model][need.name], strict=True
            ):
                shown.append(
                    Row(
                        quantity=f"{need.name}, {words}: {name}",
                        ours=float(values.mean()),
                        paper=paper,
                        std_error=float(values.std(ddof=1) / np.sqrt(runs)) if runs > 1 else None,
                        seconds=seconds,
                        note=remark,
                    )
                )
            drawn.append((need.name, words, figures[0], PAPER[model][need.name][0]))
    return Result(
        rows=tuple(shown),
        notes=(*notes, f"epsilon {EPSILON:g}, {runs} runs on one split; errors are of the noise"),
        draw=lambda: accuracies(drawn),
    )


def accuracies(drawn: list[tuple[str, str, Floats, float]]) -> Figure:
    """Figure 2: accuracy with one standard deviation, the paper's as a cross."""
    names = list(dict.fromkeys(name for name, *_ in drawn))
    figure = Figure(figsize=(3.6 * len(names), 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        mine = [each for each in drawn if each[0] == name]
        places = np.arange(len(mine))
        means, stds = [f.mean() for _, _, f, _ in mine], [f.std() for _, _, f, _ in mine]
        axes.errorbar(places, means, yerr=stds, fmt="o", color=BLUE, capsize=3, label="ours")
        axes.plot(places, [p for *_, p in mine], "x", color=VERMILLION, label="paper")
        axes.set_xticks(places, [words for _, words, *_ in mine], rotation=30, ha="right")
        axes.set_title(name)
        axes.legend()
    return figure


ITEM = Item(
    paper="003",
    name="table-4",
    title="accuracy and AUC of clipping, no clipping and output perturbation",
    data=(MNIST, ADULT, ADULT_TEST, COMPAS, CREDIT),
    unknown=(
        "the columns, the split and the learning rates; here one split, categories as columns, "
        f"rows divided by {ROW_NORM:g} and clipped to norm 1",
        f"T of the clipped descent: {CLIP_ROUNDS} steps of {CLIP_RATE:g}; lambda of output "
        f"perturbation: {OUTPUT_RIDGE:g}",
    ),
    remarks=(
        "clipping a row's gradient is clipping one number, which a polynomial of degree 15 does in "
        "4 levels: sims/papers/barrier.py",
        "the paper's noise is 1.79 times what exact accounting needs: "
        "protocols/privacy/accounting.py; here it is exact for all models",
    ),
    seconds=60,
    run=run,
)
