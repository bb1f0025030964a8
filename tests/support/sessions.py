"""Small sessions to stop, deviate in, forge and record. INSECURE toy rings throughout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.errors import LostError
from coordinator.log import FOLDER, TRANSCRIPT, file_name, recorded
from parties.reader.schema import NumericColumn, Targets
from protocols.aggregate.choice import choose
from protocols.ckks import CkksParameters
from protocols.errors import CohortError
from protocols.exchange import commit_of
from protocols.exchange.messages import Ask, Body, Envelope, decode, digest, encode, public_bytes
from protocols.exchange.transcript import Transcript
from protocols.gram.plan import GramPlan
from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan
from protocols.model.plan import ModelPlan
from protocols.models.lffr import PAPER_LINK
from protocols.numerics.whitening import whiten
from protocols.plan.held_out import HeldOut
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.whitened import moment_plan
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.steps.second_moment import SHOWN, Evidence
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent
from protocols.updates.registry import rule_named
from protocols.updates.update import Update
from tests.protocols.lffr_session import make_plan as make_lffr_plan
from tests.support.helpers import (
    Session,
    make_data,
    make_plan,
    make_session,
    open_session,
    party_names,
)

N = 512
SMALL: dict[str, Any] = {"ring_dim": N, "degree": 3, "update": "gd", "rows": 4, "rounds": 3}
# Nesterov's state: two ciphertexts in every refresh but the first.
NAG: dict[str, Any] = {"update": "nag", "parties": 3}
COORDINATOR = "coordinator"
FIRST, VICTIM, THIRD = party_names(3)
Replies = dict[str, bytes]
Change = Callable[[Body], Body]


# -- one session per protocol --------------------------------------------------------------------


def small(**changes: Any) -> Session:
    """Encrypted rows."""
    return make_session(**(SMALL | changes))


def model_session(**changes: Any) -> Session:
    """An encrypted model, in two parts."""
    fields: dict[str, Any] = {"make": ModelPlan, "features_per_ciphertext": 2, "parties": 3}
    return small(**(fields | {"rounds": 2} | changes))


def lffr_model_session(rows_each: int = 4, **changes: Any) -> Session:
    """LFFR of two targets where rows stay home."""
    fields: dict[str, Any] = {
        "make": LffrModelPlan,
        "model": "lffr",
        "link": PAPER_LINK,
        "targets": 2,
        "update": "gd",
        "ring_dim": N,
    }
    shards = _targets(3, rows=rows_each)
    return open_session(lambda common: make_plan(**(fields | common | changes)), **shards)


def quadratic_rule() -> Update:
    """Of three columns in [-1, 1]."""
    largest = largest_row_sum(3, columns=[1.0] * 3)
    rule: Any = rule_named("quadratic-nag")
    found: Update = rule(rounds=2, curvature=Curvature.for_rows(largest, offset=0.05))
    return found


def quadratic_session(**changes: Any) -> Session:
    """Encrypted rows, preconditioned by the encrypted inverse of the curvature."""
    update = quadratic_rule().to_dict()
    return small(**({"update": update, "degree": 5, "parties": 3} | changes))


def _targets(parties: int, outputs: int = 2, rows: int = 4, features: int = 3) -> dict[str, Any]:
    wanted = tuple(NumericColumn(name=f"y{k}", low=0.0, high=1.0) for k in range(outputs))
    data = make_data([rows] * parties, features, 1)
    shards = [(x, np.stack([y] * outputs, axis=1)) for x, y in data]
    return {"shards": shards, "label": Targets(columns=wanted)}


def gram_session(
    model: str = "linear",
    rounds: int = 3,
    curvature_bound: float = 6.0,
    features: int = 3,
    **changes: Any,
) -> Session:
    """Gram sums."""
    fields: dict[str, Any] = {
        "model": model,
        "outputs": 2,
        "rounds": rounds,
        "curvature_bound": curvature_bound,
        "privacy": None,
        "profile": "fast-insecure",
        "ckks": CkksParameters(ring_dim=1024, depth=6, security_bits=0),
    }
    shards = _targets(3, features=features)
    return open_session(lambda common: GramPlan(**(common | fields | changes)), **shards)


def lffr_session(**changes: Any) -> Session:
    """LFFR."""

    def plan(common: dict[str, Any]) -> LffrPlan:
        rows = [member.rows for member in common["members"]]
        return make_lffr_plan(rows=rows, **(common | changes))

    return open_session(plan, **_targets(3))


def sums_session(rounds: int = 3, parties: int = 3, features: int = 3, **changes: Any) -> Session:
    """Secure aggregation."""
    fields = {
        "privacy": None,
        "profile": "fast-insecure",
        "cipher": choose(parties=parties, largest_sum=100.0, precision=2.0**-20),
        "objective": RowObjective(kind="logistic", clip=1.0).to_dict(),
        "update": GradientDescent(rounds=rounds, learning_rate=0.5).to_dict(),
        "length": features,
    }
    make = lambda common: GradientPlan(**(common | fields | changes))  # noqa: E731
    return open_session(make, make_data([4] * parties, features, 1))


def moment_session(rows: int = 4, parties: int = 3, features: int = 3, seed: int = 1) -> Session:
    """Secure aggregation of the rows' second moment."""
    figures = PublicFigures.even(
        rows=rows * parties, features=features - 1, parties=parties, norm_bound=features**0.5
    )
    template = moment_plan(figures, Wanted(epsilon=2.0, update="quadratic-gd"))
    make = lambda common: replace(template, profile="fast-insecure", **common)  # noqa: E731
    return open_session(make, make_data([rows] * parties, features, seed))


