"""Whether a recorded run multiplies secrets only by elements that nobody chose last.

A ciphertext's c1 is made of replies. Before any reply of such a step is sent, each is fixed by a
digest; and the next request hands out everyone's endorsement of these digests. Which steps these
are stands here, whatever the protocols say of themselves.
"""

from __future__ import annotations

from itertools import groupby

from protocols.exchange.messages import Body
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS
from protocols.steps.commitments import digest_of
from tests.provenance.runs import Run

# Of an encrypted model's refresh only c0 follows from the shares, and replies cover what they make
# of it: docs/method/security-argument.md.
MADE_OF = {
    ENCRYPTED_ROWS: ("contribute", "refresh", "cover-refresh", "cover-decrypt"),
    ENCRYPTED_MODEL: ("gradient", "cover-gradient", "cover-refresh", "cover-decrypt"),
}
"""Steps whose replies ciphertexts are made of; and those that somebody stands in for others in."""
COMMITS = {"contribute": "commit-rows"}


def unconfirmed(run: Run) -> list[str]:
    """Steps that are not as they should be, and why."""
    steps = [(step, list(said)) for step, said in groupby(run.messages, lambda each: each[0])]
    found = []
    for at, (step, said) in enumerate(steps):
        kind, _, index = step.partition("/")
        if kind not in MADE_OF[run.plan.protocol]:
            continue
        cover, own = ("cover-" if kind.startswith("cover-") else ""), kind.removeprefix("cover-")
        commit = COMMITS.get(kind, f"{cover}commit-{own}") + (f"/{index}" if index else "")
        before, after = steps[at - 1], steps[at + 1]
        fixed = {name: reply.meta.get("value") for _, name, _, reply in before[1]}
        if before[0] != commit or fixed.keys() < {name for _, name, *_ in said}:
            found.append(f"{step}: replies are sent that were not fixed before")
        elif any(fixed[name] != digest_of(reply.digests) for _, name, _, reply in said):
            found.append(f"{step}: another reply is sent than was fixed")
        if after[0].startswith("cover-") or own == "decrypt":
            continue  # a repetition that all sign, or the end
        if any(_signers(request) != set(fixed) for _, _, request, _ in after[1]):
            found.append(f"{after[0]}: goes on before all have endorsed {step}")
    return found


def _signers(request: Body) -> set[str]:
    return set(request.meta.get("signed", ()))
