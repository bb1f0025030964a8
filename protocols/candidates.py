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

from protocols import planner
from protocols.ckks.circuit import iteration_levels
from protocols.ckks.parameters import MAX_LOG_QP_128, REFRESH_TOWERS, CkksParameters
from protocols.ckks.tally import OPERATIONS
from protocols.ckks.timing import UnitTimes
from protocols.ckks.work import work
from protocols.decrypt import release_error_std
from protocols.errors import ParameterError
from protocols.layouts import cheapest_layout
from protocols.rows import RowsPlan

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
    depth = iteration_levels(plan.link, plan.rule) + REFRESH_TOWERS - 1
    if math.ceil((depth + 1) / digits) * (digits - 1) >= depth + 1:
        return replace(tried, why_out=f"{digits} digits leave one without a prime")
    try:
        params = CkksParameters(
            ring_dim=ring, depth=depth, scale_bits=scale, num_digits=digits, security_bits=128
        )
        other = cheapest_layout(replace(plan, ckks=params, profile="secure"))
    except ParameterError as error:
        return replace(tried, why_out=_short(ring, depth, scale, digits, error))
    why_out = _why_out(other)
    # Bytes take the frames of every message: only for those that stay.
    traffic = {} if why_out else planner.bytes_per_party(other)
    lasts = planner.seconds(other, scaled(times, plan.ckks, params))
    return replace(
        tried,
        params=params,
        why_out=why_out,
        seconds=lasts.total,
        iteration=_iteration(other, lasts),
        num_bytes=sum(traffic.values()),
        release_error=release_error_std(other),
        features=other.layout.num_blocks,
    )


def _dominated(tried: Candidate, others: list[Candidate]) -> Candidate:
    """A smaller scale costs the same unless it saves a special prime."""
    for other in others:
        if (
            not (tried.why_out or other.why_out)
            and (other.ring_dim, other.num_digits) == (tried.ring_dim, tried.num_digits)
            and other.scale_bits > tried.scale_bits
            and other.seconds <= tried.seconds
        ):
            scale = other.scale_bits
            return replace(tried, why_out=f"a smaller scale than {scale} that saves nothing")
    return tried


def _short(ring: int, depth: int, scale: int, digits: int, error: ParameterError) -> str:
    loose = CkksParameters(
        ring_dim=ring, depth=depth, scale_bits=scale, num_digits=digits, security_bits=0
    )
    limit = MAX_LOG_QP_128[ring]
    if loose.log_qp > loose.max_log_qp:
        return f"log2(QP) = {loose.log_qp} above {limit - 2}: below 128 bits"
    return str(error)


def _why_out(plan: RowsPlan) -> str:
    error = release_error_std(plan)
    if error > MAX_RELEASE_ERROR:
        return f"released weights off by {error:.1g}, above {MAX_RELEASE_ERROR:g}"
    leak = mask_leak_bits(plan)
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


# -- unit times at other parameters ---------------------------------------------------------------


def scaled(times: UnitTimes, measured: CkksParameters, wanted: CkksParameters) -> UnitTimes:
    """Unit times at other parameters."""
    if measured == wanted:
        return times
    operations = {
        name: tuple(
            work(name, wanted, level).units(wanted.ring_dim) * _pace(times, measured, name)
            for level in range(wanted.depth)
        )
        for name in OPERATIONS
    }
    n = wanted.ring_dim / measured.ring_dim
    towers = n * wanted.num_towers / measured.num_towers
    keys = n * planner.key_rows(wanted) / planner.key_rows(measured)
    return replace(
        times,
        operations=operations,
        setup=times.setup * towers,
        encrypt=times.encrypt * towers,
        key_share=times.key_share * keys,
        key_join=times.key_join * keys,
        refresh_share=times.refresh_share * towers,
        refresh_join=times.refresh_join * towers,
        map_share=times.map_share * towers,
        map_join=times.map_join * towers,
        read=times.read * towers,
        expand=times.expand * n,
        decryption_share=times.decryption_share * n,
    )


def _pace(times: UnitTimes, params: CkksParameters, name: str) -> float:
    """Seconds per unit of work, over all levels of the measured parameters."""
    spent = sum(times.operations[name])
    done = sum(
        work(name, params, level).units(params.ring_dim)
        for level in range(len(times.operations[name]))
    )
    return spent / done
