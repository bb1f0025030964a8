"""Checks of transcript.jsonl: the hash chain, who sent what in which order, and how many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ciphercohort.job.layout import TRANSCRIPT
from protocols.errors import ProtocolError
from protocols.exchange.transcript import LOST, verify
from protocols.names import COORDINATOR
from protocols.plan.protocol import PHASES, phase_of, protocol_of
from protocols.plan.run_plan import RunPlan

Line = Mapping[str, Any]


def chain_problems(lines: Sequence[dict[str, Any]], heads: Mapping[str, str]) -> Iterator[str]:
    """Every link follows from the one before; heads: where the last one is recorded."""
    try:
        head = verify(lines)
    except ProtocolError as error:
        yield f"{TRANSCRIPT}: {error}"
        return
    for place, recorded in heads.items():
        if recorded != head:
            yield f"{place}: found {recorded}, expected {head}, the head of {TRANSCRIPT}"


def sequence_problems(lines: Sequence[Line], plan: RunPlan) -> Iterator[str]:
    """Each step of the plan once and in order, one request to and one reply from every party.

    After a reply that never came the step is repeated, and goes on, without that party.
    """
    found, lost = [], dict[str, set[str]]()
    for step, group in groupby(lines, key=lambda line: line["step"]):
        held = list(group)
        found.append((step, Counter((line["sender"], line["recipient"]) for line in held)))
        lost[step] = {x["sender"] for x in held if (x["bytes"], x["message"]) == LOST}
    protocol = protocol_of(plan)
    for step, names in lost.items():
        if names and not protocol.repetition(plan, step):
            yield f"{TRANSCRIPT}, step {step}: no message from {', '.join(sorted(names))}"
    wanted = protocol.sequence(plan, [step for step, names in lost.items() if names])
    present = list(plan.names)
    kinds = Counter(step.partition("/")[0] for step in wanted)
    for kind, number in kinds.items():
        seen = sum(step.partition("/")[0] == kind for step, _ in found)
        if seen != number:
            yield f"{TRANSCRIPT}: found {seen} steps {kind!r}, expected {number}"
    nothing: tuple[str | None, Counter[tuple[str, str]]] = (None, Counter())
    for k in range(max(len(found), len(wanted))):
        step, seen_pairs = found[k] if k < len(found) else nothing
        expected = wanted[k] if k < len(wanted) else None
        if step != expected:
            yield f"{TRANSCRIPT}, field step: found {step!r}, expected {expected!r} (step {k + 1})"
            return
        pairs = Counter(p for n in present for p in ((COORDINATOR, n), (n, COORDINATOR)))
        present = [name for name in present if name not in lost[expected or ""]]
        for sender, recipient in pairs - seen_pairs:
            yield f"{TRANSCRIPT}, step {step}: no message from {sender!r} to {recipient!r}"
        for sender, recipient in seen_pairs - pairs:
            too_many = f"one message too many from {sender!r} to {recipient!r}"
            yield f"{TRANSCRIPT}, step {step}: {too_many}"


def bytes_per_party(lines: Sequence[Line]) -> dict[str, int]:
    """The busiest party's bytes by phase, both directions."""
    traffic: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
    for line in lines:
        party = line["recipient"] if line["sender"] == COORDINATOR else line["sender"]
        traffic[phase_of(line["step"])][party] += line["bytes"]
    return {phase: max(by_party.values(), default=0) for phase, by_party in traffic.items()}
