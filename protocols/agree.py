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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from protocols.errors import MessageError, ProtocolError
from protocols.messages import Body, Exchange, to_everyone
from protocols.plan import Member, RunPlan

SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What a party says of itself: row count, columns with bias, schema digest, commitment."""

    rows: int
    num_features: int
    schema: str
    commitment: str


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


def answer_enrol(enrolment: Enrolment) -> Body:
    """Reply to `enrol`."""
    return Body(
        {
            "rows": enrolment.rows,
            "num_features": enrolment.num_features,
            "schema": enrolment.schema,
            "commitment": enrolment.commitment,
        }
    )


# -- coordinator half -----------------------------------------------------------------------------


def enrol(parties: Sequence[str]) -> Exchange[dict[str, Enrolment]]:
    """Collect every party's enrolment."""
    replies = yield to_everyone("enrol", tuple(parties), Body())
    enrolled = {}
    for name in parties:
        meta = replies[name].meta
        try:
            enrolled[name] = Enrolment(
                int(meta["rows"]),
                int(meta["num_features"]),
                str(meta["schema"]),
                str(meta["commitment"]),
            )
        except (KeyError, ValueError, TypeError, OverflowError):
            raise ProtocolError(f"malformed enrolment of party {name!r}", culprit=name) from None
    return enrolled


def agree(
    parties: Sequence[str],
    verify_keys: Mapping[str, str],
    make_plan: Callable[[tuple[Member, ...]], RunPlan],
) -> Exchange[tuple[RunPlan, dict[str, str]]]:
    """Enrol, make the plan, have everyone agree, collect the seeds (hexadecimal, by party).

    Raises:
        ProtocolError: parties with different schemas, or one that answers for another plan.
    """
    enrolled = yield from enrol(parties)
    first = enrolled[parties[0]]
    for name, other in enrolled.items():
        if (other.schema, other.num_features) != (first.schema, first.num_features):
            raise ProtocolError(
                f"party {name!r} uses another column schema than party {parties[0]!r}; give all "
                "parties the same schema file",
                culprit=name,
            )
    plan = make_plan(
        tuple(
            Member(
                name=name,
                rows=e.rows,
                verify_key=verify_keys[name],
                commitment=e.commitment,
            )
            for name, e in enrolled.items()
        )
    )
    replies = yield to_everyone("agree", plan.names, Body({"plan": plan.to_dict()}))
    for name in plan.names:
        if replies[name].meta.get("plan") != plan.digest():
            raise ProtocolError(f"party {name!r} agreed to a different plan", culprit=name)
    replies = yield to_everyone("reveal", plan.names, Body())
    return plan, {name: str(replies[name].meta.get("seed")) for name in plan.names}
