"""Sees a session through: Flower runs, one after the other, until it is finished or aborted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.deployed import goes_on_by, lacks_more
from ciphercohort.job.layout import UNREADABLE
from ciphercohort.report.status_page import LACKS_MORE
from ciphercohort.results.documents import to_json
from coordinator.certificates import CA
from coordinator.deployment import FOLLOWS_SECONDS, GIVEN_UP, give_up, is_driven, taken_up
from coordinator.settings import NODES, SESSIONS, Settings
from coordinator.status import (
    CONNECT,
    INTERRUPTED,
    OVER,
    WATCHED,
    Status,
    awaited,
    clock,
    is_over,
    read_status,
    sessions,
)
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.private_files import locked, write_private

if TYPE_CHECKING:
    from ciphercohort.deploy.inference import Tell

POLL_SECONDS, LOOK_SECONDS = 2.0, 0.1
# Each look starts a program of Flower, which takes seconds of a core.
RUN_POLL_SECONDS = 20.0
LATE_SECONDS = 15.0
"""A reply that takes longer is told of."""
REMIND_SECONDS = 60.0
"""Whoever is waited for still is told of again after so long."""
ATTEMPTS = 20
PATIENCE_SECONDS = 120.0
"""Of a SuperLink that does not answer: it may be starting, or started again."""
END_SECONDS = 120.0
"""Longest wait for whoever drives a session to end it."""


def drive(settings: Settings, session: str, tell: Tell) -> dict[str, Any]:
    """Register nodes, start Flower runs, return the final status.

    A session that the run of the one before it in a series has taken up is watched only.

    Raises:
        ProtocolError: the SuperLink does not answer, or parties are not connected in time.
    """
    folder = settings.session_folder(session)
    if read_status(folder) is None:
        raise ProtocolError(f"there is no session {session!r}")
    flower_commands.write_connection(settings)
    with _watched(folder):
        return _drive(settings, session, folder, tell)


def _drive(settings: Settings, session: str, folder: Path, tell: Tell) -> dict[str, Any]:
    deadline = time.monotonic() + settings.session_seconds
    if is_driven(settings, session) or taken_up(settings, session):
        _watch(settings, folder, None, deadline, tell)
    for attempt in range(ATTEMPTS):
        if is_over(folder):
            break
        _wait_for_nodes(settings, session, deadline, tell)
        if attempt:
            tell(f"the Flower run ended early: attempt {attempt + 1} goes on with the session")
        run = _patiently(deadline, tell, lambda: flower_commands.submit(settings, session))
        _watch(settings, folder, run, deadline, tell)
    else:
        give_up(settings, session, f"{ATTEMPTS} Flower runs ended early")
    status = read_status(folder)
    if status is None:
        raise ProtocolError(f"{folder} has lost its status")
    return status


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Nobody takes the session for interrupted; another process may watch it as well."""
    with ExitStack() as stack:
        with suppress(TimeoutError):
            stack.enter_context(locked(folder / WATCHED, LOOK_SECONDS))
        yield


def let_go(settings: Settings, tell: Tell) -> None:
    """Give interrupted sessions up of which nothing is spent, or that are too old to go on.

    Their parties have one session at a time.

    Raises:
        ParameterError: of one something may be spent, so that its administrator decides; or one
            goes on, whoever asked for it.
    """
    now = datetime.now(timezone.utc)
    oldest = now - timedelta(seconds=settings.session_seconds)
    begun = now - timedelta(seconds=FOLLOWS_SECONDS)
    found = sessions(settings.folder / SESSIONS)
    with suppress(*UNREADABLE):  # of another release
        if found and lacks_more(settings, found[0]):
            tell(
                f"session {found[0]['session']} is {LACKS_MORE}: "
                f"{goes_on_by(settings, found[0]['session'])}; now another begins"
            )
    for each in found:
        name, phase = each["session"], each["phase"]
        if each["state"] in OVER:
            continue
        if each["state"] != INTERRUPTED:
            raise ParameterError(
                f"session {name} goes on at the SuperLink, and its parties have one at a time: "
                f"wait for it by {goes_on_by(settings, name)}, or end it: cohort coordinator abort "
                f"{settings.folder} --session {name}"
            )
        if not each["attempts"] and datetime.fromisoformat(each["updated"]) > begun:
            continue  # whoever made it is about to drive it
        if phase not in ("", "agree") and datetime.fromisoformat(each["updated"]) > oldest:
            raise ParameterError(
                f"session {name} was interrupted in phase {phase!r}, and its parties keep it: go "
                f"on with it by {goes_on_by(settings, name)}, or end it: cohort coordinator abort "
                f"{settings.folder} --session {name}"
            )
        give_up(settings, name, "it was interrupted, and another session followed")
        tell(f"session {name}, which was interrupted, is given up")


def abort(settings: Settings, session: str, tell: Tell) -> None:
    """End a session that is not over; its parties are told, now or before the next one begins.

    Raises:
        ParameterError: there is no such session, or it is over. ProtocolError: whoever drives it
            does not end it in time.
    """
    folder = settings.session_folder(session)
    status = read_status(folder)
    if status is None or status["state"] in OVER:
        why = "there is none" if status is None else f"it is {status['state']}"
        raise ParameterError(f"session={session!r} cannot be ended: {why}")
    write_private(folder / GIVEN_UP, b"")
    give_up(settings, session, "the centre gave it up", END_SECONDS)  # whoever drives it has looked
    if not (read_status(folder) or {}).get("untold"):
        return
    try:
        flower_commands.write_connection(settings)
        flower_commands.submit(settings, session)
    except ProtocolError as error:
        tell(f"its parties are told before the next session begins ({error})")


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
    except ProtocolError:
        return set()


