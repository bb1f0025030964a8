"""A small read-only page with the state of a deployment's runs, on this machine's own address.

Security: it answers GET / and GET /status.json on 127.0.0.1 to requests that name this machine
(so that no web site reads it through a visitor's browser), and holds no data, key or weight.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from coordinator.costs import PHASES
from coordinator.status import sessions
from sims.status_words import megabytes, party_words

REFRESH_SECONDS = 2
_HOSTS = ("127.0.0.1", "localhost")
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
p,td.w{overflow-wrap:anywhere}
table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd}
td.n{white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
progress{width:100%;height:1.2rem}.finished{color:#176b2c}.aborted{color:#a11212}
"""


def page(runs: list[dict[str, Any]]) -> str:
    """The page: the latest run in full, a line for each earlier one."""
    body = "".join(_latest(runs[0])) if runs else "<p>There is no run yet.</p>"
    earlier = "".join(
        f'<tr><td class="w">{_text(run["session"])}</td><td>{_text(run["state"])}</td>'
        f'<td class="w">{_text(run["updated"])}</td><td class="w">{_text(run["reason"])}</td></tr>'
        for run in runs[1:]
    )
    table = f"<h2>Earlier runs</h2><table>{earlier}</table>" if earlier else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        '<meta name="viewport" content="width=device-width"><title>ciphercohort</title>'
        f"<style>{_STYLE}</style></head><body><h1>Training across machines</h1>{body}{table}"
        "</body></html>"
    )


def _latest(run: dict[str, Any]) -> Iterator[str]:
    state = _text(run["state"])
    yield f'<p id="state">Session {_text(run["session"])}: <b class="{state}">{state}</b></p>'
    if run["reason"]:
        yield f'<p id="reason">{_text(run["reason"])}</p>'
    done, total = int(run["iteration"]), max(1, int(run["rounds"]))
    yield f'<progress value="{done}" max="{total}"></progress>'
    when = _text(run["updated"])
    yield f"<p>Phase {_text(run['phase'])}, iteration {done} of {total}; {when}</p>"
    yield '<h2>Parties</h2><table><tr><th>Party</th><th class="n">Rows</th>'
    yield '<th class="n">Traffic</th></tr>'
    for name, party in run["parties"].items():
        yield f'<tr><td class="w">{_text(party_words(run, name))}</td>'
        yield f'<td class="n">{int(party["rows"]):,}</td>'
        yield f'<td class="n">{megabytes(int(party["bytes"]))}</td></tr>'
    yield "</table>"
    if "seconds" in run:
        yield '<h2>Phases</h2><table><tr><th>Phase</th><th class="n">Seconds</th>'
        yield '<th class="n">Largest party\'s traffic</th></tr>'
        for phase in PHASES:
            yield f'<tr><td>{phase}</td><td class="n">{run["seconds"].get(phase, 0):.1f}</td>'
            size = megabytes(int(run["bytes_per_party"].get(phase, 0)))
            yield f'<td class="n">{size}</td></tr>'
        yield "</table>"


def _text(value: object) -> str:
    return html.escape(str(value))


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
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        self.send_header("Content-Security-Policy", policy)
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
