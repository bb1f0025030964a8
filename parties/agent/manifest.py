"""A plan in words, for the person who consents to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from parties.verifier.recompute import recompute
from protocols.errors import CohortError
from protocols.names import spoken
from protocols.plan import kinds
from protocols.plan.protocol import protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.words import AGAINST, EXACT_SUMS, HOLDS, count, printable, promise, towards_one


def describe_plan(plan: RunPlan, name: str, norm_bound: float, records: Iterable[str] = ()) -> str:
    """The manifest: members, release, privacy by coalition, decryptions, what leaves this party.

    norm_bound: of this party's rows, by its own schema; records: what the owner's say of it.

    Security: the coordinator chose the plan's texts. What cannot be printed shows as ?, so that
    none of them starts a line of its own or hides one on a terminal.
    """
    return "\n".join(printable(line) for line in _lines(plan, name, norm_bound, records))


def _lines(plan: RunPlan, name: str, norm_bound: float, records: Iterable[str]) -> Iterator[str]:
    yield f"Plan {plan.digest()}"
    makes = f"model: {plan.model}, {plan.num_features} coefficients"
    if plan.statistic:
        makes = f"one sum, for {plan.statistic}; no training"
    yield f"Session {plan.session}; {makes}"
    yield "Who takes part:"
    for member in plan.members:
        you = " (you)" if member.name == name else ""
        yield f"  {member.name}{you}: {member.rows:,} rows, key {spoken(member.verify_key)}"
    yield f"How each owner checks the coordinator: {kinds.replicas(plan)}"
    yield from _held_out(plan, name)
    security = f"{plan.security_bits}-bit" if plan.security_bits else "NONE (toy ring, tests only)"
    yield f"Encryption: security {security}; {_who_opens(plan)}"
    yield from _cover(plan)
    yield from _slots(plan, norm_bound)
    yield f"What is released to everyone: {kinds.released(plan)}"
    yield from _privacy(plan, norm_bound)
    yield from records
    steps = protocol_of(plan).steps
    named = {step: len(list(step.turns(plan))) for step in steps}
    opened = sum(times for step, times in named.items() if step.opens)
    yield (
        f"Joint decryptions: {opened}; iterations: {plan.rounds}. A joint decryption opens "
        "something with the help of all parties; all else stays encrypted"
    )
    yield "What leaves your organisation:"
    yield "  your number of rows, your name and your verification key, in the clear"
    own = plan.members[plan.party_index(name)]
    if readers := [m.name for m in plan.members if m.follows == (m.name,) and m is not own]:
        yield f"  all your messages, by the coordinator, to the replicas of {', '.join(readers)}"
    if mine := [m.name for m in plan.members if name in m.follows and m is not own]:
        yield f"  your word, signed, on what {', '.join(mine)} may be asked: you are their witness"
    for step, times in named.items():
        if times:
            before = "; a signed digest of it goes before" if step.committed else ""
            noise = (
                "" if not step.noisy else ", with your noise" if plan.privacy else ", without noise"
            )
            yield f"  {times} x {step.leaves}{noise} ({step.name}){before}"


def _who_opens(plan: RunPlan) -> str:
    if not plan.opens_rounds:
        return "no party and no coordinator can decrypt alone"
    others, noisy = len(plan.members) - 1, ", noise included" if plan.privacy else ", exactly"
    return (
        f"the coordinator opens sums of all {others + 1} parties, and no single part; with the "
        f"{others} other{'s' * (others > 1)} it knows yours{noisy}"
    )


def _held_out(plan: RunPlan, name: str) -> Iterator[str]:
    held_out = plan.held_out
    if held_out is None:
        return
    mine = plan.members[plan.party_index(name)].rows
    if held_out.judged:
        yield (
            f"Rows held back: this run uses only the {mine:,} rows that you held back by your "
            f"own secret coins (draw {held_out.draw}); its privacy counts beside the training's"
        )
        return
    yield (
        f"Rows held back: every owner holds back {held_out.share:g} of its rows, which its own "
        f"secret coins choose, for a later evaluation; this run uses {mine:,} of yours (draw "
        f"{held_out.draw})"
    )


def _cover(plan: RunPlan) -> Iterator[str]:
    if plan.cover is not None:
        yield (
            f"If parties vanish: any {plan.cover} of the others can stand in for them, so any "
            f"{plan.cover} parties that collude can read everybody's rows; without cover it takes "
            f"all {len(plan.members)}"
        )


def _slots(plan: RunPlan, norm_bound: float) -> Iterator[str]:
    bounds = kinds.slot_bounds(plan, norm_bound)
    if bounds is not None:
        own = bounds.sentence(len(plan.members))
        stated = "none" if plan.slot_bound is None else f"{plan.slot_bound:.4g}"
        yield f"Size of what masks hide: the plan states {stated}; by your own bounds {own}"


def _privacy(plan: RunPlan, norm_bound: float) -> Iterator[str]:
    privacy = plan.privacy
    if privacy is None:
        yield "Privacy: NO NOISE: what is released may tell about single rows"
        yield f"  EXACT SUMS: {EXACT_SUMS}"
        yield from (f"  {remark}" for remark in kinds.remarks(plan))
        return
    yield (
        f"Privacy: {promise(privacy.epsilon, privacy.delta, privacy.colluders)} (one row replaced)"
    )
    yield (
        "  in words: exchanging one of your rows changes the odds of whatever anybody concludes "
        f"from what is released by a factor of {math.exp(privacy.epsilon):.3g} at most, but for "
        "about the probability delta"
    )
    yield from (f"  {remark}" for remark in kinds.remarks(plan))
    try:
        certificate = recompute(plan, norm_bound).certificate
        yield f"  {towards_one(certificate.epsilon_by_coalition)}"
        pairs = zip(certificate.epsilon_by_coalition, certificate.epsilon_composed, strict=True)
        for colluders, (epsilon, composed) in enumerate(pairs):
            also = f" and {count(colluders, 'other owner')}" if colluders else " alone"
            yield (
                f"  towards the coordinator{also}: epsilon={epsilon:.4g}, of all rounds composed "
                f"{composed:.4g}"
            )
        yield f"  {AGAINST if plan.statistic else HOLDS}"
    except CohortError as error:
        yield f"  this machine cannot confirm it: {error}"
