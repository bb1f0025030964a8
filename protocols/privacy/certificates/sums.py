"""The certificate of encrypted sums: rows are clipped in plaintext, so nothing bounds iterates.

Query k releases sum_p (share of party p) + noise, every row's part of norm at most C_k / 2 in the
aggregate, so that one replaced row moves it by at most C_k, in the norm of the mechanism
(`noise`). Contributions are rounded to the noise grid, which moves each by at most sqrt(d) / 2
units; the widened sensitivity counts that for both neighbours. Points of later queries are
functions of earlier releases: adaptive composition.
Samplers end somewhere, and an owner whose value leaves the cipher's range ends the run. Both happen
to one of M values drawn with probability at most M `Noise.tail`, and change delta by at most
1 + exp(epsilon) times that.

Gaussian: exact, mu^2 = sum_k (C_k / sigma_k)^2 (arXiv:1905.02383, Corollary 3.3); the grid costs
delta (`grid.discretisation_delta`).
Public batches (K = `batches` > 1): query k shows the rows of batch k mod K and nothing of any other
row, so a row costs what its own batch's queries cost, and the certificate is about the batch that
costs most. Every query counts, whatever its place: the noise of one batch says nothing about
another.
Secret Poisson batches (rate < 1): `poisson`, which amplifies; a ledger is charged as if they were
public, because amplified events do not add up with others there. There a neighbour is compared with
the sum without the row, so rounding counts for the row's presence and for its absence: twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocols.errors import ParameterError
from protocols.privacy.certificates.certificate import Certificate, Condition, Stated
from protocols.privacy.laws.noise import Noise
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.accounting import Event, GaussianEvent, library_epsilon
from protocols.privacy.loss.catalogue import noise_of
from protocols.privacy.loss.poisson import poisson_epsilon

if TYPE_CHECKING:
    from protocols.sums.plan import GradientPlan

# Of delta; the rest is for the grid.
MECHANISM_SHARE = 0.99
ASSUMPTIONS = (
    "every owner clips each row's part to the plan's bound, and takes part in every round",
    "neighbours differ in one row of one owner (replace-one); row counts are public",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SumSetting:
    """What is released, and what is promised.

    Attributes:
        mechanism: one of `catalogue.NOISES`.
        sensitivities: C_k of every query, replace-one, of the aggregate.
        scales: sigma_k of every query that remain without any t colluders.
        length: d, values per query.
        split: P and t.
        epsilon, delta: the promise.
        rate: chance of a row to take part in a round, by its owner's secret coin; 1: always.
            Below 1, noise is Gaussian and the same in all rounds.
        batches: K, of public batches in turn; 1: every query shows every row.

    Raises:
        ParameterError: a field is out of range.
    """

    mechanism: str
    sensitivities: tuple[float, ...]
    scales: tuple[float, ...]
    length: int
    split: NoiseSplit
    epsilon: float
    delta: float
    rate: float = 1.0
    batches: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _ = self.noise
        if not self.scales or len(self.scales) != len(self.sensitivities):
            raise ParameterError(
                f"{len(self.scales)} scales for {len(self.sensitivities)} queries: need one each"
            )
        if not all(0 < v < math.inf for v in (*self.scales, *self.sensitivities)):
            raise ParameterError("scales and sensitivities must be finite and positive")
        if self.length < 1:
            raise ParameterError(f"length={self.length} is below 1")
        if not 0 < self.rate <= 1:
            raise ParameterError(f"rate={self.rate} is outside (0, 1]")
        if self.batches < 1 or (self.batches > 1 and self.rate < 1):
            raise ParameterError(
                f"batches={self.batches}, rate={self.rate}: batches are at least 1, and either "
                "public (rate=1) or secret (batches=1)"
            )
        uniform = len(set(self.scales)) == len(set(self.sensitivities)) == 1
        if self.rate < 1 and not uniform:
            raise ParameterError(
                f"rate={self.rate}: secret batches need the same noise in all rounds; take the "
                "schedule cyclic"
            )

    @property
    def noise(self) -> Noise:
        """The mechanism."""
        return noise_of(self.mechanism)

    @property
    def delta_mechanism(self) -> float:
        """The mechanism's part of delta."""
        return MECHANISM_SHARE * self.delta

    @property
    def widened(self) -> tuple[float, ...]:
        """Sensitivities with the rounding of two neighbours."""
        units = self.noise.diameter(self.length) * (1 if self.rate == 1 else 2)
        return tuple(
            c + units * self.noise.grid(scale, self.split).unit
            for c, scale in zip(self.sensitivities, self.scales, strict=True)
        )

    def events(self, coalition: int | None = None) -> tuple[Event, ...]:
        """What a row of the costliest batch costs; against `coalition` parties instead of t.

        Raises:
            ParameterError: they leave no noise that is accounted for.
        """
        factor = 1.0 if coalition is None else self.noise.left(self.split, coalition)
        ratios = [c / scale for scale, c in zip(self.scales, self.widened, strict=True)]
        shown = [ratios[k :: self.batches] for k in range(self.batches)]
        return tuple(
            self.noise.event(noise_multiplier=factor / ratio)
            for ratio in max(shown, key=self.noise.cost)
        )

    @property
    def tails_delta(self) -> float:
        """What the ends of the noise cost, all parties' values together."""
        values = self.split.parties * self.length * len(self.scales)
        return (1 + math.exp(min(self.epsilon, 700.0))) * values * self.noise.tail

    def epsilon_of(self, coalition: int | None = None) -> float:
        """Epsilon at the mechanism's delta; inf where a coalition leaves no noise."""
        if coalition is not None and not self.noise.left(self.split, coalition):
            return math.inf
        events = self.events(coalition)
        if self.rate < 1:
            return poisson_epsilon(
                noise_multiplier=2 * events[0].noise_multiplier,
                rate=self.rate,
                rounds=len(events),
                delta=self.delta_mechanism,
            )
        return self.noise.epsilon(events, self.delta_mechanism)

    def composed(self, coalition: int) -> float:
        """Epsilon of the rounds that show a row, coins known; inf where no noise is left."""
        if not self.noise.left(self.split, coalition):
            return math.inf
        return self.noise.epsilon(self.events(coalition), self.delta_mechanism)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "mechanism": self.mechanism,
            "sensitivities": list(self.sensitivities),
            "scales": list(self.scales),
            "length": self.length,
            "parties": self.split.parties,
            "colluders": self.split.colluders,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rate": self.rate,
            "batches": self.batches,
        }


