"""Fitted slopes: log2 of a value against log2 P, with confidence intervals, beside predictions.

Where there is a formula, the ratio measured / predicted is fitted as well: its slope is the
difference of the two slopes, free of whatever curve the formula itself has, and 0 must lie in its
interval. The interval of the slope is that one, moved to the predicted slope's other side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.grid import Cell, coalition_words
from sims.studies.noise.measurement import Measurement

CONFIDENCE = 0.95
# Slopes of values without any randomness agree to this.
_ROUNDING = 1e-9
# The same noise in other units: fitted, but no test of its own.
SAME = ("privacy_noise", "opened_value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Least squares: slope, half width of its confidence interval (nan below 3 points)."""

    slope: float
    half: float
    points: int


def least_squares(x: Sequence[float], y: Sequence[float], confidence: float = CONFIDENCE) -> Fit:
    """y = a + slope x; Student's t with points - 2 degrees of freedom.

    Raises:
        ValueError: fewer than 2 different x.
    """
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    spread = a - a.mean()
    square = float(spread @ spread)
    if len(a) < 2 or not square:
        raise ValueError("a slope needs at least 2 different abscissas")
    slope = float(spread @ b) / square
    residual = b - b.mean() - slope * spread
    free = len(a) - 2
    if free < 1:
        return Fit(slope=slope, half=math.nan, points=len(a))
    deviation = math.sqrt(float(residual @ residual) / free / square)
    half = float(stats.t.ppf((1 + confidence) / 2, free)) * deviation
    return Fit(slope=slope, half=half, points=len(a))


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
    predicted: float | None
    offset: float | None
    margin: float | None
    agrees: bool | None
    explanation: str = ""

    @property
    def half(self) -> float:
        """Half width of the interval [bits per doubling], nan below 3 points."""
        return (self.high - self.low) / 2

    @property
    def exact(self) -> bool:
        """Every value is the formula's, to the last digits: there is nothing to test."""
        return self.offset is not None and max(abs(self.offset), abs(self.margin or 0)) < _ROUNDING


def setting_of(c: Cell) -> str:
    """Everything about a cell but its clients and its coalition, in words."""
    words = [c.kind, c.protocol, c.update, c.mode]
    extra = {
        c.split: "even",
        f"{c.weights} weights": "rows weights",
        "everyone adds sigma" if c.noise == "all" else "": "",
        "T as certified" if c.rounds is None else f"T = {c.rounds}": "",
        "" if c.norm is None else f"row norm {c.norm:g}": "",
    }
    words += [word for word, usual in extra.items() if word not in ("", usual)]
    words.append("no privacy" if c.epsilon is None else f"epsilon {c.epsilon:g}")
    return ", ".join(words)


def series_of(m: Measurement) -> str:
    """Everything about a cell but its number of clients, in words."""
    return f"{setting_of(m.cell)}, {coalition_words(m.cell.coalition)}"


def fit_slopes(measurements: Iterable[Measurement]) -> list[Slope]:
    """Every component of every series with at least two numbers of parties."""
    by_series: dict[str, list[Measurement]] = defaultdict(list)
    for m in measurements:
        if not m.refusal:
            by_series[series_of(m)].append(m)
    found = [
        slope
        for series, group in sorted(by_series.items())
        for component, about in COMPONENTS.items()
        if about.unit != "share" and (slope := _fit(series, component, group)) is not None
    ]
    tests = len(random_ones(found))
    return [_explained(slope, by_series[slope.series], tests) for slope in found]


def random_ones(slopes: Iterable[Slope]) -> list[Slope]:
    """Those whose interval may miss by chance: formulas of values that are random."""
    return [
        s
        for s in slopes
        if s.agrees is not None and COMPONENTS[s.component].relation == "=" and not s.exact
    ]


def _points(component: str, group: Sequence[Measurement]) -> list[tuple[float, float, float]]:
    """(log2 P, log2 measured, log2 predicted or nan); values of 0 have no logarithm."""
    found = []
    for m in group:
        value, formula = m.values.get(component, 0.0), m.predicted.get(component, math.nan)
        if value > 0:
            found.append((math.log2(m.cell.parties), math.log2(value), _log2(formula)))
    return found


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else math.nan


def _fit(series: str, component: str, group: Sequence[Measurement]) -> Slope | None:
    points = _points(component, group)
    parties = sorted({round(2**x) for x, _, _ in points})
    if len(parties) < 2:
        return None
    x, y, formula = (list(column) for column in zip(*points, strict=True))
    whole = least_squares(x, y)
    relation, known = COMPONENTS[component].relation, not any(map(math.isnan, formula))
    predicted = offset = margin = agrees = None
    half = whole.half
    if known:
        ratio = [a - b for a, b in zip(y, formula, strict=True)]
        predicted, excess = least_squares(x, formula).slope, least_squares(x, ratio)
        offset, margin = float(np.mean(ratio)), float(np.max(ratio))
        # With t = 0 nothing is subtracted: that is the total once more.
        same = component == "left_ratio" and not any(m.cell.colluders for m in group)
        if relation == "=" and component not in SAME and not same:
            half = excess.half
            agrees = bool(abs(excess.slope) <= half + _ROUNDING) if half == half else None
        elif relation == "<=":
            agrees = margin <= 0
    return Slope(
        series=series,
        setting=setting_of(group[0].cell),
        coalition=coalition_words(group[0].cell.coalition),
        component=component,
        parties=tuple(parties),
        points=len(points),
        slope=whole.slope,
        low=whole.slope - half,
        high=whole.slope + half,
        predicted=predicted,
        offset=offset,
        margin=margin,
        agrees=agrees,
    )


def _explained(slope: Slope, group: Sequence[Measurement], tests: int) -> Slope:
    if slope.agrees is not False:
        return slope
    words = []
    if COMPONENTS[slope.component].relation == "<=":
        return replace(slope, explanation=f"the bound was passed by {slope.margin:.2f} bits")
    x, y, formula = (list(c) for c in zip(*_points(slope.component, group), strict=True))
    ratio = [a - b for a, b in zip(y, formula, strict=True)]
    largest = max(abs(v) for v in _means(x, ratio).values())
    words.append(f"no mean differs from its formula by more than {largest:.3f} bits")
    # Bonferroni: all intervals of the study together at 95 %.
    wide = least_squares(x, ratio, 1 - (1 - CONFIDENCE) / max(1, tests))
    if abs(wide.slope) <= wide.half:
        words.append("chance: widened to hold for all tests together, the interval contains it")
    else:
        words.append("unexplained: widened to hold for all tests together, it still excludes it")
    return replace(slope, explanation="; ".join(words))


def _means(x: Sequence[float], y: Sequence[float]) -> dict[float, float]:
    groups: dict[float, list[float]] = defaultdict(list)
    for a, b in zip(x, y, strict=True):
        groups[a].append(b)
    return {a: float(np.mean(b)) for a, b in groups.items()}
