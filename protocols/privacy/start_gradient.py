"""A private release of grad f(0) before the first round: a smaller d for the barrier's theorem.

One noisy sum is opened at w = 0, where a row's gradient is (1/2 - y) x, of norm at most B_x / 2:
replacing one row moves the mean by at most B_x / N, rounding to the grid by sqrt(m) units more.
With sigma_0 left by the honest parties that release costs mu_0 = (B_x / N + sqrt(m) unit) /
sigma_0, and later rounds, whose noise depends on what was released, compose adaptively:
mu^2 = mu_0^2 + T (D / (N sigma))^2 (arXiv:1905.02383, Corollary 3.3).

For a unit vector u along g = grad f(0), and n all parties' noise, |g + n| >= <u, g + n> =
|g| + <u, n>, and <u, n> is Gaussian in one dimension, because u does not depend on n. So
|g| <= |g + n| + z_p sigma_total but for a probability p, which counts as part of delta: where the
bound fails, the theorem says nothing. The noncentral chi law of |g + n| would give at most
m sigma_total^2 / (2 |g|) less.

It pays little. At 5 % of mu^2 and d = 0.1 the best proxy of quality gains .011 at N = 27,000,
m = 24, epsilon = 1, and loses .001 to .007 up to some thousand rows. On adult (32,561 rows)
d falls from 0.5 to 0.17: accuracy of the twin, 10 noise seeds, P = 10, gains at most .0002 at
epsilon 0.3 and 1, within its deviation, and .0012 at epsilon 3, t = 0. On credit (24,000 rows), d
0.16, accuracy does not change beyond its deviation, and AUC falls by up to .0016.

Rows of one full batch only: the gradient of a minibatch at 0 may be
larger.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from scipy.special import ndtri

from protocols.errors import ParameterError
from protocols.privacy.budget import GRID_MARGIN, Budget
from protocols.privacy.grid import discretisation_delta
from protocols.privacy.shares import NoiseSplit

WORST = 0.5
"""d of any data: |1/2 - y| = 1/2."""
FAILURE_SHARE = 0.01
"""Part of delta with which the bound on |grad f(0)| may fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRelease:
    """What was released.

    Attributes:
        norm: of the noisy mean gradient.
        sigma: noise std on it that is left without any t colluders, > 0.
        failure: p, in (0, 1/2).
        rounding: bound on how far, in norm, grid and encryption moved the mean gradient.

    Raises:
        ParameterError: a field is out of range.
    """

    norm: float
    sigma: float
    failure: float
    rounding: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("norm", "rounding"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ParameterError(f"{name}={getattr(self, name)} is not a finite number >= 0")
        if not 0 < self.sigma < math.inf:
            raise ParameterError(f"sigma={self.sigma} of the release is not finite and positive")
        if not 0 < self.failure < 0.5:
            raise ParameterError(f"failure={self.failure} is outside (0, 1/2)")

    def margin(self, split: NoiseSplit) -> float:
        """What is added to the norm: z_p sigma_total + rounding."""
        return tail(self.failure) * split.total_std(self.sigma) * GRID_MARGIN + self.rounding

    def d(self, norm_bound: float, split: NoiseSplit) -> float:
        """The least d >= |grad f(0)| / B_x that the release supports, at most 1/2; rounded up."""
        return min(WORST, (self.norm + self.margin(split)) / norm_bound * (1 + 1e-12))

    def mu(self, *, norm_bound: float, rows: int, features: int, split: NoiseSplit) -> float:
        """mu_0 of the release, against any t colluders."""
        unit = split.grid(self.sigma).unit
        return (norm_bound / rows + math.sqrt(features) * unit) / self.sigma

    def spent_delta(self, *, features: int, split: NoiseSplit, epsilon: float) -> float:
        """p and the grid's part: of the mechanism, and of the bound on the norm."""
        units = split.grid(self.sigma).units(split.share_std(self.sigma))
        return self.failure + discretisation_delta(
            units=units, shares=1, values=2 * features, epsilon=epsilon
        )

    def to_dict(self) -> dict[str, float]:
        """JSON-ready."""
        return asdict(self)


def tail(failure: float) -> float:
    """z with P(Z > z) = failure for a standard normal Z."""
    return -float(ndtri(failure))


def noise_for(
    *, share: float, budget: Budget, norm_bound: float, rows: int, features: int
) -> float:
    """sigma_0 that costs `share` of the budget's mu^2.

    Raises:
        ParameterError: the share is outside (0, 1), or nothing is promised.
    """
    if not 0 < share < 1:
        raise ParameterError(f"release_start={share} is outside (0, 1); 0.05 is usual")
    if budget.epsilon is None:
        raise ParameterError("release_start needs a privacy promise: leave out --no-privacy")
    mu = math.sqrt(share) * budget.mu
    sigma = norm_bound / rows / mu
    for _ in range(3):  # the grid's unit grows with the noise: a fixed point, reached at once
        unit: float = budget.split.grid(sigma).unit
        sigma = (norm_bound / rows + math.sqrt(features) * unit) / mu
    return sigma * (1 + 1e-12)


def charged(
    budget: Budget, start: StartRelease | None, *, norm_bound: float, rows: int, features: int
) -> Budget:
    """The budget with the release paid for; unchanged without one."""
    if start is None or budget.epsilon is None:
        return budget
    mu = start.mu(norm_bound=norm_bound, rows=rows, features=features, split=budget.split)
    delta = start.spent_delta(features=features, split=budget.split, epsilon=budget.epsilon)
    return replace(
        budget,
        spent_mu=math.hypot(budget.spent_mu, mu),
        spent_delta=budget.spent_delta + delta,
    )
