"""Re-execution of a recorded run: the coordinator's arithmetic once more, by anybody.

Given the plan and the parties' replies, every request of the coordinator is fixed, to the bit (for
the same release of OpenFHE and the same floating-point arithmetic, which encodes public
constants). So the same code runs again on the recorded replies, and what it asks is compared with
what was asked.

Security
- A recorded reply is signed by its party, names the request that it answers, and carries the head
  of all requests that the party has processed up to then, refused ones too (`messages.heard`). So
  if the keys in the plan are the parties' own (see the check `signatures`), a party that has signed
  its last reply, or a statement (`protocols.plan.statement`), was asked what the log holds, in that
  order, and nothing else. A coordinator that had a chosen ciphertext refreshed or decrypted by it,
  or summed up other contributions than those it was sent, cannot produce a log that passes.
- Nobody signs what a party was asked from a lost reply on: "lost" is the coordinator's word, and
  with cover T parties that are lost on paper alone can have given it every key. So such a log does
  not pass (check `records`) without the statement of each lost party.
- It is detected, not prevented: the harm is done by then.

One party's messages alone are not enough: the requests follow
from everybody's replies. Those are taken as honest: a colluding party could choose its own so that
a harmful request follows from them. Not its key shares and its contribution, which it committed to
before it saw another party's: they are held against their digests again.

Not fixed: OpenFHE's decoder adds noise to what is decrypted, so the released weights are compared
to within `decrypt.release_error_std`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.log import LoggedStep, MessageLog, require_messages
from protocols.errors import CohortError, MessageError, ProtocolError
from protocols.exchange.messages import UNHEARD, Ask, Body, heard
from protocols.exchange.transcript import Transcript
from protocols.names import spoken
from protocols.plan.kinds import only, plan_from_dict
from protocols.plan.protocol import BEFORE, FINISH, Watch, protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.plan.statement import read_statement
from protocols.steps import agree, second_moment
from protocols.steps.finish import weights_of
from protocols.steps.replica import check_weights, differences
from protocols.steps.second_moment import Evidence
from protocols.steps.whole import whole_run
from protocols.sums.plan import GradientPlan

CHECKS = (
    "hash chain",
    "plan",
    "signatures",
    "seeds",
    "steps",
    "re-execution",
    "weights",
    "records",
)
Array = NDArray[np.float64]
# Called before each step of the re-execution: its name, how many are done, how many there are.
OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One check's verdict; detail: what was found, or the first deviation with step and party."""

    name: str
    passed: bool
    detail: str


