"""What a study found, one sentence each: for the top of its report and for summary.txt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from sims.lab.studies.noise.gallery import at_base
from sims.lab.studies.noise.grid import Grid, coalition_words
from sims.lab.studies.noise.slopes import Slope, random_ones
from sims.lab.studies.noise.tables import figures_of

# An interval that reaches further on either side has little to say [bits per doubling].
WIDE = 0.25
_STAGES = (
    *("secret", "encryption", "encryption_sum", "refresh", "model_refresh", "flooding"),
    *("opening_key", "opened"),
)
_MODES = {"fixed": "all rows shared out", "growing": "every client brings rows"}


def findings(frame: pd.DataFrame, slopes: Sequence[Slope], grids: Sequence[Grid]) -> Iterator[str]:
    """Slopes and accuracy at the base of every grid; tests; bounds; where theory parts."""
    good, refused = frame[frame.refusal.isna()], frame[frame.refusal.notna()].key.nunique()
    count = f"{len(good.drop_duplicates(['key', 'seed'])):,} measurements"
    tail = f"; {refused} cells have no certified setting and were not run" if refused else ""
    most = max(good.rows.dropna(), default=0)
    yield f"{count} in {good.key.nunique()} cells{tail}; up to {most:,} training rows."
    for grid in grids:
        for mode, words in _MODES.items():
            twins = good[(good.kind == "twin") & (good.protocol == grid.protocol)]
            yield from _base(at_base(twins, grid, mode=mode), grid, slopes, words)
    yield from _encrypted(slopes)
    yield from _tests(slopes)
    yield from _bounds(slopes)
    yield from _chosen_rounds(figures_of(good, "sigma"))
    yield from _drift(good, slopes)


def number(value: float | None, half: float = 1.0) -> str:
    """Three decimals, four where the interval is narrow; never a negative zero."""
    digits = 4 if half < 0.01 else 3
    return "" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval(slope: Slope) -> str:
    """0.501 ± 0.012, or the slope alone where nothing scatters or two points are all there is."""
    half = slope.half
    value = number(slope.slope, half)
    return value if math.isnan(half) or half < 1e-6 else f"{value} ± {number(half, half)}"


def _base(mine: pd.DataFrame, grid: Grid, slopes: Sequence[Slope], words: str) -> Iterator[str]:
    if mine.empty:
        return
    setting, order = mine.setting.iloc[0], [coalition_words(c) for c in grid.colluders]
    total = [s for s in slopes if (s.setting, s.component) == (setting, "privacy_ratio")]
    found = {s.coalition: s for s in total}
    if listed := [f"{interval(found[c])} ({c})" for c in order if c in found]:
        yield (
            f"Total privacy noise, {words} ({setting}): slope {', '.join(listed)} bits per "
            "doubling of the clients."
        )
    accuracy = figures_of(mine, "accuracy")
    first, last = (accuracy[accuracy.parties == at] for at in _ends(accuracy.parties))
    means = 100 * last.groupby("who").value.mean()
    if len(accuracy) and first.parties.iloc[0] < last.parties.iloc[0]:
        at = ", ".join(f"{means[c]:.2f} % ({c})" for c in order if c in means)
        yield (
            f"Accuracy, {words}: {100 * first.value.mean():.2f} % with P = "
            f"{first.parties.iloc[0]}; with P = {last.parties.iloc[0]} it is {at}."
        )


def _ends(values: pd.Series[int]) -> tuple[float, float]:
    return values.min(), values.max()


def _encrypted(slopes: Sequence[Slope]) -> Iterator[str]:
    """Series by series."""
    stages = [s for s in slopes if s.component in _STAGES]
    for series in dict.fromkeys(s.series for s in stages):
        mine = [s for s in stages if s.series == series]
        listed = "; ".join(f"{s.title} {interval(s)} ({number(s.predicted, s.half)})" for s in mine)
        yield (
            f"Encryption noise at P = {', '.join(map(str, mine[0].parties))} ({mine[0].series}): "
            f"slope, with the predicted one in brackets, of {listed}."
        )


def _tests(slopes: Sequence[Slope]) -> Iterator[str]:
    tests = random_ones(slopes)
    misses = [s for s in tests if not s.agrees]
    if tests:
        text = (
            f"{len(tests) - len(misses)} of {len(tests)} fitted slopes have the predicted one in "
            f"their 95 % interval; {0.05 * len(tests):.1f} misses are expected by chance"
        )
        if misses:
            tail = float(stats.binom.sf(len(misses) - 1, len(tests), 0.05))
            text += f", {len(misses)} or more with probability {tail:.2f}"
        worst = max(abs(s.offset or 0.0) for s in tests)
        yield f"{text}. No series is off its formula by more than {worst:.3f} bits in the mean."
    for s in misses:
        yield (
            f"Missed: {s.title} ({s.series}), {interval(s)}, predicted "
            f"{number(s.predicted, s.half)}: {s.explanation}."
        )
    if wide := [s for s in tests if s.half > WIDE]:
        names = ", ".join(f"{s.title} ({interval(s)})" for s in wide)
        why = (
            " One run shows it at the model's few weights; the flooding that causes it is measured "
            "at all coefficients."
        )
        released = all(s.component in ("release", "model_release") for s in wide)
        yield f"Too wide to say much: {names}.{why if released else ''}"
    exact = dict.fromkeys(s.title for s in slopes if s.agrees and s.exact and s not in tests)
    if exact:
        yield f"Equal to the formula everywhere, to the last digit: {', '.join(exact)}."


def _bounds(slopes: Sequence[Slope]) -> Iterator[str]:
    bounds = [(s.margin, s) for s in slopes if s.relation == "<=" and s.margin is not None]
    if bounds:
        margin, tight = max(bounds, key=lambda pair: pair[0])
        yield (
            f"{sum(s.agrees is True for _, s in bounds)} of {len(bounds)} bounds held everywhere; "
            f"the tightest is {tight.title}, {-margin:.2f} bits below its bound ({tight.series})."
        )
    for _, s in bounds:
        if not s.agrees:
            yield f"Passed: {s.title} ({s.series}): {s.explanation}."


def _chosen_rounds(sigma: pd.DataFrame) -> Iterator[str]:
    """sigma = sqrt(T) S / (N mu), where T is chosen by the certificate's search."""
    searched = sigma[sigma.T_asked.isna()]
    rounds = searched.rounds.astype(float)
    if rounds.nunique() < 2:
        return
    rest = np.log2(searched.value * searched.rows.astype(float) / np.sqrt(rounds))
    yield (
        f"Where T is as certified it is searched for anew for each P, t and N, and lies between "
        f"{rounds.min():.0f} and {rounds.max():.0f}: figures in gradient units, models and traffic "
        "make steps with it. sigma N / sqrt(T), which is a row's sensitivity over mu, varies by "
        f"only {np.ptp(rest):.2f} bits, with the radius of the sigmoid polynomial."
    )


def _drift(good: pd.DataFrame, slopes: Sequence[Slope]) -> Iterator[str]:
    """What the encrypted iterates are off by, beside noise."""
    first, run = good[good.step == 1], ["key", "seed"]
    whole = first[first.component == "iterate"].set_index(run).value
    rest = figures_of(good, "first_iterate").set_index(run).value
    model = [s for s in slopes if s.component == "circuit"]
    if whole.empty or not model:
        return
    drift = np.log2(first[first.component == "scale_drift"].value)
    share = (1 - (rest / whole) ** 2).mean()
    grown = "; ".join(f"{interval(s)} where the bound's is {number(s.predicted)}" for s in model)
    yield (
        f"Where theory and measurement part: {100 * share:.1f} % of the first encrypted iterate's "
        f"squared error is no noise but a multiple of the iterate, 2^{drift.min():.2f} to "
        f"2^{drift.max():.2f} of it whatever P is: rescaling divides by primes that are not quite "
        "the scale. It does not grow with P, so the slope of the model's error before decryption "
        f"is {grown}."
    )