def evidence_of(session: Session) -> Evidence:
    """Of a finished `moment_session`."""
    replies = {(step, name): reply for step, name, _, reply in session.recorded}
    seeds = {
        name: str(reply_of(session, name, replies["reveal", name]).body.meta["seed"])
        for name in session.parties
    }
    frames = {key: reply for key, reply in replies.items() if key[0] in SHOWN}
    return Evidence(session.plan, seeds, frames)


def whitened_session(before: Session | None = None, **changes: Any) -> Session:
    """Encrypted rows, whitened by the second moment of the session before."""
    if before is None:
        before = moment_session()
        before.run()
    evidence, plan = evidence_of(before), before.plan
    whitening = whiten(
        evidence.opened()[0], sigma=plan.noise_scales[0], split=plan.split, failure=1e-7
    )
    privacy = PrivacyPlan(
        epsilon=2.0, delta=1e-5, colluders=0, sigma=0.1, share_std=0.1, sensitivity=2.0
    )
    fields = {
        "rows": [member.rows for member in plan.members],
        "features": plan.num_features,
        "update": "gd",
        "privacy": privacy,
        "ring_dim": N,
        "degree": 3,
        "whitening": whitening,
        "moment_plan": plan.digest(),
    }
    return open_session(
        lambda common: make_plan(**(fields | common | changes)),
        before.shards,
        keys=before.party_keys,
        evidence=evidence,
    )


def holding(session: Session, share: float = 0.25, draw: str = "draw1") -> Session:
    """The same, where owners hold rows back."""
    make = session.coordinator._make_plan

    def held(members: Any) -> Any:
        plan: Any = replace(make(members), held_out=HeldOut(share=share, draw=draw))
        session.plan = plan.among(plan.session, members)
        return session.plan

    session.coordinator._make_plan = held
    return session


# -- single messages -----------------------------------------------------------------------------


def request(run: Session, name: str, step: str, body: Body, **address: str) -> bytes:
    """A truly signed request of the coordinator, whatever it asks."""
    envelope = Envelope(run.coordinator.session, step, COORDINATOR, name, body)
    return encode(replace(envelope, **address), run.coordinator_key)


def asked(session: Session, data: bytes) -> Body:
    """What a request carries."""
    return decode(data, public_bytes(session.coordinator_key)).body


def question(session: Session, step: str, name: str) -> Body:
    """What a party's reply to a step is about: it was asked when the reply was fixed."""
    sent = {each: data for each, party, data, _ in session.recorded if party == name}
    return asked(session, sent.get(commit_of(step), sent.get(step, b"")))


def reply_of(session: Session, name: str, data: bytes) -> Envelope:
    """A party's reply, read."""
    return decode(data, public_bytes(session.party_keys[name]))


def refusal(session: Session, name: str, data: bytes) -> str:
    """Text of a party's signed refusal; fails if it answered."""
    meta = reply_of(session, name, session.parties[name].handle(data)).body.meta
    assert "error" in meta, "the party answered"
    return str(meta["error"])


def resigned(of: Session, data: bytes, by: Any = None, /, **changes: Any) -> bytes:
    """Anybody's message with other fields; by: who signs, the sender by default.

    body: a body, or what makes one of the old.
    """
    for known in (of.coordinator_key, *of.party_keys.values()):
        with suppress(CohortError):
            old = decode(data, public_bytes(known))
            if callable(changes.get("body")):
                changes["body"] = changes["body"](old.body)
            return encode(replace(old, **changes), by or known)
    raise AssertionError("nobody's message")


