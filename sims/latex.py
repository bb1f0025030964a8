"""Texts for LaTeX."""

from __future__ import annotations

_SIGNS = {
    **{"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}"},
    **{sign: f"\\{sign}" for sign in "&%$#_"},
    **{"^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "…": r"\ldots{}"},
}


def latex(text: str) -> str:
    """The text, every sign that LaTeX would take for a command escaped."""
    return "".join(_SIGNS.get(sign, sign) for sign in text)
