"""From counts and moments to the figures of a descriptive table.

Quantiles are read off counts by bin, on a straight line within a bin: each is within one bin's
width of that of the rows. Of whole numbers, where each has a bin of its own, they are the numbers
themselves: the least that a share of the rows or more do not exceed (Hyndman and Fan's type 1).
Standardised differences: of means, (m - m') / sqrt((s^2 + s'^2) / 2); of categories,
sqrt(t^T S^-1 t) of the differences t of all shares but the first's, S the mean of their covariance
matrices (Yang and Dalton, 2012). Of more than two groups the largest of all pairs.

Exact counts below `least` are left out, and so are others as long as they would give one away:
where all but one of a line with a known sum are shown.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}
ROUNDED, ROUNDED_ROW = 1e-6, 2.0**-35
"""What rounding may move an exact sum of z by at most, and a row of it; by one row that is a
thousandth off a whole number, of at most 200, it is moved farther."""
APART, SPREAD = 1e-5, 1e-12
"""Of groups that do not vary: what rounding does not leave of a difference, and a variance."""
ROOM = 5
"""Times its noise that a number of rows has to be for a mean."""
DRIFTS = 2
"""Times the noise of the sum of all bins that it has to be for quantiles."""
CLEAR = 2.5
"""Times its noise that a variance has to be for a standard deviation."""


def whole_numbers(low: float, high: float, bins: int) -> Array:
    """The whole number in each bin of a range, NaN: none; shape (bins,).

    Each has one of its own where the range is of at most `bins` whole numbers, and its width and
    the bins have no common factor: then none but the ends lies where two bins meet, whatever is
    rounded. Of other ranges all are NaN.
    """
    found, width = np.full(bins, np.nan), high - low
    if width != int(width) or low != int(low) or not width < bins or math.gcd(int(width), bins) > 1:
        return found
    numbers = np.arange(int(width) + 1)
    found[np.minimum(numbers * bins // int(width), bins - 1)] = low + numbers
    return found


def are_whole(cells: Array, numbers: Array, low: float, high: float) -> bool:
    """Whether all rows are the whole number of their bin, by the sums of z and of z^2.

    cells: exact ones, see `numeric_figures`; numbers: see `whole_numbers`.
    """
    counts, moments = np.rint(cells[:-3]), cells[-2:]
    if counts[np.isnan(numbers)].any():
        return False
    z = (np.nan_to_num(numbers, nan=low) - low) / (high - low) - 0.5
    apart = np.abs([counts @ z, counts @ z**2] - moments)
    return bool(np.all(apart <= ROUNDED + counts.sum() * ROUNDED_ROW))


def fitting_bins(low: float, high: float, most: int) -> int:
    """At most so many; one less where that gives each whole number of a range a bin of its own."""
    own = [bool(np.isfinite(whole_numbers(low, high, n)).any()) for n in (most, most - 1)]
    return most - (own == [False, True])


def numeric_figures(
    cells: Array,
    rows: float,
    low: float,
    high: float,
    noise: float = 0.0,
    numbers: Array | None = None,
    of_n: float = 0.0,
) -> dict[str, float]:
    """n, missing, mean, sd, q1, median, q3 and step, the bins' width [data units].

    cells: counts of the bins and of missing values, sum z and sum z^2, shape (bins + 3,); rows: of
    the group, missing values included; noise: standard deviation of that on each of the cells,
    which may then be below 0; of_n: of that on n, of rows and missing values. Where it drowns the
    standard deviation that is NaN, see `is_clear`; numbers: that quantiles are, by bin; None: they
    are within one.
    """
    counts, (missing, first, second) = cells[:-3], cells[-3:]
    n, width = float(rows - missing), high - low
    edges = low + width * np.arange(len(counts) + 1) / len(counts)
    step = width / len(counts) if numbers is None else 0.0
    figures = {"n": n, "missing": float(missing), "step": step}
    if n <= ROOM * noise:
        return figures | dict.fromkeys(("mean", "sd", *QUARTILES), math.nan)
    mean = first / n
    # Of a noisy mean the square is too large, by noise^2 / n^2.
    variance = (second - n * mean**2 + noise**2 / n) / (n - 1) if n > 1 else math.nan
    spread = math.sqrt(max(variance, 0.0)) if n > 1 else math.nan
    if noise:
        # So is the root of a noisy variance v too small, by t^2 / (8 v^1.5).
        t = noise / n * math.sqrt(1 + 4 * mean**2)
        spread += t**2 / (8 * max(variance, t) ** 1.5)
        spread = spread if is_clear(counts, n, mean, noise) else math.nan
        figures["mean_noise"] = width / n * math.hypot(noise, mean * of_n)
    return figures | {
        "mean": float(np.clip(low + width * (mean + 0.5), low, high)),
        "sd": float(width * spread),
        **_quantiles(counts, n, edges, noise, of_n, numbers),
    }


def _quantiles(
    counts: Array, n: float, edges: Array, noise: float, of_n: float, numbers: Array | None
) -> dict[str, float]:
    """Quartiles, and how far noise puts them off; see `numeric_figures`. edges: of the bins.

    With noise, the counts' sum is another than n: both are moved to where they are one, by their
    variances (1 of each count, r of n), and cov(F_j - s n) follows, of F_j up to the j-th edge.
    """
    bins = len(counts)
    if noise and n <= DRIFTS * noise * math.sqrt(bins):
        return dict.fromkeys(QUARTILES, math.nan)
    j, r = np.arange(bins + 1), (of_n / noise) ** 2 if noise else 0.0
    ends = np.append(0.0, np.cumsum(counts))
    gap = (ends[-1] - n) / (bins + r)
    ends, n = ends - j * gap, n + r * gap
    found = dict[str, float]()
    for name, share in QUARTILES.items():
        place = share * n
        if numbers is not None:
            found[name] = float(numbers[np.searchsorted(ends[1:], place)])
            continue
        found[name] = _reached(ends, place, edges)
        if noise:
            square = j - (j + r * share) ** 2 / (bins + r) + r * share**2
            off = noise * np.sqrt(np.maximum(square, 0.0))
            moved = (_reached(ends + sign * off, place, edges) for sign in (1, -1))
            found[f"{name}_noise"] = max(abs(each - found[name]) for each in moved)
    return found


def _reached(ends: Array, place: float, edges: Array) -> float:
    """Where a curve of counts reaches a place: as far as it is below it, in all.

    Of one that noise has made to fall here and there, this is its monotone rearrangement
    (Chernozhukov, Fernandez-Val and Galichon, 2010). ends: counts up to each edge of the bins.
    """
    low, high = np.minimum(ends[:-1], ends[1:]), np.maximum(ends[:-1], ends[1:])
    below = np.where(high > low, (place - low) / np.where(high > low, high - low, 1.0), place > low)
    return float(edges[0] + np.diff(edges) @ np.clip(below, 0.0, 1.0))


def is_clear(counts: Array, n: float, mean: float, noise: float) -> bool:
    """Whether a variance is CLEAR times its noise, or more, by the counts of the bins.

    Their noise is another than that of the sum of squares which the variance is made of. Variances
    that are told because they are large themselves are too large: their noise made them so.
    """
    bins = len(counts)
    z = (np.arange(bins) + 0.5) / bins - 0.5
    squares = (z - np.clip(counts @ z / n, -0.5, 0.5)) ** 2
    spread = counts @ squares / n - 1 / (12 * bins**2)
    error = max(1 + 4 * min(mean**2, 0.25), float(squares @ squares))
    return bool(spread >= CLEAR * noise / n * math.sqrt(error))


def numeric_difference(groups: list[dict[str, float]]) -> float:
    """Of groups' figures; NaN of fewer than two that have rows, or where nothing varies.

    Infinite where both are constant, and apart: their deviations are what rounding leaves.
    """
    found = list[float]()
    for a, b in combinations(groups, 2):
        apart, spread = abs(a["mean"] - b["mean"]), math.hypot(a["sd"], b["sd"]) / math.sqrt(2)
        least = APART * max(abs(a["mean"]), abs(b["mean"]))
        if min(a["n"], b["n"]) > 1 and not math.isnan(spread) and max(spread, apart) > least:
            found.append(apart / spread if spread > APART * apart else math.inf)
    return max(found, default=math.nan)


def category_difference(groups: list[Array], exact: bool = True) -> float:
    """Of counts of categories by group, the cell of none left out.

    Infinite where some mean of categories is constant in both, and apart, as where they share none;
    with noise nobody knows that, and it is left out.
    """
    found = list[float]()
    for pair in combinations(groups, 2):
        if min(counts.sum() for counts in pair) <= 0:
            continue
        p, q = (np.maximum(counts, 0.0)[1:] / np.maximum(counts, 0.0).sum() for counts in pair)
        spread = (np.diag(p) - np.outer(p, p) + np.diag(q) - np.outer(q, q)) / 2
        values, vectors = np.linalg.eigh(spread)
        along, varies = vectors.T @ (p - q), values > SPREAD
        is_apart = np.abs(along[~varies]).max(initial=0.0) > APART
        square = float((along[varies] ** 2 / values[varies]).sum())
        found.append(math.inf if exact and is_apart else math.sqrt(square))
    return max(found, default=math.nan)


def hidden(counts: Array, least: int) -> NDArray[np.bool_]:
    """Cells that are not shown, of counts whose columns and rows have known sums.

    counts: cells by row, groups by column, without their sum. A line that would have one hidden
    cell gets a second, its smallest that is not 0, if there is one; so does one whose hidden cells
    sum to less than `least`: of two that sum to 2 each is 1.

    Returns: of all groups and, of several, their sum.
    """
    whole, several = np.rint(counts), counts.shape[1] > 1
    if several:
        whole = np.column_stack([whole, whole.sum(axis=1)])
    mask = (whole > 0) & (whole < least)
    while True:
        before = int(mask.sum())
        lines = [*zip(mask.T, whole.T, strict=True), *zip(mask, whole, strict=True)]
        for line, sizes in lines if several else lines[: mask.shape[1]]:
            others = np.where(line | (sizes <= 0), np.inf, sizes)
            if not np.isfinite(others).any():
                others = np.where(line, np.inf, sizes)
            few = line.sum() == 1 or (line.any() and sizes[line].sum() < least)
            if few and np.isfinite(others).any():
                line[int(np.argmin(others))] = True  # a view of the mask
        if int(mask.sum()) == before:
            return mask


def shown_counts(counts: Array, mask: NDArray[np.bool_], noisy: bool) -> list[float | None]:
    """Counts of a column, None where one is hidden; with noise all, none below 0."""
    return [
        max(float(n), 0.0) if noisy else None if cover else float(np.rint(n)) + 0.0
        for n, cover in zip(counts, mask, strict=True)
    ]


def shares(counts: list[float | None], n: float) -> list[Any]:
    """Each over n; None where it is hidden, or n is 0."""
    return [None if each is None or n <= 0 else each / n for each in counts]
