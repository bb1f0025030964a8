"""Sees a session through: Flower runs, one after the other, until it is finished or aborted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ciphercohort.deploy import flower_commands
from ciphercohort.results.documents import to_json
from coordinator.settings import NODES, Settings
from coordinator.status import Status, read_status
from protocols.errors import ProtocolError
from protocols.exchange.locks import locked
from protocols.exchange.private_files import write_private

POLL_SECONDS = 2.0
# Each look starts a program of Flower, which takes seconds of a core.
RUN_POLL_SECONDS = 20.0
ATTEMPTS = 20
Say = Callable[[str], None]


def drive(settings: Settings, session: str, say: Say) -> dict[str, Any]:
    """Register nodes, start Flower runs, return the final status.

    Raises:
        ProtocolError: the SuperLink does not answer, or parties are not connected in time.
    """
    folder = settings.session_folder(session)
    if read_status(folder) is None:
        raise ProtocolError(f"there is no session {session!r}")
    flower_commands.write_connection(settings)
    deadline = time.monotonic() + settings.session_seconds
    for attempt in range(ATTEMPTS):
        if _is_over(folder):
            break
        _wait_for_nodes(settings, session, deadline, say)
        if attempt:
            say(f"the Flower run ended early: attempt {attempt + 1} goes on with the session")
        run = _patiently(deadline, say, lambda: flower_commands.submit(settings, session))
        _watch(settings, folder, run, deadline, say)
    else:
        Status(folder, {}).save(state="aborted", reason=f"{ATTEMPTS} Flower runs ended early")
    status = read_status(folder)
    if status is None:
        raise ProtocolError(f"{folder} has lost its status")
    return status


def register_missing(settings: Settings) -> dict[str, str]:
    """Make every admitted party's node known to the SuperLink; returns their states by party.

    A SuperLink that has just started knows none.
    """
    with _one_at_a_time(settings):
        nodes, cards = settings.nodes(), settings.cards()
        known = flower_commands.connected(settings)
        for name, card in cards.items():
            if nodes.get(name) in known:
                continue
            public = settings.card_path(name, "pub")
            public.write_text(f"{card.node_key}\n", encoding="ascii")
            nodes[name] = flower_commands.register(settings, public)
            write_private(settings.folder / NODES, to_json(nodes).encode())
        return {name: known.get(nodes[name], "registered") for name in cards}


@contextmanager
def _one_at_a_time(settings: Settings) -> Iterator[None]:
    """Of all processes: a node that another one registers cannot be registered again."""
    with locked(settings.folder / f"{NODES}.lock"):
        yield


def registered(settings: Settings) -> set[str]:
    """Parties that the SuperLink knows from now on; none where it is not up yet."""
    try:
        return set(register_missing(settings))
    except (ProtocolError, subprocess.TimeoutExpired):
        return set()


def _watch(settings: Settings, folder: Path, run: int, deadline: float, say: Say) -> None:
    """Until the session is over, or the Flower run is."""
    seen, asked = "", time.monotonic()
    while not _is_over(folder):
        status = read_status(folder) or {}
        phase = status.get("phase") or "starting"
        words = f"{phase} {status.get('iteration')}/{status.get('rounds')}"
        if words != seen:
            say(words)
            seen = words
        time.sleep(0.5)
        if time.monotonic() - asked < RUN_POLL_SECONDS:
            continue
        state = _patiently(deadline, say, lambda: flower_commands.run_state(settings, run))
        asked = time.monotonic()
        if state.startswith("finished"):
            return


def _is_over(folder: Path) -> bool:
    status = read_status(folder)
    return status is not None and status["state"] in ("finished", "aborted")


def _wait_for_nodes(settings: Settings, session: str, deadline: float, say: Say) -> None:
    told, until = "", min(deadline, time.monotonic() + settings.step_seconds)
    while True:
        states = _patiently(deadline, say, lambda: register_missing(settings))
        missing = [name for name, state in states.items() if state != "online"]
        if not missing:
            return
        words = f"waiting for {', '.join(missing)}"
        if time.monotonic() > until:
            reason = f"not connected within {settings.step_seconds:g} s: {', '.join(missing)}"
            Status(settings.session_folder(session), {}).save(state="aborted", reason=reason)
            raise ProtocolError(reason)
        if words != told:
            say(words)
            told = words
        time.sleep(POLL_SECONDS)


def _patiently(deadline: float, say: Say, ask: Callable[[], Any]) -> Any:
    """Ask the SuperLink, again for up to two minutes while it does not answer."""
    until = min(deadline, time.monotonic() + 120)
    while True:
        try:
            return ask()
        except (ProtocolError, subprocess.TimeoutExpired) as error:
            if time.monotonic() > until:
                raise ProtocolError(f"the SuperLink does not answer: {error}") from None
            time.sleep(POLL_SECONDS)
