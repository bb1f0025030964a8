"""A table of coefficients for a terminal and for a paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ciphercohort.results.coefficients import ratio_texts, with_ends
from ciphercohort.results.exact_sums import TOY, exact_fields, exact_words
from ciphercohort.results.latex import latex, latex_number, latex_row, latex_words
from protocols.words import NONE, printable

Rows = Sequence[Mapping[str, Any]]


def ratio_of(model: str) -> str:
    """What exp(coef) is called; empty: nothing."""
    return {"logistic": "odds_ratio", "poisson": "rate_ratio"}.get(model, "")


def _number(value: float, digits: int = 4, fewer: int = 0, error: float = 0.0) -> str:
    """Fixed digits, some fewer; an exponent for what they would not show.

    error: what is smaller than it may well be 0, and is shown as that.
    """
    if value != value:
        return NONE
    size = abs(value)
    if size and (max(size, error) < 10.0**-digits or size >= 1e6):
        return f"{value:.3e}"
    return f"{value:.{max(digits - fewer, 0)}f}"


def _probability(value: float) -> str:
    return NONE if value != value else f"{value:.3f}"


def _cells(row: Mapping[str, Any], ratio: str) -> list[str]:
    if row["coef"] != row["coef"]:  # of a category that others are compared with
        return [""] * (7 if ratio else 6)
    # An error of thousands says nothing of the fourth decimal.
    fewer = math.ceil(math.log10(row["se"])) if 1 < row["se"] < math.inf else 0
    error = row["se"]
    cells = [_number(row[k], 4, fewer, error) for k in ("coef", "se")]
    cells += [_number(row["z"], 3, error=1.0), _probability(row["p"])]
    cells += [_number(row[k], 3, fewer, error) for k in ("low", "high")]
    return [*cells, ratio_texts(row, ratio)[0]] if ratio else cells


def _heads(ratio: str, freedom: float) -> list[str]:
    letter = "z" if freedom == float("inf") else "t"
    heads = ["coef", "std err", letter, f"P>|{letter}|", "[0.025", "0.975]"]
    return [*heads, ratio.replace("_", " ")] if ratio else heads


def caption(about: Mapping[str, Any]) -> str:
    """What the table is of, in a sentence."""
    of = f"{printable(about['outcome'])}, " if about.get("outcome") else ""
    mark = f"{TOY} (toy ring): " if TOY in about else ""
    said = f"{mark}{about['model']} regression of {of}{about['rows']:,} rows, 95 % intervals"
    if about["epsilon_in_all"] is None:
        return f"{said}, by exact sums, no privacy noise"
    return (
        f"{said} that include privacy noise, epsilon {about['epsilon_in_all']:g} and delta "
        f"{about['delta_in_all']:g} in all"
    )


def cell_table(
    rows: Rows, about: Mapping[str, Any], ratio: str
) -> tuple[list[str], list[list[str]]]:
    """Head and rows, for a page; ratios with their intervals."""
    named = [printable(" ".join(filter(None, [row.get("target"), row["name"]]))) for row in rows]
    heads = ["", *_heads("", about["freedom"])]
    cells = [[name, *_cells(row, "")] for name, row in zip(named, rows, strict=True)]
    if ratio:
        heads.append(_ratio_head(ratio))
        cells = [[*line, with_ends(row, ratio)] for line, row in zip(cells, rows, strict=True)]
    return heads, cells


def _ratio_head(ratio: str) -> str:
    return f"{ratio.replace('_', ' ')} [95 % CI]"


def text_table(rows: Rows, about: Mapping[str, Any], ratio: str) -> str:
    """Columns as of statsmodels' `summary()`; the ratio beside them."""
    lines: list[str] = []
    for target in dict.fromkeys(row.get("target", "") for row in rows):
        mine = [row for row in rows if row.get("target", "") == target]
        table = [["", *_heads(ratio, about["freedom"])]]
        table += [[printable(str(row["name"])), *_cells(row, ratio)] for row in mine]
        widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
        shown = [
            "   ".join(
                cell.ljust(width) if k == 0 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        ]
        rule = "=" * len(shown[0])
        lines += [
            *([printable(target)] if target else []),
            rule,
            shown[0],
            "-" * len(rule),
            *shown[1:],
            rule,
        ]
    mark = [exact_words(True)] * about["exact_sums"]
    return "\n".join([*mark, caption(about), *lines, *(f"note: {note}" for note in about["notes"])])


def latex_table(rows: Rows, about: Mapping[str, Any], ratio: str) -> str:
    r"""A `table` for \input; it needs booktabs. Ratios with their intervals."""
    heads = _heads("", about["freedom"])
    if ratio:
        heads.append(_ratio_head(ratio))
    lines = [f"% {mark}: {words}" for mark, words in exact_fields(about["exact_sums"]).items()]
    lines += [r"\begin{table}", rf"\caption{{{latex_words(caption(about))}.}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule"]
    lines.append(latex_row(["", *(latex(head) for head in heads)]))
    for target in dict.fromkeys(row.get("target", "") for row in rows):
        lines.append(r"\midrule")
        if target:
            lines.append(rf"\multicolumn{{{len(heads) + 1}}}{{l}}{{{latex(printable(target))}}} \\")
        for row in rows:
            if row.get("target", "") == target:
                cells = [latex_number(cell) for cell in _cells(row, "")]
                if ratio:
                    cells.append(latex_words(with_ends(row, ratio)))
                lines.append(latex_row([latex(printable(str(row["name"]))), *cells]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize Note: {latex_words(note)}." for note in about["notes"]]
    return "\n".join([*lines, r"\end{table}", ""])