def _watch(settings: Settings, folder: Path, run: int | None, deadline: float, tell: Tell) -> None:
    """Until the session is over, or the Flower run is; run: None, it has taken the session up.

    Whoever lets the others wait is told of, within `RUN_POLL_SECONDS` and `LATE_SECONDS`.
    """
    seen, asked, remind = "", time.monotonic(), _Reminder(tell)
    while not is_over(folder):
        status = read_status(folder) or {}
        phase = status.get("phase") or "starting"
        words = f"{phase} {status.get('iteration')}/{status.get('rounds')}"
        if words != seen:
            tell(words)
            seen = words
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - asked < RUN_POLL_SECONDS:
            continue
        if not _goes_on(settings, folder, run, deadline, tell):
            return
        late = _late(folder)
        states = _patiently(deadline, tell, lambda: register_missing(settings)) if late else {}
        renewed = _to_renew(settings)
        who = [late_words(n, states.get(n, ""), late[n], n in renewed) for n in late]
        remind(who, [each["since"] for each in late.values()], settings.step_seconds)
        asked = time.monotonic()


def _goes_on(
    settings: Settings, folder: Path, run: int | None, deadline: float, tell: Tell
) -> bool:
    if run is None:
        return is_driven(settings, folder.name)
    state = _patiently(deadline, tell, lambda: flower_commands.run_state(settings, run))
    return not state.startswith("finished")


def _late(folder: Path) -> dict[str, dict[str, Any]]:
    """Parties that are awaited for longer than `LATE_SECONDS`, as of `coordinator.status`."""
    limit = datetime.now(timezone.utc) - timedelta(seconds=LATE_SECONDS)
    return {
        name: each
        for name, each in awaited(folder).items()
        if datetime.fromisoformat(each["since"]) < limit
    }


def _to_renew(settings: Settings) -> set[str]:
    """Parties whose cards are older than the centre's certificates: they take new ones."""
    made = (settings.folder / CA).stat().st_mtime
    return {n for n in settings.cards() if settings.card_path(n).stat().st_mtime < made}


def late_words(
    name: str, state: str, awaited: Mapping[str, Any], has_to_renew: bool = False
) -> str:
    """Who is awaited, since when, and what may be the matter.

    state: of its node at Flower; has_to_renew: see `_to_renew`.
    """
    if state and state != "online":
        cause = (
            "its node is not connected: its administrator looks whether cohort party start runs, "
            "and what it says"
        )
        if has_to_renew:
            cause += (
                ", and whether it has taken the new certificates, which this centre made after it "
                "admitted the party (cohort party renew)"
            )
    elif awaited["step"] == "agree":
        cause = "its owner has not consented yet: cohort party consent"
    else:
        cause = "it computes, or its agent or machine is down: cohort party status there"
    return f"waiting for {name} since {clock(awaited['since'])} ({awaited['step']}): {cause}"


class _Reminder:
    """Says who is waited for and until when: at once where it is news, then every so often."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._words, self._said = tell, list[str](), 0.0

    def __call__(self, words: list[str], since: list[str], seconds: float) -> None:
        """since: of each (UTC); seconds: longest wait, from the first on."""
        now = time.monotonic()
        if words and (words != self._words or now - self._said > REMIND_SECONDS):
            until = datetime.fromisoformat(min(since)) + timedelta(seconds=seconds)
            self._tell(f"{'; '.join(words)}; waits until {clock(until.isoformat())} at most")
            self._said = now
        self._words = words


def _wait_for_nodes(settings: Settings, session: str, deadline: float, tell: Tell) -> None:
    seconds, remind = min(deadline - time.monotonic(), settings.step_seconds), _Reminder(tell)
    until = time.monotonic() + seconds
    status, since = Status(settings.session_folder(session), {}), dict[str, str]()
    while True:
        states = _patiently(deadline, tell, lambda: register_missing(settings))
        missing = [name for name, state in states.items() if state != "online"]
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        since = {name: since.get(name, now) for name in missing}
        if since != status.fields.get("offline", {}):
            status.save(offline=since)
        if not missing:
            return
        renewed, at = _to_renew(settings), {"step": CONNECT}
        words = [late_words(n, states[n], {**at, "since": since[n]}, n in renewed) for n in missing]
        if time.monotonic() > until:
            reason = f"not connected within {settings.step_seconds:g} s: {', '.join(missing)}"
            give_up(settings, session, reason)
            raise ProtocolError(reason)
        remind(words, [*since.values()], seconds)
        time.sleep(POLL_SECONDS)


def _patiently(deadline: float, tell: Tell, ask: Callable[[], Any]) -> Any:
    """Ask the SuperLink, again for up to two minutes while it does not answer."""
    until, is_told = min(deadline, time.monotonic() + PATIENCE_SECONDS), False
    while True:
        try:
            return ask()
        except ProtocolError as error:
            if time.monotonic() > until:
                raise ProtocolError(
                    f"the SuperLink does not answer: {error}; cohort coordinator start runs it"
                ) from None
            if not is_told:
                tell(
                    f"the SuperLink does not answer: {error}. Is it started (cohort coordinator "
                    "start)? It is asked again for two minutes"
                )
                is_told = True
            time.sleep(POLL_SECONDS)
