"""HTML for the report: escaping by default, tables, figures and one style sheet."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already; everything else gets escaped."""

    __slots__ = ()


def escape(value: object) -> Html:
    """Any value as HTML."""
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def fragment(*children: object) -> Html:
    """Several pieces in a row."""
    return Html("".join(map(escape, children)))


def tag(name: str, *children: object, **attributes: str) -> Html:
    """One element; `cls` is the attribute class."""
    pairs = "".join(
        f' {"class" if key == "cls" else key}="{html.escape(value, quote=True)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{pairs}>{fragment(*children)}</{name}>")


def section(title: str, *children: object) -> Html:
    """A titled part of the page."""
    return tag("section", tag("h2", title), *children)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], cls: str = "") -> Html:
    """A table; of the class "numbers", all columns but the first are aligned to the right."""
    cells = [[tag("td", cell) for cell in row] for row in rows]
    top = tag("tr", *(tag("th", name, scope="col") for name in head))
    top = tag("thead", top) if any(head) else Html("")
    body = [tag("tr", *row) for row in cells]
    whole = tag("table", top, tag("tbody", *body), cls=cls)
    return tag("div", whole, cls="scroll")


def facts(rows: Iterable[tuple[object, object, object]]) -> Html:
    """Name, value and meaning; one below the other on a narrow screen."""
    items = (
        tag(
            "div",
            tag("dt", name, " ", tag("b", value)),
            *([tag("dd", meaning)] if meaning else []),
        )
        for name, value, meaning in rows
    )
    return tag("dl", *items, cls="facts")


def bar(share: float, negative: bool = False) -> Html:
    """A horizontal bar, share in [0, 1] of the column's width."""
    style = f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"
    return tag("span", tag("i", style=style, cls="minus" if negative else "plus"), cls="bar")


def picture(svg: str, words: str, caption: str) -> Html:
    """An SVG as a figure of the page itself; words: for those who cannot see it."""
    data = base64.b64encode(svg.encode()).decode()
    image = Html(f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">')
    return tag("figure", image, tag("figcaption", caption))


def page(title: str, body: Iterable[Html]) -> str:
    """The whole document; nothing in it is loaded from elsewhere."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


STYLE = """
:root { --ink: #1c2430; --soft: #566173; --line: #d9dee5; --blue: #0072b2; --red: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0; background: #f5f6f8; color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 1.2rem clamp(.7rem, 3vw, 2rem) 3rem; }
h1 { font-size: clamp(1.4rem, 1.1rem + 1.4vw, 2rem); line-height: 1.2; margin: .6rem 0 .3rem; }
h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; max-width: 75ch; }
.soft, figcaption, dd { color: var(--soft); font-size: .92rem; }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: clamp(.8rem, 2vw, 1.4rem); margin: 1rem 0; }
.banner { color: #fff; background: var(--red); border-radius: 8px; padding: .7rem 1rem;
  margin: .6rem 0; font-weight: 600; }
.note { border-left: 4px solid #e69f00; background: #fff8e6; padding: .5rem .8rem;
  margin: .5rem 0; }
.columns { display: grid; gap: 1rem 1.6rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 310px), 1fr)); }
figure { margin: 0; }
figure img { display: block; width: 100%; max-width: 540px; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
  border-bottom: 1px solid var(--line); }
th { font-size: .85rem; color: var(--soft); font-weight: 600; vertical-align: bottom;
  text-wrap: balance; }
td:first-child { overflow-wrap: anywhere; min-width: 7rem; }
table.numbers :is(th, td):not(:first-child) { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
table.numbers :is(th, td):last-child { padding-right: 0; }
table.numbers th:not(:first-child) { white-space: normal; }
table.headline tr:first-child td { font-weight: 700; font-size: 1.12rem; }
td small { display: block; color: var(--soft); font-size: .85rem; }
table.headline td small { font-weight: 400; }
.bar { display: block; width: 100%; min-width: 3.5rem; background: #edf0f3; height: .4rem;
  margin: .3rem 0; border-radius: 2px; print-color-adjust: exact; }
.bar i { display: block; height: 100%; border-radius: 2px; min-width: 1px; }
.bar i.plus { background: var(--blue); } .bar i.minus { background: #d55e00; }
.facts { display: grid; gap: .7rem 1.6rem; margin: .4rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
.facts dt b { font-variant-numeric: tabular-nums; } .facts dd { margin: 0; }
code { overflow-wrap: anywhere;
  font: .85rem/1.4 ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
.nowrap { white-space: nowrap; }
td .yes { color: #00694b; font-weight: 600; } td .no { color: var(--red); font-weight: 700; }
footer { color: var(--soft); font-size: .9rem; }
@media print {
  body { background: #fff; font-size: 10.5pt; } main { max-width: none; padding: 0; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: .6rem 0; }
  figure, tr, .banner, .note, .facts > div { break-inside: avoid; } h2 { break-after: avoid; }
  .banner { print-color-adjust: exact; } .scroll { overflow: visible; }
}
"""
