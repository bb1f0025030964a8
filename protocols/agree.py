"""Steps `enrol`, `agree` and `reveal`: one plan for all, and a seed that nobody chose alone.

Messages
    enrol   -> {}                      <- {rows, num_features, schema (digest), commitment}
    agree   -> {plan}                  <- {plan (digest)}
    reveal  -> {}                      <- {seed}
    (the next step hands all seeds to everyone, who check them against the plan's commitments)

Security: commitments stand in the plan before any seed is shown, so the joint seed, and with it
every public random element of the run, is uniform if one party is honest. A coordinator that
picked such an element could read a key share from one refresh.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from protocols.errors import MessageError, ProtocolError
from protocols.messages import Body, Exchange, to_everyone
from protocols.plan import Member, RunPlan

SEED_BYTES = 32


def new_seed() -> bytes:
    """A party's contribution to the joint seed, from the operating system's generator."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """Binding and hiding for a uniform 32-byte seed (SHA-256, hexadecimal)."""
    return hashlib.sha256(b"ciphercohort/seed/1\0" + seed).hexdigest()


def joint_seed(plan: RunPlan, seeds: Mapping[str, str]) -> bytes:
    """SHA-256 over the plan and all seeds in the plan's order, 32 bytes.

    seeds: by party name, hexadecimal.

    Raises:
        ProtocolError: a seed is missing or does not open its commitment; names the party.
    """
    parts = [b"ciphercohort/joint-seed/1\0", bytes.fromhex(plan.digest())]
    for member in plan.members:
        try:
            seed = bytes.fromhex(seeds[member.name])
        except (KeyError, ValueError, TypeError):
            raise ProtocolError(
                f"no valid seed from party {member.name!r}", culprit=member.name
            ) from None
        if len(seed) != SEED_BYTES or commitment(seed) != member.commitment:
            raise ProtocolError(
                f"the seed of party {member.name!r} does not open its commitment",
                culprit=member.name,
            )
        parts.append(seed)
    return hashlib.sha256(b"".join(parts)).digest()


def seeds_of(request: Body) -> dict[str, str]:
    """Everybody's seeds, as the step after `reveal` hands them out.

    Raises:
        MessageError: it does not.
    """
    seeds = request.meta.get("seeds")
    if not isinstance(seeds, dict):
        raise MessageError("the request hands out no seeds")
    return seeds


# -- party half -----------------------------------------------------------------------------------


def answer_enrol(rows: int, num_features: int, schema: str, committed: str) -> Body:
    """Reply to `enrol`: row count, columns with bias, schema digest, commitment to the seed."""
    return Body(
        {
            "rows": rows,
            "num_features": num_features,
            "schema": schema,
            "commitment": committed,
        }
    )


# -- coordinator half -----------------------------------------------------------------------------


def enrol(party_keys: Mapping[str, str]) -> Exchange[tuple[Member, ...]]:
    """What the parties say of themselves; party_keys: verification keys (hex) by name.

    Raises:
        ProtocolError: a malformed enrolment, or parties with different schemas.
    """
    replies = yield to_everyone("enrol", tuple(party_keys), Body())
    members, schemas = [], {}
    for name, verify_key in party_keys.items():
        meta = replies[name].meta
        try:
            schemas[name] = str(meta["schema"]), int(meta["num_features"])
            rows, seed = int(meta["rows"]), str(meta["commitment"])
        except (KeyError, ValueError, TypeError, OverflowError):
            raise ProtocolError(f"malformed enrolment of party {name!r}", culprit=name) from None
        members.append(Member(name=name, rows=rows, verify_key=verify_key, commitment=seed))
    first = members[0].name
    for name, schema in schemas.items():
        if schema != schemas[first]:
            raise ProtocolError(
                f"party {name!r} uses another column schema than party {first!r}; give all "
                "parties the same schema file",
                culprit=name,
            )
    return tuple(members)


def agree(plan: RunPlan) -> Exchange[dict[str, str]]:
    """Have everyone agree to the plan; everyone's seed (hexadecimal), by party.

    Raises:
        ProtocolError: a party answers for another plan.
    """
    replies = yield to_everyone("agree", plan.names, Body({"plan": plan.to_dict()}))
    for name in plan.names:
        if replies[name].meta.get("plan") != plan.digest():
            raise ProtocolError(f"party {name!r} agreed to a different plan", culprit=name)
    replies = yield to_everyone("reveal", plan.names, Body())
    return {name: str(replies[name].meta.get("seed")) for name in plan.names}
