"""Which parameters would be cheapest: every candidate of a plan, and why it is out.

A candidate changes the ring, the digits of the key switch or the scale, and takes the layout that
needs least work there. Everything else of the plan (rule, polynomial, rows, noise) stays. The depth
is that of one iteration: it ends in a refresh, which makes its sum over columns.

Unit times are measured at one set of parameters and carried over to the others by operation counts:
number-theoretic transforms (n log2 n each) and residue products (n each), see `Work`. That is good
to 20 % or so, enough to rank; whoever prints the best measures those again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from protocols.ckks.circuits.cost import UnitTimes
from protocols.ckks.parameters import (
    REFRESH_TOWERS,
    CkksParameters,
)
from protocols.costs import planner, traffic
from protocols.errors import ParameterError
from protocols.rows.plan import RowsPlan
from protocols.steps.decrypt import release_error_std

RINGS = tuple(1 << k for k in range(13, 18))
DIGITS = (1, 2, 3, 4, 5)
SCALES = (59, 58, 57, 56, 54, 52, 50)
# Weights are trusted to about this much [log-odds]: the joint decryption's noise, one deviation.
MAX_RELEASE_ERROR = 1e-3
# Statistical distance of all masked refreshes from uniform, log2.
MAX_MASK_LEAK_BITS = -30


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One way to run the plan.

    params: parameters, None if they cannot even be written down; ring_dim … scale_bits: what was
    tried; why_out: empty for one that can be run; seconds: of the whole run and of an iteration;
    num_bytes: largest party's, both directions, 0 for one that is out; release_error: std of a
    released weight; features: per ciphertext.
    """

    ring_dim: int
    num_digits: int
    scale_bits: int
    why_out: str = ""
    params: CkksParameters | None = None
    seconds: float = math.inf
    iteration: float = math.inf
    num_bytes: int = 0
    release_error: float = math.inf
    features: int = 0

    @property
    def security_bits(self) -> float:
        """About 128 max_log_qp / log_qp: the hardness falls as the modulus grows [bits]."""
        if self.params is None or not self.params.security_bits:
            return 0.0
        return 128 * self.params.max_log_qp / self.params.log_qp

    @property
    def precision_bits(self) -> float:
        """-log2 of the release error."""
        return -math.log2(self.release_error)


def candidates(plan: RowsPlan, times: UnitTimes) -> list[Candidate]:
    """Every candidate, those that can be run first, cheapest first; times: at the plan's own."""
    found = [_judge(plan, times, *tried) for tried in product(RINGS, DIGITS, SCALES)]
    found = [_dominated(each, found) for each in found]
    return sorted(found, key=lambda c: (bool(c.why_out), c.seconds, c.num_bytes, -c.scale_bits))


def remeasured(candidate: Candidate, plan: RowsPlan, times: UnitTimes) -> Candidate:
    """The candidate with seconds from its own unit times."""
    if candidate.params is None:
        return candidate
    other = replace(plan, ckks=candidate.params, features_per_ciphertext=candidate.features or None)
    lasts = planner.seconds(other, times)
    return replace(candidate, seconds=lasts.total, iteration=_iteration(other, lasts))


def is_choice(candidate: Candidate, plan: RowsPlan) -> bool:
    """Whether a candidate is what the plan does already."""
    return (candidate.params, candidate.features) == (plan.ckks, plan.layout.num_blocks)


def _judge(plan: RowsPlan, times: UnitTimes, ring: int, digits: int, scale: int) -> Candidate:
    tried = Candidate(ring_dim=ring, num_digits=digits, scale_bits=scale)
    depth = plan.levels_of(plan.link, plan.rule) + REFRESH_TOWERS - 1
    if math.ceil((depth + 1) / digits) * (digits - 1) >= depth + 1:
        return replace(tried, why_out=f"{digits} digits leave one without a prime")
    params = CkksParameters(
        ring_dim=ring, depth=depth, scale_bits=scale, num_digits=digits, security_bits=0
    )
    try:
        params = replace(params, security_bits=128)
        other = planner.cheapest_layout(replace(plan, ckks=params, profile="secure"))
    except ParameterError as error:
        return replace(tried, why_out=_short(params, error))
    why_out = _why_out(other)
    # Bytes take the frames of every message: only for those that stay.
    sizes = {} if why_out else traffic.bytes_per_party(other)
    lasts = planner.seconds(other, times.scaled(plan.ckks, params))
    return replace(
        tried,
        params=params,
        why_out=why_out,
        seconds=lasts.total,
        iteration=_iteration(other, lasts),
        num_bytes=sum(sizes.values()),
        release_error=release_error_std(other),
        features=other.layout.num_blocks,
    )


def _dominated(tried: Candidate, others: list[Candidate]) -> Candidate:
    """A smaller scale costs the same unless it saves a special prime."""
    for other in others:
        alike = (other.ring_dim, other.num_digits) == (tried.ring_dim, tried.num_digits)
        better = other.scale_bits > tried.scale_bits and other.seconds <= tried.seconds
        if alike and better and not (tried.why_out or other.why_out):
            words = f"a smaller scale than {other.scale_bits} that saves nothing"
            return replace(tried, why_out=words)
    return tried


def _short(params: CkksParameters, error: ParameterError) -> str:
    if params.log_qp > params.max_log_qp:
        return f"log2(QP) = {params.log_qp} above {params.max_log_qp}: below 128 bits"
    return str(error)


def _why_out(plan: RowsPlan) -> str:
    error, leak = release_error_std(plan), mask_leak_bits(plan)
    if error > MAX_RELEASE_ERROR:
        return f"released weights off by {error:.1g}, above {MAX_RELEASE_ERROR:g}"
    if leak > MAX_MASK_LEAK_BITS:
        return f"refresh masks leak 2^{leak:.0f}, above 2^{MAX_MASK_LEAK_BITS}"
    return ""


def mask_leak_bits(plan: RowsPlan) -> float:
    """log2 of the statistical distance of all masked coefficients from uniform.

    A coefficient of at most 2^(scale + 1), masked uniformly below two primes of `scale` bits.
    """
    scale = plan.ckks.scale_bits
    masked = max(1, sum(plan.refreshes)) * plan.ckks.ring_dim
    return math.log2(masked) + (scale + 1) - 2 * scale


def _iteration(plan: RowsPlan, lasts: planner.Seconds) -> float:
    """Mean over the run, all roles in turn: the first and the last differ."""
    return (lasts.by_phase["train"] + lasts.by_phase["refresh"]) / plan.rounds
