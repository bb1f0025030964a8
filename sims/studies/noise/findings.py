"""What a study found, one sentence each: for the top of its report and for summary.txt."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from scipy import stats

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.grid import Grid, coalition_words
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.slopes import Slope, random_ones, series_of, setting_of

# An interval that reaches further on either side has little to say [bits per doubling].
WIDE = 0.25
_STAGES = ("secret", "encryption", "encryption_sum", "refresh", "flooding", "opening_key", "opened")


def findings(
    measurements: Sequence[Measurement], slopes: Sequence[Slope], grids: Sequence[Grid]
) -> Iterator[str]:
    """Slopes and accuracy at the base of every grid; tests; bounds; where theory parts."""
    good = [m for m in measurements if not m.refusal]
    refused = {m.cell.key for m in measurements if m.refusal}
    count = f"{len(good):,} measurements in {len({m.cell.key for m in good})} cells"
    tail = f"; {len(refused)} cells have no certified setting and were not run" if refused else ""
    most = max((m.facts.get("rows", 0) for m in good), default=0)
    yield f"{count}{tail}; up to {most:,} training rows."
    for grid in grids:
        yield from _base(grid, good, slopes)
    yield from _encrypted(slopes)
    yield from _tests(slopes)
    yield from _bounds(slopes)
    yield from _chosen_rounds(good)
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


def _base(grid: Grid, good: Sequence[Measurement], slopes: Sequence[Slope]) -> Iterator[str]:
    base = grid.settings()[0]
    for mode, words in (("fixed", "all rows shared out"), ("growing", "every client brings rows")):
        mine = [
            m
            for m in good
            if m.cell.kind == "twin"
            and m.cell.protocol == grid.protocol
            and all(getattr(m.cell, name) == v for name, v in {**base, "mode": mode}.items())
        ]
        if not mine:
            continue
        setting = setting_of(replace(mine[0].cell, parties=2, coalition="0"))
        order = [coalition_words(c) for c in grid.colluders]
        found = {s.coalition: s for s in slopes if s.setting == setting and _is_total(s)}
        listed = [f"{interval(found[c])} ({c})" for c in order if c in found]
        if listed:
            yield (
                f"Total privacy noise, {words} ({setting}): slope {', '.join(listed)} bits per "
                "doubling of the clients."
            )
        yield from _accuracy(mine, order, words)


def _is_total(slope: Slope) -> bool:
    return slope.component == "privacy_ratio"


def _accuracy(mine: Sequence[Measurement], order: Sequence[str], words: str) -> Iterator[str]:
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    for m in mine:
        if "accuracy" in m.values:
            key = coalition_words(m.cell.coalition), m.cell.parties
            groups[key].append(100 * m.values["accuracy"])
    ends = [min(p for _, p in groups), max(p for _, p in groups)] if groups else []
    at = [
        f"{mean(groups[c, ends[-1]]):.2f} % ({c})"
        for c in order
        if ends and (c, ends[-1]) in groups
    ]
    if at and ends[0] < ends[1]:
        first = mean(v for (_, p), group in groups.items() if p == ends[0] for v in group)
        yield (
            f"Accuracy, {words}: {first:.2f} % with P = {ends[0]}; with P = {ends[1]} it is "
            f"{', '.join(at)}."
        )


def _encrypted(slopes: Sequence[Slope]) -> Iterator[str]:
    by_series: dict[str, list[Slope]] = defaultdict(list)
    for s in slopes:
        if s.component in _STAGES:
            by_series[s.series].append(s)
    for series, mine in list(by_series.items())[:1]:
        listed = [
            f"{COMPONENTS[s.component].title} {interval(s)} ({number(s.predicted, s.half)})"
            for s in mine
        ]
        clients = ", ".join(map(str, mine[0].parties))
        yield (
            f"Encryption noise at P = {clients} ({series}): slope, with the predicted one in "
            f"brackets, of {'; '.join(listed)}."
        )


def _tests(slopes: Sequence[Slope]) -> Iterator[str]:
    tests = random_ones(slopes)
    misses = [s for s in tests if not s.agrees]
    if tests:
        worst = max(abs(s.offset or 0.0) for s in tests)
        text = (
            f"{len(tests) - len(misses)} of {len(tests)} fitted slopes have the predicted one in "
            f"their 95 % interval; {0.05 * len(tests):.1f} misses are expected by chance"
        )
        if misses:
            tail = float(stats.binom.sf(len(misses) - 1, len(tests), 0.05))
            text += f", {len(misses)} or more with probability {tail:.2f}"
        yield f"{text}. No series is off its formula by more than {worst:.3f} bits in the mean."
    for s in misses:
        yield (
            f"Missed: {COMPONENTS[s.component].title} ({s.series}), {interval(s)}, predicted "
            f"{number(s.predicted, s.half)}: {s.explanation}."
        )
    wide = [s for s in tests if s.half > WIDE]
    if wide:
        names = ", ".join(f"{COMPONENTS[s.component].title} ({interval(s)})" for s in wide)
        yield (
            f"Too wide to say much: {names}. One run shows it at the model's few weights; the "
            "flooding that causes it is measured at all coefficients."
            if all(s.component == "release" for s in wide)
            else f"Too wide to say much: {names}."
        )
    exact = dict.fromkeys(
        COMPONENTS[s.component].title for s in slopes if s.agrees and s.exact and s not in tests
    )
    if exact:
        yield f"Equal to the formula everywhere, to the last digit: {', '.join(exact)}."


def _bounds(slopes: Sequence[Slope]) -> Iterator[str]:
    bounds = [
        s for s in slopes if COMPONENTS[s.component].relation == "<=" and s.margin is not None
    ]
    if bounds:
        tight = max(bounds, key=lambda s: s.margin or 0.0)
        yield (
            f"{sum(s.agrees is True for s in bounds)} of {len(bounds)} bounds held everywhere; "
            f"the tightest is {COMPONENTS[tight.component].title}, {-(tight.margin or 0.0):.2f} "
            f"bits below its bound ({tight.series})."
        )
    for s in bounds:
        if not s.agrees:
            yield f"Passed: {COMPONENTS[s.component].title} ({s.series}): {s.explanation}."


def _chosen_rounds(good: Sequence[Measurement]) -> Iterator[str]:
    """sigma = sqrt(T) S / (N mu), where T is chosen by the certificate's search."""
    series: dict[str, list[Measurement]] = defaultdict(list)
    for m in good:
        if m.cell.rounds is None and "sigma" in m.values:
            series[series_of(m)].append(m)
    rounds = sorted({int(m.facts["T"]) for group in series.values() for m in group})
    if len(rounds) < 2:
        return
    rest = [
        math.log2(m.values["sigma"] * m.facts["rows"] / math.sqrt(m.facts["T"]))
        for group in series.values()
        for m in group
    ]
    yield (
        f"Where T is as certified it is searched for anew for each P, t and N, and lies between "
        f"{rounds[0]} and {rounds[-1]}: figures in gradient units, models and traffic make steps "
        "with it. sigma N / sqrt(T), which is a row's sensitivity over mu, varies by only "
        f"{max(rest) - min(rest):.2f} bits, with the radius of the sigmoid polynomial."
    )


def _drift(good: Sequence[Measurement], slopes: Sequence[Slope]) -> Iterator[str]:
    """What the encrypted iterates are off by, beside noise."""
    runs = [m for m in good if m.courses.get("iterate")]
    model = [s for s in slopes if s.component == "circuit"]
    if not runs or not model:
        return
    pairs = [(m.courses["iterate"][0], m.values["first_iterate"]) for m in runs]
    share = mean(1 - (rest / whole) ** 2 for whole, rest in pairs)
    drifts = [math.log2(m.courses["scale_drift"][0]) for m in runs]
    grown = "; ".join(f"{interval(s)} where the bound's is {number(s.predicted)}" for s in model)
    yield (
        f"Where theory and measurement part: {100 * share:.1f} % of the first encrypted iterate's "
        f"squared error is no noise but a multiple of the iterate, 2^{min(drifts):.2f} to "
        f"2^{max(drifts):.2f} of it whatever P is: rescaling divides by primes that are not quite "
        "the scale. It does not grow with P, so the slope of the model's error before decryption "
        f"is {grown}."
    )
