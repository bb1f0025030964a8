"""The key ceremony: what one party uploads and computes, what the coordinator must hold at once.

Question: at most 200 MB and 3 s per party at ring 2^15? And does the coordinator's memory grow with
the parties? It adds a reply up as it arrives and holds one at a time. The peak is that of a process
with all parties in it: each keeps what it has committed to until all have, 15 MB at ring 2^15.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import session
from benchmarks.cases import Case
from parties.kernel.key_share import KeyShare
from protocols import keygen
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.commitments import KEYS, Opening, Terms
from protocols.messages import Body, new_signing_key, public_bytes
from tests.helpers import drive

SHAPE = Case(name="edin", rows=1253, features=9)
_SEED = bytes(range(32))


def measure(parties: int, *, secure: bool = True, keys_per_message: int = 4) -> dict[str, Any]:
    """Run one ceremony; the seconds are CPU time of this process, all its threads."""
    case = replace(SHAPE, parties=parties, secure=secure)
    plan = replace(session.plan_of(case), keys_per_message=keys_per_message)
    identities = {name: new_signing_key() for name in plan.names}
    members = tuple(
        replace(member, verify_key=public_bytes(identities[member.name])) for member in plan.members
    )
    plan = replace(plan, members=members)
    context, terms = CkksContext(plan.ckks, "ceremony"), Terms.of(plan, KEYS, _SEED)
    laps = dict.fromkeys(plan.names, 0.0)
    uploads = dict.fromkeys(plan.names, 0)
    shares: dict[str, KeyShare] = {}
    zeros: Residues = np.zeros((plan.ckks.num_towers, plan.ckks.ring_dim), np.uint64)
    totals = dict.fromkeys(plan.names, zeros)
    openings = {name: Opening(terms, name, key) for name, key in identities.items()}

    def answer(name: str, step: str, body: Body) -> Body:
        started = time.process_time()
        if step == KEYS.commit:
            shares[name] = KeyShare(context, _SEED, parties)
            reply = openings[name].commit(keygen.answer_keys(context, shares[name]))
        elif step == KEYS.open:
            reply = openings[name].open(body)
        elif step.startswith(keygen.PUBLIC_SHARES):
            chunk = plan.member_chunks[int(step.partition("/")[2])]
            half, total = openings[name], totals[name]
            totals[name] = keygen.add_public_shares(context, total, half, chunk, body)
            reply = Body()
        else:
            reply = _answer(context, shares[name], step, body)
        laps[name] += time.process_time() - started
        uploads[name] += sum(map(len, reply.blobs))
        return reply

    started, before = time.process_time(), _peak()
    drive(keygen.ceremony(context, plan, _SEED, {}), answer)
    context.unload_evaluation_keys()
    total = time.process_time() - started
    return {
        "parties": parties,
        "rotation_keys": len(plan.rotations),
        "upload_bytes": max(uploads.values()),
        # Parties of one process expand a uniform half once: the first pays for all.
        "party_seconds": max(laps.values()),
        "coordinator_seconds": total - sum(laps.values()),
        "peak_memory": _peak(),
        "memory_before": before,
    }


def _answer(context: CkksContext, share: KeyShare, step: str, body: Body) -> Body:
    if step == keygen.RELINEARISE:
        return keygen.answer_relinearise(context, share, body)
    return keygen.answer_rotations(context, share, body.meta["indices"])


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
