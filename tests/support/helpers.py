"""Builders for tests: whole sessions on toy rings.

INSECURE throughout: rings far below 128 bits, seeded noise.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from coordinator.coordinator import Coordinator
from parties.agent.agent import Agent
from parties.agent.owner import Owner
from parties.agent.settings import Driving, Settings
from parties.agent.store import codec
from parties.kernel.private import order_coins, shuffled
from parties.policy import Policy
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.shard import ClampCounts, Shard, encode_columns
from parties.reader.table import read_table
from parties.verifier import driven
from parties.verifier.party import Party
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.choice import choose_parameters
from protocols.exchange.messages import (
    _DOMAIN,
    MAGIC,
    Body,
    Exchange,
    new_signing_key,
    public_bytes,
)
from protocols.exchange.transcript import Transcript
from protocols.numerics.approximation import (
    Polynomial,
    reciprocal_approximation,
    sigmoid_approximation,
)
from protocols.plan.run_plan import Member, PrivacyPlan
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.rows.plan import RowsPlan
from protocols.rows.training import PlainGradient, train_plain
from protocols.steps.whole import Outcome
from protocols.updates.momentum import GradientDescent, Nesterov
from protocols.updates.registry import RULES, rule_from_dict, rule_named
from protocols.updates.update import Update

Floats = NDArray[np.float64]
RADIUS = 8.0
THETA = 10.0
BARRIERS = tuple(f"barrier-{degree}" for degree in (1, 2, 3, 4) if "barrier" in RULES)
UPDATES = (*BARRIERS, "gd", "ridge", "nag")
# Sigma of the noise on the mean gradient: large enough that a twin without it is far off.
NOISE = PrivacyPlan(
    epsilon=1.0, delta=1e-5, colluders=1, sigma=0.05, share_std=0.05, sensitivity=1.0
)

# -- what a case is made of ----------------------------------------------------------------------


def raw_features(frame: Any, schema: Schema) -> NDArray[np.float64]:
    """What `Schema.model_in_data_units` is applied to: columns expanded, unscaled, unclamped."""
    return encode_columns(read_table(frame, label=schema.label.name), schema.columns)


def party_names(count: int) -> list[str]:
    """hospital-1 … hospital-P."""
    return [f"hospital-{k + 1}" for k in range(count)]


def identity(name: str) -> Ed25519PrivateKey:
    """INSECURE: the same identity key for a name, always."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def make_rule(update: str, rounds: int) -> Update:
    """An update rule by its name in UPDATES."""
    kind, _, degree = update.partition("-")
    if kind == "barrier":
        pull = reciprocal_approximation(int(degree or 1), 0.04 * THETA, THETA).polynomial
        rule: Any = rule_named(kind)
        found: Update = rule(
            rounds=rounds, learning_rate=0.5, theta=THETA, weight=0.05, reciprocal=pull
        )
        return found
    if kind == "nag":
        return Nesterov(rounds=rounds, learning_rate=0.5)
    return GradientDescent(rounds=rounds, learning_rate=0.7, ridge=0.3 if kind == "ridge" else 0.0)


def make_link(degree: int) -> Polynomial:
    """The sigmoid on [-8, 8]."""
    return sigmoid_approximation(degree, RADIUS).polynomial


def relative_error(values: Floats, expected: Floats) -> float:
    """Of the value that is furthest away, relative to the largest."""
    return float(np.abs(values - expected).max() / np.abs(expected).max())


def make_data(rows: Sequence[int], features: int, seed: int) -> list[tuple[Floats, Floats]]:
    """(rows in [-1, 1] with the bias last, labels) of each party."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 2, features)
    shards = []
    for size in rows:
        x = rng.uniform(-1, 1, (size, features))
        x[:, -1] = 1.0
        shards.append((x, (x @ truth + rng.logistic(size=size) > 0).astype(float)))
    return shards


def make_plan(
    *,
    rows: Sequence[int] = (20, 20),
    features: int = 3,
    rounds: int = 2,
    degree: int = 7,
    update: str | Mapping[str, Any] = UPDATES[0],
    privacy: PrivacyPlan | None = None,
    ring_dim: int = 2048,
    members: tuple[Member, ...] | None = None,
    make: type[RowsPlan] = RowsPlan,
    **changes: Any,
) -> RowsPlan:
    """A plan on an INSECURE ring (security_bits=0), or with `ckks` as given.

    update: a name in UPDATES, or a rule's fields, which have rounds of their own; make: whose.
    """
    link = changes.get("link") or make_link(degree)
    rule = make_rule(update, rounds) if isinstance(update, str) else rule_from_dict(update)
    names = party_names(len(rows))
    fields: dict[str, Any] = {
        "session": "session",
        "members": members
        or tuple(
            Member(name=name, rows=count, verify_key="00" * 32, commitment="11" * 32)
            for name, count in zip(names, rows, strict=True)
        ),
        "schema": {"digest": "22" * 32},
        "num_features": features,
        "link": link,
        "update": rule.to_dict(),
        "ckks": insecure(make.levels_of(link, rule), ring_dim),
        "privacy": privacy,
        "profile": "fast-insecure",
    }
    return make(**(fields | changes))


def signed_plan(link: Polynomial, features: int = 3, **changes: Any) -> RowsPlan:
    """A plan of gradient descent with noise and a link without symmetry."""
    levels = RowsPlan.levels_of(link, make_rule("ridge", 2))
    fields: dict[str, Any] = {"update": "ridge", "privacy": NOISE} | changes
    params = insecure(levels, fields.get("ring_dim", 2048))
    return make_plan(features=features, link=link, ckks=params, **fields)


def insecure(levels: int, ring_dim: int) -> CkksParameters:
    """INSECURE parameters for one iteration of so many levels."""
    return CkksParameters(ring_dim=ring_dim, depth=levels + 2, security_bits=0)


def plain_weights(
    plan: RowsPlan,
    shards: Iterable[tuple[Floats, Floats]],
    noise: Floats,
    sources: Sequence[Any] = (),
) -> Floats:
    """The plaintext twin's weights; noise: shape (rounds, d), summed over parties."""
    x, y = plan.encode(*(np.concatenate(part) for part in zip(*shards, strict=True)))
    gradient = PlainGradient.of(plan, x, y, noise, sources)
    weights = train_plain(plan.rule, gradient, noise.shape[1:])
    assert plan.link.degree == 1 or gradient.largest <= plan.link.radius, (
        "the case leaves the link's interval"
    )
    return weights


