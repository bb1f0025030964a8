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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocols.errors import ParameterError
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.certificates.certificate import ASSUMPTIONS, Certificate, Condition
from protocols.privacy.laws.grid import discretisation_delta
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import check_delta, check_epsilon, epsilon_for_mu
from protocols.privacy.loss.accounting import (
    GaussianEvent,
    epsilon_for,
    library_epsilon,
    sigma_for,
)
from protocols.privacy.loss.composed import composed

DELTA_SHARE = 0.9
"""The mechanism's part of delta; the iterate bound may fail with the rest."""
KEPT = 0.999
"""The iterate bound's part of that rest; the noise grids need some of what is left."""
GRID_MARGIN = 1.0 + 2.0**-20
"""Shares are rounded up to a grid unit, at most 2^-20 of them; every bound uses this much more."""


TINY = 1e-300
"""Above 0, of what a logarithm is taken of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What is promised, to whom, and how delta is divided.

    Attributes:
        epsilon: the promise, > 0; None for a run without privacy (sigma = 0).
        delta: the promise, in (0, 1).
        split: P and t.
        mechanism_share: the mechanism's part of delta, in (0, 1); the iterate bound may fail
            with the rest. 1/3 in the source paper. A larger part needs less noise, and the iterate
            bound hardly notices, because it depends on ln(1/delta_norm).
        other_delta: delta spent elsewhere: tail of the CKKS error bound; >= 0.
        spent_mu: of what is released beside the rounds, what the flooding leaves (`arithmetic`);
            >= 0.
        paid_mu: of an earlier run on the same rows, whose release this one builds on; >= 0. The
            promise is about both runs, the events are this one's alone: a ledger has the others.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    epsilon: float | None
    delta: float
    split: NoiseSplit
    mechanism_share: float = DELTA_SHARE
    other_delta: float = 0.0
    spent_mu: float = 0.0
    paid_mu: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not 0 < self.mechanism_share < 1:
            raise ParameterError(f"mechanism_share={self.mechanism_share} is outside (0, 1)")
        if not 0 <= self.other_delta < self.delta:
            raise ParameterError(
                f"other_delta={self.other_delta:.3g}, which tails, masks and noise grids cost, is "
                f"not below delta={self.delta:g}{self._cure}"
            )
        for name in ("spent_mu", "paid_mu"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} is not a finite number >= 0")

    @classmethod
    def of(cls, promise: PrivacyPlan | None, split: NoiseSplit, **beside: float) -> Budget:
        """Of a plan; beside: `other_delta`, `spent_mu` and `paid_mu`."""
        if promise is None:
            # Without a promise nothing depends on delta.
            return cls(epsilon=None, delta=0.5, split=split)
        return cls(epsilon=promise.epsilon, delta=promise.delta, split=split, **beside)

    @property
    def _cure(self) -> str:
        """Of more other delta than there is; a noise grid's part grows as exp(epsilon)."""
        # Noise and iterate bound need most of delta, the grids of the rounds as much as this one.
        most = (self.epsilon or 0.0) - math.log(100 * max(self.other_delta, TINY) / self.delta)
        if most < 1:
            return f": take a delta above {2 * self.other_delta:.1g}"
        less = "a smaller epsilon, such as 8" if self.other_delta >= 1 else f"epsilon={most:.3g}"
        return f": the grids' part grows as exp(epsilon); take {less} in place of {self.epsilon:g}"

    def grid_delta(self, *, sigma: float, values: int, epsilon: float) -> float:
        """What the noise's grid adds to delta; values: of the noise of a share.

        Twice: the honest owners' sum in the mechanism, the coalition's part in the iterate bound;
        each is at least as close to a Gaussian as one share (2^30 units) is.
        """
        units = self.split.grid(sigma).units(self.split.share_std(sigma))
        return discretisation_delta(units=units, shares=1, values=2 * values, epsilon=epsilon)

    def largest_epsilon(self, *, sigma: float, values: int, failure: float) -> float:
        """Above it the grid costs more of delta than is left; failure: of the iterate bound."""
        twice = self.grid_delta(sigma=sigma, values=values, epsilon=0.0)
        return math.log(max(2 * (self.delta_norm - failure) / twice - 1, TINY))

    @property
    def delta_mechanism(self) -> float:
        """The mechanism's delta."""
        return self.mechanism_share * (self.delta - self.other_delta)

    @property
    def delta_norm(self) -> float:
        """Failure probability of the iterate bound, and delta of the noise grids."""
        return (1 - self.mechanism_share) * (self.delta - self.other_delta)

    @property
    def bound_failure(self) -> float:
        """Allowed failure probability of the iterate bound alone."""
        return KEPT * self.delta_norm

    @property
    def beside_mu(self) -> float:
        """mu of all that is not a round."""
        return math.hypot(self.spent_mu, self.paid_mu)

    @property
    def mu(self) -> float:
        """mu of all releases together that the accounting allows; inf without a promise."""
        sigma = self._sigma(rounds=1, sensitivity=1.0, rows=1)
        return 1 / sigma if sigma else math.inf

    def sigma(self, *, rounds: int, sensitivity: float, rows: int) -> float:
        """The noise std on the mean gradient that the promise needs; 0 without a promise.

        With mu_b spent beside the rounds, they get sqrt(mu^2 - mu_b^2).

        Raises:
            ParameterError: nothing is left for the rounds.
        """
        plain = self._sigma(rounds=rounds, sensitivity=sensitivity, rows=rows)
        if not self.beside_mu or not plain:
            return plain
        left = 1 - (self.beside_mu / self.mu) ** 2
        if not left > 0:
            raise ParameterError(
                f"beside_mu={self.beside_mu:.6g} uses up mu={self.mu:.6g} of the budget: release "
                "less, or raise epsilon"
            )
        return plain / math.sqrt(left)

    def spent(self, *, sigma: float, rounds: int, sensitivity: float, rows: int) -> float:
        """Exact epsilon of all rounds and of what is released beside them, at delta_mechanism."""
        if not self.beside_mu or not sigma:
            return epsilon_for(
                sigma=sigma,
                delta=self.delta_mechanism,
                rounds=rounds,
                sensitivity=sensitivity,
                rows=rows,
            )
        mu = math.hypot(self.beside_mu, math.sqrt(rounds) * sensitivity / (rows * sigma))
        return epsilon_for_mu(mu=mu, delta=self.delta_mechanism)

    def by_coalition(
        self, *, sigma: float, rounds: int, sensitivity: float, rows: int
    ) -> tuple[float, ...]:
        """`spent` against k = 0 .. P - 1 colluders, who subtract their own noise.

        The noise of what is released beside the rounds is split in the same way.
        """
        return tuple(
            replace(self, spent_mu=self.beside_mu / self.split.seen_std(1.0, k), paid_mu=0.0).spent(
                sigma=self.split.seen_std(sigma, k),
                rounds=rounds,
                sensitivity=sensitivity,
                rows=rows,
            )
            for k in range(self.split.parties)
        )

    def events(
        self, *, sigma: float, rounds: int, sensitivity: float, rows: int
    ) -> tuple[GaussianEvent, ...]:
        """What all rounds, and what is released beside them, cost; for an accountant."""
        event = GaussianEvent(noise_multiplier=rows * sigma / sensitivity, count=rounds)
        if not self.spent_mu:
            return (event,)
        return (GaussianEvent(noise_multiplier=1 / self.spent_mu), event)

    def _sigma(self, *, rounds: int, sensitivity: float, rows: int) -> float:
        if self.epsilon is None:
            return 0.0
        return sigma_for(
            epsilon=self.epsilon,
            delta=self.delta_mechanism,
            rounds=rounds,
            sensitivity=sensitivity,
            rows=rows,
        )

    def total_std(self, sigma: float) -> float:
        """Std of all parties' noise together, grid rounding included."""
        return self.split.total_std(sigma) * GRID_MARGIN

    def to_dict(self) -> dict[str, float | str | None]:
        """JSON-ready; without a promise, nothing of one."""
        if self.epsilon is None:
            return {"epsilon": None, "parties": self.split.parties}
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "parties": self.split.parties,
            "colluders": self.split.colluders,
            "mechanism_share": self.mechanism_share,
            "other_delta": self.other_delta,
            "spent_mu": self.spent_mu,
            "paid_mu": self.paid_mu,
        }


