"""report.html: what was found, plots, slopes, scores, formulas, and how to get it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import mean, stdev

from sims.report_html import Html, fragment, page, picture, section, table, tag
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.figures import Plot
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.slope_tables import heading, slope_tables
from sims.studies.noise.slopes import Slope, series_of
from sims.studies.noise.tables import COLUMNS

_READING = (
    "Lines: means over seeds; bands: from their 5 % to their 95 % quantile (runs done once have "
    "none); dark dashes: the formula; dots: a bound. Lines that would hide each other are moved "
    "sideways a little. P: clients; t: colluders; T: iterations."
)
_FITTED = (
    "Of log2 value against log2 P, in bits per doubling of the clients, by least squares, with 95 "
    "% confidence intervals (Student's t). Where there is a formula, measured / predicted is what "
    "scatters, and its interval is the one shown. Offsets are in slopes.csv."
)


def report(
    title: str,
    command: str,
    measurements: Sequence[Measurement],
    slopes: Sequence[Slope],
    found: Sequence[str],
    plots: Sequence[Plot],
    pictures: Mapping[str, str],
) -> str:
    """The page; nothing in it is loaded from elsewhere. found: the findings, one sentence each."""
    body = [
        tag("h1", title),
        *_banners(measurements),
        section("In short", *(tag("p", line) for line in found)),
        section("Plots", tag("p", _READING, cls="soft"), *_gallery(plots, pictures)),
        section(
            "Slopes beside their predictions",
            tag("p", _FITTED, cls="soft"),
            *slope_tables(slopes),
        ),
        *_scores([m for m in measurements if not m.refusal]),
        section("Formulas", _formulas(measurements)),
        *_refusals(measurements),
        section("How to get this again", tag("p", tag("code", command)), _columns()),
    ]
    return page(title, body)


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
    return fragment(f"{mean(values):.2f}", spread)


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


def _gallery(plots: Sequence[Plot], pictures: Mapping[str, str]) -> Iterator[Html]:
    """Part by part."""
    for part, group in groupby(plots, key=lambda p: p.part):
        shown = [
            picture(pictures[p.name], f"{p.caption} Abscissa: {p.x_label}.", p.caption)
            for p in group
        ]
        yield heading(part)
        yield tag("div", *shown, cls="columns")


def _formulas(measurements: Sequence[Measurement]) -> Html:
    seen = {name for m in measurements for name in (*m.values, *m.predicted)}
    rows = [
        (c.title, tag("code", f"{c.relation or '='} {c.formula}"), c.unit, c.order)
        for name, c in COMPONENTS.items()
        if name in seen and c.formula
    ]
    legend = (
        "P clients, t colluders, sigma the std that the promise needs on a mean gradient; n the "
        "ring dimension; sigma_e the estimate of the model's noise, g and h its gains; R a radius; "
        "S a row's sensitivity, N rows, mu the Gaussian mechanism's for epsilon and delta."
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
