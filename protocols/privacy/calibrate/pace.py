"""How long the steps of a private run on rows may be, and whether whitening pays: a rule of thumb.

It depends on s = N mu / d alone: rows, noise and columns, all public. Its constants were found on
six public tables of 190 to 32,000 rows (docs/schemas), on their held-out rows, and prove nothing:
whatever it says is certified, or refused, afterwards.

- s < FEW: rows are not whitened, for a second moment would be noise.
- s < MANY: noise decides, and what one row may say saturates (`push`). The loss then curves by less
  than Lambda / 4 where rows are far from 0: steps of up to 8 / Lambda.
- else: steps of 4 / Lambda. The loss curves by at most Lambda / 4, so that no axis overshoots.
Ten steps, shorter where chance (`problem.chance`) would make more than s / DROWNED of a weight, 1
at most, and drown what is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.certificates.problem import Steps
from protocols.privacy.loss import mu_for_epsilon

FEW, MANY = 10.0, 80.0
"""s below which rows are not whitened, and from which a row may say what the sigmoid says."""
ROUNDS = 10
DEGREE = 15
SHARE = 0.1
"""Of mu^2, for the second moment; .05 to .3 do as well."""
DROWNED = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """whitens: whether a second moment is worth its price; steps: of gradient descent."""

    whitens: bool
    steps: Steps


def pace(figures: PublicFigures, wanted: Wanted) -> Pace:
    """For rows with privacy; epsilon must be wanted."""
    mu = mu_for_epsilon(epsilon=wanted.epsilon or 0.0, delta=wanted.delta)
    s = figures.rows * mu / figures.num_features
    steps = Steps(
        rounds=ROUNDS,
        rate=8.0 if s < MANY else 4.0,
        wander=min(1.0, s / DROWNED),
        saturates=s < MANY,
    )
    return Pace(whitens=s >= FEW, steps=steps)
