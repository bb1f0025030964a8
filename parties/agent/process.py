"""The process that holds an owner's rows and keys: its verifier is a child without either."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from parties import launch
from parties.agent.doors import Doors
from parties.agent.owner import Owner
from parties.agent.settings import Driving
from parties.agent.store import codec
from parties.kernel.channel import Channel
from parties.kernel.serving import Serving
from protocols.errors import ProtocolError

log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0


def serve(
    owner: Owner,
    driving: Driving,
    path: Path,
    ready: Callable[[], None],
    *,
    relay_uid: int | None = None,
    output: IO[str] | int | None = None,
    ends_with_input: bool = False,
) -> None:
    """Answer the verifier until it ends, or this process is told to stop.

    path, relay_uid: of its sockets, see `Doors`; ready: called once messages are served; output: of
    the verifier's log, None: this process's own; ends_with_input: with whoever began this process.

    Raises:
        ParameterError: see `Doors`. ProtocolError: the verifier ended before it served.
    """
    doors = Doors(path, relay_uid)
    ours, theirs = socket.socketpair()
    handles = [end.fileno() for end in (theirs, doors.relay, doors.owner)]
    try:
        with theirs:
            verifier = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                [*launch.program("parties.verifier"), str(os.getpid()), *map(str, handles)],
                pass_fds=handles,
                env=launch.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if output is None else output,
                stderr=output,
            )
        told: queue.SimpleQueue[None] = queue.SimpleQueue()
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, lambda *_: told.put(None))
        threading.Thread(target=_when_told, args=(told, verifier), daemon=True).start()
        if ends_with_input:
            threading.Thread(target=_last_input, args=(told,), daemon=True).start()
        try:
            _answer(owner, driving, Channel(ours, codec(owner.terms.protocols)), ready, relay_uid)
        finally:
            ours.close()
            _ended(verifier)
    finally:
        doors.close()


def _answer(
    owner: Owner,
    driving: Driving,
    channel: Channel,
    ready: Callable[[], None],
    relay_uid: int | None,
) -> None:
    serving, has_begun = Serving(owner, channel), threading.Event()

    def begun(sandbox: str) -> None:
        if not has_begun.is_set():
            log.info("the verifier's sandbox: %s", sandbox)
            has_begun.set()
            ready()

    serving.also(
        serving=begun,
        modules=owner.modules,
        foresee=owner.foresee,
        keep=owner.keep,
        had_these_rows=owner.had_these_rows,
        asked_of=owner.asked_of,
    )
    channel.send(
        {
            "told": owner.told(),
            "driving": msgspec.to_builtins(driving),
            "relay_uid": relay_uid,
        }
    )
    serving.serve()
    if not has_begun.is_set():
        raise ProtocolError("the verifier ended before it served: see what it wrote")


def _last_input(told: queue.SimpleQueue[None]) -> None:
    with os.fdopen(os.dup(0), "rb") as source:
        while source.read(1 << 16):
            pass
    told.put(None)


def _when_told(told: queue.SimpleQueue[None], verifier: subprocess.Popen[bytes]) -> None:
    """The kernel serves until its verifier ends, which need not do as it is told."""
    told.get()
    verifier.terminate()
    _ended(verifier)


def _ended(verifier: subprocess.Popen[bytes]) -> None:
    try:
        verifier.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        verifier.kill()
        verifier.wait()
