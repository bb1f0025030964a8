"""An evaluation in words: of a simulation or a deployment, for a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from ciphercohort.after.judged import WORDS, Evaluation, shown
from protocols.words import promise as promised


def lines(found: Evaluation) -> Iterator[str]:
    """What a person wants to know, one sentence or figure a line.

    Exact sums are told of before they are opened: see `ciphercohort.results.exact_sums.tell`.
    """
    yield found.title
    for words, value, errors in found.measures():
        yield f"{words}: {value}{f' ({errors})' if errors else ''}"
    yield from more(found)


def _counted(name: str, count: float | None, least: int) -> str:
    return f"{name.replace('_', ' ')} " + (
        f"below {least}" if count is None else f"{max(count, 0):,.0f}"
    )


def more(found: Evaluation) -> Iterator[str]:
    """Confusion, sites and the promise, in sentences."""
    figures = found.figures
    cells = figures.get("confusion", {})
    noise = figures.get("confusion_noise_std")
    beside = f" (noise of std {noise:,.0f} in each)" if noise else ""
    by_class = figures.get("by_class", {})
    for name, own in by_class.items():
        told = ", ".join(_counted(each, n, found.least) for each, n in cells[name].items())
        yield (
            f"{name}: {WORDS['auc']} against the rest {shown(own['auc'])}; its rows were called: "
            f"{told}{beside}"
        )
    if cells and not by_class:
        told = ", ".join(_counted(name, n, found.least) for name, n in cells.items())
        yield f"at probability {figures.threshold:g}: {told}{beside}"
    for site, own in found.sites.items():
        key = "auc" if "auc" in own else "r2"
        yield f"{site}: {own.rows:,.0f} rows, {WORDS[key]} {shown(own[key])}"
    for name in found.small:
        yield f"{name}: fewer than {found.least} rows, no table"
    promise = found.opened.plan.privacy
    if promise:
        yield f"privacy: {promised(promise.epsilon, promise.delta, promise.colluders)}"
    else:
        yield "privacy: no noise was added; the coordinator learns exact sums by score and outcome"
