"""The processes of a case: party agents and the coordinator, each with a folder of its own.

They are started by a fork server that has loaded no cryptography, so that a restart is cheap.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

PASSPHRASE = "correct horse battery staple"
SHARES = "shares.log"
PRELOAD = [
    "numpy",
    "pandas",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "parties.reader.table",
    "parties.agent.vault",
    "protocols.exchange.messages",
]
_PARENT_DIES = 1  # prctl(PR_SET_PDEATHSIG, signal)
_context: Any = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOAD)


def start(role: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A role in a process of its own, which ends with the fork server."""
    process: BaseProcess = _context.Process(target=_enter, args=(role, arguments), daemon=True)
    process.start()
    return process


def _enter(role: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)
    os.environ["OMP_NUM_THREADS"] = "1"
    role(*arguments)


def _log_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())


def agent(folder: Path) -> None:
    """A party agent until SIGTERM; SHARES in its folder gets a line for each decryption share."""
    _log_to(folder / "agent.log")
    from parties.agent.doors import Doors
    from parties.agent.server import AgentServer
    from parties.agent.settings import Settings
    from parties.kernel.keys.key_share import KeyShare
    from tests.support.helpers import agent_of

    make = KeyShare.decryption_share

    def counted(self: KeyShare, *arguments: Any) -> Any:
        with open(folder / SHARES, "a") as file:
            session = self.context.tag.partition("#")[0]
            file.write(f"{session}\n")
            file.flush()
            os.fsync(file.fileno())
        return make(self, *arguments)

    KeyShare.decryption_share = counted  # type: ignore[method-assign]
    settings = Settings.load(folder)
    server = AgentServer(agent_of(settings, PASSPHRASE), Doors(Path(settings.socket)))
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.serve()


def coordinator(folder: Path, session: str, relays: Mapping[str, Path], seconds: float) -> None:
    """The coordinator's process for one session; its status file says how it ended."""
    _log_to(folder / "coordinator.log")
    from coordinator.deployment import serve_session
    from coordinator.settings import Settings
    from protocols.errors import CohortError

    def transport(nodes: Mapping[str, int], limit: float) -> Transport:
        return Transport({name: relays[name] for name in nodes}, min(seconds, limit))

    try:
        serve_session(Settings.load(folder), session, transport)
    except CohortError as error:
        print(f"{session}: {error}", flush=True)


class Transport:
    """`ask` over Unix sockets: every party at once, each asked again when its relay fails.

    seconds: for one step.
    """

    RELAY_ATTEMPTS = 3

    def __init__(self, relays: Mapping[str, Path], seconds: float) -> None:
        self._relays, self._seconds = relays, seconds

    def __call__(self, step: str, outgoing: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver one step.

        Raises:
            ProtocolError: a party did not reply in time, or its relay failed; names the party.
        """
        from protocols.errors import ProtocolError

        deadline, found = time.monotonic() + self._seconds, dict[str, bytes | str]()
        threads = [
            threading.Thread(target=self._ask, args=(n, d, deadline, found), daemon=True)
            for n, d in outgoing.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()) + 0.2)
        replies = {name: r for name, r in dict(found).items() if isinstance(r, bytes)}
        for name in outgoing:
            if name not in replies:
                why = found.get(name, f"no reply to {step!r} within {self._seconds:g} s")
                raise ProtocolError(f"party {name!r}: {why!s}", culprit=name)
        return replies

    def _ask(self, name: str, data: bytes, deadline: float, found: dict[str, bytes | str]) -> None:
        from parties.agent.frames import AgentClient
        from protocols.errors import CohortError

        for _ in range(self.RELAY_ATTEMPTS):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            try:
                found[name] = AgentClient(
                    self._relays[name], patience=left, reply_seconds=left
                ).handle(data)
                return
            except CohortError as error:
                found[name] = str(error)
