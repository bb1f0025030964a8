"""Texts and numbers for LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from protocols.words import NONE

_SIGNS = {
    **{"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}"},
    **{sign: f"\\{sign}" for sign in "&%$#_"},
    **{"^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "…": r"\ldots{}"},
    **{"–": "--", "−": "$-$", "²": "$^2$", "|": "$|$", "≥": r"$\geq$", "≤": r"$\leq$"},
}
_NUMBER = re.compile(r"(?<![\w.\-−])([-−]?)(\d[\d,]*(?:\.\d+)?|inf\b)(?:e([-+−]?\d+))?(?!\w)")


def latex(text: str) -> str:
    """The text, every sign that LaTeX would take for a command or a dash escaped."""
    return re.sub("-(?=-)", "-{}", "".join(_SIGNS.get(sign, sign) for sign in text))


def latex_row(cells: Sequence[str]) -> str:
    r"""Cells that are LaTeX, as a row; its begin is no option of the rule or `\\` before it."""
    first, *rest = cells
    return " & ".join(["{}" * first.startswith(("[", "*")) + first, *rest]) + r" \\"


def latex_words(text: str) -> str:
    """The same of a sentence or a figure: its numbers with a sign or an exponent as mathematics.

    Names of columns and categories go through `latex`: a category "1e-5" is no number.
    """
    parts, end = list[str](), 0
    for found in _NUMBER.finditer(text):
        sign, digits, exponent = found.groups()
        if sign or exponent or digits == "inf":
            parts += [latex(text[end : found.start()]), _mathematics(sign, digits, exponent)]
            end = found.end()
    return "".join([*parts, latex(text[end:])])


def latex_number(text: str) -> str:
    """A number as Python prints it, as mathematics; a dash for none; empty stays empty."""
    if text == NONE:
        return "--"
    if not text:
        return ""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number")
    return _mathematics(*found.groups())


def _mathematics(sign: str, digits: str, exponent: str | None) -> str:
    number = r"\infty" if digits == "inf" else digits.replace(",", "{,}")
    power = int((exponent or "0").replace("−", "-"))
    times = rf" \times 10^{{{power}}}" if exponent else ""
    return f"${'-' * bool(sign)}{number}{times}$"
