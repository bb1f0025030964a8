"""A few real rounds of a plan on made-up rows: the roles, messages and transport of a simulation.

The last party has a process of its own, as owners have; all others share the coordinator's. Rows
are made up, so that nothing is owed to anybody: no certificate is asked for.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ciphercohort.planning.rehearsed import Rehearsal, Said, Trip
from coordinator.coordinator import AskParties, Coordinator, Observer, Replies, arrivals
from parties.policy import Policy
from parties.reader.schema import Classes, Label, NumericColumn, Offset, Schema, Targets, Weight
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.party import Party
from protocols.errors import MessageError
from protocols.exchange.messages import decode, new_signing_key, public_bytes
from protocols.exchange.serialise import to_plain
from protocols.exchange.transcript import Transcript
from protocols.models.registry import MODELS, model_named
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import Member, RunPlan
from sims.local import run_session
from sims.party_process import PartyProcess, PartySpec, peak_memory_mb


@dataclass(frozen=True, kw_only=True)
class MadeUp(PartySpec):
    """A party of made-up rows.

    Privacy: its rows are nobody's, so that it books no loss.
    """

    def build(self) -> Party:
        """The party."""
        made = super().build()
        made.__class__ = _Unbooked
        made.run.account.booked = None
        return made


class _Unbooked(Party):
    """Asks for no certificate: a shortened plan has none."""

    def _cost(self, plan: RunPlan, norm_bound: float) -> None:
        return None


class _Watched:
    """Keeps a party's last request and reply."""

    def __init__(self, party: Any) -> None:
        self._party, self.last = party, (b"", b"")

    def handle(self, data: bytes) -> bytes:
        reply: bytes = self._party.handle(data)
        self.last = data, reply
        return reply


def _said(data: bytes, key: str) -> Said:
    body = decode(data, key).body
    return Said(meta=body.meta, blobs=tuple(map(len, body.blobs)))


def rehearse(
    plan: RunPlan, *, apart: bool = True, tell: Callable[[str], None] = lambda words: None
) -> Rehearsal:
    """Play a shortened plan (`rehearsed.shortened`); apart: the last party in its own process."""
    loaded, schema = peak(), _schema(plan)
    key, session = new_signing_key(), uuid.uuid4().hex
    specs = {m.name: _spec(plan, m, schema, public_bytes(key)) for m in plan.members}
    own_schema = {**plan.schema, "digest": schema.digest()}
    own = replace(plan, schema=own_schema)

    def make_plan(members: tuple[Member, ...]) -> RunPlan:
        return own.among(session, members)

    coordinator = Coordinator(
        session=session,
        signing_key=key,
        party_keys={name: spec.verify_key for name, spec in specs.items()},
        make_plan=make_plan,
        transcript=Transcript(None),
        observer=Observer(
            on_phase=lambda phase: tell(f"{plan.protocol}: {phase}"),
            on_progress=lambda phase, done, total: tell(
                f"{plan.protocol}: iteration {done} of {total}"
            ),
        ),
    )
    last, trips, members = plan.names[-1], list[Trip](), dict[str, Any]()
    try:
        for name, spec in specs.items():
            members[name] = PartyProcess(spec) if apart and name == last else spec.build()
        if apart:
            # It answers nobody but the coordinator, and so does once it is there.
            with suppress(MessageError):
                members[last].handle(b"")
        first = _Watched(members[plan.names[0]])
        keys = coordinator.verify_key, specs[plan.names[0]].verify_key

        def coordinate(ask: AskParties) -> None:
            coordinator.run(_timed(ask, first, keys, trips))

        run_session(session, coordinate, {**members, plan.names[0]: first})
        alone = members[last].peak_memory_mb * 2**20 if apart else 0.0
    finally:
        for member in members.values():
            member.close()
        coordinator.transcript.close()
    return Rehearsal(
        plan=plan.to_dict(),
        trips=tuple(trips),
        apart=apart,
        loaded=loaded,
        together=peak(),
        alone=round(alone),
    )


