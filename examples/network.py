"""Network namespaces as hosts: an address each, joined by a bridge, with a slow and long line.

`hosts` needs root on Linux. Every host sends at RATE at most (the kernel's tbf). The parties reach
the centre through one more host, `line`, whose relay holds every byte back for DELAY in each
direction: in user space, since netem is not in every kernel. `narrow` needs no root: the same relay
on this host, with a rate of its own. Nothing outlives the block.
"""

from __future__ import annotations

import asyncio
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ciphercohort.deploy.supervise import child

DELAY_SECONDS, RATE = 0.010, "100mbit"
LINE = "line"
_BRIDGE, _PREFIX, _CHUNK, _QUEUE = "cohort-br", "cohort-", 1 << 16, 64


def address(position: int) -> str:
    """Of the host at a position."""
    return f"10.77.0.{position + 1}"


def line(names: Sequence[str]) -> str:
    """What parties dial instead of the first host."""
    return address(len(names))


def inside(name: str) -> list[str]:
    """What to put before a command to run it on a host."""
    return ["ip", "netns", "exec", _PREFIX + name]


@contextmanager
def hosts(names: Sequence[str], port: int) -> Iterator[None]:
    """One namespace for each name, and the line to `port` of the first."""
    everyone = [*names, LINE]
    _close(everyone)
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
        for position, name in enumerate(everyone):
            _add(name, position)
            if name != LINE:
                shape = ["tbf", "rate", RATE, "burst", "256kb", "latency", "200ms"]
                _run([*inside(name), "tc", "qdisc", "add", "dev", "eth0", "root", *shape])
        here = [sys.executable, str(Path(__file__)), f"{line(names)}:{port}"]
        with child([*inside(LINE), *here, f"{address(0)}:{port}"]):
            print(
                f"network: {len(names)} hosts with addresses of their own, each sends {RATE} at "
                f"most; {1000 * DELAY_SECONDS:g} ms more in each direction, by a relay"
            )
            yield
    finally:
        _close(everyone)


def _add(name: str, position: int) -> None:
    space, outside = _PREFIX + name, f"cohort-v{position}"
    _ip("netns", "add", space)
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("link", "set", outside, "master", _BRIDGE, "up")
    _ip("-n", space, "addr", "add", f"{address(position)}/24", "dev", "eth0")
    _ip("-n", space, "link", "set", "eth0", "up")
    _ip("-n", space, "link", "set", "lo", "up")


def _close(names: Sequence[str]) -> None:
    for command in (*(["netns", "del", _PREFIX + n] for n in names), ["link", "del", _BRIDGE]):
        subprocess.run(["ip", *command], stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)


# -- the line --------------------------------------------------------------------------------------


@contextmanager
def narrow(own: str, target: str, latency: float, rate: float) -> Iterator[None]:
    """The centre's line to the parties: they dial `own`, it ends at `target` (HOST:PORT).

    latency: there and back [s]; rate: of all parties together, in each direction [bit/s].
    """
    here = [sys.executable, str(Path(__file__)), own, target, str(latency / 2), str(rate)]
    with child(here):
        print(
            f"network: the centre's line carries {rate / 1e6:g} Mbit/s each way, "
            f"{1000 * latency:g} ms there and back"
        )
        yield


class Line:
    """One direction for all connections: bytes queue for it, then travel.

    rate: [bit/s]; delay: of the way [s].
    """

    def __init__(self, rate: float, delay: float) -> None:
        self._rate, self._delay, self._free = rate, delay, 0.0

    def due(self, size: int, now: float) -> float:
        """When so many bytes arrive that are handed in now."""
        self._free = max(self._free, now) + 8 * size / self._rate
        return self._free + self._delay


async def relay(
    own: str, target: str, delay: float = DELAY_SECONDS, rate: float = math.inf
) -> None:
    """Relay TCP connections from `own` to `target` (HOST:PORT); delay, rate: see `Line`."""
    host, port = _split(own)
    lines = Line(rate, delay), Line(rate, delay)
    server = await asyncio.start_server(partial(_connected, target, lines), host, port)
    async with server:
        await server.serve_forever()


async def _connected(
    target: str,
    lines: tuple[Line, Line],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        there, back = await asyncio.open_connection(*_split(target))
    except OSError:
        writer.close()  # the target is not up: the caller tries again
        return
    for end in (writer, back):
        end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        await asyncio.gather(_late(reader, back, lines[0]), _late(there, writer, lines[1]))
    for end in (writer, back):
        end.close()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
    """Everything of one direction, each chunk when the line has carried it."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUE)

    async def send() -> None:
        while True:
            due, chunk = await queue.get()
            await asyncio.sleep(due - time.monotonic())
            if not chunk:
                writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()

    sending = asyncio.ensure_future(send())
    while True:
        chunk = await reader.read(_CHUNK)
        await queue.put((line.due(len(chunk), time.monotonic()), chunk))
        if not chunk or sending.done():
            return await sending


def _split(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(relay(*sys.argv[1:3], *map(float, sys.argv[3:])))
