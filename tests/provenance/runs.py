"""Whole toy runs (ring 512, INSECURE), recorded with the secrets behind them.

A run is what everybody sees, request and reply of every step, and what only a test may: each
party's secrets and sample ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from coordinator.coordinator import Coordinator
from coordinator.log import recorded
from parties.aggregate_share import AggregateShare
from parties.data.schema import Label, NumericColumn, Schema, Targets
from parties.data.shard import ClampCounts, Shard
from parties.key_share import KeyShare
from parties.party import Party
from parties.policy import Policy
from protocols.aggregate.parameters import choose
from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.parameters import CkksParameters
from protocols.curvature import Curvature, largest_row_sum
from protocols.errors import LostError
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.messages import Body, decode, new_signing_key, public_bytes
from protocols.objectives import RowObjective
from protocols.plan import Member
from protocols.privacy.randomness import SeededRandomness
from protocols.samples import Sample
from protocols.transcript import Transcript
from protocols.updates.momentum import GradientDescent
from protocols.updates.quadratic import QuadraticNesterov
from tests import exact
from tests.helpers import Session, make_data, make_session, party_names
from tests.protocols.lffr_session import make_plan as make_lffr_plan

N = 512
# Before this step a party goes on in another process.
Restarts = Mapping[str, Sequence[str]]
# From this step on parties are gone.
Losses = Mapping[str, Sequence[str]]


@dataclass
class Run:
    """secrets, ephemerals: coefficients of s_p, u_p; held: what each party holds of other
    dealers; slots: what was encrypted, by party and label; messages: (step, party, request, reply).
    """

    session: Session
    plan: Any = None
    seed: bytes = b""
    context: CkksContext | None = None
    secrets: dict[str, exact.Integers] = field(default_factory=dict)
    ephemerals: dict[str, exact.Integers] = field(default_factory=dict)
    held: dict[str, dict[str, rns.Residues]] = field(default_factory=dict)
    slots: dict[tuple[str, str], Any] = field(default_factory=dict)
    messages: list[tuple[str, str, Body, Body]] = field(default_factory=list)
    weights: Any = None

    @property
    def samples(self) -> dict[str, tuple[Sample, ...]]:
        """Every party's ledger."""
        return {name: party._half.secret.samples for name, party in self.session.parties.items()}

    def watch(self) -> None:
        """Take what parties hold now."""
        for name, party in self.session.parties.items():
            duties = party._half
            if duties is None:
                continue
            self.plan = party._plan
            share = getattr(duties, "_secret", None)
            if share is None:
                continue
            if isinstance(share, AggregateShare):
                if share._unmasked is not None:
                    self.secrets[name] = share._unmasked.astype(object)
                continue
            self.seed, self.context = share._seed, share._context
            if share._secret is not None and name not in self.secrets:
                self.secrets[name] = exact.secret(share)
            if share._ephemeral is not None and name not in self.ephemerals:
                self.ephemerals[name] = _coefficients(share, share._ephemeral)
            if duties.held is not None and duties.held._held:
                self.held[name] = dict(duties.held._held)

    def restart(self, name: str) -> None:
        """The same party from its state, in a new object."""
        old = self.session.parties[name]
        fresh = Party(
            name=name,
            shard=old._shard,
            signing_key=old._signing_key,
            coordinator_key=old._coordinator_key,
            policy=old._policy,
            randomness=old._randomness,
        )
        fresh.restore(old.state(lambda data: data[::-1]), lambda data: data[::-1])
        self.session.parties[name] = fresh


def _coefficients(share: Any, key: Any) -> exact.Integers:
    rows = share._context.residues_of(key)
    return exact.coefficients(rows[0], share._context.primes[0])


def record(session: Session, losses: Losses | None = None, restarts: Restarts | None = None) -> Run:
    """Run a session to its end, watching."""
    run = Run(session)
    run.weights = session.run(watching(run, losses, restarts)).weights
    return run