def _timed(
    ask: AskParties, first: _Watched, keys: tuple[str, str], trips: list[Trip]
) -> AskParties:
    """Keeps every step; own work is what passes between two of them. keys: of both that speak."""
    since = time.perf_counter()

    def played(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        nonlocal since
        own, waits, reading = time.perf_counter() - since, list[float](), 0.0
        replies: Replies = ask(step, outgoing)
        arriving = arrivals(replies)
        while True:
            started = time.perf_counter()
            try:
                reply = next(arriving)
            except StopIteration:
                break
            waits.append(time.perf_counter() - started)
            started = time.perf_counter()
            yield reply
            reading += time.perf_counter() - started
        asked, replied = map(_said, first.last, keys)
        trips.append(
            Trip(
                step=step,
                own=own,
                waits=tuple(waits),
                reading=reading / max(1, len(waits)),
                asked=asked,
                replied=replied,
            )
        )
        since = time.perf_counter()

    return played


# -- made-up owners -------------------------------------------------------------------------------


def _schema(plan: RunPlan) -> Schema:
    columns = tuple(
        NumericColumn(name=f"column_{k:03d}", low=-1.0, high=1.0)
        for k in range(plan.num_features - 1)
    )
    terms = plan.row_terms
    reach = terms.get("offset", 0.0)
    return Schema(
        columns=columns or (NumericColumn(name="column", low=-1.0, high=1.0),),
        label=_label(plan),
        scaling="range",
        row_norm=1.0,
        weight=Weight(name="weight", bound=terms["weight"]) if "weight" in terms else None,
        offset=Offset(name="offset", low=-reach, high=reach) if reach else None,
    )


def _label(plan: RunPlan) -> Label | Classes | Targets:
    model = model_named(plan.model) if plan.model in MODELS else None
    outputs = getattr(plan, "outputs", None) or 1
    if model and model.several:
        return Classes(name="label", classes=tuple(f"class {k}" for k in range(outputs)))
    if (model and model.numeric) or plan.kind == "gram":
        names = (f"target_{k}" for k in range(outputs))
        return Targets(columns=tuple(NumericColumn(name=n, low=0.0, high=1.0) for n in names))
    return Label(name="label", positive="1", negative="0")


def _spec(plan: RunPlan, member: Member, schema: Schema, coordinator_key: str) -> MadeUp:
    key = new_signing_key()
    rng = np.random.default_rng(plan.party_index(member.name))
    d, rows, label = plan.num_features, member.rows, schema.label
    x = rng.uniform(-1, 1, (rows, d)) / np.sqrt(d)
    if isinstance(label, Classes):
        y = np.eye(label.outputs)[rng.integers(0, label.outputs, rows)]
    elif isinstance(label, Targets):
        y = rng.uniform(0, 1, (rows, label.outputs))
    else:
        y = rng.integers(0, 2, rows).astype(float)
    return MadeUp(
        name=member.name,
        shard=Shard(x=x, y=y, counts=ClampCounts(rows=rows), schema=schema),
        signing_key=key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
        coordinator_key=coordinator_key,
        policy=Policy(
            exact_sums=True, allow_insecure=True, accept_unbounded=True, min_rows_apart=1
        ),
        noise_seed=0,
    )


# -- in a process of its own ----------------------------------------------------------------------


def peak() -> int:
    """Largest resident set of this process so far [bytes]."""
    return round(peak_memory_mb() * 2**20)


def main() -> None:
    """Read a shortened plan, as JSON; write its rehearsal, and on standard error where it is."""

    def tell(words: str) -> None:
        sys.stderr.write(f"rehearsal of {words}\n")

    plan = plan_from_dict(json.load(sys.stdin))
    print(json.dumps(to_plain(rehearse(plan, tell=tell))))


if __name__ == "__main__":
    main()
