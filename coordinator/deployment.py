"""One run across machines: its folder, its status, its resumption and its end.

sessions/ID/session.json: the plan without members' commitments, and of which series it is.
status.json: how far it is, for people. messages/: every message, see `log`. transcript.jsonl: their
hash chain. outcome.json: agreed plan and released weights.

A run ends finished or aborted, with a reason that names the culprit; then the parties are told, and
erase their key shares. Whoever could not be told is told before the next session begins: a party
has one at a time. Whatever else happens (this process, the SuperLink or the machine dies) leaves it
running: `serve_session` in a new Flower run goes on.

To start a Flower run takes seconds, a sum one of them: one run serves a series, `following`.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coordinator.coordinator import AskParties, Coordinator, Observer, Replies, arrivals
from coordinator.log import (
    FOLDER,
    TRANSCRIPT,
    complete_finish,
    file_name,
    last_replies,
    past,
    rebuild_transcript,
    recorded,
    recorded_finish,
)
from coordinator.relay import relaying
from coordinator.replay import evidence as read_evidence
from coordinator.settings import SESSIONS, Settings
from coordinator.status import LOCK, OVER, Status, is_held, is_over, read_status
from coordinator.workers import workers_of
from protocols.errors import CohortError, ParameterError, ProtocolError
from protocols.exchange.cards import Card
from protocols.exchange.messages import Body, Envelope, decode, encode, public_bytes
from protocols.exchange.private_files import locked, private_folder, sweep, write_private
from protocols.exchange.relayed import MORE, RELAY
from protocols.exchange.transcript import Transcript
from protocols.names import COORDINATOR
from protocols.plan.kinds import plan_from_dict
from protocols.plan.protocol import ABORT, FINISH
from protocols.plan.run_plan import Member, RunPlan
from protocols.steps.workers import KINDS

log = logging.getLogger(__name__)

SESSION, OUTCOME, GIVEN_UP = "session.json", "outcome.json", "given-up"
LOCK_SECONDS = 120.0
SERIES, NUMBER = "series", "number"
"""Of what a session was wanted for: the first session, None in itself, and the place after it."""
FOLLOWS_SECONDS, LOOK_SECONDS = 3.0, 0.05
"""How long a Flower run looks for the next of a series, and how often."""
# How messages reach the nodes of the parties (by name): within so many seconds.
MakeTransport = Callable[[Mapping[str, int], float], AskParties]
_ABORT_SECONDS = 30.0
STOOD_IN = "others stood in for this party: the run went on without it"


def create_session(
    settings: Settings,
    template: RunPlan,
    wanted: Mapping[str, Any] | None = None,
    before: str | None = None,
) -> str:
    """A new run's folder; template: its plan, with any session and commitments.

    wanted: what was asked for, for a session that comes after it; before: the session that summed
    the second moment by which rows are whitened.

    Raises:
        ParameterError: a party of the plan is not admitted, or has other rows.
    """
    cards = settings.cards()
    for member in template.members:
        card = cards.get(member.name)
        if card is None or (
            (template.rows_of(card.rows), card.identity) != (member.rows, member.verify_key)
        ):
            raise ParameterError(f"party {member.name!r} of the plan is not as its card says")
    session = uuid.uuid4().hex
    folder = settings.session_folder(session)
    folder.mkdir(mode=0o700, parents=True)
    plan = template.to_dict()
    fields = {"session": session, "created": time.time(), "plan": plan}
    fields |= {"wanted": dict(wanted or {}), "before": before}
    # A run that looks for it may take it up as soon as it is there.
    parties = {each.name: {"rows": each.rows, "bytes": 0} for each in template.members}
    known: dict[str, Any] = {"rounds": template.rounds, "purpose": template.purpose}
    if wanted and SERIES in wanted:
        known |= {SERIES: wanted[SERIES] or session, NUMBER: wanted[NUMBER]}
    Status(folder, cards).save(state="waiting", parties=parties, **known)
    write_private(folder / SESSION, json.dumps(fields).encode())
    return session


def serve_session(settings: Settings, session: str, transport: MakeTransport) -> None:
    """Run or resume a session until it is finished or aborted.

    Raises:
        CohortError: it is aborted; the reason is in its status.
    """
    folder = settings.session_folder(session)
    with _only_one(folder):
        fields = json.loads((folder / SESSION).read_text(encoding="utf-8"))
        plan, before = plan_from_dict(fields["plan"]), fields.get("before")
        run = _Run(settings, folder, session, plan, before)
        farewell = transport(run.nodes, _ABORT_SECONDS)
        if is_over(folder):
            tell_end(settings, session, farewell)
            return
        for earlier in untold(settings, run.nodes):
            try:
                tell_end(settings, earlier, farewell, run.nodes)
            except (CohortError, OSError, LookupError, TypeError, ValueError) as error:
                log.warning("nobody is told of the end of session %s: %s", earlier, error)
        deadline = fields["created"] + settings.session_seconds
        try:
            run.go_on(
                _until(deadline, settings, folder, transport(run.nodes, settings.step_seconds))
            )
        except CohortError as error:
            run.abort(error)
            raise
        finally:
            if is_over(folder):
                tell_end(settings, session, farewell)


def untold(settings: Settings, parties: Iterable[str]) -> list[str]:
    """Sessions that are over, which some of these parties have not heard of."""
    found = []
    for path in (settings.folder / SESSIONS).glob(f"*/{SESSION}"):
        status = read_status(path.parent) or {}
        if status.get("state") in OVER and {*status.get("untold", ())} & {*parties}:
            found.append(path.parent.name)
    return found


def tell_end(
    settings: Settings, session: str, ask: AskParties, parties: Iterable[str] | None = None
) -> None:
    """Tell the parties that have not heard of the end, as far as they can be reached.

    They get the last message of a run that finished, so that they have its outcome, or an abort.
    parties: these alone. Nothing is read of the plan: another release may have written it.
    """
    folder, key = settings.session_folder(session), settings.signing_key()
    status = Status(folder, {})
    left = list(status.fields.get("untold", ()))
    cards = settings.cards()
    keys = {name: cards[name].identity for name in status.fields["parties"] if name in cards}
    finished = status.fields["state"] == "finished"
    done = recorded_finish(folder / FOLDER, (*keys,), public_bytes(key)) if finished else None
    reason = STOOD_IN if finished else str(status.fields["reason"])
    due = {*keys} if parties is None else {*keys} & {*parties}
    for name in [name for name in left if name in due]:
        abort = Envelope(session, ABORT, COORDINATOR, name, Body({"reason": reason[:500]}))
        words = [(FINISH, done.requests[name])] if done and name in done.requests else []
        for step, data in (*words, (ABORT, encode(abort, key))):
            try:
                (reply,) = (reply for _, reply in arrivals(ask(step, {name: data})))
                is_refused = "error" in decode(reply, keys[name]).body.meta
            except (CohortError, ValueError):
                break  # the next session's begin tells it, or its own timeout ends it
            if step == ABORT or not is_refused:  # one that is over refuses whatever comes
                left.remove(name)
                status.save(untold=left)
                break


def give_up(settings: Settings, session: str, reason: str, seconds: float = 0.0) -> None:
    """Abort a session that is not over, and that no process drives; `tell_end` is due.

    seconds: wait so long for one that does.

    Raises:
        ProtocolError: a process drives it.
    """
    folder = settings.session_folder(session)
    with _only_one(folder, seconds):
        if not is_over(folder):
            status = Status(folder, {})
            begun = status.fields["parties"] if status.fields["attempts"] else ()
            status.save(state="aborted", reason=reason, untold=[*begun])


def following(settings: Settings, session: str) -> str | None:
    """The next session of the series, once it is there; None: there is none within moments."""
    own, known = _wanted(settings, session), set[str]()
    if SERIES not in own:
        return None
    due = {SERIES: own[SERIES] or session, NUMBER: own[NUMBER] + 1}
    deadline = time.monotonic() + FOLLOWS_SECONDS
    while time.monotonic() < deadline:
        for path in (settings.folder / SESSIONS).glob(f"*/{SESSION}"):
            name = path.parent.name
            if name not in known and _wanted(settings, name) == due:
                return name
            known.add(name)
        time.sleep(LOOK_SECONDS)
    return None


def taken_up(settings: Settings, session: str) -> bool:
    """Whether the Flower run of the session before it goes on with this one; waits for moments."""
    if not _wanted(settings, session).get(SERIES):
        return False
    deadline = time.monotonic() + FOLLOWS_SECONDS
    while not (found := is_driven(settings, session)) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return found


def is_driven(settings: Settings, session: str) -> bool:
    """Whether a process has the session's lock, or has had it to the end."""
    folder = settings.session_folder(session)
    return is_over(folder) or is_held(folder / LOCK)


