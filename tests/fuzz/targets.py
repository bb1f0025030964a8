"""What the hostile bytes are fed to: a party at every step, the coordinator, and plain readers.

INSECURE toy ring. A target takes one input and returns the name of the outcome; whatever it raises
beyond CohortError is a finding.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from parties.policy import ToldError
from protocols.errors import CohortError
from protocols.exchange.messages import decode, public_bytes
from protocols.plan.kinds import plan_from_dict
from tests.fuzz.mutate import Rng, Template, change_somewhere, to_text
from tests.support.helpers import Session, make_session
from tests.support.sessions import asked, reply_of

SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "nag", "rows": 4, "rounds": 2}
NAME = "hospital-1"
# A mutant that is answered at one of these steps costs milliseconds of key shares or encryption.
COSTLY = (
    *("commit-keys", "keys", "rotations", "relinearise"),
    *("commit-rows", "contribute", "refresh", "decrypt"),
)
# Where the classes are whose objects make up a party's state.
OWN = (
    *("parties.", "protocols.steps.samples", "protocols.steps.confirmed"),
    *("protocols.steps.endorsed", "protocols.steps.rounds"),
)


class Refusals(logging.Handler):
    """The type of the error behind a party's last refusal, from its log."""

    kind = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error among the record's arguments; one that nobody expected is a finding."""
        if record.exc_info and record.exc_info[1]:
            raise record.exc_info[1]
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, CohortError):
                is_told = isinstance(value, ToldError) and value.__cause__
                self.kind = type(value.__cause__ if is_told else value).__name__


class Snapshot:
    """State, to go back to, of an object and its parts from `parties`, and of its sample ledger."""

    def __init__(self, root: Any) -> None:
        self._saved: list[tuple[Any, dict[str, Any]]] = []
        self._save(root)

    def _save(self, thing: Any) -> None:
        kinds = type(thing).__mro__  # a test's own Party is one
        ours = any(k.__module__.startswith(OWN) for k in kinds) and hasattr(thing, "__dict__")
        if not ours or any(thing is other for other, _ in self._saved):
            return
        self._saved.append((thing, _copied(vars(thing))))
        for part in vars(thing).values():
            for each in part if isinstance(part, tuple) else (part,):
                self._save(each)

    def restore(self) -> None:
        """Undo everything since."""
        for thing, fields in self._saved:
            vars(thing).clear()
            vars(thing).update(_copied(fields))


def _copied(fields: Mapping[str, Any]) -> dict[str, Any]:
    # Secrets are overwritten where they stand.
    kinds = (dict, list, set, np.ndarray)
    return {k: copy.copy(v) if type(v) in kinds else v for k, v in fields.items()}


@contextmanager
def refusals() -> Iterator[Refusals]:
    """Listen to what parties refuse, and print nothing of it."""
    handler, root = Refusals(), logging.getLogger()
    others, root.handlers = root.handlers, [handler]
    try:
        yield handler
    finally:
        root.handlers = others


def fuzz_role(
    session: Session,
    role: Any,
    ask: Callable[..., Any],
    inputs_at: Callable[[str], int],
    rng: Rng,
    note: Callable[[Callable[[bytes], str], bytes], None],
) -> None:
    """One run; before each step is answered, a party or its agent gets mutants of the request,
    undone after each."""
    seen: list[Template] = []

    def handled(refused: Refusals, data: bytes) -> str:
        meta = reply_of(session, NAME, role.handle(data)).body.meta
        return f"refused: {refused.kind}" if "error" in meta else "answered"

    def fuzzed(step: str, outgoing: Mapping[str, bytes]) -> Any:
        template = Template.of(outgoing[NAME], session.coordinator_key)
        seen.append(template)
        state = Snapshot(role)
        with refusals() as refused:
            for _ in range(inputs_at(step)):
                # One in ten: a request of another step, answered before or not.
                other = seen[rng.integers(len(seen))] if rng.integers(10) == 0 else template
                note(partial(handled, refused), other.mutant(rng))
                state.restore()
        return ask(step, outgoing)

    session.run(fuzzed)


class Replay:
    """A coordinator that meets a recorded run's replies again, one of them changed."""

    def __init__(self) -> None:
        self.session = make_session(**SMALL)
        self.session.run()
        self._replies = {(step, name): reply for step, name, _, reply in self.session.recorded}
        self._templates = {
            step: Template.of(reply, self.session.party_keys[NAME])
            for (step, name), reply in self._replies.items()
            if name == NAME
        }
        self.steps = tuple(self._templates)

    def mutant(self, step: str, rng: Rng) -> bytes:
        """A hostile reply to a step."""
        return self._templates[step].mutant(rng)

    def feed(self, changed: str, data: bytes) -> str:
        """Run up to the step after `changed`, at which the coordinator gets `data`."""
        steps = iter(self.steps)

        def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
            assert step == next(steps)
            if self.steps.index(step) > self.steps.index(changed):
                raise Accepted
            replies = {name: self._replies[step, name] for name in outgoing}
            return replies | ({NAME: data} if step == changed else {})

        with suppress(Accepted):
            coordinator = self.session.successor()
            coordinator._make_plan = lambda members: self.session.plan
            coordinator.run(ask)
        return "accepted"


class Accepted(BaseException):
    """The coordinator took the reply and asks for the next step."""


def fuzz_plan(fields: Mapping[str, Any], rng: Rng) -> tuple[Callable[[bytes], str], bytes]:
    """A reader of plans, and JSON of a plan with one to three changes."""
    changed = copy.deepcopy(dict(fields))
    for _ in range(rng.integers(1, 4)):
        change_somewhere(changed, rng)
    return _read_plan, to_text(changed)


def _read_plan(data: bytes) -> str:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(fields, dict):
        return "no object"
    plan_from_dict(fields).digest()
    return "read"


def decoder(session: Session) -> Callable[[bytes], str]:
    """A reader of messages from the party."""
    key = public_bytes(session.party_keys[NAME])

    def read(data: bytes) -> str:
        decode(data, key)
        return "read"

    return read


def plan_fields(session: Session) -> dict[str, Any]:
    """The recorded plan as it travelled."""
    data = next(request for step, _, request, _ in session.recorded if step == "agree")
    return dict(asked(session, data).meta["plan"])