@dataclass(slots=True)
class Replayed:
    """What a re-execution showed; plan and weights as recorded, None where it did not get so far.

    weights: of `finish`, nested lists of shape (d,) or (d, outputs).
    """

    checks: list[Check] = field(default_factory=list)
    plan: RunPlan | None = None
    weights: list[Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the coordinator did what the protocol says, from the first step to the last."""
        return len(self.checks) == len(CHECKS) and all(check.passed for check in self.checks)


def replay(
    folder: Path,
    on_step: OnStep = lambda step, done, total: None,
    statements: Sequence[bytes] = (),
) -> Replayed:
    """Check the log in a run folder, in the order of CHECKS, up to the first that fails.

    statements: of parties whose last replies were lost, see `protocols.plan.statement`.

    Raises:
        ParameterError: no messages were recorded in the folder.
    """
    require_messages(folder)
    found = Replayed()
    details = _details(folder, found, on_step, statements)
    for name in CHECKS:
        try:
            found.checks.append(Check(name, True, next(details)))
        except CohortError as error:
            found.checks.append(Check(name, False, str(error)))
            break
    return found


def _details(
    folder: Path, found: Replayed, on_step: OnStep, statements: Sequence[bytes]
) -> Iterator[str]:
    """What each of CHECKS shows; raises CohortError where it fails."""
    log = MessageLog(folder)
    yield f"{len(log.entries)} messages, unbroken"
    plan = found.plan = plan_of(log)
    insecure = "" if plan.security_bits else ", INSECURE toy ring"
    yield f"{plan.digest()[:16]}…, {len(plan.members)} parties{insecure}"
    keys = plan.roster
    log.check(plan.session, keys)
    yield ", ".join(f"{name} {spoken(key)}" for name, key in keys.items())
    yield _check_seeds(log, plan)
    yield _check_steps(log, plan)
    expected = _run_again(log, plan, on_step)
    log.check_strays()
    yield f"{len(log.steps)} steps: every request computed again, all equal"
    released = _released(log)
    found.weights = released.tolist()
    yield check_weights(plan, released, expected)
    yield _check_records(log, plan, statements)


# -- second moments --------------------------------------------------------------------------------


def shown(log: MessageLog) -> Evidence | None:
    """The evidence that parties were shown, if they were."""
    for entry in log.entries:
        if entry.step == second_moment.STEP and entry.is_request:
            return Evidence.from_body(log.read(entry, log.coordinator_key).body)
    return None


def evidence(folder: Path) -> Evidence:
    """Of a recorded run that summed a second moment.

    Raises:
        MessageError, ProtocolError: the log is damaged, or no second moment was summed.
    """
    log = MessageLog(folder)
    plan = plan_of(log)
    if not plan.sums_moment:
        raise ProtocolError(f"{folder} holds another run than one of a second moment")
    keys = plan.roster
    replies = {step.name: step.replies for step in log.steps}
    seeds = {
        name: str(log.read(entry, keys[name]).body.meta.get("seed"))
        for name, entry in replies.get("reveal", {}).items()
    }
    frames = {
        (step, name): log.frame(entry)
        for step in second_moment.SHOWN
        for name, entry in replies.get(step, {}).items()
    }
    if len(frames) != len(second_moment.SHOWN) * len(plan.members):
        raise ProtocolError("the run that was to sum the second moment has not come to its end")
    return Evidence(only(GradientPlan, plan), seeds, frames)


# -- what the log says ----------------------------------------------------------------------------


def plan_of(log: MessageLog) -> RunPlan:
    """The plan of the first `agree` request; the re-execution compares the others."""
    for entry in log.entries:
        if entry.step == "agree" and entry.is_request:
            fields = log.read(entry, log.coordinator_key).body.meta.get("plan")
            if not isinstance(fields, dict):
                raise MessageError(f"{entry}: no plan in it")
            return plan_from_dict(fields)
    raise ProtocolError("the log ends before a plan was agreed")


def _check_seeds(log: MessageLog, plan: RunPlan) -> str:
    _, agreed, revealed = BEFORE
    steps = {step.name: step for step in log.steps}
    if revealed not in steps:
        return "none was revealed"  # An aborted run, which fails below.
    before = _replies(log, plan, steps[agreed]) if agreed in steps else {}
    replies = _replies(log, plan, steps[revealed])
    seeds = {name: str(body.meta.get("seed")) for name, body in replies.items()}
    agree.agreed(plan, before)[0].joint_seed(seeds)
    return "all signed the same sheets; every seed opens the commitment of its enrolment"


def _check_steps(log: MessageLog, plan: RunPlan) -> str:
    """As many refreshes and decryptions as the plan has, every step once and in its order."""
    found = [step.name for step in log.steps]
    short = {step.name for step in log.steps if step.lost}
    expected = protocol_of(plan).sequence(plan, short)
    for number, (name, wanted) in enumerate(zip_longest(found, expected), start=1):
        if name is None:
            break  # An aborted run: the re-execution says so, and who deviated before.
        if name != wanted:
            raise ProtocolError(f"step {number} is {name!r}, the plan has {wanted or 'no more'!r}")
    kinds = [name.partition("/")[0] for name in found]
    return f"in order, {kinds.count('refresh')} refreshes, {kinds.count('decrypt')} decryption"


def _replies(log: MessageLog, plan: RunPlan, step: LoggedStep) -> dict[str, Body]:
    """Bodies by party."""
    keys = plan.roster
    return {name: log.read(entry, keys[name]).body for name, entry in step.replies.items()}


# -- running again --------------------------------------------------------------------------------


def _run_again(log: MessageLog, plan: RunPlan, on_step: OnStep) -> Array:
    """The weights that `finish` should carry.

    Raises:
        ProtocolError: a request was another one than the replies before it lead to, or steps are
            missing.
    """
    transcript, heads = Transcript(), dict.fromkeys(plan.names, UNHEARD)
    keys = plan.roster
    # What the parties enrolled with, whatever the recorded plan says of it.
    exchange = whole_run(
        keys,
        lambda members: plan.among(plan.session, members),
        transcript,
        lambda agreed: Watch(evidence=shown(log)),
    )
    try:
        asked = next(exchange)
        for done, step in enumerate(log.steps):
            on_step(step.name, done, len(log.steps))
            _compare(log, asked, step)
            for name, entry in step.requests.items():
                heads[name] = heard(heads[name], entry.message)
            for entry in step.entries:
                transcript.add(
                    step=entry.step,
                    sender=entry.sender,
                    recipient=entry.recipient,
                    size=entry.bytes,
                    message=entry.message,
                )
            replies = _folded(asked, log, plan, step, heads)
            if step.name == FINISH:
                return weights_of(next(iter(asked.bodies.values())))
            asked = exchange.send(replies)
    finally:
        exchange.close()
    raise ProtocolError(f"the log ends before step {asked.step!r}; what was asked so far is right")


def _folded(
    asked: Ask, log: MessageLog, plan: RunPlan, step: LoggedStep, heads: Mapping[str, str]
) -> dict[str, Body]:
    """Replies of one step as `Coordinator` hands them back, read one after the other.

    heads: by party, of all requests to it up to this step's.
    """
    replies = {}
    for member in plan.members:
        name = member.name
        if name not in asked.bodies or (asked.lossy and name in step.lost):
            continue
        if name not in step.replies:
            raise ProtocolError(
                f"the log ends at step {step.name!r}, without an answer of {name!r}; "
                "what was asked so far is right"
            )
        reply = log.read(step.replies[name], member.verify_key)
        if reply.seen != heads[name]:
            raise ProtocolError(
                f"step {step.name!r}: party {name!r} was asked something that this log does not "
                "hold, after its reply before this one"
            )
        body = reply.body
        replies[name] = asked.fold(name, body) if asked.fold else body
    return replies


def _compare(log: MessageLog, asked: Ask, step: LoggedStep) -> None:
    if asked.step != step.name:
        raise ProtocolError(f"step {step.name!r} was asked where {asked.step!r} is due")
    for name in step.requests.keys() - asked.bodies.keys():
        raise ProtocolError(f"step {step.name!r}: party {name!r} was asked, and was covered for")
    for name in asked.bodies:
        if name not in step.requests:
            raise ProtocolError(f"step {step.name!r}: nothing was sent to party {name!r}")
        sent = log.read(step.requests[name], log.coordinator_key).body
        for difference in differences(asked.bodies[name], sent, step.name == FINISH):
            raise ProtocolError(
                f"step {step.name!r}, party {name!r}: {difference} is not what the replies before "
                "lead to: the coordinator deviated here"
            )


def _released(log: MessageLog) -> Array:
    """Weights that `finish` carried, to every party the same."""
    found = {
        name: weights_of(log.read(entry, log.coordinator_key).body)
        for name, entry in log.steps[-1].requests.items()
    }
    first, weights = next(iter(found.items()))
    for name, other in found.items():
        if not np.array_equal(other, weights):
            raise ProtocolError(f"parties {first!r} and {name!r} were told other weights")
    return weights


def _check_records(log: MessageLog, plan: RunPlan, statements: Sequence[bytes]) -> str:
    """Who has not said what it was asked to the end: its last reply is missing.

    statements: see `protocols.plan.statement`.
    """
    keys = plan.roster
    told = dict(read_statement(data, plan.session, keys) for data in statements)
    heads = {name: [UNHEARD] for name in keys}
    for step in log.steps:
        for name, entry in step.requests.items():
            heads[name].append(heard(heads[name][-1], entry.message))
    lost = {name: step.name for step in log.steps for name in step.lost}
    for name, head in told.items():
        # The last request, or the reply to it, was lost.
        if head not in heads[name][-2 if name in lost else -1 :]:
            raise ProtocolError(
                f"party {name!r} was asked something that this log does not hold: its statement "
                "says so"
            )
    silent = [f"{name} from step {step!r} on" for name, step in lost.items() if name not in told]
    if silent:
        raise ProtocolError(
            f"not verified for {', '.join(silent)}: the last replies were lost, so what was asked "
            "from there on is the coordinator's word; ask these owners for their own record "
            "(cohort party statement)"
        )
    return "every party was asked what this log holds, and nothing else: its signature says so"
