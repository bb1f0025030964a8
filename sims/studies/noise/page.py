"""report.html and summary.txt: what was found, where theory and measurement part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import stdev

from sims.report_html import Html, fragment, page, picture, section, table, tag
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.figures import Plot
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.slopes import Slope, series_of
from sims.studies.noise.tables import COLUMNS

# Fits that say something although nothing predicts them.
_OF_INTEREST = ("sigma", "model_noise", "iterate", "seconds_party", "seconds_coordinator")


def report(
    title: str,
    command: str,
    measurements: Sequence[Measurement],
    slopes: Sequence[Slope],
    plots: Sequence[Plot],
    pictures: Mapping[str, str],
) -> str:
    """The page; nothing in it is loaded from elsewhere."""
    body = [
        tag("h1", title),
        *_banners(measurements),
        section("In short", *(tag("p", line) for line in summary_lines(measurements, slopes))),
        section("Plots", tag("p", _READING, cls="soft"), _gallery(plots, pictures)),
        section("Slopes beside their predictions", *_slope_tables(slopes)),
        *_scores([m for m in measurements if not m.refusal]),
        section("Formulas", _formulas(measurements)),
        *_refusals(measurements),
        section("How to get this again", tag("p", tag("code", command)), _columns()),
    ]
    return page(title, body)


_READING = (
    "Lines: means over seeds; bands: from their 5 % to their 95 % quantile; dashed: what the "
    "formula predicts, or the bound. Slopes are of log2 value against log2 P, in bits per doubling "
    "of the clients, by least squares, with 95 % confidence intervals (Student's t)."
)


def summary_lines(measurements: Sequence[Measurement], slopes: Sequence[Slope]) -> Iterator[str]:
    """The findings, one sentence each."""
    good = [m for m in measurements if not m.refusal]
    cells = {m.cell.key for m in good}
    refused = {m.cell.key for m in measurements if m.refusal}
    yield (
        f"{len(good):,} measurements in {len(cells)} cells; {len(refused)} cells have no certified "
        "setting and were not run."
    )
    tested = [s for s in slopes if s.agrees is not None]
    equal = [s for s in tested if COMPONENTS[s.component].relation == "="]
    bounds = [s for s in tested if COMPONENTS[s.component].relation == "<="]
    if equal:
        held = sum(s.agrees is True for s in equal)
        worst = max(abs(s.offset or 0.0) for s in equal)
        yield (
            f"{held} of {len(equal)} fitted slopes have the predicted one in their 95 % interval "
            f"({0.05 * len(equal):.1f} misses are expected by chance); the largest mean deviation "
            f"from a formula is {worst:.3f} bits."
        )
    if bounds:
        tight = max(bounds, key=lambda s: s.margin or 0.0)
        yield (
            f"{sum(s.agrees is True for s in bounds)} of {len(bounds)} bounds held everywhere; the "
            f"tightest is {COMPONENTS[tight.component].title}, {-(tight.margin or 0.0):.2f} bits "
            f"below its bound ({tight.series})."
        )
    for slope in tested:
        if not slope.agrees:
            yield f"{_words(slope)}: {slope.explanation or 'no explanation was found in the data'}."
    yield from _drift(good)


def _drift(good: Sequence[Measurement]) -> Iterator[str]:
    """What the encrypted iterates are off by, beside noise."""
    runs = [m for m in good if m.courses.get("iterate")]
    if not runs:
        return
    pairs = [(m.courses["iterate"][0], m.values["first_iterate"]) for m in runs]
    share = _mean([1 - (rest / whole) ** 2 for whole, rest in pairs])
    drifts = [math.log2(m.courses["scale_drift"][0]) for m in runs]
    yield (
        f"{100 * share:.1f} % of the first encrypted iterate's squared error is a multiple of the "
        f"iterate, 2^{min(drifts):.2f} to 2^{max(drifts):.2f} of it for all P: rescaling divides "
        "by primes that are not quite the scale. It does not grow with P, so the slope of an "
        "iterate's error is below that of the noise encrypted with it."
    )


def _words(slope: Slope) -> str:
    predicted = "" if slope.predicted is None else f", predicted {_number(slope.predicted)}"
    return (
        f"{COMPONENTS[slope.component].title} ({slope.series}): slope {_number(slope.slope)} "
        f"[{_number(slope.low)}, {_number(slope.high)}]{predicted}"
    )


def _scores(good: Sequence[Measurement]) -> Iterator[Html]:
    """Accuracy by series and number of clients."""
    by_series: dict[str, dict[int, list[float]]] = {}
    for m in good:
        if "accuracy" in m.values:
            group = by_series.setdefault(series_of(m), {})
            group.setdefault(m.cell.parties, []).append(100 * m.values["accuracy"])
    parties = sorted({p for group in by_series.values() for p in group})
    rows = [
        (series, *(_spread(group.get(p, [])) for p in parties))
        for series, group in sorted(by_series.items())
    ]
    if rows:
        words = "Mean and standard deviation over seeds [%], by number of clients P."
        head = ("Series", *(f"P = {p}" for p in parties))
        yield section("Accuracy", tag("p", words, cls="soft"), table(head, rows, cls="numbers"))


def _spread(values: Sequence[float]) -> Html:
    if not values:
        return Html("")
    spread = tag("small", f"± {stdev(values):.2f}") if len(values) > 1 else ""
    return fragment(f"{_mean(values):.2f}", spread)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _banners(measurements: Sequence[Measurement]) -> Iterator[Html]:
    toy = any(m.cell.profile != "secure" for m in measurements if m.cell.kind == "encrypted")
    if toy:
        yield tag("p", "INSECURE: encrypted runs on a toy ring, for tests only", cls="banner")
    yield tag(
        "p",
        "NOT PRIVATE: the noise of a study is seeded, and encrypted runs are watched with their "
        "secret keys at hand. Only a simulation can do that.",
        cls="note",
    )


def _gallery(plots: Sequence[Plot], pictures: Mapping[str, str]) -> Html:
    shown = [
        picture(pictures[p.name], f"{p.caption} Abscissa: {p.x_label}.", p.caption) for p in plots
    ]
    return tag("div", *shown, cls="columns")


def _slope_tables(slopes: Sequence[Slope]) -> Iterator[Html]:
    heads = {
        "=": ("Formulas: the interval should contain the prediction", _equal_rows),
        "<=": ("Bounds: measured / bound should stay below 0 bits", _bound_rows),
        "": ("Without a prediction", _free_rows),
    }
    for relation, (words, rows) in heads.items():
        mine = [s for s in slopes if COMPONENTS[s.component].relation == relation]
        if relation:
            mine = [s for s in mine if s.predicted is not None]
        else:
            mine = [s for s in mine if s.component in _OF_INTEREST]
        mine.sort(key=lambda s: list(COMPONENTS).index(s.component))
        if mine:
            yield tag("h3", words)
            yield rows(mine)


def _name(slope: Slope) -> Html:
    return fragment(COMPONENTS[slope.component].title, tag("small", slope.series))


def _interval(slope: Slope) -> Html:
    if math.isnan(slope.low):
        return fragment(_number(slope.slope), tag("small", "too few points"))
    words = f"{_number(slope.low)} to {_number(slope.high)}"
    return fragment(_number(slope.slope), tag("small", words))


def _verdict(slope: Slope) -> Html:
    if slope.agrees is None:
        return Html("")
    return tag("span", "yes" if slope.agrees else "no", cls="yes" if slope.agrees else "no")


def _equal_rows(slopes: Sequence[Slope]) -> Html:
    head = ("Component and series", "Slope, 95 %", "Predicted", "Offset [bits]", "Agrees")
    rows = [
        (_name(s), _interval(s), _number(s.predicted), _number(s.offset), _verdict(s))
        for s in slopes
    ]
    return table(head, rows, cls="numbers")


def _bound_rows(slopes: Sequence[Slope]) -> Html:
    head = ("Component and series", "Slope, 95 %", "Slope of the bound", "Largest [bits]", "Held")
    rows = [
        (_name(s), _interval(s), _number(s.predicted), _number(s.margin), _verdict(s))
        for s in slopes
    ]
    return table(head, rows, cls="numbers")


def _free_rows(slopes: Sequence[Slope]) -> Html:
    rows = [(_name(s), _interval(s)) for s in slopes]
    return table(("Component and series", "Slope, 95 %"), rows, cls="numbers")


def _number(value: float | None) -> str:
    return "" if value is None else f"{round(value, 3) + 0.0:.3f}"


def _formulas(measurements: Sequence[Measurement]) -> Html:
    seen = {name for m in measurements for name in (*m.values, *m.predicted)}
    rows = [
        (c.title, tag("code", f"{c.relation} {c.formula}"), c.unit, c.order)
        for name, c in COMPONENTS.items()
        if name in seen and c.formula
    ]
    legend = (
        "P clients, t colluders, sigma the std that the promise needs on a mean gradient; n the "
        "ring dimension; sigma_e the estimate of the model's noise, g and h its gains; R a radius."
    )
    return fragment(
        tag("p", legend, cls="soft"),
        table(("Component", "Prediction", "Unit", "Slope for large P"), rows),
    )


def _refusals(measurements: Sequence[Measurement]) -> Iterator[Html]:
    seen = {m.cell.key: m for m in measurements if m.refusal}
    if not seen:
        return
    rows = [
        (f"{m.cell.kind}, {m.cell.mode}, P = {m.cell.parties}, t = {m.cell.colluders}", m.refusal)
        for m in seen.values()
    ]
    yield section("Cells without a certified setting", table(("Cell", "Why"), rows))


def _columns() -> Html:
    words = "measurements.csv has one row per measurement, with these columns:"
    return fragment(tag("p", words), table(("Column", "Meaning"), COLUMNS.items()))
