"""Messages of a run and their sizes, from its plan alone.

Bytes are exact but for a few text fields (weights, feature names): residues have a fixed size, and
the frames around them are built by `messages.encode` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from parties.kernel.integers import symmetric
from protocols.aggregate.choice import choose
from protocols.aggregate.security import NOISE_STD, TAIL
from protocols.ckks import residues as rns
from protocols.ckks.parameters import DECRYPTION_TOWERS, REFRESH_TOWERS, CkksParameters
from protocols.exchange.labels import commit_of
from protocols.exchange.messages import COORDINATOR, Body, Envelope, encode, new_signing_key
from protocols.gram.plan import GramPlan
from protocols.model import gradient as model_gradient
from protocols.model.plan import ModelPlan
from protocols.plan.protocol import PHASES
from protocols.plan.run_plan import RunPlan
from protocols.privacy.laws.noise import NOISE_TAIL
from protocols.rows.lffr_plan import LffrPlan
from protocols.rows.plan import RowsPlan
from protocols.steps import pads, second_moment
from protocols.steps.sealed_shares import SEAL_BYTES
from protocols.sums.plan import GradientPlan

Circuit = RowsPlan | GramPlan | LffrPlan
"""A run under threshold CKKS."""
# A weight as JSON writes it, and a digest.
_WEIGHT, _DIGEST = -0.1234567890123456, "0" * 64
# A digest or a public key, signed by its party.
_FRAME = 700  # header and signature of a recorded reply
_SIGNED = {"value": _DIGEST, "signature": 2 * _DIGEST}


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


def exchanges(plan: RunPlan, party: str) -> Iterator[Exchanged]:
    """Every step of a run with one party, in order; a repeated one is not foreseen."""
    member, nothing = plan.members[plan.party_index(party)], Part()
    enrolment = {
        "rows": member.rows,
        "num_features": plan.num_features,
        "schema": _DIGEST,
        "commitment": member.commitment,
    }
    yield Exchanged("agree", "enrol", nothing, Part(enrolment))
    # One sheet of secure sums; those of keys and of rows.
    sheets = [_DIGEST] * (1 if isinstance(plan, GradientPlan) else 2)
    agreed = Part({"plan": _DIGEST, "sheets": sheets, "signature": 2 * _DIGEST})
    signed = Part({"signatures": dict.fromkeys(plan.names, 2 * _DIGEST)})
    yield Exchanged("agree", "agree", Part({"plan": plan.to_dict()}), agreed)
    yield Exchanged("agree", "reveal", signed, Part({"seed": _DIGEST}))
    yield from next(own for kind, own in _OWN.items() if isinstance(plan, kind))(plan, party)
    summary = {"weights": np.full(_shape(plan), _WEIGHT).tolist(), "transcript": _DIGEST}
    yield Exchanged("decrypt", "finish", Part(summary), nothing)


def contributed(plan: Circuit, index: int) -> tuple[dict[str, Any], int]:
    """What party `index` says of its ciphertexts, and how many it sends."""
    if isinstance(plan, GramPlan):
        return {}, plan.task.num_ciphertexts
    held = list(plan.layout.ciphertexts_of(index))
    return {"ciphertexts": held}, len(held) + plan.layout.num_side_ciphertexts


def num_ciphertexts(plan: Circuit) -> int:
    """Of all parties, summed; of an encrypted model's coordinator, those of one refresh."""
    if isinstance(plan, ModelPlan):
        return max(plan.refreshes)
    if isinstance(plan, GramPlan):
        return plan.task.num_ciphertexts
    return plan.layout.num_data_ciphertexts + plan.layout.num_side_ciphertexts


def _ceremony(plan: Circuit) -> Iterator[Exchanged]:
    """From the agreement to the joint keys, under threshold CKKS."""
    params, nothing = plan.ckks, Part()
    half, top = packed(params, params.key_rows), packed(params, params.num_towers)
    everyone = Part({"signed": dict.fromkeys(plan.names, _SIGNED)})
    if plan.whitens:
        yield Exchanged("agree", second_moment.STEP, _evidence(plan), nothing)
    yield Exchanged("keys", "commit-keys", _seeds(plan), Part(_SIGNED))
    yield Exchanged("keys", "keys", everyone, Part({"endorsement": _SIGNED}, (top, half, half)))
    for k, chunk in enumerate(plan.member_chunks):
        shares = Part({"others": dict.fromkeys(chunk, [_DIGEST] * 2)}, (top,) * len(chunk))
        yield Exchanged("keys", f"public-shares/{k}", shares, nothing)
    for k, indices in enumerate(plan.rotation_chunks):
        rotated = Part({}, (half,) * len(indices))
        yield Exchanged("keys", f"rotations/{k}", Part({"indices": list(indices)}), rotated)
    yield Exchanged("keys", "commit-relinearise", Part({}, (half, half)), Part(_SIGNED))
    yield Exchanged("keys", "relinearise", everyone, Part({"endorsement": _SIGNED}, (half,)))
    if plan.cover is not None:
        dealt = Part({}, (top + SEAL_BYTES,) * (len(plan.members) - 1))
        yield Exchanged("keys", "cover-keys", nothing, Part(_SIGNED))
        yield Exchanged("keys", "cover-deal", everyone, dealt)
        yield Exchanged("keys", "cover-hold", dealt, nothing)


