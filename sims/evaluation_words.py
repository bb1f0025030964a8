"""An evaluation in words: of a simulation or a deployment, for a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from sims.judged import WORDS, Evaluation, shown


def lines(found: Evaluation) -> Iterator[str]:
    """What a person wants to know, one sentence or figure a line."""
    yield found.title
    for words, value, errors in found.measures():
        yield f"{words}: {value}{f' ({errors})' if errors else ''}"
    yield from more(found)


def more(found: Evaluation) -> Iterator[str]:
    """Confusion, sites and the promise, in sentences."""
    cells = found.figures.get("confusion")
    if cells:
        told = ", ".join(
            f"{name.replace('_', ' ')} "
            + (f"below {found.least}" if count is None else f"{max(count, 0):,.0f}")
            for name, count in cells.items()
        )
        noise = found.figures.confusion_noise_std
        beside = f" (noise of std {noise:,.0f} in each)" if noise else ""
        yield f"at probability {found.figures.threshold:g}: {told}{beside}"
    for site, own in found.sites.items():
        key = "auc" if "auc" in own else "r2"
        yield f"{site}: {own.rows:,.0f} rows, {WORDS[key]} {shown(own[key])}"
    for name in found.small:
        yield f"{name}: fewer than {found.least} rows, no table"
    promise = found.opened.plan.privacy
    if promise:
        yield (
            f"privacy: epsilon={promise.epsilon:.4g}, delta={promise.delta:g}, "
            f"colluders={promise.colluders}"
        )
    else:
        yield "privacy: no noise was added; the coordinator learns exact counts by score and label"
