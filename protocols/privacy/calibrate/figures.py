"""What calibration works on: public figures of the data, and what is wanted of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS
from protocols.numerics import arithmetic
from protocols.numerics.whitening import Usual
from protocols.plan.held_out import HeldOut
from protocols.plan.run_plan import Member, PrivacyPlan, RunPlan
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.updates.registry import USUAL


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicFigures:
    """All that calibration knows of the data; everybody may know it before a run.

    rows_by_party: that the run uses; held_out: of whole tables, None: all of them; num_features: d,
    bias included; norm_bound: B, of every row; entry_bound: of every value of a row, where rows are
    not clipped; outputs: c; schema: what a plan states of the columns, placeholders of the usual
    length by default; typical: middles and spreads of encoded columns and the bias, None: of any;
    ranged_bound: norm of a row whose columns are scaled by their ranges alone, None: sqrt(d);
    spreads: of numbers whose schema states it, as a share of the range.
    """

    rows_by_party: tuple[int, ...]
    num_features: int
    norm_bound: float = 1.0
    entry_bound: float = 1.0
    outputs: int = 1
    schema: Mapping[str, Any] | None = None
    held_out: HeldOut | None = None
    typical: Usual | None = None
    ranged_bound: float | None = None
    spreads: tuple[tuple[str, float], ...] = ()

    @classmethod
    def even(
        cls, *, rows: int, features: int, parties: int, norm_bound: float = 1.0
    ) -> PublicFigures:
        """Rows split as evenly as possible; features without the bias.

        Raises:
            ParameterError: a figure is out of range.
        """
        if rows < parties:
            raise ParameterError(f"rows={rows} is below parties={parties}: everyone needs a row")
        if features < 1:
            raise ParameterError(f"features={features} must be at least 1 (bias not counted)")
        if not 0 < norm_bound < math.inf:
            raise ParameterError(f"norm_bound={norm_bound} must be positive and finite")
        each, more = divmod(rows, parties)
        return cls(
            rows_by_party=tuple(each + (k < more) for k in range(parties)),
            num_features=features + 1,
            norm_bound=norm_bound,
        )

    def holding(self, held_out: HeldOut | None) -> PublicFigures:
        """The same, where these are the rows of whole tables, of which owners hold some back.

        Raises:
            ParameterError: too few rows.
        """
        if held_out is None:
            return self
        sizes = tuple(map(held_out.size, self.rows_by_party))
        return replace(self, rows_by_party=sizes, held_out=held_out)

    @property
    def usual(self) -> Usual:
        """What encoded rows are like: of any, columns that share the bound of the norm."""
        each = self.norm_bound / math.sqrt(self.num_features)
        others = self.num_features - 1
        return self.typical or Usual(middles=(0.0,) * others, spreads=(each,) * others, bias=each)

    @property
    def offset_reach(self) -> float:
        """Largest |offset| of a row; 0 without offsets."""
        return float((self.schema or {}).get("offset", 0.0))

    @property
    def rows(self) -> int:
        """N, of all parties."""
        return sum(self.rows_by_party)

    @property
    def parties(self) -> int:
        """P."""
        return len(self.rows_by_party)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is asked of a run; each field as the option of `cohort simulate`; None: to be chosen.

    epsilon: None for no privacy, not even a chosen one; moment_epsilon: of the second moment that
    whitens the rows of a run without privacy, None: they are not whitened, or by the usual one
    where no update is wanted.
    """

    model: str = "logistic"
    protocol: str = ENCRYPTED_ROWS
    update: str = USUAL
    rounds: int | None = None
    degree: int | None = None
    learning_rate: float | None = None
    radius: float | None = None
    ridge: float | None = None
    floor: float | None = None
    momentum: float | None = None
    clip: float | None = None
    weights: str = "rows"
    loss: str | None = None
    batches: int = 1
    schedule: str = "cyclic"
    epsilon: float | None = None
    delta: float = 1e-5
    colluders: int = 0
    moment_epsilon: float | None = None
    cover: int | None = None
    profile: str = "secure"
    ring_dim: int | None = None
    bandwidth: float = 1000.0

    @property
    def secure(self) -> bool:
        """Whether a ring without security is out of the question."""
        return self.profile == "secure"

    def split(self, figures: PublicFigures) -> NoiseSplit:
        """P and t."""
        return NoiseSplit(parties=figures.parties, colluders=self.colluders)

    def budget(self, figures: PublicFigures) -> Budget:
        """Of a run under CKKS with privacy."""
        split = self.split(figures)
        return Budget(epsilon=self.epsilon, delta=self.delta, split=split, **arithmetic.beside())

    def promise(
        self, figures: PublicFigures, *, sigma: float, sensitivity: float
    ) -> PrivacyPlan | None:
        """What a plan says of its noise; None without privacy."""
        if self.epsilon is None:
            return None
        return PrivacyPlan(
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            sigma=sigma,
            share_std=self.split(figures).share_std(sigma),
            sensitivity=sensitivity,
        )

    def common(self, figures: PublicFigures, privacy: PrivacyPlan | None) -> dict[str, Any]:
        """Fields of every plan; session, names and keys are placeholders of the usual length."""
        members = tuple(
            Member(name=f"hospital-{k + 1}", rows=rows, verify_key="0" * 64, commitment="0" * 64)
            for k, rows in enumerate(figures.rows_by_party)
        )
        columns = [f"column_{k:03d}" for k in range(figures.num_features - 1)]
        return {
            "session": "0" * 32,
            "members": members,
            "schema": figures.schema or {"digest": "0" * 64, "features": columns},
            "num_features": figures.num_features,
            "privacy": privacy,
            "profile": self.profile,
            "held_out": figures.held_out,
        }


class Draft(NamedTuple):
    """A plan for placeholders; its certificate, where it has one already; notes for the reader."""

    plan: RunPlan
    certificate: Certificate | None
    notes: tuple[str, ...] = ()
