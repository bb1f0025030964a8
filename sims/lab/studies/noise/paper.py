"""What a study gives a paper: LaTeX tables, figures with captions, and a paragraph on methods.

tables.tex needs the packages booktabs and longtable; figures.tex needs graphicx, and loads the PDF
files of figures/. Both are for LaTeX's input command. methods.txt is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import pandas as pd

from ciphercohort.results.latex import latex_words
from protocols.names import SECURE_AGGREGATION
from sims.lab.studies.noise.figures import Plot
from sims.lab.studies.noise.grid import Grid, coalition_words
from sims.lab.studies.noise.slopes import Slope, random_ones


def table(words: str, label: str, head: Sequence[str], rows: Iterable[tuple[Any, Any]]) -> str:
    """A longtable: rows of (name, cells) as the report shows them, parts of a cell in a line."""
    body = [[_line(name), *(_line(each) for each in cells)] for name, cells in rows]
    frame = pd.DataFrame(body, columns=list(head)).map(latex_words)
    frame.columns = pd.Index([latex_words(name) for name in head])
    text: str = frame.style.hide(axis="index").to_latex(
        column_format="p{0.28\\linewidth}" + "l" * (len(head) - 1),
        hrules=True,
        environment="longtable",
        caption=latex_words(words),
        label=f"tab:{label}",
    )
    return text


def _line(cell: Any) -> str:
    """A name, or its two parts; parts of a figure without their classes."""
    if isinstance(cell, str):
        return cell
    return " ".join(part if isinstance(part, str) else part[0] for part in cell)


def tables(scores: Mapping[str, Any], slopes: Iterable[Mapping[str, Any]]) -> str:
    """Accuracy by number of clients, and every table of slopes."""
    parts = []
    if scores["rows"]:
        words = "Accuracy [%], mean and standard deviation over seeds, by number of clients P."
        parts.append(table(words, "accuracy", ["Series", *scores["head"]], scores["rows"]))
    for number, found in enumerate(slopes, start=1):
        words = f"Slopes in bits per doubling of the clients. {found['words']}."
        head = ["Component and setting", *found["head"]]
        parts.append(table(words, f"slopes-{number}", head, found["rows"]))
    return "\n".join(parts)


def figures(plots: Iterable[Plot]) -> str:
    """One figure for each plot, with its caption."""
    return "\n".join(
        "\n".join(
            (
                r"\begin{figure}",
                r"  \centering",
                rf"  \includegraphics[width=0.6\linewidth]{{figures/{plot.name}.pdf}}",
                rf"  \caption{{{latex_words(caption(plot))}}}",
                rf"  \label{{fig:{plot.name}}}",
                r"\end{figure}",
                "",
            )
        )
        for plot in plots
    )


def caption(plot: Plot) -> str:
    """What is seen, on what, and how to read it; without the pages around it."""
    told = [plot.caption, f"{plot.part}." if plot.part else "", f"Abscissa: {plot.x_label}."]
    if any(len(line.measured) for line in plot.lines):
        told.append("Lines are means over seeds, bands reach from their 5% to their 95% quantile.")
    if any(len(line.formula) for line in plot.lines):
        told.append("Dark dashes are the formula, dots a bound.")
    return " ".join(filter(None, told))


def methods(
    title: str,
    command: str,
    frame: pd.DataFrame,
    slopes: Sequence[Slope],
    grids: Sequence[Grid],
) -> str:
    """A paragraph that says what was done, from the cells that were measured."""
    good = frame[frame.refusal.isna()]
    told = [
        f"{title}.",
        f"We used ciphercohort {metadata.version('ciphercohort')}, and up to "
        f"{max(good.rows.dropna(), default=0):,} training rows.",
        *(sentence for grid in grids for sentence in _grid(grid)),
        *_repeated(good),
    ]
    if tests := random_ones(slopes):
        held = sum(bool(s.agrees) for s in tests)
        told.append(
            "Slopes of log2 value against log2 P were fitted by least squares, with 95% intervals "
            f"by Student's t; {held} of {len(tests)} contain the slope of the formula."
        )
    told += [
        "Noise was drawn from a seeded generator, so that the study can be repeated; its models "
        "are not private.",
        f"Command: {command}",
    ]
    return " ".join(told) + "\n"


def _grid(grid: Grid) -> list[str]:
    clients = ", ".join(map(str, grid.parties or grid.encrypted))
    promises = [e for e in grid.epsilons if e is not None]
    rounds = [str(t) if t else "as many as the certificate's search chose" for t in grid.iterations]
    told = [
        f"P = {clients} clients trained logistic regression by {', '.join(grid.updates)} under the "
        f"protocol {grid.protocol}; iterations: {', '.join(rounds)}."
    ]
    if promises:
        against = ", ".join(map(coalition_words, grid.colluders))
        opened = grid.protocol == SECURE_AGGREGATION
        what = "Every opened sum, and hence the model," if opened else "The released model"
        told.append(
            f"{what} is (epsilon, delta)-differentially private for the replacement of one row, "
            f"epsilon = {', '.join(f'{e:g}' for e in promises)}, delta = {grid.delta:g}, "
            f"against t colluding clients, {against}: each client added Gaussian noise of standard "
            "deviation sigma / sqrt(P - t)."
        )
    if "all" in grid.noises:
        told.append("For comparison each client added noise of standard deviation sigma.")
    return told


def _repeated(good: pd.DataFrame) -> list[str]:
    twins, runs = (good[good.kind == kind] for kind in ("twin", "encrypted"))
    told = []
    if len(twins):
        told.append(
            f"Each cell was repeated with {twins.seed.nunique()} seeds by the plaintext twin: "
            "iterations, polynomial and noise of the encrypted run, without encryption."
        )
    for ring, group in runs.groupby("ring"):
        at = ", ".join(map(str, sorted(group.parties.unique())))
        rings = "a toy ring without security" if ring else "rings of 128-bit security"
        told.append(
            f"Encrypted runs were made for P = {at} on {rings}, and watched with all keys at hand."
        )
    return told
