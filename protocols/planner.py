"""What a run will cost, from its plan alone: bytes, operations, seconds, memory.

Bytes are exact but for a few text fields (weights, feature names): residues have a fixed size, and
the frames around them are built by `messages.encode` itself. Operations are exact
(`protocols.ckks.tally`). Seconds are operations times this machine's unit times, all roles one
after the other on one machine, as in `cohort simulate`. Memory is an estimate: see `memory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocols.ckks import residues as rns
from protocols.ckks.parameters import REFRESH_TOWERS, SPECIAL_PRIME_BITS, CkksParameters
from protocols.ckks.tally import IterationTally, tally_iterations
from protocols.ckks.timing import UnitTimes
from protocols.decrypt import DECRYPTION_TOWERS
from protocols.keygen import rotation_chunks
from protocols.messages import COORDINATOR, Body, Envelope, encode, new_signing_key
from protocols.plan import RunPlan

PHASES = ("agree", "keys", "encrypt", "train", "refresh", "decrypt")
# A weight as JSON writes it, and a digest.
_WEIGHT, _DIGEST = -0.1234567890123456, "0" * 64
# Copies of a message while it is made and sent: residues, blobs, frame, transport.
_COPIES = 4
# Resident set of a role that has loaded its libraries [bytes], measured.
BASE_MEMORY = 330 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One direction of a message: its public fields and the sizes of its blobs [bytes]."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    blobs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One step between the coordinator and one party."""

    phase: str
    step: str
    request: Part
    reply: Part

    @property
    def blob_bytes(self) -> int:
        """Residues in both directions."""
        return sum(self.request.blobs) + sum(self.reply.blobs)


# -- sizes ----------------------------------------------------------------------------------------


def wire_primes(params: CkksParameters) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers as long as the primes of Q and of one half of an evaluation key.

    OpenFHE takes primes on both sides of 2^scale_bits: one byte too many where scale_bits is a
    multiple of 8, never too few.
    """
    chain = (1 << params.first_mod_bits - 1, *[1 << params.scale_bits] * params.depth)
    special = (1 << SPECIAL_PRIME_BITS - 1,) * params.num_special_towers
    return chain, (*chain, *special) * params.num_digits


def exchanges(plan: RunPlan, party: str) -> Iterator[Exchanged]:
    """Every step of a run with one party, in order."""
    n, layout = plan.ckks.ring_dim, plan.layout
    chain, key_primes = wire_primes(plan.ckks)
    half, top = rns.packed_size(key_primes, n), rns.packed_size(chain, n)
    low = rns.packed_size(chain[:REFRESH_TOWERS], n)
    member = plan.members[plan.party_index(party)]
    enrolment = {
        "rows": member.rows,
        "num_features": plan.num_features,
        "schema": _DIGEST,
        "commitment": member.commitment,
    }
    yield Exchanged("agree", "enrol", Part(), Part(enrolment))
    agreed = {"plan": plan.to_dict()}
    yield Exchanged("agree", "agree", Part(agreed), Part({"plan": _DIGEST}))
    yield Exchanged("agree", "reveal", Part(), Part({"seed": _DIGEST}))
    seeds = {"seeds": dict.fromkeys(plan.names, _DIGEST)}
    yield Exchanged("keys", "keys", Part(seeds), Part({}, (top, half)))
    for k, indices in enumerate(rotation_chunks(plan)):
        request = Part({"indices": list(indices)})
        yield Exchanged("keys", f"rotations/{k}", request, Part({}, (half,) * len(indices)))
    yield Exchanged("keys", "square", Part({}, (half,)), Part({}, (half, half)))
    held = list(layout.ciphertexts_of(plan.party_index(party)))
    contributed = (2 * top,) * (len(held) + layout.num_side_ciphertexts)
    reply = Part({"ciphertexts": held}, contributed)
    yield Exchanged("encrypt", "contribute", Part({}, (top,)), reply)
    for t, iteration in enumerate(iterations(plan)[:-1]):
        count = iteration.refreshed
        request, reply = Part({}, (low,) * count), Part({}, (low, top) * count)
        yield Exchanged("refresh", f"refresh/{t}", request, reply)
    last = Part({}, (rns.packed_size(chain[:DECRYPTION_TOWERS], n),))
    yield Exchanged("decrypt", "decrypt", last, last)
    summary = {"weights": [_WEIGHT] * plan.num_features, "transcript": _DIGEST}
    yield Exchanged("decrypt", "finish", Part(summary), Part())


def iterations(plan: RunPlan) -> tuple[IterationTally, ...]:
    """Operations of every iteration."""
    return tally_iterations(plan.ckks, plan.layout, plan.link, plan.rule)


def bytes_by_party(plan: RunPlan) -> dict[str, dict[str, int]]:
    """Wire bytes of each party in both directions, by party and phase."""
    key = new_signing_key()

    def framed(step: str, sender: str, recipient: str, part: Part, answers: str) -> int:
        body = Body(part.meta)
        empty = len(encode(Envelope(plan.session, step, sender, recipient, body, answers), key))
        listed = sum(len(str(size)) + 1 for size in part.blobs) - bool(part.blobs)
        return empty + listed + sum(part.blobs)

    traffic = {}
    for name in plan.names:
        by_phase = dict.fromkeys(PHASES, 0)
        for each in exchanges(plan, name):
            by_phase[each.phase] += framed(each.step, COORDINATOR, name, each.request, "")
            by_phase[each.phase] += framed(each.step, name, COORDINATOR, each.reply, _DIGEST)
        traffic[name] = by_phase
    return traffic


def bytes_per_party(plan: RunPlan) -> dict[str, int]:
    """Largest party's wire bytes in both directions, by phase; as a run's costs state them."""
    traffic = bytes_by_party(plan).values()
    return {phase: max(by_phase[phase] for by_phase in traffic) for phase in PHASES}


# -- seconds --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Predicted wall clock. by_phase: as a run's costs state them; iteration: one, refresh
    included (of the middle of the run); total: the protocol, without loading libraries and data.
    """

    by_phase: dict[str, float]
    iteration: float

    @property
    def total(self) -> float:
        """All phases."""
        return sum(self.by_phase.values())


