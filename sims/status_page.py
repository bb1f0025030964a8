"""A small read-only page with the state of a deployment's runs, on this machine's own address.

Security: it answers GET / and GET /status.json on 127.0.0.1 to requests that name this machine
(so that no web site reads it through a visitor's browser), and holds no data, key or weight.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from coordinator.costs import PHASES
from coordinator.status import sessions
from sims.report_html import render
from sims.status_words import megabytes, party_words

REFRESH_SECONDS = 2
_HOSTS = ("127.0.0.1", "localhost")


def page(runs: list[dict[str, Any]]) -> str:
    """The page: the latest run in full, a line for each earlier one."""
    words: dict[str, Any] = {"party_words": party_words, "megabytes": megabytes}
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
