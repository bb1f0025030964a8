"""Everything that a study leaves in its folder, made anew from the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sims.studies.noise import figures
from sims.studies.noise.findings import findings
from sims.studies.noise.grid import Grid
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.page import report
from sims.studies.noise.plots_of_study import plots_of
from sims.studies.noise.slopes import fit_slopes
from sims.studies.noise.tables import write_tables


def write_all(
    out: Path,
    title: str,
    command: str,
    measurements: Sequence[Measurement],
    grids: Sequence[Grid],
) -> list[str]:
    """Tables, plots, report.html and summary.txt; returns the lines of the summary."""
    slopes, plots = fit_slopes(measurements), plots_of(measurements, grids)
    write_tables(out, measurements, slopes)
    pictures = figures.save(plots, out / "figures")
    lines = list(findings(measurements, slopes, grids))
    text = report(title, command, measurements, slopes, lines, plots, pictures)
    (out / "report.html").write_text(text, encoding="utf-8")
    (out / "summary.txt").write_text("\n".join([title, *lines]) + "\n", encoding="utf-8")
    return lines
