"""HTML as it is read, and a real headless browser, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
SECONDS = 60.0
_CUT_OFF = """selector => {
  const width = document.documentElement.clientWidth, found = [];
  for (const element of document.querySelectorAll(selector)) {
    let box = element.parentElement;
    while (box && getComputedStyle(box).overflowX === 'visible') box = box.parentElement;
    const scrolled = box && box !== document.documentElement && box !== document.body;
    const {left, right} = element.getBoundingClientRect();
    if (!scrolled && (left < -0.5 || right > width + 0.5))
      found.push(element.tagName + ' ' + element.textContent.slice(0, 60));
  }
  return found;
}"""


def find_browser() -> str | None:
    """Its path, None where there is none."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


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


class Page:
    """One tab. `problems`: what the browser logged as errors or blocked."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._number = write, read, b"", 0
        self._session = ""
        self.problems: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.problems.append(json.dumps(answer["params"]))
        raise TimeoutError(method)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise EOFError("the browser is gone")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def open(self, address: str, width: int, height: int = 900) -> None:
        """Show a page in a window of so many pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = SECONDS) -> None:
        """Until it is true, also across reloads."""
        until = time.monotonic() + seconds
        while self.evaluate(expression) is not True:
            if time.monotonic() > until:
                raise TimeoutError(expression)
            time.sleep(0.1)

    def overflow(self) -> float:
        """How far the page itself scrolls sideways [pixels]."""
        root = "document.documentElement"
        return float(self.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))

    def cut_off(self, selector: str) -> list[str]:
        """What selected elements reach out of the window, no box of theirs being scrolled."""
        found = self.evaluate(f"({_CUT_OFF})({json.dumps(selector)})")
        assert isinstance(found, list), found
        return found

    def print_to_pdf(self) -> bytes:
        """The page on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        answer = self.send("Page.printToPDF", printBackground=True, **size)
        return base64.b64decode(answer["data"])

    def on_paper(self, width: int = 718) -> None:
        """Lay the page out as for A4 without its margins [pixels]."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=1000,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send("Emulation.setEmulatedMedia", media="print")

    def on_screen(self) -> None:
        """Undo `on_paper`, for the next page."""
        self.send("Emulation.setEmulatedMedia", media="")

    def screenshot(self, path: Path) -> None:
        """PNG of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def opened(program: str, folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own; the protocol's pipe is its descriptors 3 and 4."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    high = [os.dup2(fd, 60 + k) for k, fd in enumerate((to_read, from_write))]
    shell = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]} {high[0]}<&- {high[1]}>&-'
    command = ["bash", "-c", shell, program, *FLAGS, f"--user-data-dir={folder}"]
    with open(folder.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(command, pass_fds=high, stdout=log, stderr=log)
    for fd in (to_read, from_write, *high):
        os.close(fd)
    try:
        yield Page(to_write, from_read)
    finally:
        process.kill()
        process.wait()
        os.close(to_write)
        os.close(from_read)
