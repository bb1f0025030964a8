"""Accounting of releases: exact for Gaussian noise alone, sigma from epsilon and back.

T adaptively chosen releases, each with l2 sensitivity D and noise std s, are exactly
mu-Gaussian-DP with mu = sqrt(T) D / s (Dong, Roth, Su, arXiv:1905.02383, Corollary 3.3). Full
batch only: no amplification by subsampling is claimed. Neighbours are replace-one throughout; a
noise multiplier is s / D with that D.

`delta` means the share of delta that the mechanism itself gets; an iterate bound that may fail
has to be paid for separately (in the source paper delta/3 here and 2 delta/3 there).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from protocols.errors import ParameterError
from protocols.privacy.loss import check_delta, check_epsilon, epsilon_for_mu, mu_for_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_LIBRARY_LIMIT = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(ABC):
    """`count` releases under one kind of noise; what it costs is `single`'s.

    kind: in a ledger.

    Attributes:
        noise_multiplier: scale of the noise / sensitivity (replace-one) in its norm, > 0.
        count: number of releases, >= 1.
    """

    kind: ClassVar[str]

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        # Of NumPy's integers squares overflow: what is booked would not be what is charged.
        given: tuple[Any, Any] = (self.noise_multiplier, self.count)
        numbers = isinstance(given[0], (int, float)) and isinstance(given[1], int)
        if not numbers or not self.noise_multiplier > 0 or self.count < 1:
            raise ParameterError(
                f"noise_multiplier={self.noise_multiplier}, count={self.count}: need numbers > 0 "
                "and >= 1"
            )

    @property
    @abstractmethod
    def single(self) -> DpEvent:
        """One of the releases, for `dp_accounting`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianEvent(Event):
    """Noise std / L2 sensitivity."""

    kind: ClassVar[str] = "gaussian"

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter of all releases together."""
        return math.sqrt(self.count) / self.noise_multiplier

    @property
    def single(self) -> DpEvent:
        """See `Event`."""
        from dp_accounting import GaussianDpEvent

        return GaussianDpEvent(self.noise_multiplier)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaplaceEvent(Event):
    """Laplace scale / L1 sensitivity: of runs that a ledger holds from before."""

    kind: ClassVar[str] = "laplace"

    @property
    def single(self) -> DpEvent:
        """See `Event`."""
        from dp_accounting import LaplaceDpEvent

        return LaplaceDpEvent(self.noise_multiplier)


def sigma_for(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    sensitivity: float,
    rows: int,
) -> float:
    """Noise std on the mean gradient that gives (epsilon, delta) over all rounds.

    Args:
        epsilon: > 0.
        delta: the mechanism's share, in (0, 1).
        rounds: T, full-batch releases.
        sensitivity: replace-one l2 sensitivity of the SUM over rows, D.
        rows: N, all parties' rows together.

    Returns:
        sqrt(T) D / (N mu). The closed form of arXiv:2605.27782, Algorithm 3, is 1.79 times that at
        epsilon = 1.

    Raises:
        ParameterError: a field is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    _check_query(rounds, sensitivity, rows)
    mu = mu_for_epsilon(epsilon=epsilon, delta=delta)
    return math.sqrt(rounds) * sensitivity / (rows * mu)


def epsilon_for(*, sigma: float, delta: float, rounds: int, sensitivity: float, rows: int) -> float:
    """The exact epsilon that noise of std `sigma` on the mean gradient gives; inf for sigma = 0.

    Args as in `sigma_for`.
    """
    _check_query(rounds, sensitivity, rows)
    if sigma < 0 or math.isnan(sigma):
        raise ParameterError(f"sigma={sigma} is below 0")
    check_delta(delta)
    if sigma == 0:
        return math.inf if sensitivity > 0 else 0.0
    return epsilon_for_mu(mu=math.sqrt(rounds) * sensitivity / (rows * sigma), delta=delta)


def compose(events: Sequence[Event], *, delta: float) -> float:
    """The epsilon at delta of several mechanisms on the same data, chosen adaptively.

    Gaussian events compose exactly (mu^2 adds up); with others among them, `dp_accounting`
    convolves privacy loss distributions, pessimistically.
    """
    check_delta(delta)
    mu = math.sqrt(sum(e.mu**2 for e in events if isinstance(e, GaussianEvent)))
    if all(isinstance(e, GaussianEvent) for e in events):
        return epsilon_for_mu(mu=mu, delta=delta)
    return library_epsilon(events, delta=delta)


def library_epsilon(events: Sequence[Event], *, delta: float) -> float:
    """`compose` by `dp_accounting`'s privacy loss distributions: at most 1 % above the truth.

    Both kinds of event are given with their replace-one sensitivity, and shifting by it is the
    library's add-or-remove-one pair with sensitivity 1. The discretisation interval is a thousandth
    of epsilon for each event, so that its error, at most one interval per event, stays below 1 %.
    Above an epsilon of 100 the answer is inf: no statement is worth its memory.
    """
    # Loaded where it is asked: Gaussian events need none of it, and a second of a party's start.
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    mu = math.sqrt(sum(e.mu**2 for e in events if isinstance(e, GaussianEvent)))
    pure = sum(e.count / e.noise_multiplier for e in events if isinstance(e, LaplaceEvent))
    rough = epsilon_for_mu(mu=mu, delta=delta) if mu > 0 else pure
    if rough + pure > _LIBRARY_LIMIT:
        return math.inf
    interval = max(1e-6, rough * 1e-3 / max(1, len(events)))
    accountant = PLDAccountant(value_discretization_interval=interval)
    if mu > 0:
        accountant.compose(GaussianDpEvent(1 / mu))
    for event in events:
        if isinstance(event, LaplaceEvent):
            accountant.compose(event.single, event.count)
    return float(accountant.get_epsilon(delta))


def _check_query(rounds: int, sensitivity: float, rows: int) -> None:
    if rounds < 1 or rows < 1 or not (math.isfinite(sensitivity) and sensitivity >= 0):
        raise ParameterError(
            f"rounds={rounds}, rows={rows}, sensitivity={sensitivity}: need >= 1, >= 1, >= 0"
        )
