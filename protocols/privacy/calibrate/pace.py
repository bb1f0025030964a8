"""How long the steps of a private run on rows may be, and whether whitening pays: a rule of thumb.

It depends on s = N mu / d alone: rows, noise and columns, all public. Its constants were found on
six public tables of 190 to 32,000 rows (docs/schemas), on their held-out rows, and prove nothing:
whatever it says is certified, or refused, afterwards.

- s < FEW: rows are not whitened, for a second moment would be noise.
- s < MANY: whitened; steps by expected log loss (`search`).
- else: whitened; ten steps of 4 / Lambda. The loss curves by at most Lambda / 4, so that no axis
  overshoots.
Noise adds up to rate sqrt(T) tau in every weight, tau of ALL parties: more than WANDER of it drowns
what is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.problem import Steps

FEW, MANY = 20.0, 100.0
"""s below which rows are not whitened, and from which the second moment is exact enough."""
DEGREE = 15
SHARE = 0.1
"""Of mu^2, for the second moment; .05 to .3 do as well."""
WANDER = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """whitens: whether a second moment is worth its price; steps: None: by expected log loss."""

    whitens: bool
    steps: Steps | None


def pace(figures: PublicFigures, wanted: Wanted) -> Pace:
    """For rows with privacy; epsilon must be wanted."""
    mu = mu_for_epsilon(epsilon=wanted.epsilon or 0.0, delta=wanted.delta)
    s = figures.rows * mu / figures.num_features
    if FEW <= s < MANY:
        return Pace(whitens=True, steps=None)
    rounds = 8 if s < FEW else 10
    return Pace(whitens=s >= FEW, steps=Steps(rounds=rounds, rate=4.0, wander=WANDER))
