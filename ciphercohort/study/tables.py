"""A table for a terminal, a spreadsheet, a page and a paper."""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ciphercohort.report.html import Html, fragment, page, picture, section, table, tag
from ciphercohort.results.coefficients import with_ends
from ciphercohort.results.exact_sums import exact_words
from ciphercohort.results.latex import latex, latex_row, latex_words
from protocols.words import NONE, printable

INDENT = "  "
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A title, heads and rows of texts, and notes.

    name: of its files; title, notes: sentences; the first column is to the left, and a name in it
    that begins with INDENT belongs to the row above. Names that stand in these are what somebody
    has in a table: signs that a terminal or a picture would not show are question marks here.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("title", "heads", "rows", "notes"):
            object.__setattr__(self, name, _printable(getattr(self, name)))

    def text(self) -> str:
        """Columns, padded."""
        lines = [self.heads, *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.heads))]
        shown = [
            "   ".join(
                cell.ljust(width) if k == 0 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        rule = "-" * max(map(len, shown))
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([self.title, rule, shown[0], rule, *shown[1:], rule, *notes])

    def csv(self) -> str:
        """Heads and rows; a name that a spreadsheet would take for a formula after a "'"."""
        text = io.StringIO()
        rows = [(_named(name), *cells) for name, *cells in self.rows]
        csv.writer(text, lineterminator="\n").writerows([[*map(_named, self.heads)], *rows])
        return text.getvalue()

    def html(self) -> Html:
        """A part of a page."""
        rows = [[_indented(row[0]), *row[1:]] for row in self.rows]
        notes = fragment(*(tag("p", f"Note: {note}.") for note in self.notes))
        return section(self.title, table(self.heads, rows, "numbers"), notes)

    def latex(self) -> str:
        r"""A `table` for \input; it needs booktabs."""
        lines = [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            rf"\caption{{{latex_words(self.title)}.}}",
        ]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}", r"\toprule"]
        lines += [latex_row([*map(latex, self.heads)]), r"\midrule"]
        for name, *cells in self.rows:
            quad = r"\quad " * name.startswith(INDENT)
            lines.append(latex_row([quad + latex(name.strip()), *map(latex, cells)]))
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize Note: {latex_words(note)}." for note in self.notes]
        return "\n".join([*lines, r"\end{table}", ""])


def _printable(found: Any) -> Any:
    """A text, or texts in tuples."""
    return printable(found) if isinstance(found, str) else tuple(map(_printable, found))


def _named(cell: str) -> str:
    name = cell.lstrip()
    if not name.startswith(("=", "+", "-", "@")) or NUMBER.fullmatch(name):
        return cell
    return f"{cell[: len(cell) - len(name)]}'{name}"


def _indented(name: str) -> Html:
    return fragment("\u2003" * name.startswith(INDENT), name.strip())


class Tabled(ABC):
    """What a study found: its tables and pictures, as files, as a page and in a notebook."""

    title: ClassVar[str]

    @abstractmethod
    def tables(self) -> tuple[PaperTable, ...]:
        """The first is what was asked for."""

    @abstractmethod
    def pictures(self) -> dict[str, tuple[str, str]]:
        """(SVG, what it shows) by name."""

    @abstractmethod
    def released(self) -> dict[str, Any]:
        """For JSON; privacy: the promise, where there is one."""

    def documents(self) -> Iterator[tuple[str, str]]:
        """(file name, text): every table as CSV and LaTeX, every picture, and a page of all."""
        tables, pictures = self.tables(), self.pictures()
        for each in tables:
            yield f"{each.name}.csv", each.csv()
            yield f"{each.name}.tex", each.latex()
        for name, (svg, _) in pictures.items():
            yield f"{name}.svg", svg
        parts = [tag("h1", self.title), *self._parts(tables, pictures)]
        yield "report.html", page(self.title, parts)

    def _repr_html_(self) -> str:
        return str(fragment(*self._parts(self.tables(), self.pictures())))

    def _parts(
        self, tables: Iterable[PaperTable], pictures: Mapping[str, tuple[str, str]]
    ) -> Iterator[Html]:
        promise = self.released().get("privacy")
        words = exact_words(True)
        if promise:
            told = ", ".join(f"{name}={value:g}" for name, value in promise.items())
            words = f"{told}, for all figures here together"
        yield tag("p", tag("b", words))
        yield from (each.html() for each in tables)
        for svg, words in pictures.values():
            yield picture(svg, printable(words), printable(words))


def number(value: float, digits: int = 2) -> str:
    """Fixed digits; a dash for none."""
    if value != value:
        return NONE
    # No -0.00.
    return f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < 1e6 else f"{value:.3e}"


def p_value(value: float) -> str:
    """As papers print it."""
    if value != value:
        return NONE
    return "<0.001" if value < 0.001 else f"{value:.3f}"


RATIO_HEADS = ("", "hazard ratio [95 % CI]", "p", "coef", "std err")


def ratio_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a covariate, under RATIO_HEADS; row: see `results.coefficients`."""
    ratio = with_ends(row, "hazard_ratio")
    return row["name"], ratio, p_value(row["p"]), number(row["coef"], 4), number(row["se"], 4)