def _circuit(plan: Circuit, party: str) -> Iterator[Exchanged]:
    """Between the agreement and `finish`, on encrypted rows or sums."""
    params, nothing = plan.ckks, Part()
    top, low = packed(params, params.num_towers), packed(params, REFRESH_TOWERS)
    everyone = Part({"signed": dict.fromkeys(plan.names, _SIGNED)})
    yield from _ceremony(plan)
    meta, amount = contributed(plan, plan.party_index(party))
    sent = Part({**meta, "endorsement": _SIGNED}, (2 * top,) * amount)
    yield Exchanged("encrypt", "commit-rows", everyone, Part(_SIGNED))
    yield Exchanged("encrypt", "contribute", everyone, sent)
    yield Exchanged("encrypt", "confirm", everyone, nothing)
    endorsed = Part()
    for k, count in enumerate(plan.refreshes):
        asked = Part(endorsed.meta, (low,) * count)
        yield from _fixed("refresh", f"refresh/{k}", asked, (low, top) * count, everyone)
        endorsed = everyone
    last = (packed(params, DECRYPTION_TOWERS),)
    yield from _fixed("decrypt", "decrypt", Part(endorsed.meta, last), last, everyone)


def _fixed(
    phase: str, step: str, request: Part, reply: tuple[int, ...], everyone: Part
) -> Iterator[Exchanged]:
    """A step whose replies are fixed before they are sent; everyone: what all have signed."""
    yield Exchanged(phase, commit_of(step), request, Part(_SIGNED))
    yield Exchanged(phase, step, everyone, Part({"endorsement": _SIGNED}, reply))


def _model(plan: ModelPlan, party: str) -> Iterator[Exchanged]:
    """The same of an encrypted model; every party sends as much as any other."""
    _ = party
    params, nothing, parts = plan.ckks, Part(), plan.layout.num_parts
    half, top = packed(params, params.key_rows), packed(params, params.num_towers)
    low = packed(params, REFRESH_TOWERS)
    everyone = Part({"signed": dict.fromkeys(plan.names, _SIGNED)})
    yield from _ceremony(plan)
    yield Exchanged("keys", pads.KEYS, everyone, Part(_SIGNED))
    yield Exchanged("keys", pads.AGREE, everyone, nothing)
    chunks = [2, *map(len, plan.rotation_chunks)]
    for k, count in enumerate(chunks):
        yield Exchanged("keys", f"{model_gradient.KEYS}/{k}", Part({}, (half,) * count), nothing)
    for t, fresh in enumerate(plan.refreshes):
        point = Part({}, (top,) * (parts if t else 0))
        step = f"{model_gradient.STEP}/{t}"
        yield from _fixed("train", step, point, (low,) * (2 * parts), everyone)
        shares, asked = Part({}, (low, top) * fresh), Part(everyone.meta, (low,) * fresh)
        yield Exchanged("refresh", f"refresh/{t}", asked, shares)
    last = (packed(params, DECRYPTION_TOWERS),)
    yield from _fixed("decrypt", "decrypt", Part({}, last), last, everyone)


def _evidence(plan: Any) -> Part:
    """About what a party is shown of the run that summed the second moment."""
    fields = plan.to_dict()
    members = {key: fields[key] for key in ("members", "schema", "privacy")}
    members |= {"privacy": fields.get("moment_privacy", members["privacy"])}
    sigma, parties = plan.whitening.sigma, len(plan.members)
    cipher = choose(
        parties=parties,
        largest_sum=1.0 + parties * NOISE_TAIL * sigma,
        precision=plan.moment_split.grid(sigma).unit * TAIL * NOISE_STD * parties,
    )
    sizes = (2 * cipher.ring_dim, cipher.num_bytes(symmetric.length(plan.num_features)))
    meta = {"plan": members, "seeds": dict.fromkeys(plan.names, _DIGEST)}
    return Part(meta, tuple(size + _FRAME for size in (*sizes, 0) for _ in plan.names))


def _sums(plan: GradientPlan, party: str) -> Iterator[Exchanged]:
    """Between the agreement and `finish`, by secure aggregation; the same for every party."""
    _ = party
    keys = Part({"signed": dict.fromkeys(plan.names, _SIGNED)})
    yield Exchanged("keys", "mask-keys", _seeds(plan), Part(_SIGNED))
    yield Exchanged("keys", "opening-key", keys, Part({}, (2 * plan.cipher.ring_dim,)))
    point = Part({}, (8 * plan.length,))
    sent = Part({}, (plan.cipher.num_bytes(plan.length),))
    for t in range(len(plan.queries)):
        yield Exchanged("train", f"round/{t}", point, sent)


_OWN: Mapping[type[RunPlan], Callable[[Any, str], Iterator[Exchanged]]] = {
    ModelPlan: _model,
    RowsPlan: _circuit,
    GramPlan: _circuit,
    LffrPlan: _circuit,
    GradientPlan: _sums,
}


def _seeds(plan: RunPlan) -> Part:
    return Part({"seeds": dict.fromkeys(plan.names, _DIGEST)})


def _shape(plan: RunPlan) -> tuple[int, ...]:
    """Of the released weights."""
    if isinstance(plan, GradientPlan):
        return plan.shape
    outputs = getattr(plan, "outputs", None)
    return (plan.num_features,) if outputs is None else (plan.num_features, outputs)


def packed(params: CkksParameters, rows: int) -> int:
    """Bytes of so many residues of a polynomial."""
    return rns.packed_size((0,) * rows, params.ring_dim)


def bytes_by_party(plan: RunPlan) -> dict[str, dict[str, int]]:
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


def bytes_per_party(plan: RunPlan) -> dict[str, int]:
    """Largest party's wire bytes in both directions, by phase; as a run's costs state them."""
    traffic = bytes_by_party(plan).values()
    return {phase: max(by_phase[phase] for by_phase in traffic) for phase in PHASES}
