"""Predicted seconds of a run by secure aggregation: each part of a round, timed on made-up rows.

Operations on ciphertexts take milliseconds here, so that they can be done instead of counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from parties.kernel.sums.aggregate_share import AggregateShare
from parties.verifier.objectives import open_contributor
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.aggregate.parameters import AggregateParameters
from protocols.aggregate.wire import pack, unpack
from protocols.ckks.circuits.cost import message_seconds
from protocols.costs.planner import Seconds
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.plan.protocol import PHASES
from protocols.privacy.laws.randomness import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.sums.plan import GradientPlan

LARGEST = 1 << 22
"""Values of the made-up rows: the time of more is carried over."""
_SESSION, _SEED = "timing", bytes(32)
_REPETITIONS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class SumTimes:
    """Seconds for one of each.

    row: a row's part of a contribution; contribution: what does not grow with rows; noise: a share
    of it; encrypt: packing included; read: one party's message; open: a sum; message: a request and
    its reply, however small; secret: a party's; mask: towards one other party.
    """

    row: float
    contribution: float
    noise: float
    encrypt: float
    read: float
    open: float
    message: float
    secret: float
    mask: float


def seconds(plan: GradientPlan, times: SumTimes) -> Seconds:
    """Wall clock of a run on one machine that all roles share, one after the other."""
    parties, rounds = len(plan.members), len(plan.queries)
    sent = times.contribution + times.noise + times.encrypt + times.message
    waiting = parties * sent + plan.num_rows * times.row
    own = parties * times.read + times.open
    found = dict.fromkeys(PHASES, 0.0)
    found["agree"] = 3 * parties * times.message
    masks = (parties - 1) * times.mask
    found["keys"] = parties * (times.secret + masks + 2 * times.message)
    found["train"] = rounds * (waiting + own)
    found["decrypt"] = parties * times.message
    most = max(member.rows for member in plan.members)
    slowest = sent + most * times.row
    return Seconds(
        by_phase=found,
        iteration=own,
        waiting=waiting,
        slowest=slowest,
        beside=rounds * (waiting - slowest) + found["keys"] * (1 - 1 / parties),
    )


def measure(plan: GradientPlan) -> SumTimes:
    """Time everything once over; a fraction of a second."""
    cipher, length = plan.cipher, plan.length
    # As in a simulation, whose twin has to draw the same.
    source = SeededRandomness(0, plan.names[0])
    name, last = plan.names[0], len(plan.queries) - 1
    rows = max(member.rows for member in plan.members)
    kept = max(1, min(rows, LARGEST // plan.num_features))
    few, many = (_contribute(plan, name, n) for n in (1, kept))
    row = max(0.0, many - few) / max(1, kept - 1)
    secret, mask = _key_seconds(cipher)
    alone = replace(cipher, parties=2)
    share, values = _shares(alone)[0], np.zeros(length)
    reader = CoordinatorCipher(alone, _SESSION, _SEED, np.zeros(cipher.ring_dim, np.int64))
    rounds = iter(range(1000))
    encrypted = share.encrypt(next(rounds), values)
    sent = pack(cipher, encrypted)
    return SumTimes(
        row=row,
        contribution=few,
        noise=_usual(lambda: plan.draw_noise(last, source)),
        encrypt=_least(lambda: pack(cipher, share.encrypt(next(rounds), values))),
        read=_least(lambda: unpack(cipher, sent, length)),
        open=_least(lambda: reader.open(next(rounds), encrypted)),
        message=message_seconds(),
        secret=secret,
        mask=mask,
    )


def _contribute(plan: GradientPlan, name: str, rows: int) -> float:
    """Of one round, for so many rows."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (rows, plan.num_features)) / np.sqrt(plan.num_features)
    codes, classes = rng.integers(0, 2, rows), plan.outputs
    y = np.eye(classes)[codes] if classes > 1 else codes.astype(float)
    shard: Any = SimpleNamespace(
        x=x,
        y=y,
        weight=np.ones(rows),
        offset=np.zeros(rows),
        num_features=plan.num_features,
        rows=rows,
        schema=SimpleNamespace(label=SimpleNamespace(outputs=classes), norm_bound=1.0),
    )
    own = open_contributor(plan, name, shard, SeededRandomness(0, name))
    rounds = iter(range(_REPETITIONS))
    point = np.zeros(plan.length)
    query = plan.queries[-1]
    return _least(lambda: own.contribution(query, next(rounds), point))


def _shares(cipher: AggregateParameters) -> list[AggregateShare]:
    keys = {str(k): new_signing_key() for k in range(cipher.parties)}
    return [
        AggregateShare(
            cipher,
            name=name,
            roster={other: public_bytes(key) for other, key in keys.items()},
            session=_SESSION,
            seed=_SEED,
            signing_key=keys[name],
            randomness=SystemRandomness(),
        )
        for name in keys
    ]


def _key_seconds(cipher: AggregateParameters) -> tuple[float, float]:
    """A party's secret, and its mask towards one other party: of two parties and of six."""
    lasts = []
    for parties in (2, 6):
        shares = _shares(replace(cipher, parties=parties))
        keys = {str(k): share.mask_key() for k, share in enumerate(shares)}
        started = time.perf_counter()
        shares[0].masked_secret(keys)
        lasts.append(time.perf_counter() - started)
    made = _least(lambda: _shares(replace(cipher, parties=2))) / 2
    mask = max(0.0, lasts[1] - lasts[0]) / 4
    return made, mask


def _usual(timed: Callable[[], Any]) -> float:
    """Mean wall clock, of what is repeated until a draw is accepted."""
    started = time.perf_counter()
    for _ in range(_REPETITIONS):
        timed()
    return (time.perf_counter() - started) / _REPETITIONS


def _least(timed: Callable[[], Any]) -> float:
    """Least wall clock: whatever else the machine does only adds to it."""
    laps = []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        timed()
        laps.append(time.perf_counter() - started)
    return min(laps)