def with_meta(**fields: Any) -> Change:
    """Other fields, the same blobs."""
    return lambda body: Body({**body.meta, **fields}, body.blobs)


# -- transports ----------------------------------------------------------------------------------


class StopHere(BaseException):
    """Leave the run."""


def run_until(session: Session, step: str) -> dict[str, bytes]:
    """Run up to a step, and return the coordinator's requests of that step, unanswered."""
    held: dict[str, bytes] = {}

    def ask(current: str, outgoing: Mapping[str, bytes]) -> Replies:
        if current == step:
            held.update(outgoing)
            raise StopHere
        return session.ask(current, outgoing)

    with pytest.raises(StopHere):
        session.run(ask)
    return held


def deliver(session: Session, change: Callable[[str, Replies], Replies]) -> Callable[..., Replies]:
    """A transport that changes replies on their way."""
    return lambda step, outgoing: change(step, session.ask(step, outgoing))


class Vanishing:
    """A transport on which parties are gone from a step on; asked: whom, step by step."""

    def __init__(self, ask: Callable[..., Replies], fates: Mapping[str, Sequence[str]]) -> None:
        self._ask, self.fates, self.gone = ask, fates, set[str]()
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Deliver a step."""
        self.asked.append((step, tuple(outgoing)))
        self.gone |= set(self.fates.get(step, ()))
        for name, data in outgoing.items():
            if name not in self.gone:
                yield name, self._ask(step, {name: data})[name]
        if lost := tuple(name for name in outgoing if name in self.gone):
            raise LostError(f"no reply to {step!r} from {', '.join(lost)}", lost)


# -- coordinators that deviate -------------------------------------------------------------------

Deviation = Callable[[Any], Any]
Message = tuple[dict[str, Any], bytes]  # its line in the transcript, its frame


def driven(exchange: Any, meet: Callable[[Ask], Any]) -> Any:
    """An exchange whose requests `meet` sends: a generator that returns the replies to go on."""
    replies: Any = None
    while True:
        try:
            ask = exchange.send(replies)
        except StopIteration as stop:
            return stop.value
        replies = yield from meet(ask)


def altered(step: str, change: Change, *parties: str) -> Deviation:
    """A coordinator that sends something else in one step, to these parties."""

    def meet(ask: Ask) -> Any:
        others = {name: change(ask.bodies[name]) for name in parties if ask.step == step}
        return (yield Ask(ask.step, {**ask.bodies, **others}) if others else ask)

    return lambda exchange: driven(exchange, meet)


def record(
    folder: Path, session: Session, deviate: Deviation | None = None, ask: Any = None
) -> Session:
    """Run and keep every message; deviate: wraps the coordinator's exchange."""
    folder.mkdir(exist_ok=True)
    session.transcript = session.coordinator.transcript = Transcript(folder / TRANSCRIPT)
    if deviate:
        honest = session.coordinator.protocol
        session.coordinator.protocol = lambda: deviate(honest())  # type: ignore[method-assign]
    key = public_bytes(session.coordinator_key)
    try:
        # A party may refuse what deviates, or the decryption fail.
        with suppress(*([CohortError] if deviate else [])):
            session.run(recorded(ask or session.ask, folder / FOLDER, key, session.verify_keys))
    finally:
        session.transcript.close()
    return session


# -- a forger's tools ----------------------------------------------------------------------------


def messages(folder: Path) -> list[Message]:
    """Everything that was recorded."""
    lines = [json.loads(text) for text in (folder / TRANSCRIPT).read_text().splitlines()]
    return [(line, (folder / FOLDER / file_name(line["index"])).read_bytes()) for line in lines]


def rewrite(folder: Path, change: Callable[[list[Message]], object]) -> None:
    """Change the log, then number and chain it again."""
    found = messages(folder)
    change(found)
    for path in (folder / FOLDER).glob("*.msg"):
        path.unlink()
    transcript = Transcript(folder / TRANSCRIPT)
    for line, frame in found:
        (folder / FOLDER / file_name(len(transcript.lines))).write_bytes(frame)
        address = {name: line[name] for name in ("step", "sender", "recipient")}
        transcript.add(**address, size=len(frame), message=digest(frame))
    transcript.close()


def position(found: list[Message], step: str, sender: str, recipient: str) -> int:
    """Index of one message."""
    address = {"step": step, "sender": sender, "recipient": recipient}
    return next(k for k, (line, _) in enumerate(found) if address.items() <= line.items())
