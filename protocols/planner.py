"""What a run will cost, from its plan alone, in bytes, operations, seconds, memory; best layout.

Bytes are exact but for a few text fields (weights, feature names): residues have a fixed size, and
the frames around them are built by `messages.encode` itself. Operations are exact
(`protocols.ckks.tally`). Seconds are operations times this machine's unit times, all roles one
after the other on one machine, as in `cohort simulate`. Memory is an estimate: see `memory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from protocols.ckks import residues as rns
from protocols.ckks.cost import UnitTimes, work
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.packing import next_power_of_two
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.tally import CountingContext, IterationTally, Shadow, Tally, tally_iterations
from protocols.cover import SEAL_BYTES
from protocols.decrypt import DECRYPTION_TOWERS
from protocols.messages import COORDINATOR, Body, Envelope, Exchange, encode, new_signing_key
from protocols.precondition import precondition
from protocols.protocol import PHASES
from protocols.rows import RowsPlan

# A weight as JSON writes it, and a digest.
_WEIGHT, _DIGEST = -0.1234567890123456, "0" * 64
# A digest or a public key, signed by its party.
_SIGNED = {"value": _DIGEST, "signature": 2 * _DIGEST}
# Copies of a message that exist at once: residues, blobs, frame, transport.
_COPIES = 4
# Copies that the transport makes of a message: record, serialised, delivered, parsed, taken out.
_TRANSPORT_COPIES = 5
# Resident set of a role that has loaded its libraries [bytes], measured.
BASE_MEMORY = 280 << 20


# A ciphertext's refresh through a map in key switches at level 0, 25 ms at ring 2^15: the
# coordinator's 70 ms and one party's 110 ms, for parties work side by side, on machines of their
# own. What a refresh costs once for all its ciphertexts is the same for every layout.
REFRESH_SWITCHES = 7
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


class Part(NamedTuple):
    """One direction of a message: its public fields and the sizes of its blobs [bytes]."""

    meta: Mapping[str, Any] = {}
    blobs: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Residues."""
        return sum(self.blobs)


class Exchanged(NamedTuple):
    """One step between the coordinator and one party."""

    phase: str
    step: str
    request: Part
    reply: Part

    @property
    def blob_bytes(self) -> int:
        """Residues in both directions."""
        return self.request.size + self.reply.size


# -- the cheapest layout --------------------------------------------------------------------------


def cheapest_layout(plan: RowsPlan) -> RowsPlan:
    """The plan with the features per ciphertext that make an iteration cheapest; ties: the most.

    Small k: fewer groups of rows, each with less to sum over features. Large k: fewer parts, each
    with its own update, relinearisation and refresh. The choice depends on the plan alone, not on a
    machine, so that whoever makes the plan makes the same.
    """
    best, least = plan, float("inf")
    width = next_power_of_two(plan.num_features)
    while width:
        tried = replace(plan, features_per_ciphertext=width)
        cost = iteration_work(tried)
        if cost < least:
            best, least = tried, cost
        if cost > _HOPELESS * least:
            break
        width //= 2
    return best