def certify(
    method: str,
    setting: Any,
    conditions: Sequence[Condition],
    figures: Mapping[str, float],
    *,
    sensitivity: float,
    norm_failure: float,
    values: int | None = None,
    assumptions: tuple[str, ...] = ASSUMPTIONS,
) -> Certificate:
    """The certificate of T noisy gradients: what bounds them, and that the noise pays for them.

    Args:
        method: of `Certificate`.
        setting: with `budget`, `sigma`, `rounds`, `rows` and `features`.
        conditions: of the bound.
        figures: of the bound.
        sensitivity: replace-one l2 sensitivity of one round's SUM.
        norm_failure: failure probability of the iterate bound as proven for this setting.
        values: of a round; None: one for every feature.
        assumptions: see `Certificate`.
    """
    budget, sigma = setting.budget, float(setting.sigma)
    rounds, rows = setting.rounds, setting.rows
    figures = {**figures, "sensitivity": sensitivity, "sigma_total": budget.total_std(sigma)}
    if budget.epsilon is None:
        return Certificate(
            method=method,
            setting=setting,
            conditions=tuple(conditions),
            figures=figures,
            assumptions=assumptions,
        )
    required = budget.sigma(rounds=rounds, sensitivity=sensitivity, rows=rows)
    spent = budget.spent(sigma=sigma, rounds=rounds, sensitivity=sensitivity, rows=rows)
    library = math.inf
    grid_delta = 0.0
    events: tuple[GaussianEvent, ...] = ()
    if sigma > 0:
        events = budget.events(sigma=sigma, rounds=rounds, sensitivity=sensitivity, rows=rows)
        paid = [GaussianEvent(noise_multiplier=1 / budget.paid_mu)] if budget.paid_mu else []
        library = library_epsilon([*events, *paid], delta=budget.delta_mechanism)
        grid_delta = budget.grid_delta(
            sigma=sigma, values=rounds * (values or setting.features), epsilon=budget.epsilon
        )
    total = budget.delta_mechanism + norm_failure + grid_delta + budget.other_delta
    privacy = (
        Condition(
            "privacy_noise",
            sigma,
            ">=",
            required,
            "sigma pays for epsilon over T rounds",
            by_design=True,
        ),
        Condition(
            "privacy_cross_check",
            library,
            "<=",
            1.01 * budget.epsilon,
            "epsilon by dp-accounting's privacy loss distribution, at most 1 % above",
            by_design=True,
        ),
        Condition(
            "privacy_delta",
            total,
            "<=",
            budget.delta,
            "delta: mechanism + iterate bound + noise grid + CKKS tail",
            by_design=True,
        ),
    )
    figures |= {
        "sigma": sigma,
        "sigma_share": budget.split.share_std(sigma),
        "sigma_required": required,
        "epsilon_exact": spent,
        "epsilon_dp_accounting": library,
        "delta_mechanism": budget.delta_mechanism,
        "delta_norm_bound": norm_failure,
        "delta_grid": grid_delta,
        "delta_other": budget.other_delta,
        "mu_beside": budget.beside_mu,
        "delta_total": total,
    }
    return Certificate(
        method=method,
        setting=setting,
        conditions=(*conditions, *privacy),
        figures=figures,
        epsilon_by_coalition=budget.by_coalition(
            sigma=sigma, rounds=rounds, sensitivity=sensitivity, rows=rows
        ),
        epsilon_composed=composed(
            events, budget.split, delta=budget.delta_mechanism, paid_mu=budget.paid_mu
        )
        if events
        else (),
        assumptions=assumptions,
        events=events,
    )
