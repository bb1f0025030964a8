"""Where delta goes, and what the noise must be: shared by all certificates.

The claim is about a mechanism that outputs "bottom" as soon as an iterate leaves the ball of
radius R. That mechanism's every round has the certified sensitivity, so it is
(epsilon, delta_mechanism)-DP. The real one differs from it only when the iterate bound fails,
with probability at most delta_norm on either neighbour, and then
P(M(D) in S) <= P(M'(D) in S) + delta_norm <= exp(epsilon) P(M(D') in S) + delta_mechanism +
delta_norm. The noise grid and the tail of the CKKS error are added on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.errors import ParameterError
from protocols.privacy.accounting import (
    Accounting,
    GaussianEvent,
    cross_check,
    epsilon_by_coalition,
    epsilon_for,
    sigma_for,
)
from protocols.privacy.certificate import Condition
from protocols.privacy.gdp import check_delta, check_epsilon
from protocols.privacy.grid import discretisation_delta
from protocols.privacy.shares import NoiseSplit

GRID_MARGIN = 1.0 + 2.0**-20
"""Shares are rounded up to a grid unit, at most 2^-20 of them; every bound uses this much more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What is promised, to whom, and how delta is divided.

    Attributes:
        epsilon: the promise, > 0; None for a run without privacy (sigma = 0).
        delta: the promise, in (0, 1).
        split: P and t.
        accounting: "exact" or "paper" (the closed form of arXiv:2605.27782, Algorithm 3).
        mechanism_share: the mechanism's part of delta, in (0, 1); the iterate bound may fail
            with the rest. 1/3 in the source paper. A larger part needs less noise, and the iterate
            bound hardly notices, because it depends on ln(1/delta_norm).
        other_delta: delta spent elsewhere: tail of the CKKS error bound, statistical distance of
            the flooding; >= 0.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    epsilon: float | None
    delta: float
    split: NoiseSplit
    accounting: Accounting = "exact"
    mechanism_share: float = 1 / 3
    other_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not 0 < self.mechanism_share < 1:
            raise ParameterError(f"mechanism_share={self.mechanism_share} is outside (0, 1)")
        if not 0 <= self.other_delta < self.delta:
            raise ParameterError(f"other_delta={self.other_delta} is outside [0, delta)")
        if self.accounting not in ("exact", "paper"):
            raise ParameterError(f"accounting={self.accounting!r} is neither 'exact' nor 'paper'")

    @property
    def delta_mechanism(self) -> float:
        """The mechanism's delta."""
        return self.mechanism_share * (self.delta - self.other_delta)

    @property
    def delta_norm(self) -> float:
        """Allowed failure probability of the iterate bound."""
        return (1 - self.mechanism_share) * (self.delta - self.other_delta)

    def sigma(self, *, rounds: int, sensitivity: float, rows: int) -> float:
        """The noise std on the mean gradient that the promise needs; 0 without a promise."""
        if self.epsilon is None:
            return 0.0
        return sigma_for(
            epsilon=self.epsilon,
            delta=self.delta_mechanism,
            rounds=rounds,
            sensitivity=sensitivity,
            rows=rows,
            accounting=self.accounting,
        )

    def total_std(self, sigma: float) -> float:
        """Std of all parties' noise together, grid rounding included."""
        return self.split.total_std(sigma) * GRID_MARGIN

    def to_dict(self) -> dict[str, float | str | None]:
        """JSON-ready."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "parties": self.split.parties,
            "colluders": self.split.colluders,
            "accounting": self.accounting,
            "mechanism_share": self.mechanism_share,
            "other_delta": self.other_delta,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The budget's conditions for one setting, and the figures behind them."""

    conditions: tuple[Condition, ...]
    figures: dict[str, float]
    by_coalition: tuple[float, ...]
    events: tuple[GaussianEvent, ...]


def audit(
    budget: Budget,
    *,
    sigma: float,
    sensitivity: float,
    rounds: int,
    rows: int,
    features: int,
    norm_failure: float,
) -> Audit:
    """Check that the noise pays for the promise.

    Args:
        budget: the promise.
        sigma: std left without any t colluders, on the mean gradient.
        sensitivity: replace-one l2 sensitivity of one round's SUM.
        rounds: T.
        rows: N.
        features: m, bias included.
        norm_failure: failure probability of the iterate bound as proven for this setting.
    """
    if budget.epsilon is None:
        return Audit(conditions=(), figures={}, by_coalition=(), events=())
    required = budget.sigma(rounds=rounds, sensitivity=sensitivity, rows=rows)
    spent = epsilon_for(
        sigma=sigma,
        delta=budget.delta_mechanism,
        rounds=rounds,
        sensitivity=sensitivity,
        rows=rows,
    )
    library = math.inf
    grid_delta = 0.0
    events: tuple[GaussianEvent, ...] = ()
    if sigma > 0:
        event = GaussianEvent(noise_multiplier=rows * sigma / sensitivity, count=rounds)
        events = (event,)
        library = cross_check(events, delta=budget.delta_mechanism).library
        share = budget.split.share_std(sigma)
        # twice: the honest owners' sum in the mechanism, the coalition's part in the iterate
        # bound; each is at least as close to a Gaussian as one share (2^30 units) is
        grid_delta = discretisation_delta(
            units=budget.split.grid(sigma).units(share),
            shares=1,
            values=2 * rounds * features,
            epsilon=budget.epsilon,
        )
    spent_delta = budget.delta_mechanism + norm_failure + grid_delta + budget.other_delta
    conditions = (
        Condition(
            name="privacy_noise",
            left=sigma,
            relation=">=",
            right=required,
            meaning=f"sigma pays for epsilon over T rounds ({budget.accounting} accounting)",
            by_design=True,
        ),
        Condition(
            name="privacy_cross_check",
            left=library,
            relation="<=",
            right=1.01 * budget.epsilon,
            meaning="epsilon by dp-accounting's privacy loss distribution, at most 1 % above",
            by_design=True,
        ),
        Condition(
            name="privacy_delta",
            left=spent_delta,
            relation="<=",
            right=budget.delta,
            meaning="delta: mechanism + iterate bound + noise grid + CKKS tail",
            by_design=True,
        ),
    )
    figures = {
        "sigma": sigma,
        "sigma_share": budget.split.share_std(sigma),
        "sigma_required": required,
        "epsilon_exact": spent,
        "epsilon_dp_accounting": library,
        "delta_mechanism": budget.delta_mechanism,
        "delta_norm_bound": norm_failure,
        "delta_grid": grid_delta,
        "delta_other": budget.other_delta,
        "delta_total": spent_delta,
    }
    coalitions = epsilon_by_coalition(
        sigma=sigma,
        split=budget.split,
        delta=budget.delta_mechanism,
        rounds=rounds,
        sensitivity=sensitivity,
        rows=rows,
    )
    return Audit(
        conditions=conditions, figures=figures, by_coalition=tuple(coalitions), events=events
    )