def seal(header: bytes, key: Ed25519PrivateKey, blobs: bytes = b"", size: int = -1) -> bytes:
    """A message with any header, truly signed; size: what it says of the header's length."""
    length = len(header) if size < 0 else size
    signed = MAGIC + length.to_bytes(4, "little") + header
    return signed + key.sign(_DOMAIN + signed) + blobs


def header_of(data: bytes) -> bytes:
    """The header of a message."""
    start = len(MAGIC) + 4
    return data[start : start + int.from_bytes(data[len(MAGIC) : start], "little")]


# -- a whole session -----------------------------------------------------------------------------


@dataclass
class Session:
    """Everyone of one run. `twin()` is valid once the plan of encrypted rows is known."""

    coordinator: Coordinator
    parties: dict[str, Party]
    transcript: Transcript
    coordinator_key: Any
    party_keys: dict[str, Any]
    shards: list[tuple[Floats, Floats]]
    rng_seed: int
    plan: Any = None
    recorded: list[tuple[str, str, bytes, bytes]] = field(default_factory=list)
    outcome: Any = None

    @property
    def verify_keys(self) -> dict[str, str]:
        """Of every party."""
        return {name: public_bytes(key) for name, key in self.party_keys.items()}

    def deliver(self, step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        """In memory."""
        return {name: self.parties[name].handle(data) for name, data in outgoing.items()}

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        """Deliver, and record (step, party, request, reply)."""
        replies = self.deliver(step, outgoing)
        self.recorded += [(step, name, outgoing[name], replies[name]) for name in replies]
        return replies

    def run(self, ask: Callable[..., Any] | None = None) -> Outcome:
        """The whole protocol."""
        found: Outcome = self.coordinator.run(ask or self.ask)
        self.outcome = found
        return found

    def twin(self) -> Floats:
        """Weights of the plaintext twin with the same noise."""
        assert self.plan is not None
        sources = [SeededRandomness(self.rng_seed, name) for name in self.parties]
        noise = sum(self.plan.draw_noise(source) for source in sources)
        return plain_weights(self.plan, self.in_order, noise, sources)

    @property
    def in_order(self) -> list[tuple[Floats, Floats]]:
        """Rows as the parties shuffle them in a run."""
        orders: Iterable[Any] = (
            shuffled(
                SimpleNamespace(rows=len(x), in_order=np.array),
                order_coins(SeededRandomness(self.rng_seed, name)),
            )
            for name, (x, _) in zip(self.parties, self.shards, strict=True)
        )
        return [(x[own], y[own]) for own, (x, y) in zip(orders, self.shards, strict=True)]

    def successor(self) -> Coordinator:
        """A coordinator of the same run that knows nothing of it yet."""
        return Coordinator(
            session=self.coordinator.session,
            signing_key=self.coordinator_key,
            party_keys=self.verify_keys,
            make_plan=self.coordinator._make_plan,
            transcript=Transcript(),
            evidence=self.coordinator._evidence,
        )

    def anew(self, name: str) -> Party:
        """A party from the same files, as after a restart."""
        old = self.parties[name]
        return type(old).of(
            name=name,
            shard=old.run.rows._value,
            signing_key=old.run.signing_key,
            coordinator_key=old._coordinator_key,
            policy=old._policy,
            randomness=old.run._randomness,
        )

    def restart(self, name: str) -> None:
        """The same party from its state, in a new object."""
        fresh = self.anew(name)
        fresh.restore(through_the_codec(self.parties[name].state()))
        self.parties[name] = fresh


def through_the_codec(state: Any) -> Any:
    """As it is after a restart: what was written down, and read again."""
    head, blobs = codec().encode(state)
    return codec().decode(head, [bytes(blob) for blob in blobs])


def half_of(party: Party) -> Any:
    """What a party holds of a run: seed, context, secret, held, keys, rows; None before a plan."""
    return party._half


def unit_columns(count: int) -> tuple[NumericColumn, ...]:
    """x0, x1, … in [-1, 1]."""
    return tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(count))


