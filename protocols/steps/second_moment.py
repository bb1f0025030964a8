"""Step `second-moment`: why everyone may believe the second moment that a plan whitens rows by.

    second-moment -> plan, seeds and signed replies of the run that summed it   <- {}

The coordinator alone opened that sum. A coordinator that tells another matrix could bring about
steps that are too long, and the certificate would speak of iterates that leave its ball. So every
party opens the sum again, from the replies that all parties have signed, before it makes any key.

Security
- The opening key s is told to all parties. It opens sums of all P messages of that run, of which
  there is one, and its noisy value is public. Single messages stay as safe as against the
  coordinator, who has s already (`protocols.aggregate`).
- Each party has signed plan, sheets and commitments to seeds under which it answered. Another plan,
  whose noise or promise flatters, or whose joint seed opens the replies to noise, has no such
  signature.
- Each party's reply carries a seal of its rows that the party alone can make or tell from noise
  (HMAC-SHA256): a second moment of other rows than are to be encrypted now is refused.
- A party that deviates can put any vector into the sum, as it can encrypt rows of any length: not
  promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.symmetric import square
from protocols.aggregate import setup
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.aggregate.wire import sum_messages
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange import OPENING_KEY
from protocols.exchange.messages import Body, Exchange, decode, to_everyone
from protocols.names import COORDINATOR
from protocols.numerics.whitening import ROUNDING
from protocols.plan.kinds import only, plan_from_dict
from protocols.plan.protocol import BEFORE, Request, Step, Watch
from protocols.plan.run_plan import RunPlan
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.steps import agree
from protocols.sums.plan import GradientPlan

STEP, ROUND, SEAL = "second-moment", "round/0", "rows"
AGREE = BEFORE[1]
SHOWN = (OPENING_KEY, ROUND, AGREE)
"""Steps whose replies open the sum, and say under which plan it was made."""
Array = NDArray[np.float64]


# -- evidence -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evidence:
    """The run that summed a second moment.

    plan, seeds: of that run; frames: whole replies, by step of SHOWN and party.
    """

    plan: GradientPlan
    seeds: Mapping[str, str]
    frames: Mapping[tuple[str, str], bytes]

    def to_body(self) -> Body:
        """A request."""
        order = [(step, name) for step in SHOWN for name in self.plan.names]
        meta = {"plan": self.plan.to_dict(), "seeds": dict(self.seeds)}
        return Body(meta, tuple(self.frames[key] for key in order))

    @classmethod
    def from_body(cls, body: Body) -> Evidence:
        """Inverse of `to_body`.

        Raises:
            MessageError, ParameterError: it is malformed.
        """
        fields, seeds = body.meta.get("plan"), body.meta.get("seeds")
        if not isinstance(fields, dict) or not isinstance(seeds, dict):
            raise MessageError(f"step {STEP!r}: plan or seeds are missing")
        plan = plan_from_dict(fields)
        if not plan.sums_moment:
            raise MessageError(f"step {STEP!r}: the plan is not one of a second moment")
        order = [(step, name) for step in SHOWN for name in plan.names]
        if len(order) != len(body.blobs):
            raise MessageError(f"step {STEP!r}: {len(body.blobs)} replies, {len(order)} are due")
        return cls(only(GradientPlan, plan), seeds, dict(zip(order, body.blobs, strict=True)))

    def opened(self) -> tuple[Array, dict[str, str]]:
        """The noisy second moment, shape (d, d), and every party's seal of its rows.

        Raises:
            ProtocolError, MessageError: a reply is not of this run, not under this plan, or not its
                party's.
        """
        plan = self.plan
        try:
            replies = {key: self._reply(*key) for key in self.frames}
        except ValueError as error:
            raise MessageError(f"step {STEP!r}: {error}") from None
        agreed, _ = agree.agreed(plan, {name: replies[AGREE, name] for name in plan.names})
        seed = agreed.joint_seed(self.seeds)
        keys = {name: replies[OPENING_KEY, name] for name in plan.names}
        sums = {name: replies[ROUND, name] for name in plan.names}
        cipher = CoordinatorCipher(plan.cipher, plan.session, seed, setup.unmask(plan.cipher, keys))
        values = cipher.open(0, sum_messages(plan.cipher, sums, plan.names, plan.length))
        # One step of rate 1 from zero: minus the sum of gradients.
        return square(-values), {n: str(body.meta.get(SEAL)) for n, body in sums.items()}

    def _reply(self, step: str, name: str) -> Body:
        member = self.plan.members[self.plan.party_index(name)]
        envelope = decode(self.frames[step, name], member.verify_key)
        address = (envelope.session, envelope.step, envelope.sender, envelope.recipient)
        if address != (self.plan.session, step, name, COORDINATOR):
            raise ProtocolError(f"the reply of party {name!r} is not to {step!r} of this run")
        return envelope.body


def check(plan: Any, evidence: Evidence) -> dict[str, str]:
    """Refuse a plan whose second moment is not the one that was opened; seals by party.

    Raises:
        PolicyError: the two runs do not belong together; names the field.
        ProtocolError, MessageError: see `Evidence.opened`.
    """
    # The mechanism knows every plan, and a plan's protocol has this step.
    from protocols.privacy.certificates.mechanism import Mechanism

    first, whitening = evidence.plan, plan.whitening
    task: Any = first.task
    rows = [tuple((m.name, m.rows, m.verify_key) for m in each.members) for each in (first, plan)]
    for field, found, due in (
        ("moment_plan", plan.moment_plan, first.digest()),
        ("members", rows[1], rows[0]),
        ("schema", plan.schema, first.schema),
        ("colluders", plan.moment_split, first.split),
        ("moment_privacy", plan.moment_privacy or first.privacy, first.privacy),
        ("sigma", whitening.sigma, min(first.noise_scales, default=0.0)),
    ):
        if found != due:
            raise PolicyError(f"{field} of the plan is not that of its second moment")
    promise, announced = plan.privacy or plan.moment_privacy, task.epsilon_in_all * (1 + 1e-9)
    if promise is None or first.privacy is None or not promise.epsilon <= announced:
        raise PolicyError(
            f"epsilon={promise and promise.epsilon} of the plan exceeds {task.epsilon_in_all}, "
            "which its second moment announced for both runs"
        )
    mechanism = Mechanism.from_plan(first, task.row_norm).require()
    if not all(isinstance(event, GaussianEvent) for event in mechanism.events):
        raise PolicyError("noise of the second moment is not Gaussian")
    mu = math.sqrt(sum(event.mu**2 for event in mechanism.events))  # type: ignore[attr-defined]
    counted = whitening.spent(first.split, rows=first.num_rows, norm_bound=task.row_norm)
    error = first.cipher.error_bound * math.sqrt(2 * first.length)
    for what, costs, counts in (
        ("mu", mu, counted * (1 + 1e-9)),
        ("delta", mechanism.additive_delta, whitening.failure),
        ("error", error, ROUNDING * whitening.sigma),
    ):
        if not costs <= counts:
            raise PolicyError(
                f"the plan counts {what}={counts:.6g} for its second moment, which has {costs:.6g}"
            )
    moment, seals = evidence.opened()
    told = tuple(moment[np.triu_indices(len(moment))].tolist())
    if tuple(whitening.moment) != told:
        raise PolicyError("moment of the plan is not the second moment that the parties summed")
    return seals


# -- the step -------------------------------------------------------------------------------------


class MomentHalf(Protocol):
    """What the step needs of a party."""

    plan: Any

    def check_seal(self, plan: str, sealed: str | None) -> None:
        """Refuse a seal of other rows than this party's."""
        ...

    @property
    def name(self) -> str:
        """In the plan."""
        ...


def answer(half: MomentHalf, request: Request) -> Body:
    """Reply to `second-moment`."""
    evidence = Evidence.from_body(request.body)
    seals = check(half.plan, evidence)
    half.check_seal(evidence.plan.digest(), seals.get(half.name))
    return Body()


def _whitens(plan: RunPlan) -> bool:
    return plan.whitens


STEPS = (
    Step(
        STEP,
        answer,
        "agree",
        "nothing: you open the sum again that your rows are whitened by",
        asked=_whitens,
        alike=False,
        told="signed replies of the run that summed it",
        sends="nothing; it opens the sum again",
        learns="everyone: a sum that is public",
    ),
)


def ask(plan: RunPlan, watch: Watch) -> Exchange[None]:
    """The coordinator's half; nothing where rows are not whitened.

    Raises:
        ProtocolError: there is no evidence.
    """
    if not plan.whitens:
        return
    evidence = watch.evidence
    if evidence is None:
        raise ProtocolError("the run that summed the second moment of this plan is not at hand")
    check(plan, evidence)
    yield to_everyone(STEP, plan.names, evidence.to_body())
