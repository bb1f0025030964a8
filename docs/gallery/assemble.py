"""Brings docs/gallery.md up to date with finished studies.

    python docs/gallery/assemble.py studies

The page itself says what it shows: a picture `gallery/STUDY/FIGURE.svg` is copied from
`studies/STUDY/figures/FIGURE.svg`, and between `<!-- slopes STUDY COMPONENT ... -->` and
`<!-- end -->` stands a table of `studies/STUDY/slopes.csv`. Pictures that the page no longer shows
are removed. Standard library only.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "gallery.md"
PICTURE = re.compile(r"\(gallery/([\w.-]+)/([\w.-]+)\.svg\)")
TABLE = re.compile(r"(<!-- slopes (\S+) ([\w ]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
COALITIONS = ("t = 0", "t = 1", "t = P / 2", "t = P - 1")


def assemble(page: Path, studies: Path) -> None:
    """Rewrite the page's tables and the folder of its pictures.

    Raises:
        SystemExit: a study or a figure that the page shows is missing; nothing is written then.
    """
    text = page.read_text(encoding="utf-8")
    pictures = {
        (s, name): studies / s / "figures" / f"{name}.svg" for s, name in PICTURE.findall(text)
    }
    missing = [f"{s}/{name}.svg" for (s, name), path in pictures.items() if not path.is_file()]
    missing += [m[1] for m in TABLE.findall(text) if not (studies / m[1] / "slopes.csv").is_file()]
    if missing:
        raise SystemExit(f"{studies} does not have {', '.join(missing)}: run the page's commands")
    copies = {name: path.read_bytes() for name, path in pictures.items()}
    folder = page.parent / "gallery"
    for old in folder.glob("*/*.svg"):
        old.unlink()
    for (study, name), body in copies.items():
        (folder / study).mkdir(exist_ok=True)
        (folder / study / f"{name}.svg").write_bytes(body)
    filled = TABLE.sub(lambda m: m[1] + slope_table(studies / m[2], m[3].split()) + m[4], text)
    page.write_text(filled, encoding="utf-8")


def slope_table(study: Path, components: list[str]) -> str:
    """Markdown: a row per component and setting, a column per coalition that there is."""
    with (study / "slopes.csv").open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["component"] in components]
    found.sort(key=lambda row: components.index(row["component"]))
    columns = [c for c in COALITIONS if any(row["coalition"] == c for row in found)]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in found:
        key = row["component"], row["setting"]
        rows.setdefault(key, dict.fromkeys(columns, ""))[row["coalition"]] = cell(row)
    lines = ["| component | setting |" + "".join(f" {c} |" for c in columns)]
    lines.append("|---|---|" + "---|" * len(columns))
    for (component, setting), cells in rows.items():
        lines.append(f"| {component} | {setting} |" + "".join(f" {v} |" for v in cells.values()))
    return "\n".join(lines) + "\n"


def cell(row: dict[str, str]) -> str:
    """Slope with its interval, what is predicted in brackets; bold where that lies outside."""
    half = (float(row["high"]) - float(row["low"])) / 2 if row["low"] else 0.0
    digits = 4 if half < 0.01 else 3
    text = _rounded(row["slope"], digits)
    if half > 1e-6:
        text += f" ± {_rounded(str(half), digits)}"
    if row["relation"] == "<=" and row["margin_bits"]:
        margin = float(row["margin_bits"])
        return f"{text} ({abs(margin):.2f} bits {'below' if margin <= 0 else 'above'} the bound)"
    if row["predicted"]:
        text += f" ({_rounded(row['predicted'], digits)})"
    return f"**{text}**" if row["agrees"] == "no" else text


def _rounded(text: str, digits: int) -> str:
    return f"{round(float(text), digits) + 0.0:.{digits}f}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} FOLDER_OF_STUDIES")
    assemble(PAGE, Path(sys.argv[1]))