def iteration_work(plan: RowsPlan) -> float:
    """The coordinator's in an iteration in the middle of the run, and its wait for refresh shares.

    See `cost.Work.units`.
    """
    params, middle = plan.ckks, iterations(plan)[plan.rounds // 2]
    circuit = sum(
        count * work(operation, params, level).units(params.ring_dim)
        for (operation, level), count in middle.operations.items()
    )
    switch = work("rotate", params, 0).units(params.ring_dim)
    return circuit + REFRESH_SWITCHES * switch * middle.refreshed


# -- sizes ----------------------------------------------------------------------------------------


def exchanges(plan: RowsPlan, party: str) -> Iterator[Exchanged]:
    """Every step of a run with one party, in order; a repeated one is not foreseen."""
    params, index, nothing = plan.ckks, plan.party_index(party), Part()
    half, top = _size(params, params.key_rows), _size(params, params.num_towers)
    low, member = _size(params, REFRESH_TOWERS), plan.members[index]
    everyone = Part({"signed": dict.fromkeys(plan.names, _SIGNED)})
    enrolment = {
        "rows": member.rows,
        "num_features": plan.num_features,
        "schema": _DIGEST,
        "commitment": member.commitment,
    }
    yield Exchanged("agree", "enrol", nothing, Part(enrolment))
    yield Exchanged("agree", "agree", Part({"plan": plan.to_dict()}), Part({"plan": _DIGEST}))
    yield Exchanged("agree", "reveal", nothing, Part({"seed": _DIGEST}))
    seeds = Part({"seeds": dict.fromkeys(plan.names, _DIGEST)})
    yield Exchanged("keys", "commit-keys", seeds, Part(_SIGNED))
    yield Exchanged("keys", "keys", everyone, Part({"endorsement": _SIGNED}, (top, half, half)))
    for k, chunk in enumerate(plan.member_chunks):
        shares = Part({"others": dict.fromkeys(chunk, [_DIGEST] * 2)}, (top,) * len(chunk))
        yield Exchanged("keys", f"public-shares/{k}", shares, nothing)
    for k, indices in enumerate(plan.rotation_chunks):
        rotated = Part({}, (half,) * len(indices))
        yield Exchanged("keys", f"rotations/{k}", Part({"indices": list(indices)}), rotated)
    yield Exchanged("keys", "relinearise", Part({}, (half, half)), Part({}, (half,)))
    if plan.cover is not None:
        dealt = Part({}, (top + SEAL_BYTES,) * (len(plan.members) - 1))
        yield Exchanged("keys", "cover-keys", nothing, Part(_SIGNED))
        yield Exchanged("keys", "cover-deal", everyone, dealt)
        yield Exchanged("keys", "cover-hold", dealt, nothing)
    held = list(plan.layout.ciphertexts_of(index))
    contributed = (2 * top,) * (len(held) + plan.layout.num_side_ciphertexts)
    sent = Part({"ciphertexts": held, "endorsement": _SIGNED}, contributed)
    yield Exchanged("encrypt", "commit-rows", everyone, Part(_SIGNED))
    yield Exchanged("encrypt", "contribute", everyone, sent)
    yield Exchanged("encrypt", "confirm", everyone, nothing)
    for k, count in enumerate(plan.refreshes):
        shares = Part({}, (low, top) * count)
        yield Exchanged("refresh", f"refresh/{k}", Part({}, (low,) * count), shares)
    last = Part({}, (_size(params, DECRYPTION_TOWERS),))
    yield Exchanged("decrypt", "decrypt", last, last)
    summary = {"weights": [_WEIGHT] * plan.num_features, "transcript": _DIGEST}
    yield Exchanged("decrypt", "finish", Part(summary), nothing)


def _size(params: CkksParameters, rows: int) -> int:
    return rns.packed_size((0,) * rows, params.ring_dim)


def iterations(plan: RowsPlan) -> tuple[IterationTally, ...]:
    """Operations of every iteration."""
    return tally_iterations(plan.ckks, plan.layout, plan.link, plan.rule)


def inversion(plan: RowsPlan) -> Tally:
    """Operations of the curvature's inversion, before the first iteration."""
    if plan.curvature is None:
        return {}
    context: Any = CountingContext(plan.ckks)
    evaluator = Evaluator(context, plan.layout)

    def refresh(vectors: Sequence[EncryptedVector]) -> Exchange[tuple[EncryptedVector, ...]]:
        yield from ()
        return tuple(evaluator.wrap(*[Shadow(0)] * len(vector.cts)) for vector in vectors)

    list(precondition(evaluator, plan.curvature, evaluator.wrap(Shadow(0)), refresh))
    counts: Tally = context.take()
    return counts


def refresh_after(plan: RowsPlan, iteration: int) -> int:
    """The refresh that ends an iteration, in the numbering of `plan.refreshes`.

    From -1 on they go through a map: -1 is the last one of the curvature's inversion.
    """
    return len(plan.refreshes) - plan.rounds + iteration


def bytes_by_party(plan: RowsPlan) -> dict[str, dict[str, int]]:
    """Wire bytes of each party in both directions, by party and phase."""
    key = new_signing_key()

    def framed(step: str, sender: str, recipient: str, part: Part, message: str) -> int:
        body = Body(part.meta, (b"",) * len(part.blobs))
        address = (plan.session, step, sender, recipient)
        empty = len(encode(Envelope(*address, body, answers=message, seen=message), key))
        return empty + sum(size + len(str(size)) - 1 for size in part.blobs)

    traffic = {}
    for name in plan.names:
        by_phase = dict.fromkeys(PHASES, 0)
        for each in exchanges(plan, name):
            by_phase[each.phase] += framed(each.step, COORDINATOR, name, each.request, "")
            by_phase[each.phase] += framed(each.step, name, COORDINATOR, each.reply, _DIGEST)
        traffic[name] = by_phase
    return traffic


def bytes_per_party(plan: RowsPlan) -> dict[str, int]:
    """Largest party's wire bytes in both directions, by phase; as a run's costs state them."""
    traffic = bytes_by_party(plan).values()
    return {phase: max(by_phase[phase] for by_phase in traffic) for phase in PHASES}


# -- seconds --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Predicted wall clock.

    by_phase: as a run's costs state them; iteration: the coordinator's own work in one iteration in
    the middle of the run, its part of the refresh included; waiting: what all parties do in it, one
    after the other; total: the protocol, without loading libraries and data.
    """

    by_phase: dict[str, float]
    iteration: float
    waiting: float

    @property
    def total(self) -> float:
        """All phases."""
        return sum(self.by_phase.values())


def circuit_seconds(operations: Tally, times: UnitTimes) -> float:
    """The coordinator's arithmetic."""
    return sum(
        count * times.of(operation, level) for (operation, level), count in operations.items()
    )


def seconds(plan: RowsPlan, times: UnitTimes) -> Seconds:
    """Wall clock of a run on one machine that all roles share."""
    params, course, middle = plan.ckks, iterations(plan), plan.rounds // 2
    found = dict.fromkeys(PHASES, 0.0)
    own = waiting = 0.0
    share = 1 / len(plan.members)
    for name in plan.names:
        for each in exchanges(plan, name):
            asked, replied = each.request.size, each.reply.size
            # Requests are signed, and sums reduced, once for all parties.
            sending = asked * times.sign * share + replied * times.check
            reading = replied * (times.unpack + times.add + times.reduce * share)
            party = _party_work(plan, each, times)
            found[each.phase] += sending + party + reading
            if each.step == f"refresh/{refresh_after(plan, middle)}":
                own, waiting = own + sending + reading, waiting + party
    # Random elements are expanded once for all roles of a process.
    keys, element = len(plan.rotations) + 1, times.expand * params.num_towers
    found["keys"] += times.setup + keys * times.key_join
    found["keys"] += times.expand * (keys + 1) * params.key_rows + element
    found["refresh"] += element * sum(plan.refreshes)
    circuits = [inversion(plan), *(iteration.operations for iteration in course)]
    found["train"] += sum(circuit_seconds(operations, times) for operations in circuits)
    found["train"] += sum(_join_seconds(plan, k, times) for k in range(len(plan.refreshes)))
    return Seconds(
        by_phase=found,
        iteration=iteration_seconds(plan, middle, times) + own,
        waiting=waiting + element * course[middle].refreshed,
    )


def iteration_seconds(plan: RowsPlan, iteration: int, times: UnitTimes) -> float:
    """The coordinator's circuit, and what it makes of the parties' refresh shares."""
    circuit = circuit_seconds(iterations(plan)[iteration].operations, times)
    return circuit + _join_seconds(plan, refresh_after(plan, iteration), times)


def _join_seconds(plan: RowsPlan, step: int, times: UnitTimes) -> float:
    """What the coordinator does with the shares of one refresh, which it reads as one or two."""
    count = plan.refreshes[step]
    if _is_mapped(plan, step):
        return 2 * times.read + count * times.map_join
    return times.read + count * times.refresh_join


def _is_mapped(plan: RowsPlan, step: int) -> bool:
    return step >= refresh_after(plan, -1)


def _party_work(plan: RowsPlan, each: Exchanged, times: UnitTimes) -> float:
    """What one party does for one step, and the transport to it.

    What it commits to in one step, and opens in a later one of the same phase, counts as made in
    the later one.
    """
    count, (kind, _, number) = len(each.reply.blobs), each.step.partition("/")
    unit = {
        # The secret key, and both halves of the first round; then two products for the second.
        "keys": times.key_share * 2.5,
        "rotations": times.key_share * count,
        "relinearise": times.key_share * 2,
        "contribute": times.encrypt * count,
        "decrypt": times.decryption_share,
    }
    if kind == "refresh":
        mapped = _is_mapped(plan, int(number))
        unit[kind] = (times.map_share if mapped else times.refresh_share) * count / 2
    asked, replied = each.request.size, each.reply.size
    wire = asked * (times.check + times.unpack) + replied * (times.pack + times.sign)
    if kind in ("keys", "contribute"):
        wire += replied * times.sign  # hashed for the commitment as well
    if kind == "public-shares":
        wire += asked * times.add
    return unit.get(kind, 0.0) + wire + (asked + replied) * _TRANSPORT_COPIES * times.copy


# -- memory ---------------------------------------------------------------------------------------


def memory(plan: RowsPlan) -> dict[str, int]:
    """Estimated peak resident set of each role [bytes].

    Libraries, plus what stays (evaluation keys, ciphertexts, frames: 8 bytes per residue; rows),
    plus the messages in flight, `_COPIES` of each: a step's requests, one reply, the sum so far. A
    simulation in one process has the libraries once and the rest of all parties.
    """
    params, layout = plan.ckks, plan.layout
    polynomial = 8 * params.ring_dim
    key, ciphertext = 2 * params.key_rows * polynomial, 2 * params.num_towers * polynomial
    frames = 2 * key + 2 * ciphertext
    flights, replies = Counter[str](), Counter[str]()
    alone = 0
    for name in plan.names:
        for each in exchanges(plan, name):
            flights[each.step] += each.request.size
            replies[each.step] = max(replies[each.step], each.reply.size)
            alone = max(alone, each.blob_bytes)
    kept = (len(layout.rotations) + 1) * key
    kept += (layout.num_data_ciphertexts + layout.num_side_ciphertexts) * ciphertext
    kept += len(plan.names) * _size(params, params.num_towers)  # shares of the public key
    rows = 8 * max(member.rows for member in plan.members) * plan.num_features
    return {
        "coordinator": BASE_MEMORY + frames + kept + _COPIES * max((flights + replies).values()),
        "party": BASE_MEMORY + frames + rows + _COPIES * alone,
    }
