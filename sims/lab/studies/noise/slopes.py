"""Fitted slopes: log2 of a value against log2 P, with confidence intervals, beside predictions.

Where there is a formula, the ratio measured / predicted is fitted as well: its slope is the
difference of the two slopes, free of whatever curve the formula itself has, and 0 must lie in its
interval. The interval of the slope is that one, moved to the predicted slope's other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from sims.lab.studies.noise.components import COMPONENTS
from sims.lab.studies.noise.tables import figures_of

CONFIDENCE = 0.95
# Slopes of values without any randomness agree to this; the square root of float64's precision is
# what is left of an interval whose points lie on a line.
_ROUNDING = 1e-9
# The same noise in other units: fitted, but no test of its own.
SAME = ("privacy_noise", "opened_value")
COLUMNS = (
    *("series", "setting", "coalition", "component", "parties", "points", "slope", "low", "high"),
    *("predicted", "offset_bits", "margin_bits", "relation", "agrees", "explanation"),
)


def least_squares(
    x: ArrayLike, y: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Slope of y against x, and half of its confidence interval by Student's t, points - 2 degrees.

    Half of the interval is nan below 3 points.

    Raises:
        ValueError: fewer than 2 different x.
    """
    fit, free = stats.linregress(x, y), np.size(x) - 2
    half = stats.t.ppf((1 + confidence) / 2, free) * fit.stderr if free > 0 else math.nan
    return float(fit.slope), float(half)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slope:
    """One component along one series.

    series: everything but P, in words; setting, coalition: its two parts. slope, low, high: fitted
    [bits per doubling]; predicted: of the formula at the same points, None without; offset: mean of
    log2(measured / predicted) [bits]; margin: largest of it [bits]; agrees: the interval contains
    the prediction, or the bound held everywhere; None: nothing is predicted. explanation: what the
    data say where it does not.
    """

    series: str
    setting: str
    coalition: str
    component: str
    parties: tuple[int, ...]
    points: int
    slope: float
    low: float
    high: float
    predicted: float | None = None
    offset: float | None = None
    margin: float | None = None
    agrees: bool | None = None
    explanation: str = ""

    @property
    def half(self) -> float:
        """Half width of the interval [bits per doubling], nan below 3 points."""
        return (self.high - self.low) / 2

    @property
    def exact(self) -> bool:
        """Every value is the formula's, to the last digits: there is nothing to test."""
        return self.offset is not None and max(abs(self.offset), abs(self.margin or 0)) < _ROUNDING

    @property
    def title(self) -> str:
        """Of the component."""
        return COMPONENTS[self.component].title

    @property
    def relation(self) -> str:
        """Of the component."""
        return COMPONENTS[self.component].relation


def fit_slopes(frame: pd.DataFrame) -> list[Slope]:
    """Every component of every series with at least two numbers of parties."""
    rows = figures_of(frame)
    rows = rows[(rows.value > 0) & (rows.unit != "share")]  # 0 has no logarithm
    rows = rows.assign(
        x=np.log2(rows.parties.astype(float)),
        y=np.log2(rows.value),
        formula=np.log2(rows.predicted.where(rows.predicted > 0)),
        component=pd.Categorical(rows.component, list(COMPONENTS)),
    )
    groups = {
        name: group
        for name, group in rows.groupby(["series", "component"], observed=True)
        if group.parties.nunique() > 1
    }
    found = {name: _fit(group) for name, group in groups.items()}
    tests = len(random_ones(found.values()))
    return [_explained(slope, groups[name], tests) for name, slope in found.items()]


def random_ones(slopes: Iterable[Slope]) -> list[Slope]:
    """Those whose interval may miss by chance: formulas of values that are random."""
    return [s for s in slopes if s.agrees is not None and s.relation == "=" and not s.exact]


def _fit(group: pd.DataFrame) -> Slope:
    first, x = group.iloc[0], group.x
    slope, half = least_squares(x, group.y)
    found = Slope(
        series=first.series,
        setting=first.setting,
        coalition=first.who,
        component=first.component,
        parties=tuple(sorted(map(int, group.parties.unique()))),
        points=len(group),
        slope=slope,
        low=slope - half,
        high=slope + half,
    )
    if group.formula.isna().any():
        return found
    ratio, agrees = group.y - group.formula, None
    excess, about = least_squares(x, ratio)
    # With t = 0 nothing is subtracted: that is the total once more.
    same = found.component == "left_ratio" and not group.colluders.any()
    if found.relation == "=" and found.component not in SAME and not same:
        found = replace(found, low=slope - about, high=slope + about)
        agrees = None if math.isnan(about) else abs(excess) <= about + _ROUNDING
    elif found.relation == "<=":
        agrees = bool(ratio.max() <= 0)
    return replace(
        found,
        predicted=least_squares(x, group.formula)[0],
        offset=float(ratio.mean()),
        margin=float(ratio.max()),
        agrees=agrees,
    )


def _explained(slope: Slope, group: pd.DataFrame, tests: int) -> Slope:
    if slope.agrees is not False:
        return slope
    if slope.relation == "<=":
        return replace(slope, explanation=f"the bound was passed by {slope.margin:.2f} bits")
    ratio = group.y - group.formula
    largest = ratio.groupby(group.x).mean().abs().max()
    # Bonferroni: all intervals of the study together at 95 %.
    wide, half = least_squares(group.x, ratio, 1 - (1 - CONFIDENCE) / max(1, tests))
    verdict = (
        "chance: widened to hold for all tests together, the interval contains it"
        if abs(wide) <= half
        else "unexplained: widened to hold for all tests together, it still excludes it"
    )
    words = f"no mean differs from its formula by more than {largest:.3f} bits; {verdict}"
    return replace(slope, explanation=words)


def slope_table(slopes: Sequence[Slope]) -> pd.DataFrame:
    """As `Slope`; agrees: yes, no, or empty without a prediction."""
    verdicts = {True: "yes", False: "no", None: ""}
    rows = (
        {
            **{name: getattr(s, name) for name in COLUMNS if hasattr(s, name)},
            "parties": " ".join(map(str, s.parties)),
            "offset_bits": s.offset,
            "margin_bits": s.margin,
            "agrees": verdicts[s.agrees],
        }
        for s in slopes
    )
    return pd.DataFrame(rows, columns=COLUMNS)
