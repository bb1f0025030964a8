"""The line of examples/network.py: nothing lost, nothing reordered, everything late."""

from __future__ import annotations

import asyncio
import math
import time

import numpy as np
import pytest

from tests.support.scripts import load

DELAY = 0.15
network = load("examples/network.py")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def through_the_line(data: bytes) -> tuple[bytes, float]:
    """What comes back from an echo behind the line, and when its first byte did [s]."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()[1]
    probe = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    line = asyncio.ensure_future(
        network.relay(f"127.0.0.1:{port}", f"127.0.0.1:{target}", delay=DELAY)
    )
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(data)
    writer.write_eof()
    first = await reader.readexactly(1)
    seconds = time.monotonic() - began
    rest = await reader.read(-1)
    writer.close()
    line.cancel()
    server.close()
    return first + rest, seconds


def test_every_byte_comes_late_and_in_order() -> None:
    data = np.random.default_rng(0).bytes(3_000_000)
    found, seconds = asyncio.run(through_the_line(data))
    assert found == data
    assert 2 * DELAY <= seconds < 20 * DELAY


def test_a_line_carries_its_rate_for_everybody() -> None:
    """Chunks queue, whoever sends them, then travel; an idle line saves nothing up."""
    line = network.Line(rate=8e6, delay=0.01)
    due = [line.due(100_000, now) for now in (5.0, 5.0, 5.05)]
    assert due == pytest.approx([5.11, 5.21, 5.31])
    assert line.due(100_000, 9.0) == pytest.approx(9.11)
    assert network.Line(rate=math.inf, delay=0.5).due(1 << 30, 2.0) == 2.5


def test_hosts_have_addresses_of_their_own() -> None:
    names = ("centre", "a", "b")
    held = [network.address(k) for k in range(len(names))] + [network.line(names)]
    assert len(set(held)) == len(held)
