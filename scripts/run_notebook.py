"""Executes a notebook with plain Python, and keeps what its cells print and show.

    python scripts/run_notebook.py docs/notebooks/noise.ipynb

No Jupyter is needed: cells share one namespace, and the last expression of a cell is shown as a
notebook would, as HTML, SVG or text. The cell with the tag `parameters` may be overruled.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PARAMETERS = "parameters"
_FORMS = {"_repr_svg_": "image/svg+xml", "_repr_html_": "text/html"}


def execute(notebook: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """Run all cells in order, in the current folder; the notebook with their outputs.

    parameters: values in place of those of the cell with that tag.

    Raises:
        KeyError: a parameter that the cell does not set. Whatever a cell raises.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    done, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = run_cell("".join(cell["source"]), space, f"cell {count}")
            if PARAMETERS in cell["metadata"].get("tags", ()):
                if unknown := set(parameters) - set(space):
                    raise KeyError(f"the notebook has no parameter {', '.join(sorted(unknown))}")
                space.update(parameters)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        done.append(cell)
    return {**notebook, "cells": done}


def run_cell(source: str, space: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What a cell prints, then what its last expression shows."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), space)  # noqa: S102 (its purpose)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), space)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None:
        outputs.append({"data": shown(value), "metadata": {}, "output_type": "display_data"})
    return outputs


def shown(value: Any) -> Mapping[str, list[str]]:
    """The forms that an object has for a notebook; text always."""
    forms = {"text/plain": lines(repr(value))}
    for method, kind in _FORMS.items():
        if (form := getattr(value, method, None)) is not None:
            forms[kind] = lines(form())
    return forms


def lines(text: str) -> list[str]:
    """As notebooks keep a text."""
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute a notebook in a folder, and write its outputs into it."""
    parser = argparse.ArgumentParser(description="Execute a notebook, and keep its outputs.")
    parser.add_argument("notebook", type=Path)
    path = parser.parse_args().notebook
    done = execute(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
