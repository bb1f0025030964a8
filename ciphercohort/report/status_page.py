"""A deployment's runs: tables for the terminal, and a small read-only page on this machine.

Security: it answers GET / and GET /status.json on 127.0.0.1 to requests that name this machine
(so that no web site reads it through a visitor's browser), and holds no data, key or weight.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ciphercohort.report.html import render
from coordinator.status import INTERRUPTED, OVER, clock, sessions
from protocols.plan.protocol import PHASES

REFRESH_SECONDS = 2
LACKS_MORE = "finished, but what its command does after it is missing; go on with it by"
_HOSTS = ("127.0.0.1", "localhost")
_STYLES = {"finished": "green", "aborted": "bold red", "running": "yellow", INTERRUPTED: "yellow"}


def status_tables(runs: Sequence[dict[str, Any]]) -> Iterator[Table | Text]:
    """All runs and why they ended, then who is awaited in the latest one, its parties and phases.

    Of 80 columns, whatever happened in the runs.
    """
    if not runs:
        yield Text("no run yet: cohort coordinator run starts one")
        return
    yield _table(
        "Runs (times are UTC)",
        ("Session", "State", "Phase", "Updated"),
        (
            (
                *(_what(series), Text(r["state"], style=_STYLES.get(r["state"], ""))),
                *(_place(r), datetime.fromisoformat(r["updated"]).strftime("%m-%d %H:%M")),
            )
            for r, series in ((series[-1], series) for series in by_series(runs))
        ),
    )
    for run in runs:
        if run["state"] == INTERRUPTED:
            line = run.get("goes_on_by") or f"its command, with --session {run['session']}"
            yield Text(
                f"{run['session'][:8]} interrupted: go on with it by {line}; cohort "
                "coordinator abort ends it"
            )
        elif run["state"] == "finished" and "goes_on_by" in run:
            yield Text(f"{run['session'][:8]} {LACKS_MORE}: {run['goes_on_by']}")
        if run["reason"]:
            yield Text(f"{run['session'][:8]} {run['state']}: {run['reason']}")
    for run in runs:
        for words in awaited_words(run) if run["state"] not in OVER else ():
            yield Text(words, style="bold yellow")
    for run in runs[:1]:
        rows = (
            (party_words(run, name), f"{party['rows']:,}", megabytes(party["bytes"]))
            for name, party in run["parties"].items()
        )
        yield _table(f"Parties of {run['session']}", ("Party", "Rows", "Traffic"), rows)
        if "seconds" in run:
            size, lasted = run["bytes_per_party"], run["seconds"]
            phases = ((p, f"{lasted.get(p, 0):.1f}", megabytes(size.get(p, 0))) for p in PHASES)
            yield _table("Phases", ("Phase", "Seconds", "Largest party's traffic"), phases)


def by_series(runs: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Sums of one series together, in order, any other run by itself; in the runs' order."""
    found = dict[str | int, list[dict[str, Any]]]()
    for k, run in enumerate(runs):
        found.setdefault(run.get("series", k), []).append(run)
    return [sorted(each, key=lambda run: int(run.get("number", 0))) for each in found.values()]


def _what(series: Sequence[dict[str, Any]]) -> str:
    """The first session, what it is for, and of several how many and the last."""
    first, *others = series
    words = f"{first['session']}\n{first.get('purpose', '')}".strip()
    if not others:
        return words
    return f"{words}; {len(series)} sums, the last is\n{others[-1]['session']}"


def _place(run: dict[str, Any]) -> str:
    """How far it is: train 3/20."""
    phase = "" if run["phase"] == "finished" else run["phase"]
    return f"{phase} {run['iteration']}/{run['rounds']}".strip()


def awaited_words(run: dict[str, Any]) -> Iterator[str]:
    """Whom a run waits for, and since when, a sentence each."""
    for name, each in run.get("awaited", {}).items():
        yield f"{name} is awaited since {clock(each['since'])} ({each['step']})"


def _table(title: str, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> Table:
    table = Table(title=Text(title), title_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return table


def megabytes(count: int) -> str:
    """12_345_678 as "12.3 MB"."""
    return f"{count / 1e6:,.1f} MB"


def party_words(run: dict[str, Any], name: str) -> str:
    """A party's name, and whether others stand in for it."""
    return f"{name} (missing: others stand in)" if name in run.get("missing", ()) else name


def page(runs: list[dict[str, Any]]) -> str:
    """The page: the latest run in full, a line for each earlier one."""
    words: dict[str, Any] = {
        **{"party_words": party_words, "megabytes": megabytes, "by_series": by_series},
        "awaited_words": awaited_words,
    }
    return render("status.html", runs=runs, refresh=REFRESH_SECONDS, phases=PHASES, **words)


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "ciphercohort", ""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer one request."""
        if self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
            self._send(403, "text/plain", "only from this machine")
        elif self.path == "/":
            self._send(200, "text/html; charset=utf-8", page(sessions(self._folder)))
        elif self.path == "/status.json":
            self._send(200, "application/json", json.dumps(sessions(self._folder)))
        else:
            self._send(404, "text/plain", "not found")

    def _send(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep quiet."""


def make_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """The page of the sessions in a folder, on 127.0.0.1; port 0: any."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, folder))


def serve(folder: Path, port: int, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; tell: is called with the address."""
    with make_server(folder, port) as server:
        tell(f"http://127.0.0.1:{server.server_address[1]}/")
        server.serve_forever()
