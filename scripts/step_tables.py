"""The tables of steps in protocols/README.md, from each protocol's own: `--write` renews them.

Exit code 1 if the page has others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from protocols.exchange import COMMIT
from protocols.plan.protocol import PROTOCOLS, Protocol, Step, protocol

PAGE = Path(__file__).resolve().parents[1] / "protocols" / "README.md"
HEAD = "step", "file", "coordinator -> party", "party -> coordinator", "who learns what"


def rows(step: Step) -> Iterator[tuple[str, ...]]:
    """Of one step: a reply that is fixed first has two."""
    module = step.answer.__module__.removeprefix("protocols.").replace(".", "/")
    told, sends, end = step.told, step.sends, "/k" if step.count else ""
    if step.committed:
        fixed = f"digest of what `{step.name}{end}` will send, signed"
        yield f"`{COMMIT}{step.name}{end}`", f"`{module}.py`", told, fixed, "nothing"
        told = "all digests"
        sends += "; the set of digests, signed" if step.endorsed else ""
    yield f"`{step.name}{end}`", f"`{module}.py`", told, sends, step.learns


def table(of: Protocol) -> str:
    """Of all its steps, but those of every protocol."""
    every = [HEAD, ("---",) * len(HEAD), *(row for step in of.steps for row in rows(step))]
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def renewed(page: str) -> str:
    """The page with these tables, each between a line that names its protocol and an end."""
    for name in PROTOCOLS:
        begin, end = f"<!-- steps: {name} -->\n", "<!-- end -->\n"
        before, found, rest = page.partition(begin)
        if not found or end not in rest:
            raise SystemExit(f"{PAGE.name} has no place for the steps of {name}")
        page = before + begin + table(protocol(name)) + end + rest.partition(end)[2]
    return page


def main() -> int:
    """Compare, or write."""
    page = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv[1:]:
        PAGE.write_text(renewed(page), encoding="utf-8")
        return 0
    return int(renewed(page) != page)


if __name__ == "__main__":
    raise SystemExit(main())