def circuit_seconds(iteration: IterationTally, times: UnitTimes) -> float:
    """The coordinator's arithmetic in one iteration."""
    return sum(
        count * times.of(operation, level)
        for (operation, level), count in iteration.operations.items()
    )


def seconds(plan: RunPlan, times: UnitTimes) -> Seconds:
    """Wall clock of a run on one machine that all roles share."""
    deepest, course = plan.ckks.depth - 1, iterations(plan)
    found = dict.fromkeys(PHASES, 0.0)
    read = 0.0
    for name in plan.names:
        for each in exchanges(plan, name):
            found[each.phase] += _transport(each, times) + _party_work(each, times)
            reading = sum(each.reply.blobs) * (times.unpack + times.add)
            # A run charges the reading of contributions and refreshes to what follows.
            found["train" if each.phase in ("encrypt", "refresh") else each.phase] += reading
            read += reading if each.phase == "refresh" else 0.0
    found["keys"] += times.setup + (len(plan.layout.rotations) + 1) * times.key_join
    found["train"] += sum(_coordinator_work(iteration, times) for iteration in course)
    found["decrypt"] += times.of("mask", deepest) + times.of("rescale", deepest)
    refreshed = (found["refresh"] + read) / max(1, plan.rounds - 1)
    middle = _coordinator_work(course[plan.rounds // 2], times)
    return Seconds(by_phase=found, iteration=middle + refreshed)


def _coordinator_work(iteration: IterationTally, times: UnitTimes) -> float:
    """The circuit, and what follows the parties' refresh shares."""
    return circuit_seconds(iteration, times) + iteration.refreshed * times.refresh_join


def _transport(each: Exchanged, times: UnitTimes) -> float:
    """Signing, hashing and checking both directions; see `messages` and `coordinator`."""
    asked, replied = sum(each.request.blobs), sum(each.reply.blobs)
    both = (asked + replied) * (times.sign + times.check + times.hash)
    return both + 2 * asked * times.hash  # who answers names the request by its digest


def _party_work(each: Exchanged, times: UnitTimes) -> float:
    """What one party computes for one step."""
    replied, kind = len(each.reply.blobs), each.step.partition("/")[0]
    unit = {
        "keys": times.key_share * 1.5,  # the key share itself, and the first relinearisation
        "rotations": times.key_share * replied,
        "square": times.key_share * 2,
        "contribute": times.encrypt * replied,
        "refresh": times.refresh_share * replied / 2,
        "decrypt": times.decryption_share,
    }
    packing = sum(each.reply.blobs) * times.pack + sum(each.request.blobs) * times.unpack
    return unit.get(kind, 0.0) + packing


# -- memory ---------------------------------------------------------------------------------------


def memory(plan: RunPlan) -> dict[str, int]:
    """Estimated peak resident set of each role [bytes].

    Libraries, plus what stays (evaluation keys, ciphertexts, frames: 8 bytes per residue; rows),
    plus the largest set of messages in flight, `_COPIES` of each. A simulation in one process has
    the libraries once and the rest of all parties.
    """
    params, layout = plan.ckks, plan.layout
    chain, key_primes = wire_primes(params)
    polynomial = 8 * params.ring_dim
    key, ciphertext = 2 * len(key_primes) * polynomial, 2 * len(chain) * polynomial
    frames = 2 * key + 2 * ciphertext
    flights: Counter[str] = Counter()
    alone = 0
    for name in plan.names:
        for each in exchanges(plan, name):
            flights[each.step] += each.blob_bytes
            alone = max(alone, each.blob_bytes)
    kept = (len(layout.rotations) + 1) * key
    kept += (layout.num_data_ciphertexts + layout.num_side_ciphertexts) * ciphertext
    rows = 8 * max(member.rows for member in plan.members) * plan.num_features
    return {
        "coordinator": BASE_MEMORY + frames + kept + _COPIES * max(flights.values()),
        "party": BASE_MEMORY + frames + rows + _COPIES * alone,
    }