def setting_of(plan: GradientPlan, norm_bound: float) -> SumSetting:
    """What a plan's certificate is about: every owner clips its rows to the plan's own bound.

    Raises:
        ParameterError: the plan promises no privacy.
    """
    return plan.sum_setting()


def stated(plan: GradientPlan, found: Certificate) -> tuple[Stated, ...]:
    """The promise speaks of the smallest scale, and of a row's part before it is weighed."""
    promise, smallest = plan.privacy, min(plan.noise_scales)
    if promise is None:
        return ()
    share = plan.split.share_std(smallest)
    clip = plan.task.diameter(plan.queries[-1])
    return (
        Stated("noise_scales", smallest, promise.sigma, "sigma as stated beside the promise"),
        Stated("noise_scales", share, promise.share_std, "share_std as stated, a party's part"),
        Stated("sensitivity", promise.sensitivity, clip, "what one row moves, not weighed"),
    )


def check(setting: SumSetting) -> Certificate:
    """Evaluate the promise.

    Returns:
        a certificate; `satisfied` says whether it certifies anything.
    """
    s = setting
    exact = library = s.epsilon_of()
    if s.rate == 1:
        merged = [event for event in s.events() if isinstance(event, GaussianEvent)]
        mu = math.sqrt(math.fsum(event.mu**2 for event in merged))
        whole = GaussianEvent(noise_multiplier=1 / mu)
        library = library_epsilon([whole], delta=s.delta_mechanism)
    grid_delta = math.fsum(
        s.noise.grid_delta(
            s.noise.grid(scale, s.split).units(s.split.share_std(scale)), s.length, s.epsilon
        )
        for scale in s.scales
    )
    spent = s.delta_mechanism + grid_delta + s.tails_delta
    conditions = (
        Condition(
            "privacy_noise",
            exact,
            "<=",
            s.epsilon * (1 + 1e-9),
            "epsilon of all queries that show a row together, exact",
            by_design=True,
        ),
        Condition(
            "privacy_cross_check",
            library,
            "<=",
            1.01 * s.epsilon,
            "epsilon by dp-accounting's privacy loss distribution, at most 1 % above",
            by_design=True,
        ),
        Condition(
            "privacy_delta",
            spent,
            "<=",
            s.delta,
            "delta: mechanism + noise grid + tails of the noise",
        ),
    )
    figures = {
        "epsilon_exact": exact,
        "epsilon_dp_accounting": library,
        "delta_mechanism": s.delta_mechanism,
        "delta_grid": grid_delta,
        "delta_other": s.tails_delta,
        "delta_total": spent,
        "sensitivity": max(s.widened),
        "scale_smallest": min(s.scales),
        "scale_largest": max(s.scales),
    }
    coalitions = tuple(s.epsilon_of(k) for k in range(s.split.parties))
    return Certificate(
        method="sums",
        setting=s,
        conditions=conditions,
        figures=figures,
        epsilon_by_coalition=coalitions,
        epsilon_composed=tuple(s.composed(k) for k in range(s.split.parties)),
        assumptions=ASSUMPTIONS,
        events=s.events(),
    )
