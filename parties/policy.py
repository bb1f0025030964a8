"""What a data owner consents to: which plans, which steps in which order, how many decryptions.

The sequence of steps follows from the plan alone. A party answers the next step of the sequence
and nothing else; a repeated request gets the same bytes again (see `verifier.party`). So the number
of decryptions and of refreshes is bounded by construction.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

from parties.kernel import EVERY, ROOMS, refused
from parties.kernel.private import Terms
from protocols.errors import CohortError, DataError, ParameterError, PolicyError
from protocols.names import DEFAULT_COLLUDERS, MAX_NAME

if TYPE_CHECKING:
    from protocols.numerics.slot_bounds import SlotBounds
    from protocols.plan.run_plan import RunPlan

COVER, GRAM, LFFR, STUDY = "cover", "gram", "lffr", "study"
BESIDE = {
    COVER: "adds to the first two, where parties stand in for others",
    GRAM: "adds to encrypted-rows, for linear models",
    LFFR: "adds to the first two, for LFFR models",
    STUDY: "adds to secure-aggregation, for descriptions, survival and generalised linear models",
}
"""What an owner names beside protocols, and for what."""
ROUNDING = 1e-9
"""Relative slack of a bound that another machine has computed."""


def check_protocols(protocols: Collection[str]) -> None:
    """Raises ParameterError: there are none, or one that is not known."""
    unknown = [name for name in protocols if name not in ROOMS]
    if unknown or not {*protocols} - {*BESIDE}:
        raise ParameterError(
            f"protocols={[*protocols]}: name one or more of {', '.join(ROOMS)}, and not "
            f"{', '.join(BESIDE)} alone"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A data owner's terms.

    protocols: that it takes part in; the process with rows and keys loads what these need.
    max_epsilon, max_delta: largest privacy loss per run; None for max_epsilon accepts whatever a
    plan can promise, and none where exact_sums says so too. min_colluders: coalition size that the
    noise, and the keys, must withstand.
    allow_insecure: accept toy rings (the profile fast-insecure). min_security_bits: of the RLWE
    parameters. accept_unbounded: accept a plan without a proof that its iterates stay bounded. What
    that risks: if training diverges, refreshes may show the coordinator about log2(2P) bits a
    refresh of each value computed from a row, P the number of parties; several add up.
    exact_sums: accept plans without privacy (`RunPlan.opens_exact_sums`), whose sums, and whose
    models, can give whole records away; not together with max_epsilon, which accepts none.
    site_tables: accept sums that can tell of this party's rows alone (`GradientPlan.alone`).
    min_rows_apart: of this party, that a run without privacy holds back or leaves, where it holds
    rows back: by so many at least two exact sums differ. replica: "own", it answers only what its
    own copy of the coordinator's computation asks (`protocols.steps.replica`); owners, what each of
    these confirms, who have one; "none", it takes the coordinator's word.

    Raises:
        ParameterError: a limit that limits nothing (not a number, negative, infinite).
    """

    protocols: tuple[str, ...] = EVERY
    max_epsilon: float | None = None
    max_delta: float = 1e-5
    min_colluders: int = DEFAULT_COLLUDERS
    min_security_bits: int = 128
    allow_insecure: bool = False
    accept_unbounded: bool = False
    exact_sums: bool = False
    site_tables: bool = False
    min_rows_apart: int = 10
    replica: Literal["own", "none"] | tuple[str, ...] = "none"

    def __post_init__(self) -> None:
        check_protocols(self.protocols)
        epsilon = self.max_epsilon
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise ParameterError(
                f"max_epsilon={epsilon} must be a positive number; leave it out to accept runs "
                "without privacy"
            )
        if epsilon is not None and self.exact_sums:
            raise ParameterError(
                f"exact_sums=True with max_epsilon={epsilon:g}: a policy that asks for noise "
                "accepts no exact sums; leave exact_sums out, or accept runs without noise "
                "(no max_epsilon; --accept-no-privacy)"
            )
        if not 0 < self.max_delta < 1:
            raise ParameterError(f"max_delta={self.max_delta} is outside (0, 1)")
        for name in ("min_colluders", "min_security_bits", "min_rows_apart"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ParameterError(f"{name}={value} must be 0 or more, whole")
        self._check_replica()

    def _check_replica(self) -> None:
        """One witness more than owners who may be the coordinator's.

        Raises:
            ParameterError: there are fewer, one twice, or it is something else.
        """
        if self.replica in ("own", "none"):
            return
        if not isinstance(self.replica, tuple):
            raise ParameterError(
                f'replica={self.replica!r} is none of "own", "none" and a list of names'
            )
        fewest = self.min_colluders + 1
        if len({*self.replica}) < max(fewest, len(self.replica)):
            raise ParameterError(
                f"replica={[*self.replica]} names {len({*self.replica})} witnesses: {fewest} or "
                f"more, each once, with min_colluders={self.min_colluders} whom this party fears; "
                'or "own", or "none"'
            )

    def follows(self, name: str) -> tuple[str, ...]:
        """`Member.follows` of the party of this name."""
        if isinstance(self.replica, str):
            return (name,) if self.replica == "own" else ()
        return self.replica

    def terms(self) -> Terms:
        """What the kernel holds every session to, whoever drives it."""
        return Terms(
            protocols=self.protocols,
            exact=self.exact_sums,
            alone=self.site_tables,
            insecure=self.allow_insecure,
            colluders=self.min_colluders,
        )

    @property
    def largest(self) -> tuple[float, float] | None:
        """Epsilon and delta of one run; None: any."""
        return None if self.max_epsilon is None else (self.max_epsilon, self.max_delta)

    def check(self, plan: RunPlan) -> None:
        """Refuse a plan outside these terms.

        Raises:
            PolicyError: names the field, its value and the bound.
        """
        cover = plan.cover
        beside = {COVER: cover is not None, GRAM: plan.kind == GRAM, LFFR: LFFR in plan.kind}
        for need in (plan.protocol, *(name for name, is_due in beside.items() if is_due)):
            if need not in self.protocols:
                cure = ""
                if getattr(plan, "objective", {}).get("kind") == "second-moment":
                    cure = (
                        "; it sums the second moment that rows are to be whitened by, and without "
                        'privacy update = "barrier", "nag" or "gd" under [training] needs none'
                    )
                raise PolicyError(refused(need, self.protocols) + cure)
        if plan.profile != "secure" and not self.allow_insecure:
            raise PolicyError(
                f"profile={plan.profile!r} is refused: only secure runs are "
                "allowed (allow_insecure = true in the policy accepts toy rings)"
            )
        if plan.profile == "secure" and plan.security_bits < self.min_security_bits:
            raise PolicyError(
                f"security_bits={plan.security_bits} is below {self.min_security_bits}"
            )
        if cover is not None and cover - 1 < self.min_colluders:
            raise PolicyError(
                f"cover={cover} gives {cover} colluding parties every key: this party fears "
                f"{self.min_colluders}"
            )
        self._check_sums(plan)
        if plan.unproven_follows:
            self._check_unproven("the training that follows is without a slot_bound", plan)
        privacy = plan.privacy
        if privacy is None:
            return
        epsilon = max(plan.epsilon_in_all or 0.0, privacy.epsilon)
        most = math.inf if self.max_epsilon is None else self.max_epsilon
        if epsilon > most or privacy.delta > self.max_delta:
            raise PolicyError(
                f"epsilon={epsilon:.4g} at delta={privacy.delta:g} exceeds max_epsilon={most:g} at "
                f"max_delta={self.max_delta:g}, in [policy] of this party"
            )
        if privacy.colluders < self.min_colluders:
            raise PolicyError(
                f"colluders={privacy.colluders} is below {self.min_colluders}: the noise would "
                "not withstand the coalition that this party fears; the coordinator's "
                f"administrator sets colluders = {self.min_colluders} under [training]"
            )

    def _check_sums(self, plan: RunPlan) -> None:
        """Sums need more owners than this one fears and itself; what has no noise, consent to that.

        Raises:
            PolicyError: names the field and the cure.
        """
        # A noisy sum is spent for nothing, where what is to follow would be refused.
        if (plan.opens_exact_sums or plan.exact_follows) and not self.exact_sums:
            from protocols.words import EXACT_SUMS

            needs = "" if self.max_epsilon is None else "without max_epsilon, "
            what = "the training that follows" if plan.exact_follows else "the plan"
            raise PolicyError(
                f"{what} has no privacy noise, and {EXACT_SUMS}. This party has not accepted "
                f"that: take an epsilon, or its owner sets {needs}exact_sums = true in the policy"
            )
        most = len(plan.members) - 2
        if plan.opens_rounds and most < self.min_colluders:
            raise PolicyError(
                f"secure sums of {len(plan.members)} parties withstand {most} that collude with "
                f"the coordinator, and this party fears min_colluders={self.min_colluders}: take "
                f"{self.min_colluders + 2} parties or more, or its owner a smaller min_colluders"
            )

    def _check_unproven(self, why: str, plan: RunPlan) -> None:
        """Raises PolicyError, with what such a run risks: the owner has not accepted it."""
        if not self.accept_unbounded:
            from protocols.numerics.slot_bounds import risk

            raise PolicyError(
                f"{why}: {risk(len(plan.members))}. Its owner accepts that by accept_unbounded = "
                "true in the policy ([policy] of party.toml)"
            )

    def check_alone(self, plan: RunPlan, name: str) -> None:
        """Refuse a plan that opens more of this party than a sum, where its owner did not accept.

        Raises:
            PolicyError: names the field and the cure.
        """
        rest = {member.name for member in plan.members} - {*plan.alone}
        # The whole less all tables is theirs; those who collude tell what their own rows add.
        is_left = plan.alone and name in rest and len(rest) < self.min_colluders + 2
        if (name in plan.alone or is_left) and not self.site_tables:
            raise PolicyError(
                f"what the plan opens of {', '.join(plan.alone)} can tell of this party's rows "
                "alone: site_tables = true in the policy accepts that"
            )

    def check_held_out(self, plan: RunPlan, rows: int) -> None:
        """Refuse exact sums whose difference would show a few of this party's `rows`.

        Raises:
            PolicyError: names the field and the cure.
        """
        if plan.held_out is None or plan.privacy is not None:
            return
        used = plan.rows_of(rows)
        fewest = min(used, rows - used)
        if fewest < self.min_rows_apart:
            raise PolicyError(
                f"held_out={plan.held_out.share:g} of the plan sets {fewest} of this party's "
                f"{rows} rows apart, fewer than min_rows_apart={self.min_rows_apart} of the "
                "policy, and sums are exact: take a share nearer to one half, or an epsilon"
            )

    def check_followed(self, plan: RunPlan, name: str) -> None:
        """Refuse a plan that says otherwise by whose replica this party answers.

        Raises:
            PolicyError: names the field.
        """
        due, stated = self.follows(name), plan.members[plan.party_index(name)].follows
        if stated != due:
            raise PolicyError(
                f"the plan says follows={[*stated]} of {name!r}, whose policy has "
                f"replica={self.replica!r}: after a change of it begin a new session"
            )

    def check_slots(self, plan: RunPlan, found: SlotBounds | None) -> None:
        """Refuse a plan under CKKS whose stated bound on slots this party cannot prove itself.

        found: what it proves, of rows by its own schema (`kinds.slot_bounds`).

        Raises:
            PolicyError: names the bound, stated and proven, or what a run without proof risks.
        """
        if found is None:
            return
        own, stated = found.largest, plan.slot_bound
        if own is None or stated is None:
            missing = found.proof if own is None else f"not stated; {found.proof} gives {own:g}"
            self._check_unproven(f"slot_bound={stated} of the plan is refused ({missing})", plan)
            return
        if not stated >= own * (1 - ROUNDING):
            raise PolicyError(
                f"slot_bound={stated:.6g} of the plan is below {own:.6g}, which this party proves "
                f"({found.proof}): the masks of refreshes would not hide what is above"
            )


# -- what is told of a refusal ---------------------------------------------------------------------

log = logging.getLogger(__name__)

REFUSED = "this party refuses: see its own log"
"""All that a coordinator hears of a refusal for the sake of rows."""


class Reason(Enum):
    """What a coordinator hears where a refusal follows from what an owner alone knows.

    Files, spending, other sessions and its answers are an owner's own: what else is said of them is
    in its log. What stands in the sentences is of the request, the plan, or one of `End`. All other
    refusals follow from the request, the plan in it and the owner's policy.
    """

    ROWS = REFUSED
    FAILED = "the request is malformed, or the agent failed: see its own log"
    BUDGET = "the privacy budget is refused: see the log of this party"
    AHEAD = "with {what} that this sum announces, the privacy budget is refused: see its own log"
    PROMISE = "what the plan promises, or announces, cannot be computed: see its own log"
    MOMENT = (
        "this party's ledger has no entry of plan {plan}, whose second moment is to whiten rows: "
        "sum it again with this ledger"
    )
    PEERS = "this party's [peers] cannot be read: see its own log"
    KEY = (
        "party {party} of the plan has the key {key}, but this owner knows it by another: ask its "
        "owner by telephone; if the new key is right, run cohort party peers add --replace FOLDER "
        "CARD"
    )
    COINS = (
        "which rows were held back is not on record here, or not for what is asked: see the log of "
        "this party"
    )
    STRANGERS = (
        "this owner does not know {party} of the plan: get the card of each, compare its key with "
        "its owner by telephone, and run cohort party peers add FOLDER CARD"
    )
    TWINS = "{party} of the plan have the same key"
    CONSENT = "the owner refuses plan {plan}"
    SILENCE = "the owner did not answer to plan {plan} in time"
    AGAIN = "plan {plan} came again, and waits for its owner anew"
    NAME = f"session={{session}}: letters and digits, at most {MAX_NAME}"
    ADDRESS = "the message is for {party}, not for this party"
    UNKNOWN = "session {session} has not begun here"
    BUSY = "this party is busy with another session; its owner can end that one: cohort party abort"
    OVER = "session {session} is over: {end}"


class End(Enum):
    """Of a session, as far as it is told."""

    FINISHED = "finished"
    ABORTED = "aborted by the coordinator"
    REFUSED = "this party refused"
    GIVEN_UP = "its owner gave it up"
    SILENT = "no message for too long"
    LATE = "not finished in time"
    STOPPED = "the agent was stopped, and its key share was in memory only"
    RESTARTED = "the agent was restarted, and its key share was in memory only"
    LOST = "see its own log"

    @classmethod
    def of(cls, reason: str) -> End:
        """What is told of an owner's record, which begins with it."""
        return next((end for end in cls if reason.startswith(end.value)), cls.LOST)


class ToldError(PolicyError):
    """A refusal in words that a coordinator hears."""

    def __init__(self, reason: Reason, **of: str) -> None:
        super().__init__(reason.value.format(**of))


class PublicError(ToldError):
    """A refusal whose words follow from request, plan and policy alone, or were told before."""

    def __init__(self, words: str) -> None:
        PolicyError.__init__(self, words)


@contextmanager
def public() -> Iterator[None]:
    """Inside are checks of request, plan and policy, and nothing of an owner's records or rows.

    Raises:
        PublicError: in the words of what went wrong. DataError, and what is of no `CohortError`:
            as it is, for the owner alone.
    """
    try:
        yield
    except (DataError, ToldError):
        raise
    except CohortError as error:
        raise PublicError(str(error)) from error


@contextmanager
def told(reason: Reason, **of: str) -> Iterator[None]:
    """Whatever goes wrong inside is told as this, and in full in the owner's log.

    Raises:
        ToldError: whatever it was.
    """
    try:
        yield
    except ToldError:
        raise
    except CohortError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("what was refused, and why:")
    else:
        return
    raise ToldError(reason, **of)
