"""Steps `enrol`, `agree` and `reveal`: one plan for all, and a seed that nobody chose alone.

Messages
    enrol   -> {}                      <- {rows, num_features, schema (digest), commitment, follows}
    agree   -> {plan}                  <- {plan (digest), sheets (digests), signature}
    reveal  -> {signatures}            <- {seed}
    (the next step hands all seeds to everyone, whose kernels check them: `exchange.signed_values`)

Security: plan, sheets and commitments are signed by all before any seed is shown. A coordinator
that picked a random element of the run could read a key share from one refresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body, Exchange, to_everyone
from protocols.exchange.signed_values import Agreement
from protocols.plan.run_plan import Member, RunPlan


def agreement(plan: RunPlan, sheets: Sequence[str]) -> Agreement:
    """What parties sign of a plan; sheets: digests of those that follow from it."""
    return Agreement(
        session=plan.session,
        plan=plan.digest(),
        sheets=tuple(sheets),
        roster=plan.roster,
        commitments=commitments(plan),
    )


def commitments(plan: RunPlan) -> dict[str, str]:
    """To seeds, by party."""
    return {member.name: member.commitment for member in plan.members}


def agreed(plan: RunPlan, replies: Mapping[str, Body]) -> tuple[Agreement, dict[str, str]]:
    """What all have signed, and their signatures; replies: of all parties to `agree`.

    Raises:
        ProtocolError: a party answers for another plan, or for other sheets than the others; names
            it.
    """
    sheets, signatures = dict[str, list[str]](), dict[str, str]()
    for name in plan.names:
        meta = replies.get(name, Body()).meta
        if meta.get("plan") != plan.digest():
            raise ProtocolError(f"party {name!r} agreed to a different plan", culprit=name)
        listed, signatures[name] = meta.get("sheets"), str(meta.get("signature"))
        sheets[name] = [str(each) for each in listed] if isinstance(listed, list) else []
        if not sheets[name] or sheets[name] != sheets[plan.names[0]]:
            raise ProtocolError(
                f"party {name!r} derived other sheets from the plan than {plan.names[0]!r}: give "
                "all parties the same version of ciphercohort",
                culprit=name,
            )
    found = agreement(plan, sheets[plan.names[0]])
    found.check(signatures)
    return found, signatures


def seeds_of(request: Body) -> dict[str, str]:
    """Everybody's seeds, as the step after `reveal` hands them out.

    Raises:
        MessageError: it does not.
    """
    return _by_party(request, "seeds")


def signatures_of(request: Body) -> dict[str, str]:
    """Everybody's signatures, as `reveal` hands them out.

    Raises:
        MessageError: it does not.
    """
    return _by_party(request, "signatures")


def _by_party(request: Body, field: str) -> dict[str, str]:
    found = request.meta.get(field)
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise MessageError(f"the request hands out no {field}")
    return found


# -- party half -----------------------------------------------------------------------------------


def answer_enrol(
    rows: int, num_features: int, schema: str, committed: str, follows: Sequence[str]
) -> Body:
    """Reply to `enrol`: row count, columns with bias, schema digest, commitment to the seed.

    follows: see `Member`.
    """
    return Body(
        {
            "rows": rows,
            "num_features": num_features,
            "schema": schema,
            "commitment": committed,
            "follows": list(follows),
        }
    )


def answer_agree(plan: RunPlan, sheets: Sequence[str], signature: str) -> Body:
    """Reply to `agree`: digest of the plan, and what the party signed of it."""
    return Body({"plan": plan.digest(), "sheets": list(sheets), "signature": signature})


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
            follows = tuple(str(each) for each in meta["follows"])
        except (KeyError, ValueError, TypeError, OverflowError):
            raise ProtocolError(f"malformed enrolment of party {name!r}", culprit=name) from None
        members.append(
            Member(name=name, rows=rows, verify_key=verify_key, commitment=seed, follows=follows)
        )
    first = members[0].name
    for name, schema in schemas.items():
        if schema != schemas[first]:
            raise ProtocolError(
                f"party {name!r} uses another column schema than party {first!r}; give all "
                "parties the same schema file",
                culprit=name,
            )
    return tuple(members)


def agree(plan: RunPlan) -> Exchange[tuple[bytes, dict[str, str]]]:
    """Have everyone agree to the plan; the joint seed, and everyone's (hexadecimal), by party.

    Raises:
        ProtocolError: see `agreed`, and `Agreement`.
    """
    replies = yield to_everyone("agree", plan.names, Body({"plan": plan.to_dict()}))
    found, signatures = agreed(plan, replies)
    replies = yield to_everyone("reveal", plan.names, Body({"signatures": signatures}))
    seeds = {name: str(replies[name].meta.get("seed")) for name in plan.names}
    return found.joint_seed(seeds), seeds
