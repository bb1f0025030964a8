"""Sums through the product's own messages: encrypted, and in the clear.

Both arms run the real coordinator and signed frames in one process. The encrypted one is a whole
run of the secure-aggregation protocol; each sum is read off the points that the parties receive:
gradient descent with step 1 has w_t - w_(t + 1) = sum_p v_p.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from coordinator.coordinator import AskParties, Coordinator, Observer
from parties.data.schema import Label, NumericColumn, Schema
from parties.data.shard import ClampCounts, Shard
from parties.objectives import Contributor
from parties.party import Party
from parties.policy import Policy
from protocols.errors import ParameterError
from protocols.gradients import GradientPlan
from protocols.messages import (
    COORDINATOR,
    Body,
    Envelope,
    Exchange,
    decode,
    digest,
    encode,
    new_signing_key,
    public_bytes,
    to_everyone,
)
from protocols.objectives import RowObjective
from protocols.plan import Member, RunPlan
from protocols.privacy.randomness import RandomSource, SystemRandomness
from protocols.transcript import Transcript
from protocols.updates.momentum import GradientDescent
from sims.studies.aggregation_case import BOUND, Array, Case, Lap, Meter


def _asker(handlers: Mapping[str, Callable[[bytes], bytes]], meter: Meter) -> AskParties:
    """Delivers bytes in memory, one party after the other."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for name, data in outgoing.items():
            since = time.perf_counter()
            replies[name] = handlers[name](data)
            own = time.perf_counter() - since
            meter.add(name, down=len(data), up=len(replies[name]), seconds=own)
        return replies

    return ask


# -- encrypted ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Replay:
    """Contributes given vectors, shape (rounds, features); keeps the points it was sent."""

    vectors: Array
    points: list[Array] = field(default_factory=list)

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """The vector of round t."""
        self.points.append(point)
        row: Array = self.vectors[t]
        return row


class EncryptedArm:
    """One run of the secure-aggregation protocol; set-up and every round are a lap each."""

    def __init__(self, case: Case, on_message: Callable[[], None]) -> None:
        self._case, self._meter = case, Meter(on_message)
        self._replays = {name: _Replay(case.vectors[:, k]) for k, name in enumerate(case.names)}
        self._session, key = uuid.uuid4().hex, new_signing_key()
        schema = _schema(case.features)
        self._schema = {"digest": schema.digest(), "features": list(schema.feature_names)}
        signing = {name: new_signing_key() for name in case.names}
        self._parties = {
            name: Party(
                name=name,
                shard=_one_row(schema),
                signing_key=signing[name],
                coordinator_key=public_bytes(key),
                policy=Policy(),
                randomness=SystemRandomness(),
                open_contributor=self._open,
            )
            for name in case.names
        }
        self.set_up = Lap()
        self.laps: list[Lap] = []
        self._on_round: Callable[[int], None] = lambda t: None
        self._coordinator = Coordinator(
            session=self._session,
            signing_key=key,
            party_keys={name: public_bytes(k) for name, k in signing.items()},
            make_plan=self._plan,
            transcript=Transcript(),
            observer=Observer(on_phase=self._on_phase, on_progress=self._on_progress),
        )

    def run(self, on_round: Callable[[int], None]) -> Array:
        """The opened sums, shape (rounds, features); on_round(t): between rounds, not charged."""
        self._on_round = on_round
        handlers = {name: party.handle for name, party in self._parties.items()}
        self._meter.start()
        outcome = self._coordinator.run(_asker(handlers, self._meter))
        points = self._replays[self._case.names[0]].points
        return -np.diff(np.array([*points, outcome.weights]), axis=0)

    def _on_phase(self, phase: str) -> None:
        if phase == "train":
            self.set_up = self._meter.stop()
            self._meter.start()

    def _on_progress(self, phase: str, done: int, total: int) -> None:
        self.laps.append(self._meter.stop())
        self._on_round(done - 1)
        self._meter.start()

    def _open(
        self, plan: GradientPlan, name: str, shard: Shard, randomness: RandomSource
    ) -> Contributor:
        return self._replays[name]

    def _plan(self, members: tuple[Member, ...]) -> RunPlan:
        case = self._case
        return GradientPlan(
            session=self._session,
            members=members,
            schema=self._schema,
            num_features=case.features,
            privacy=None,
            cipher=case.cipher,
            # The contributions are the case's, so the clip binds nothing.
            objective=RowObjective(kind="torch", clip=BOUND).to_dict(),
            update=GradientDescent(rounds=case.rounds, learning_rate=1.0).to_dict(),
            length=case.features,
        )


def _schema(features: int) -> Schema:
    columns = tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(features - 1))
    label = Label(name="y", positive="1", negative="0")
    return Schema(columns=columns, label=label, scaling="range")


def _one_row(schema: Schema) -> Shard:
    x = np.zeros((1, schema.num_features))
    return Shard(x=x, y=np.zeros(1), counts=ClampCounts(rows=1), schema=schema)


# -- in the clear ---------------------------------------------------------------------------------


class _PlainCoordinator(Coordinator):
    """Rounds without keys: the blobs are float64 values."""

    def round(self, t: int, point: Array, ask: AskParties) -> Array:
        """The sum of round t, shape (features,)."""
        return self._drive(self._sum(t, point), ask)

    def _sum(self, t: int, point: Array) -> Exchange[Array]:
        request = Body(blobs=(np.asarray(point, "<f8").tobytes(),))
        replies = yield to_everyone(f"round/{t}", self.parties, request)
        total = np.zeros(len(point))
        for name in self.parties:
            total += np.frombuffer(replies[name].blobs[0], "<f8")
        return total


class PlainArm:
    """Every vector in the clear, in the same signed frames."""

    def __init__(self, case: Case, on_message: Callable[[], None]) -> None:
        self._case, self._meter = case, Meter(on_message)
        self._key = new_signing_key()
        self._coordinator_key = public_bytes(self._key)
        self._keys = {name: new_signing_key() for name in case.names}
        self._coordinator = _PlainCoordinator(
            session=uuid.uuid4().hex,
            signing_key=self._key,
            party_keys={name: public_bytes(key) for name, key in self._keys.items()},
            make_plan=_no_plan,
            transcript=Transcript(),
        )
        handlers = {name: self._handler(k, name) for k, name in enumerate(case.names)}
        self._ask = _asker(handlers, self._meter)
        self._point: Array = np.zeros(case.features)

    def round(self, t: int) -> tuple[Array, Lap]:
        """The sum of round t, shape (features,), and its costs."""
        self._meter.start()
        total = self._coordinator.round(t, self._point, self._ask)
        self._point = self._point - total
        return total, self._meter.stop()

    def _handler(self, k: int, name: str) -> Callable[[bytes], bytes]:
        vectors, key = self._case.vectors[:, k], self._keys[name]

        def handle(data: bytes) -> bytes:
            request = decode(data, self._coordinator_key)
            values = vectors[int(request.step.partition("/")[2])]
            if len(request.body.blobs[0]) != values.nbytes:
                raise ParameterError("a round carries one point")
            body = Body(blobs=(values.astype("<f8").tobytes(),))
            address, asked = (request.session, request.step, name, COORDINATOR), digest(data)
            # As long as a party's head.
            return encode(Envelope(*address, body, answers=asked, seen=asked), key)

        return handle


def _no_plan(members: tuple[Member, ...]) -> RunPlan:
    raise ParameterError("sums in the clear have no plan")
