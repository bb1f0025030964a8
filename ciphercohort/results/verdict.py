"""Whether a model says more than a constant would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROUNDING = 1e-9  # of a mean of losses, with room
EXPLAINED = {"d2": "D²", "r2": "R²"}
"""Share of a target’s spread that a model explains, its own measure first; 0 is the mean’s."""


def no_better(figures: Mapping[str, Any], rows: str, outputs: Sequence[str], constant: str) -> str:
    """The sentence that says so; empty where the model is better.

    Of a label or classes: the log loss beside the base rate's. Of targets: those whose mean errs no
    more than the model. Empty, too, where all rows have one outcome: a constant would be right
    about each.

    figures: as of `Model.metrics`; rows: how many of which; outputs: names of the targets;
    constant: whom a label's model is beside.
    """
    key = next((key for key in EXPLAINED if key in figures), None)
    if key is not None:
        found = zip(outputs, figures[key], strict=True)
        bad = [f"{name} {value:.4g}" for name, value in found if value <= ROUNDING]
        if not bad:
            return ""
        return (
            f"the model is no better than the mean: on {rows} its {EXPLAINED[key]} is "
            f"{', '.join(bad).replace('-', '−')}, and that of always saying their mean is 0"
        )
    base = figures.get("base_rate_log_loss", 0.0)
    if base == 0 or not figures["log_loss"] >= base - ROUNDING:
        return ""
    return (
        f"the model is no better than the base rate: on {rows} its log loss is "
        f"{figures['log_loss']:.4f}, and that of always saying their {constant} is {base:.4f}"
    )
