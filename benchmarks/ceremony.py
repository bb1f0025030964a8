"""The key ceremony: what one party uploads and computes, what the coordinator must hold at once.

Question: at most 200 MB and 3 s per party at ring 2^15? And does the coordinator's memory grow with
the parties? It adds a reply up as it arrives and holds one at a time. The peak is that of a process
with all parties in it: each keeps what it has committed to until all have, 15 MB at ring 2^15.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from benchmarks import session
from benchmarks.cases import Case
from parties.kernel import private
from parties.kernel.keys.session import KeySession
from parties.verifier.sheets import keys_sheet
from protocols.ckks.evaluation import CkksContext, unload
from protocols.ckks.shared_keys import Shared
from protocols.exchange import commit_of
from protocols.exchange.messages import Body, new_signing_key, public_bytes
from protocols.steps import keygen
from protocols.steps.confirmed import View
from protocols.steps.endorsed import KEYS, Opening
from protocols.steps.rounds import noting
from tests.support.helpers import drive

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
    context, terms = Shared.context(plan.ckks, plan.session), KEYS.terms(_SEED, plan.roster)
    laps = dict.fromkeys(plan.names, 0.0)
    uploads = dict.fromkeys(plan.names, 0)
    sheet = keys_sheet(plan)
    shares = {
        name: KeySession(sheet, name, _rows(), key, Shared) for name, key in identities.items()
    }
    openings = {name: Opening(terms, name, key) for name, key in identities.items()}

    views = {name: View(_SEED) for name in plan.names}

    def answer(name: str, step: str, body: Body) -> Body:
        started, before = time.process_time(), views[name].digest
        views[name].note(step, body)
        if step == KEYS.commit:
            shares[name].begin({})
            reply = openings[name].commit(keygen.answer_keys(context, shares[name]))
        elif step == KEYS.open:
            reply = openings[name].open(body)
        elif step.startswith(keygen.PUBLIC_SHARES):
            chunk = plan.member_chunks[int(step.partition("/")[2])]
            shares[name].add_public_shares(chunk, body, openings[name]._commitments)
            reply = Body()
        else:
            reply = _answer(context, shares[name], step, before, body)
        laps[name] += time.process_time() - started
        uploads[name] += sum(map(len, reply.blobs))
        return reply

    started, before = time.process_time(), _peak()
    view = View(_SEED)
    made = keygen.ceremony(context, plan, _SEED, {}, view)
    drive(noting(view, made, lambda step: True), answer)
    unload(context.tag)
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


def _rows() -> Any:
    """None, of an owner who agrees to everything and to this joint seed."""
    own = private.Private(SimpleNamespace(spend=lambda: None))
    own.terms = private.Terms(joint_seed=lambda seeds: _SEED)
    return own.keep(())


def _answer(context: CkksContext, share: KeySession, step: str, before: str, body: Body) -> Body:
    if step == commit_of(keygen.RELINEARISE):
        return share.hold_relinearisation(keygen.RELINEARISE, before, body)
    if step == keygen.RELINEARISE:
        return share.open_reply(body)
    return keygen.answer_rotations(context, share, body.meta["indices"])


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
