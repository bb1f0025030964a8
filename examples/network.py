"""Network namespaces as hosts: an address each, joined by a bridge, with delay and a slow line.

Needs root on Linux, and the kernel's netem for delay and rate. Nothing outlives the block.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

DELAY, RATE = "20ms", "100mbit"
_BRIDGE, _PREFIX = "cohort-br", "cohort-"


def address(position: int) -> str:
    """Of the host at a position."""
    return f"10.77.0.{position + 1}"


def inside(name: str) -> list[str]:
    """What to put before a command to run it on a host."""
    return ["ip", "netns", "exec", _PREFIX + name]


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[None]:
    """One namespace for each name; every line delays by DELAY in each direction, at RATE."""
    _close(names)
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
        for position, name in enumerate(names):
            space, outside = _PREFIX + name, f"cohort-v{position}"
            _ip("netns", "add", space)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outside, "master", _BRIDGE, "up")
            _ip("-n", space, "addr", "add", f"{address(position)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _slow_down(name)
        yield
    finally:
        _close(names)


def _slow_down(name: str) -> None:
    add = [*inside(name), "tc", "qdisc", "add", "dev", "eth0", "root"]
    netem = ["netem", "delay", DELAY, "rate", RATE, "limit", "10000"]
    if subprocess.run([*add, *netem], stderr=subprocess.DEVNULL).returncode:
        print(f"this kernel has no netem: the line of {name} has a limit but no delay")
        _run([*add, "tbf", "rate", RATE, "burst", "256kb", "latency", "200ms"])


def _close(names: Sequence[str]) -> None:
    for command in (*(["netns", "del", _PREFIX + n] for n in names), ["link", "del", _BRIDGE]):
        subprocess.run(["ip", *command], stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)
