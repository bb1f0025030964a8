"""Everything that a study leaves in its folder, made anew from the measurements.

report.html: what was found, plots, slopes, scores, formulas, and how to get it again; its words are
those of `report.html.j2`, and nothing in it is loaded from elsewhere. What there is for a paper is
made in `paper`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ciphercohort.report.html import Html, page, picture
from sims.lab.studies.noise import figures, paper
from sims.lab.studies.noise.components import COMPONENTS
from sims.lab.studies.noise.figures import Plot
from sims.lab.studies.noise.findings import findings, interval, number
from sims.lab.studies.noise.gallery import plots_of
from sims.lab.studies.noise.grid import Grid
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.slopes import SAME, Slope, fit_slopes, slope_table
from sims.lab.studies.noise.tables import COLUMNS, figures_of, tidy, write_tables

# Fits that say something although nothing predicts them.
_OF_INTEREST = ("sigma", "model_noise", "iterate", "seconds_party", "seconds_coordinator")
# Parts of a cell: what is large, small print below it, and a verdict with its class.
Parts = list[tuple[str, str]]


def write_all(
    out: Path,
    title: str,
    command: str,
    measurements: Sequence[Measurement],
    grids: Sequence[Grid],
) -> list[str]:
    """Tables, plots, report.html, summary.txt, tables.tex, methods.txt; returns the summary."""
    frame = tidy(measurements)
    slopes, plots = fit_slopes(frame), plots_of(frame, grids)
    write_tables(out, frame, slope_table(slopes))
    lines = list(findings(frame, slopes, grids))
    good = frame[frame.refusal.isna()]
    fitted = [found for found in slope_tables(slopes) if found["rows"]]
    scores = _scores(figures_of(good, "accuracy"))
    for name, text in (
        ("tables.tex", paper.tables(scores, fitted)),
        ("methods.txt", paper.methods(title, command, frame, slopes, grids)),
    ):
        (out / name).write_text(text, encoding="utf-8")
    write_page(
        out,
        "report.html.j2",
        title,
        lines,
        plots,
        command=command,
        toy=", ".join(frame.ring[frame.ring != ""].unique()),
        slopes=fitted,
        scores=scores,
        formulas=[c for n, c in COMPONENTS.items() if c.formula and n in set(good.component)],
        refused=frame[frame.refusal.notna()].drop_duplicates("key").to_dict("records"),
        columns=COLUMNS,
    )
    return lines


def write_page(
    out: Path, template: str, title: str, lines: Sequence[str], plots: Sequence[Plot], **fields: Any
) -> None:
    """figures/, figures.tex, report.html and summary.txt; fields: of the template."""
    pictures = figures.save(plots, out / "figures")
    (out / "figures.tex").write_text(paper.figures(plots), encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = [
        (part, [_picture(pictures[plot.name], plot) for plot in group])
        for part, group in groupby(plots, key=lambda plot: plot.part)
    ]
    body = environment.get_template(template).render(
        title=title, lines=lines, parts=parts, **fields
    )
    (out / "report.html").write_text(page(title, [Html(body)]), encoding="utf-8")
    (out / "summary.txt").write_text("\n".join([title, *lines]) + "\n", encoding="utf-8")


def _picture(svg: str, plot: Plot) -> Markup:
    words = f"{plot.caption} Abscissa: {plot.x_label}." if plot.part else plot.caption
    return Markup(picture(svg, words, plot.caption))  # noqa: S704 (escapes its words itself)


def _scores(accuracy: pd.DataFrame) -> Mapping[str, Any]:
    """Mean and standard deviation over seeds [%], by series and number of clients."""
    groups = (100 * accuracy.value).groupby([accuracy.series, accuracy.parties])
    mean, spread = groups.mean().unstack(), groups.std().unstack()
    rows = [
        (series, [_spread(m, s) for m, s in zip(mean.loc[series], spread.loc[series], strict=True)])
        for series in mean.index
    ]
    return {"head": [f"P = {p}" for p in mean.columns], "rows": rows}


def _spread(mean: float, std: float) -> Parts:
    if math.isnan(mean):
        return []
    return [(f"{mean:.2f}", "")] + ([] if math.isnan(std) else [(f"± {std:.2f}", "")])


# -- slopes beside their predictions: a row per component and setting, a column per coalition -----


def slope_tables(slopes: Sequence[Slope]) -> Iterator[dict[str, Any]]:
    """Formulas, bounds, and what has neither."""
    known = [s for s in slopes if s.predicted is not None]
    yield _matrix(
        "Formulas: the interval should contain the predicted slope",
        ("Slope, 95 %", "Predicted", "Interval"),
        [s for s in known if s.relation == "=" and s.component not in SAME],
        lambda s: [number(s.predicted, 0.0 if math.isnan(s.half) else s.half), _verdict(s)],
    )
    yield _matrix(
        "Bounds: the largest measured / bound should stay below 0 bits",
        ("Slope, 95 %", "Largest", "Bound"),
        [s for s in known if s.relation == "<="],
        lambda s: [f"{s.margin:.2f} bits", ("held", "yes") if s.agrees else ("passed", "no")],
    )
    free = [s for s in slopes if s.component in _OF_INTEREST]
    yield _matrix("Without a prediction", ("Slope, 95 %",), free, lambda s: [])


def _verdict(s: Slope) -> tuple[str, str]:
    if math.isnan(s.half):
        return "two points", ""
    if s.agrees is None:
        return "the total again", ""
    return ("exact" if s.exact else "inside", "yes") if s.agrees else ("outside", "no")


def _matrix(
    words: str, head: Sequence[str], slopes: Sequence[Slope], cell: Callable[[Slope], list[Any]]
) -> dict[str, Any]:
    """Of one coalition: head over the parts of a cell; of several: the parts below each other."""
    coalitions, names = sorted({s.coalition for s in slopes}, key=_order), list(COMPONENTS)
    alone = len(coalitions) == 1
    rows: dict[tuple[str, str], dict[str, Parts]] = {}
    for s in sorted(slopes, key=lambda s: names.index(s.component)):
        parts = [p if isinstance(p, tuple) else (p, "") for p in (interval(s), *cell(s))]
        if not alone and len(parts) > 1:
            parts[1] = f"{head[1].lower()} {parts[1][0]}", ""
        rows.setdefault((s.title, s.setting), {})[s.coalition] = parts

    def cells(found: dict[str, Parts]) -> list[Parts]:
        if alone:
            return [[part] for part in found[coalitions[0]]]
        return [found.get(coalition, []) for coalition in coalitions]

    body = [(name, cells(found)) for name, found in rows.items()]
    return {"words": words, "head": list(head) if alone else coalitions, "rows": body}


def _order(coalition: str) -> tuple[bool, float, str]:
    """Numbers first, then P / 2 and P - 1."""
    t = coalition.removeprefix("t = ")
    return (False, float(t), "") if t.isdecimal() else (True, 0.0, {"P / 2": "1"}.get(t, t))