def resumed(folder: Path, at: str = "refresh/1") -> Run:
    """A coordinator that dies while it waits for a step, and its successor from kept messages."""
    run = Run(rows_session("nag", rounds=3))
    (folder / "messages").mkdir()
    session, keys = run.session, run.session.coordinator._party_keys
    key, watched = public_bytes(session.coordinator_key), watching(run)

    def dying(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for k, reply in enumerate(watched(step, outgoing)):
            if step == at and k:
                raise KeyboardInterrupt
            yield reply

    with suppress(KeyboardInterrupt):
        session.run(recorded(dying, folder / "messages", key, keys))
    session.coordinator = Coordinator(
        session=session.coordinator.session,
        signing_key=session.coordinator_key,
        party_keys=keys,
        make_plan=session.coordinator._make_plan,
        transcript=Transcript(),
    )
    run.weights = session.run(recorded(watched, folder / "messages", key, keys)).weights
    return run


def watching(
    run: Run, losses: Losses | None = None, restarts: Restarts | None = None
) -> Callable[[str, Mapping[str, bytes]], Iterator[tuple[str, bytes]]]:
    """Deliver and record; parties vanish and restart as said."""
    session, gone, asked = run.session, set[str](), list[str]()
    read, encrypt = public_bytes(session.coordinator_key), KeyShare.encrypt
    add = AggregateShare.encrypt

    def watched(share: KeyShare, key: Any, slots: Any, label: str) -> Any:
        run.slots[asked[-1], label] = slots
        return encrypt(share, key, slots, label)

    def watched_sum(share: AggregateShare, t: int, values: Any) -> Any:
        run.slots[asked[-1], f"round/{t}"] = values
        return add(share, t, values)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        run.watch()
        for name in (restarts or {}).get(step, ()):
            run.restart(name)
        gone.update((losses or {}).get(step, ()))
        for name, data in outgoing.items():
            if name in gone:
                continue
            asked.append(name)
            with (
                patch.object(KeyShare, "encrypt", watched),
                patch.object(AggregateShare, "encrypt", watched_sum),
            ):
                reply = session.ask(step, {name: data})[name]
            bodies = (decode(data, read), decode(reply, public_bytes(session.party_keys[name])))
            run.messages.append((step, name, *(envelope.body for envelope in bodies)))
            run.watch()
            yield name, reply
        if lost := tuple(name for name in outgoing if name in gone):
            raise LostError(f"no reply to {step!r} from {', '.join(lost)}", lost)

    return ask


# -- one session per protocol ----------------------------------------------------------------------


def rows_session(update: Any = "gd", **changes: Any) -> Session:
    """Encrypted rows."""
    fields = {"ring_dim": N, "degree": 3, "rows": 4, "rounds": 2, "parties": 3}
    return make_session(update=update, **(fields | changes))


def quadratic_session(**changes: Any) -> Session:
    """Encrypted rows, preconditioned by the encrypted inverse of the curvature."""
    largest = largest_row_sum(3, columns=[1.0] * 3)
    rule = QuadraticNesterov(rounds=2, curvature=Curvature.for_rows(largest, offset=0.05))
    return rows_session(rule.to_dict(), degree=5, **changes)


def gram_session(
    model: str = "linear", iterations: int = 3, curvature_bound: float = 6.0, **changes: Any
) -> Session:
    """Gram sums."""

    def plan(common: dict[str, Any]) -> GramPlan:
        return GramPlan(
            **common,
            model=model,
            outputs=2,
            iterations=iterations,
            curvature_bound=curvature_bound,
            privacy=None,
            profile="fast-insecure",
            ckks=CkksParameters(ring_dim=1024, depth=6, security_bits=0),
            **changes,
        )

    return open_session(plan, outputs=2)


def lffr_session(**changes: Any) -> Session:
    """LFFR."""

    def plan(common: dict[str, Any]) -> LffrPlan:
        rows = [member.rows for member in common["members"]]
        return make_lffr_plan(rows=rows, **common, **changes)

    return open_session(plan, outputs=2)


def sums_session(rounds: int = 3, parties: int = 3, features: int = 3, **changes: Any) -> Session:
    """Encrypted sums."""

    def plan(common: dict[str, Any]) -> GradientPlan:
        rule = GradientDescent(rounds=rounds, learning_rate=0.5)
        fields = {
            "privacy": None,
            "profile": "fast-insecure",
            "cipher": choose(parties=parties, largest_sum=100.0, precision=2.0**-20),
            "objective": RowObjective(kind="logistic", clip=1.0).to_dict(),
            "update": rule.to_dict(),
            "length": common["num_features"],
        }
        return GradientPlan(**common, **(fields | changes))

    return open_session(plan, parties=parties, features=features)


def open_session(
    make: Callable[[dict[str, Any]], Any], outputs: int = 0, parties: int = 3, features: int = 3
) -> Session:
    """A session of any plan; outputs: targets, 0 for labels."""
    names, session = party_names(parties), uuid.uuid4().hex
    keys, coordinator_key = {name: new_signing_key() for name in names}, new_signing_key()
    columns = tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(features - 1))
    label: Any = Label(name="y", positive="1", negative="0")
    shards = make_data([4] * parties, features, 1)
    if outputs:
        wanted = tuple(NumericColumn(name=f"y{k}", low=0.0, high=1.0) for k in range(outputs))
        label = Targets(columns=wanted)
        shards = [(x, np.stack([y] * outputs, axis=1)) for x, y in shards]
    schema = Schema(columns=columns, label=label, scaling="range")
    roles = {
        name: Party(
            name=name,
            shard=Shard(x=x, y=y, counts=ClampCounts(rows=len(y)), schema=schema),
            signing_key=keys[name],
            coordinator_key=public_bytes(coordinator_key),
            policy=Policy(allow_insecure=True, accept_unbounded=True),
            randomness=SeededRandomness(1, name),
        )
        for name, (x, y) in zip(names, shards, strict=True)
    }

    def plan_for(members: tuple[Member, ...]) -> Any:
        common = {
            "session": session,
            "members": members,
            "schema": {"digest": schema.digest()},
            "num_features": features,
        }
        return make(common)

    transcript = Transcript()
    coordinator = Coordinator(
        session=session,
        signing_key=coordinator_key,
        party_keys={name: public_bytes(key) for name, key in keys.items()},
        make_plan=plan_for,
        transcript=transcript,
    )
    return Session(coordinator, roles, transcript, coordinator_key, keys, shards, 1)
