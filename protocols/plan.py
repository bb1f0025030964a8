"""RunPlan: the frozen, hashed description of one run, agreed by every party before any key."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocols.approximation import Polynomial
from protocols.ckks.circuit import gradient_levels, side_scale
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.errors import MessageError, ParameterError
from protocols.fields import check_fields, from_fields
from protocols.updates.catalogue import rule_from_dict
from protocols.updates.rule import UpdateRule

PLAN_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A party as everyone sees it: name, row capacity, verification key, seed commitment (hex)."""

    name: str
    rows: int
    verify_key: str
    commitment: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyPlan:
    """The differential-privacy promise of a run, replace-one, record level.

    epsilon, delta: against the coordinator and any `colluders` parties; sigma: std on the mean
    gradient that the honest parties alone guarantee; share_std: std that each party adds to
    the mean gradient, sigma / sqrt(P - colluders); sensitivity: of the summed gradient, L2.
    """

    epsilon: float
    delta: float
    colluders: int
    sigma: float
    share_std: float
    sensitivity: float
    accounting: str = "exact"

    def __post_init__(self) -> None:
        for name in ("epsilon", "sigma", "share_std", "sensitivity"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} must be finite and positive")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta={self.delta} is outside (0, 1)")
        if self.colluders < 0:
            raise ParameterError(f"colluders={self.colluders} is below 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """Everything public about one run.

    session: unique name; members: in the order of their row ranges; schema: public column schema
    as JSON; num_features: d with the bias; link: polynomial stand-in for the sigmoid; update:
    fields of the update rule; ckks: parameters; privacy: None for a run without privacy;
    profile: "secure" or "fast-insecure"; keys_per_message: rotation keys in one message.

    Raises:
        ParameterError: fields that do not go together (depth too small, no noise for privacy …).
    """

    session: str
    members: tuple[Member, ...]
    schema: Mapping[str, Any]
    num_features: int
    link: Polynomial
    update: Mapping[str, Any]
    ckks: CkksParameters
    privacy: PrivacyPlan | None
    profile: str = "secure"
    keys_per_message: int = 4
    model: str = "logistic"
    version: int = PLAN_VERSION

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise ParameterError(
                f"parties={len(self.members)}: joint training needs at least 2 parties"
            )
        if len({m.name for m in self.members}) != len(self.members):
            raise ParameterError("two parties have the same name")
        if self.privacy and self.privacy.colluders >= len(self.members):
            raise ParameterError(
                f"colluders={self.privacy.colluders} leaves no honest party of {len(self.members)}"
            )
        if self.keys_per_message < 1:
            raise ParameterError(f"keys_per_message={self.keys_per_message} is below 1")
        if self.profile not in ("secure", "fast-insecure"):
            raise ParameterError(f"profile={self.profile!r} is not secure or fast-insecure")
        if self.profile == "secure" and self.ckks.security_bits < 128:
            raise ParameterError(
                f"ring_dim={self.ckks.ring_dim} has no 128-bit security; choose a larger ring or "
                "the profile fast-insecure"
            )
        needed = max(gradient_levels(self.link), self.rule.levels()) + REFRESH_TOWERS - 1
        if self.ckks.depth < needed:
            raise ParameterError(
                f"depth={self.ckks.depth} levels is below the {needed} that one iteration needs"
            )
        if self.version != PLAN_VERSION:
            raise ParameterError(f"plan version {self.version} is not {PLAN_VERSION}")
        _ = self.layout

    @property
    def names(self) -> tuple[str, ...]:
        """Party names in order."""
        return tuple(m.name for m in self.members)

    @property
    def rule(self) -> UpdateRule:
        """The update rule."""
        return rule_from_dict(self.update)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return int(self.update["rounds"])

    @property
    def layout(self) -> Layout:
        """Packing of the rows and side columns."""
        return Layout(
            num_slots=self.ckks.num_slots,
            num_features=self.num_features,
            rows_by_party=tuple(m.rows for m in self.members),
            rounds=self.rounds,
        )

    @property
    def side_scale(self) -> float:
        """Divisor of the side columns."""
        return side_scale(self.link)

    def party_index(self, name: str) -> int:
        """Position of a party.

        Raises:
            ParameterError: it is not a member.
        """
        if name not in self.names:
            raise ParameterError(f"party {name!r} is not in this plan ({', '.join(self.names)})")
        return self.names.index(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "version": self.version,
            "session": self.session,
            "model": self.model,
            "profile": self.profile,
            "members": [asdict(m) for m in self.members],
            "schema": dict(self.schema),
            "num_features": self.num_features,
            "link": self.link.to_dict(),
            "update": dict(self.update),
            "ckks": self.ckks.to_dict(),
            "privacy": asdict(self.privacy) if self.privacy else None,
            "keys_per_message": self.keys_per_message,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunPlan:
        """Inverse of `to_dict`.

        Raises:
            MessageError: a field is missing or has a wrong type.
            ParameterError: see the class.
        """
        check_fields(cls, fields)
        try:
            privacy, schema, update = (fields[k] for k in ("privacy", "schema", "update"))
            if not (isinstance(schema, dict) and isinstance(update, dict)):
                raise MessageError("schema and update must be objects")
            plan = cls(
                **{
                    **fields,
                    "members": tuple(from_fields(Member, m) for m in fields["members"]),
                    "link": Polynomial.from_dict(fields["link"]),
                    "ckks": from_fields(CkksParameters, fields["ckks"]),
                    "privacy": None if privacy is None else from_fields(PrivacyPlan, privacy),
                }
            )
            plan.digest()  # NaN has no canonical form
        except ParameterError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise MessageError(f"the plan is malformed: {error}") from None
        return plan

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal: what the parties agree to."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
