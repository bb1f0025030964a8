"""HTML as it is read."""

from __future__ import annotations

from html.parser import HTMLParser


class Document(HTMLParser):
    """Tags in balance, links, the visible text, and that of the cells of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.links = list[str](), set[str](), list[str]()
        self.text, self.cells = "", list[str]()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open it."""
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the last one."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        if "style" not in self.open:
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