class Believing(Party):
    """For toy plans, whose promises are made up: nobody looks at them without limit or ledger."""

    def _cost(self, plan: Any, norm_bound: float) -> Any:
        looks = self._policy.max_epsilon is not None or self.run.account.is_kept
        if not looks:
            self.run.account.booked = None
        return super()._cost(plan, norm_bound) if looks else None


def open_session(
    make: Callable[[dict[str, Any]], Any],
    shards: Sequence[tuple[Floats, Floats]],
    label: Any = None,
    *,
    rng_seed: int = 1,
    secure: bool = False,
    party: Callable[..., Party] = Believing,
    keys: Mapping[str, Any] | None = None,
    evidence: Any = None,
    row_norm: float | None = None,
) -> Session:
    """Coordinator and parties, ready to run; make: any plan, from the fields that follow from them.

    label: of the schema, a class y by default; keys: of the parties, new ones by default; evidence:
    as of the coordinator; row_norm: of the schema.
    """
    names, features = party_names(len(shards)), shards[0][0].shape[1]
    label = label or Label(name="y", positive="1", negative="0")
    columns = unit_columns(features - 1)
    schema = Schema(columns=columns, label=label, scaling="range", row_norm=row_norm)
    # OpenFHE's key maps are static: no two sessions of a process share a name.
    coordinator_key, session = new_signing_key(), uuid.uuid4().hex
    keys = dict(keys or {name: new_signing_key() for name in names})
    # The cases' rates have no proof.
    policy = Policy(allow_insecure=not secure, accept_unbounded=True, exact_sums=True)
    roles = {
        name: getattr(party, "of", party)(
            name=name,
            shard=Shard(x=x, y=y, counts=ClampCounts(rows=len(y)), schema=schema),
            signing_key=keys[name],
            coordinator_key=public_bytes(coordinator_key),
            policy=policy,
            randomness=SeededRandomness(rng_seed, name),
        )
        for name, (x, y) in zip(names, shards, strict=True)
    }

    def plan_for(members: tuple[Member, ...]) -> Any:
        common = {"session": session, "members": members, "schema": {"digest": schema.digest()}}
        result.plan = make({**common, "num_features": features})
        return result.plan

    transcript = Transcript()
    coordinator = Coordinator(
        session=session,
        signing_key=coordinator_key,
        party_keys={name: public_bytes(key) for name, key in keys.items()},
        make_plan=plan_for,
        transcript=transcript,
        evidence=evidence,
    )
    result = Session(coordinator, roles, transcript, coordinator_key, keys, list(shards), rng_seed)
    return result


def make_session(
    parties: int = 2,
    rows: int | Sequence[int] = 20,
    features: int = 3,
    rounds: int = 2,
    degree: int = 5,
    update: str | Mapping[str, Any] = UPDATES[0],
    privacy: PrivacyPlan | None = None,
    ring_dim: int | None = 1024,
    security: int = 0,
    rng_seed: int = 1,
    party: Callable[..., Party] = Believing,
    **changes: Any,
) -> Session:
    """A session of encrypted rows. rows: per party; security: 0 (INSECURE) or 128."""
    counts = [rows] * parties if isinstance(rows, int) else list(rows)

    def plan_for(common: dict[str, Any]) -> RowsPlan:
        fields: dict[str, Any] = {"rows": counts, "features": features, "rounds": rounds}
        fields["degree"] = degree
        plan = make_plan(update=update, privacy=privacy, **(fields | common | changes))
        if security:
            ckks = choose_parameters(plan.ckks.depth - 2, ring_dim=ring_dim)
            return replace(plan, ckks=ckks, profile="secure")
        return replace(plan, ckks=replace(plan.ckks, ring_dim=ring_dim or 2048))

    shards = make_data(counts, features, rng_seed)
    return open_session(plan_for, shards, rng_seed=rng_seed, secure=bool(security), party=party)


# -- steps without transport -----------------------------------------------------------------------

# Answers of one party to one step.
Answer = Callable[[str, str, Body], Body]
T = Any


def drive(exchange: Exchange[T], answer: Answer) -> T:
    """Run a coordinator step; `answer(party, step, body)` replies for each party."""
    replies: Any = None
    try:
        while True:
            ask = exchange.send(replies)
            fold = ask.fold or (lambda name, reply: reply)
            replies = {n: fold(n, answer(n, ask.step, body)) for n, body in ask.bodies.items()}
    except StopIteration as stop:
        return stop.value


def log2_error(values: Any, expected: Any) -> float:
    """log2 of the largest absolute difference (-1074 if there is none)."""
    error = float(np.max(np.abs(np.asarray(values) - np.asarray(expected))))
    return float(np.log2(max(error, 2.0**-1074)))


def agent_of(settings: Settings, passphrase: str) -> Agent:
    """An owner's agent, in this process."""
    return driven.agent_of(Driving.of(settings), Owner.of(settings, passphrase))
