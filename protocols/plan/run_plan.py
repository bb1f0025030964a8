"""RunPlan: the frozen, hashed description of one run, agreed by every party before any key.

What all runs have in common. Each kind adds its own fields: `RowsPlan`, `ModelPlan`, `GramPlan`,
`LffrPlan`, `GradientPlan`, each `plan.py` of its room; `kinds.plan_from_dict` reads any of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import msgspec

from protocols.errors import ParameterError
from protocols.exchange.documents import canonical_digest
from protocols.exchange.serialise import to_plain
from protocols.models.registry import check_model
from protocols.names import ENCRYPTED_ROWS
from protocols.plan.held_out import HeldOut
from protocols.privacy.laws.shares import NoiseSplit

Plan = TypeVar("Plan", bound="RunPlan")
Checks = tuple[Callable[[Any], None], ...]
PLAN_VERSION = 8
LARGEST_EPSILON = 20.0
"""Of a promise: exp(20) = 5e8 times likelier hides nothing, and from some 24 on grids of noise cost
more than a delta of 1e-5."""


def check_version(version: object) -> None:
    """Refuse a plan of another version.

    Raises:
        ParameterError: says what reads it.
    """
    if version != PLAN_VERSION:
        raise ParameterError(
            f"plan version {version} is not {PLAN_VERSION}: the release that made the run reads "
            "it. Before version 5, messages of a run on encrypted rows disclose its keys: see "
            "SECURITY.md"
        )


ENROLLED = ("commitment", "follows")
"""Fields of a member that its enrolment settles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A party as everyone sees it: name, verification key, seed commitment (hex).

    rows: that the run uses, all of its table's where nothing is held back; follows: owners whose
    replica of the coordinator's computation it answers by (`steps.replica`), itself or witnesses,
    none: it takes the coordinator's word.
    """

    name: str
    rows: int
    verify_key: str
    commitment: str
    follows: tuple[str, ...] = ()

    def enrolled(self, said: Member) -> Member:
        """With what a party says of itself at enrolment, and no template knows: see `ENROLLED`."""
        return replace(self, **{field: getattr(said, field) for field in ENROLLED})


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyPlan:
    """The differential-privacy promise of a run, replace-one, record level.

    epsilon, delta: against the coordinator and any `colluders` parties, epsilon at most
    LARGEST_EPSILON: less noise is none, and needs the owners' consent; sigma: std on the mean
    gradient that the honest parties alone guarantee; share_std: std that each party adds to
    the mean gradient, sigma / sqrt(P - colluders); sensitivity: of the summed gradient, L2.
    """

    epsilon: float
    delta: float
    colluders: int
    sigma: float
    share_std: float
    sensitivity: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "sigma", "share_std", "sensitivity"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} must be finite and positive")
        if self.epsilon > LARGEST_EPSILON:
            raise ParameterError(
                f"epsilon={self.epsilon:g} is above {LARGEST_EPSILON:g}: so little noise hides no "
                "row; take a smaller epsilon, or none"
            )
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta={self.delta} is outside (0, 1)")
        if self.colluders < 0:
            raise ParameterError(f"colluders={self.colluders} is below 0")


def check_run(plan: RunPlan) -> None:
    """Members, model, profile, terms of rows, version."""
    # Before anything is built from them.
    if not plan.rounds <= plan.max_rounds:
        raise ParameterError(f"rounds={plan.rounds} is above {plan.max_rounds}")
    if len(plan.members) < 2:
        raise ParameterError(
            f"parties={len(plan.members)}: joint training needs at least 2 parties"
        )
    if len({m.name for m in plan.members}) != len(plan.members):
        raise ParameterError("two parties have the same name")
    check_model(plan.model)
    if plan.privacy and plan.privacy.colluders >= len(plan.members):
        raise ParameterError(
            f"colluders={plan.privacy.colluders} leaves no honest party of {len(plan.members)}"
        )
    if plan.profile not in ("secure", "fast-insecure"):
        raise ParameterError(f"profile={plan.profile!r} is not secure or fast-insecure")
    if plan.profile == "secure" and plan.security_bits < 128:
        raise ParameterError(
            f"security_bits={plan.security_bits}: the ring has no 128-bit security; choose a "
            "larger one or the profile fast-insecure"
        )
    _check_follows(plan)
    for term in plan.row_terms:
        if why := plan.drops(term):
            raise ParameterError(f"{term}s of rows with model={plan.model!r}: {why}")
    check_version(plan.version)
    if plan.held_out is not None and plan.held_out.judged != plan.judges:
        raise ParameterError(
            "held_out: rows that are held back judge a model, and the others train it"
        )


def _check_follows(plan: RunPlan) -> None:
    own = {m.name for m in plan.members if m.follows == (m.name,)}
    for member in plan.members:
        if strangers := {*member.follows} - own:
            raise ParameterError(
                f"party {member.name!r} follows the replica of {min(strangers)!r}, who has none in "
                "this run: name owners with replica = own"
            )


@dataclass(frozen=True, kw_only=True)  # no slots: what follows from the fields is kept
class RunPlan(ABC):
    """Everything public about one run, whichever its protocol.

    kind: what is computed, "rows", "gram", "lffr" or "gradients"; protocol: how, by its public
    name; opens_rounds: whether more opens than the last model; session: unique
    name; members: in the order of their row ranges; schema: public column
    schema as JSON; num_features: d with the bias; privacy: None for a run without privacy;
    profile: "secure" or "fast-insecure"; model: what is fitted; held_out: which rows of each owner
    are used, None: all; gathered: what leaves an owner, encrypted; masked: whether masks hide
    values that refreshes carry, see `slot_bounds`; checks: in order, each raises ParameterError;
    later: fields that are not stated where they are None or empty.

    Raises:
        ParameterError: fields that do not go together.
    """

    kind: ClassVar[str]
    protocol: ClassVar[str] = ENCRYPTED_ROWS
    gathered: ClassVar[str]
    masked: ClassVar[bool] = False
    opens_rounds: ClassVar[bool] = True
    max_rounds: ClassVar[int] = 10**6
    checks: ClassVar[Checks] = (check_run,)
    # Plans have the digests that they had before there were these.
    later: ClassVar[tuple[str, ...]] = ("held_out",)

    session: str
    members: tuple[Member, ...]
    schema: Mapping[str, Any]
    num_features: int
    privacy: PrivacyPlan | None
    profile: str = "secure"
    model: str = "logistic"
    held_out: HeldOut | None = None
    version: int = PLAN_VERSION

    def __post_init__(self) -> None:
        for check in self.checks:
            check(self)

    def among(self: Plan, session: str, members: tuple[Member, ...]) -> Plan:
        """This plan for members who have enrolled with the rows of their whole tables.

        Raises:
            ParameterError: one of them has too few to hold some back.
        """
        used = tuple(replace(member, rows=self.rows_of(member.rows)) for member in members)
        return replace(self, session=session, members=used)

    def rows_of(self, rows: int) -> int:
        """How many of the rows of an owner's table the run uses.

        Raises:
            ParameterError: too few to hold some back.
        """
        return rows if self.held_out is None else self.held_out.size(rows)

    @property
    def judges(self) -> bool:
        """Whether it judges a model, and trains none."""
        return False

    @property
    def statistic(self) -> str:
        """What one sum is for, in words; empty: it trains a model."""
        return ""

    @property
    def purpose(self) -> str:
        """The statistic, or that it trains a model."""
        return self.statistic or f"training of a {self.model} model"

    @property
    def names(self) -> tuple[str, ...]:
        """Party names in order."""
        return tuple(m.name for m in self.members)

    @property
    def roster(self) -> dict[str, str]:
        """Ed25519 verification keys, hexadecimal, by party."""
        return {m.name: m.verify_key for m in self.members}

    @property
    def num_rows(self) -> int:
        """Rows of all parties."""
        return sum(member.rows for member in self.members)

    @property
    def split(self) -> NoiseSplit:
        """How noise is divided among the parties."""
        colluders = self.privacy.colluders if self.privacy else 0
        return NoiseSplit(parties=len(self.members), colluders=colluders)

    @property
    def epsilon_in_all(self) -> float | None:
        """Of this run, those that it follows and those that it announces; None without privacy."""
        return self.privacy.epsilon if self.privacy else None

    @property
    def opens_exact_sums(self) -> bool:
        """Whether what opens can be a sum over rows without noise, or give one away.

        Whatever makes no promise: of a model that alone opens too, w_T = -eta sum_t g(w_t) from
        w_0 = 0, whoever chooses rounds and rate makes T eta so small that w_T is -T eta g(0).
        """
        return self.privacy is None

    @property
    def exact_follows(self) -> bool:
        """Whether a run without noise is to follow this one, which has some."""
        return False

    @property
    def unproven(self) -> bool:
        """Whether refreshes mask values of which no bound is proven."""
        return False

    @property
    def unproven_follows(self) -> bool:
        """Whether nothing is proven of the slots of the run that is to follow."""
        return False

    @property
    def alone(self) -> tuple[str, ...]:
        """Parties of which a part is opened that is no sum with others' rows."""
        return ()

    @property
    def view(self) -> str:
        """Of the rows that it is over, see `one_sum`; empty: as the schema scales them."""
        return ""

    @property
    def whitens(self) -> bool:
        """Whether owners whiten their rows, by the second moment of a run before."""
        return False

    @property
    def sums_moment(self) -> bool:
        """Whether it sums a second moment, for a run that whitens rows by it."""
        return False

    @property
    def accounted_as(self) -> str:
        """What `certificates.mechanism` finds the mechanism by."""
        return self.kind

    @property
    @abstractmethod
    def security_bits(self) -> int:
        """Of the encryption, classical [bits]."""
        ...

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Iterations T."""
        ...

    @property
    def slot_bound(self) -> float | None:
        """Stated bound of what masks hide; None: none is stated, or nothing is masked."""
        return None

    @property
    def cover(self) -> int | None:
        """So many parties can stand in for others that vanish; None: nobody can."""
        return None

    def fit_messages(self: Plan, most: int) -> Plan:
        """The plan whose messages are at most so large, where that can be chosen [bytes]."""
        _ = most
        return self

    @property
    def row_terms(self) -> dict[str, float]:
        """Of the schema: "weight", the bound of weights; "offset", how far offsets reach from 0.

        Sums are of weights over their bound, on [0, 1]: a row's part u g, g what it is without
        weights, is on the line from 0 to g. Whatever bounds norms and distances of rows' parts, and
        of 0, bounds theirs, and Lambda of X^T U X / N is at most that of X^T X / N: certificates
        hold as they are, of the sum of u g. In units of weights, noise and sensitivity are the
        bound times what is stated. A mean is the sum over the number of rows, as without weights.

        Raises:
            ParameterError: a figure is no positive number.
        """
        found = {name: self.schema[name] for name in ("weight", "offset") if name in self.schema}
        for name, value in found.items():
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ParameterError(f"schema: {name}={value!r} must be finite and positive")
        return found

    def drops(self, term: str) -> str:
        """Why rows' "weight" or "offset" would be dropped, and the cure; empty: it is not."""
        _ = term
        return "this protocol does not take it: leave it out of the schema"

    def check_rows(self, norm_bound: float) -> None:
        """Refuse a plan that rows of norm at most `norm_bound` may not fit.

        A refusal once the rows are at hand would tell how many are longer.

        Raises:
            ParameterError: names the field and its bound.
        """
        _ = norm_bound  # any row fits

    def party_index(self, name: str) -> int:
        """Position of a party.

        Raises:
            ParameterError: it is not a member.
        """
        if name not in self.names:
            raise ParameterError(f"party {name!r} is not in this plan ({', '.join(self.names)})")
        return self.names.index(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, every number of its declared type: equal plans have equal digests."""
        kind = type(self)
        plain = to_plain(msgspec.convert(to_plain(self), kind))
        stated = {k: v for k, v in plain.items() if v not in (None, "", {}) or k not in self.later}
        for member in stated["members"]:
            if not member["follows"]:
                del member["follows"]
        return {"protocol": self.protocol, "kind": self.kind, **stated}

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal: what the parties agree to."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return canonical_digest(self.to_dict())