def _wanted(settings: Settings, session: str) -> dict[str, Any]:
    fields = json.loads((settings.session_folder(session) / SESSION).read_text(encoding="utf-8"))
    found: dict[str, Any] = fields["wanted"]
    return found


class _Run:
    """A session while this process drives it."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        session: str,
        template: RunPlan,
        before: str | None,
    ) -> None:
        self._folder, self._session, self._template = folder, session, template
        self._evidence = read_evidence(settings.session_folder(before)) if before else None
        self._messages, self._files = folder / FOLDER, dict[str, Path]()
        self._key, self._settings = settings.signing_key(), settings
        cards = settings.cards()
        self._cards: dict[str, Card] = {name: cards[name] for name in template.names}
        self._party_keys = {name: card.identity for name, card in self._cards.items()}
        self.status = Status(folder, self._cards)
        known = settings.nodes()
        missing = [name for name in self._cards if name not in known]
        if missing:
            raise ParameterError(f"no Flower node is registered for {', '.join(missing)}")
        self.nodes = {name: known[name] for name in self._cards}

    def go_on(self, ask: AskParties) -> None:
        """From the recorded messages to the outcome.

        Once the weights are on disk the run counts as finished, whether or not every party takes
        note of it (the reason says who did not).
        """
        sweep(private_folder(self._messages))
        reason, key, done = "", public_bytes(self._key), self._finish()
        try:
            if done is None:
                self._train(self._relayed(ask, lambda to: self._recorded(to, key)))
            else:
                before = last_replies(self._messages)
                complete_finish(
                    self._relayed(ask, held=before), self._messages, done, self._party_keys
                )
        except CohortError as error:
            reason = str(error)
            if self._finish() is None:
                raise
        if done is not None:
            rebuild_transcript(self._messages, self._folder / TRANSCRIPT, self._party_keys, key)
        self._conclude(reason)

    def _recorded(self, ask: AskParties, key: str) -> AskParties:
        return recorded(ask, self._messages, key, self._party_keys, files=self._files)

    def _relayed(
        self,
        ask: AskParties,
        keep: Callable[[AskParties], AskParties] = lambda ask: ask,
        held: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ) -> AskParties:
        """Through `keep`; where the settings say so, with what replicas and witnesses are for."""

        def ahead(name: str, more: bool) -> bytes:
            body = Body({MORE: True} if more else {})
            return encode(Envelope(self._session, RELAY, COORDINATOR, name, body), self._key)

        if not self._settings.relay:
            return keep(ask)
        return relaying(
            ask, keep, held, ahead, past=partial(past, self._messages), files=self._files
        )

    def _finish(self) -> Any:
        """The last messages, where they are on disk."""
        return recorded_finish(self._messages, tuple(self._party_keys), public_bytes(self._key))

    def _conclude(self, reason: str) -> None:
        names, key, done = tuple(self._party_keys), public_bytes(self._key), self._finish()
        if done is None:
            raise ProtocolError("the run ended without its last messages on disk")
        agreed = decode((self._messages / file_name(2 * len(names))).read_bytes(), key)
        plan = plan_from_dict(agreed.body.meta["plan"])
        missing = [name for name in names if name not in done.requests]
        outcome = {
            "plan": plan.to_dict(),
            "digest": plan.digest(),
            "weights": done.weights,
            "missing": missing,
            "costs": asdict(self.status.costs),
        }
        write_private(self._folder / OUTCOME, json.dumps(outcome).encode())
        left = [name for name in names if name not in done.replies]
        self.status.save(
            state="finished", phase="finished", reason=reason, missing=missing, untold=left
        )

    def _train(self, ask: AskParties) -> None:
        asked = self._settings.workers if self._template.kind in KINDS else 0
        with workers_of(asked, self._settings.folder) as engine:
            self._train_with(engine, ask)

    def _train_with(self, engine: Any, ask: AskParties) -> None:
        transcript = Transcript(self._folder / TRANSCRIPT)
        coordinator = Coordinator(
            session=self._session,
            signing_key=self._key,
            party_keys=self._party_keys,
            make_plan=self._plan,
            transcript=transcript,
            observer=Observer(
                on_phase=lambda phase: self.status.save(state="running", phase=phase),
                on_progress=lambda phase, done, total: self.status.save(iteration=done),
                on_missing=lambda names: self.status.save(missing=list(names)),
            ),
            evidence=self._evidence,
            engine=engine,
            apart=True,
        )
        try:
            self.status.attempt(coordinator.costs)
            coordinator.run(self.status.watching(ask))
        finally:
            transcript.close()

    def _plan(self, members: tuple[Member, ...]) -> RunPlan:
        plan = self._template.among(self._session, members)
        for member, planned in zip(plan.members, self._template.members, strict=True):
            if (member.name, member.rows) != (planned.name, planned.rows):
                raise ProtocolError(
                    f"party {member.name!r} enrols {member.rows} rows, the plan counts "
                    f"{planned.rows}: {_cure(self._template)}",
                    culprit=member.name,
                )
        return plan

    def abort(self, error: CohortError) -> None:
        """Note the reason; `tell_end` is due."""
        culprit = getattr(error, "culprit", None)
        left = [*self._party_keys]
        self.status.save(state="aborted", reason=str(error), culprit=culprit, untold=left)


def _cure(template: Any) -> str:
    """What to do where a party's rows are others than when its card was admitted."""
    if getattr(template, "of_training", "") and (template.held_out or not template.judges):
        return "its rows are not those of the training, of which this sum is: bring those back"
    return (
        "its table has changed since: cohort party start there writes its card.json anew; admit "
        "it, and start a new run"
    )


def check_given_up(folder: Path) -> None:
    """Raise ProtocolError where the centre has given the session of a folder up."""
    if (folder / GIVEN_UP).exists():
        raise ProtocolError("the centre gave the session up")


def _until(deadline: float, settings: Settings, folder: Path, ask: AskParties) -> AskParties:
    def asking(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        check_given_up(folder)
        if time.time() > deadline:
            raise ProtocolError(f"the run is not finished within {settings.session_seconds:g} s")
        return ask(step, outgoing)

    return asking


@contextmanager
def _only_one(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the session's lock; the process of an earlier Flower run may take a moment to die."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / LOCK, seconds))
        except TimeoutError:
            raise ProtocolError("another process drives this session") from None
        yield
