"""A row of a table of coefficients, as papers have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy.stats import t

LEVEL = 0.95


def coefficient(
    name: str, coef: float, se: float, freedom: float = math.inf, ratio: str = ""
) -> dict[str, Any]:
    """name, coef, se, z, p, low, high; and exp(coef) with its ends under a name for it.

    freedom: of the t distribution, inf for the normal one.
    """
    z = coef / se if se > 0 else math.nan
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * se
    row: dict[str, Any] = {
        "name": name,
        "coef": coef,
        "se": se,
        "z": z,
        "p": float(2 * t.sf(abs(z), freedom)),
        "low": coef - reach,
        "high": coef + reach,
    }
    if ratio:
        ends = (("", "coef"), ("_low", "low"), ("_high", "high"))
        row |= {f"{ratio}{end}": _exp(row[key]) for end, key in ends}
    return row


def left_out(names: Sequence[str]) -> list[str]:
    """A note, if there are any: columns without a coefficient."""
    words = f"left out, for the other columns determine them: {', '.join(names)}"
    return [words] if names else []


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
