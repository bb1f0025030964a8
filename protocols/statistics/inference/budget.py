"""How a promise is divided between training, evaluation and standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocols.errors import PrivacyError
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss import epsilon_for_mu, mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent, compose

TRAINING_SHARE, EVALUATION_SHARE = 0.5, 0.25
"""Of the whole budget (mu^2), and of its delta, beside inference."""
TOWARDS, COUNTED = (0.05, 0.2), (0.25, 0.5)
"""Of the budget (mu^2) of private sums: two towards the maximum, and two that count."""
CLOSE = 1e-3
"""Relative, of a sum's share: grids of noise."""


def shares(*, inference: bool, evaluation: bool) -> tuple[float, float, float]:
    """Of training, of standard errors and of an evaluation, in mu^2 of their promise; sum: 1."""
    judged = EVALUATION_SHARE if evaluation else 0.0
    training = TRAINING_SHARE if inference else 1 - judged
    return training, 1 - training - judged, judged


def training_part(epsilon: float, delta: float, share: float) -> tuple[float, float]:
    """(epsilon, delta) of a training that leaves the rest for what follows; share: its own."""
    own = delta * share
    mu = math.sqrt(share) * mu_for_epsilon(epsilon=epsilon, delta=MECHANISM_SHARE * own)
    return epsilon_for_mu(mu=mu, delta=MECHANISM_SHARE * own), own


def series_left(epsilon: float, delta: float, square: float) -> float:
    """mu of a sum and of those that follow it in its series; square: its own mu^2.

    epsilon, delta: announced, of the series. 0: none follows, or none of it costs that.
    """
    shares = (*TOWARDS, *COUNTED)
    mu = mu_for_epsilon(epsilon=epsilon, delta=MECHANISM_SHARE * delta)
    places = [k for k, each in enumerate(shares[:-1]) if abs(square / mu**2 - each) <= CLOSE * each]
    return mu * math.sqrt(sum(shares[places[0] :])) if places else 0.0


def left_mu(epsilon: float, delta: float, spent: Sequence[Mechanism]) -> float:
    """mu that a Gaussian release may still cost after these, as a ledger would add up.

    Raises:
        PrivacyError: nothing is left.
    """
    # The rest of delta is for noise grids and tails of the sums, as in every plan of sums.
    rest = MECHANISM_SHARE * delta - sum(each.additive_delta for each in spent)
    events = [event for each in spent for event in each.events]
    if rest > 0 and all(isinstance(event, GaussianEvent) for event in events):
        used = sum(event.mu**2 for event in events if isinstance(event, GaussianEvent))
        square = mu_for_epsilon(epsilon=epsilon, delta=rest) ** 2 - used
        if square > 0:
            return math.sqrt(square) * (1 - 1e-6)
    elif rest > 0:
        remaining = epsilon - compose(events, delta=rest / 2)
        if remaining > 0:
            return mu_for_epsilon(epsilon=remaining, delta=rest / 2)
    raise PrivacyError(f"epsilon={epsilon:g}, delta={delta:g}: nothing is left for inference")
