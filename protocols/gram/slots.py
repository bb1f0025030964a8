"""Bounds on the slots of regression on Gram sums (`gram.training`), by the spectrum of K.

D = (b + 2 ridge + floor)(1 + e), diagonal (scale I with privacy), e the bound of the relative error
of the inverse u, so that u = theta / D with theta in [1 - 2 e, 1], which D may take in. H = 2 X^T X
/ N, and with privacy H + 2 E. K = D^-1/2 (H + 2 E + 2 ridge) D^-1/2, so that D^1/2 W_t = phi_t(K)
D^-1/2 G, phi_t(k) = (1 - p_t(k)) / k, p_t the polynomial of `gram.pace`, G = 2 X^T Y / N (+ 2 E').

**0 <= K <= 1.** Without privacy by Gershgorin, sum_j |H_kj| <= b_k, where every owner sees to b <=
`curvature_bound` (`GramPlan.contribution`); of whitened rows b_k = 2 mean |x_k| |x|_1 is at most
2 d Lambda, but for the chance that Lambda states, as the mean squares of two columns are at most
Lambda. With privacy because |E| <= tau <= ridge, |X^T X / N| <= C^2 and `curvature_bound` >=
2 (C^2 + tau): `certificates.gram`.

**Targets.** With A = sqrt(2 / N) X D^-1/2, A^T A <= K - k_min, k_min = 2 ridge / high, and D^-1/2 G
= A^T y, |y|^2 <= 2 Y^2, Y the bound on a target. |phi_t(K) A^T| = |A phi_t(K)| <= S, the largest
sqrt(k - k_min) phi_t(k) over t <= T and k_min <= k <= 1: `gram.pace`. So, entry by entry,

    |W_t| <= sqrt(2 / low) S Y,

low, high the range of D; k_min = 0 with privacy, where E may use up the ridge. Noise adds at most
2 max phi_t |E'_o| / scale, |E'_o| <= tau_0 (sqrt(d) + sqrt(2 ln(c / failure))). V_t is at most W_t.

**Blocks.** A product is right in the heads, and elsewhere part of one row of K and part of the
next: at most 2 |W_t|, as sum_j |K_kj| <= 1, or where D = scale I, so that |W_t| bounds the whole
vector, sum_j K_kj^2 <= 1. Hence Z_t is at most L ((level + pull) / gain + 2) times |W_t|.

**M.** |M_kj| <= max(level, gain): on the diagonal K is in [0, 1], and off it at most 1 by
Gershgorin, or by K <= 1 where D = scale I.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from protocols.gram.block_training import largest_slot
from protocols.gram.contributions import INVERSE_ERROR, LIFT, UNIT
from protocols.numerics.slot_bounds import SlotBounds
from protocols.privacy.certificates.gram import noise_norm_bound
from protocols.privacy.loss.budget import DELTA_SHARE, GRID_MARGIN

if TYPE_CHECKING:
    from protocols.gram.plan import GramPlan


def bounds(plan: GramPlan, norm_bound: float) -> SlotBounds:
    """Of a plan, for rows of norm at most `norm_bound`."""
    task, steps = plan.task, len(plan.refreshes)
    # u is at least this part of 1 / D.
    off = (1 - 2 * INVERSE_ERROR) if task.row_sums else 1.0
    noise, failure = 0.0, 0.0
    if plan.privacy:
        std = plan.split.total_std(plan.privacy.sigma) * GRID_MARGIN
        failure = (1 - DELTA_SHARE) * plan.privacy.delta
        tau = noise_norm_bound(std, plan.num_features, failure)
        least = 2 * (norm_bound**2 + tau)
        # A plan holds both as rounded numbers.
        if not (plan.ridge >= tau * (1 - 1e-9) and plan.curvature_bound >= least * (1 - 1e-9)):
            reason = (
                f"ridge={plan.ridge:.4g}, curvature_bound={plan.curvature_bound:.4g}: need "
                f"{tau:.4g} and {least:.4g} for these sums with noise"
            )
            return SlotBounds.unproven(steps, reason)
        x = math.log(plan.outputs / failure)
        noise = 2 * std * (math.sqrt(plan.num_features) + math.sqrt(2 * x)) / task.scale
    if plan.whitening is not None:
        whitening, failure = plan.whitening, plan.whitening.failure / 2
        holds = all(c.satisfied for c in whitening.check(plan.moment_split))
        if not (holds and plan.curvature_bound >= whitening.row_sum_bound * (1 - 1e-9)):
            return SlotBounds.unproven(steps, "the whitened rows' second moment may be larger")
    low = task.inverse.low * task.scale if task.row_sums else task.scale
    flat = 2 * plan.ridge / task.scale * off if task.row_sums else 0.0
    grown, steepest = task.pace.reach(flat)
    length = math.sqrt(2 / low) * grown * plan.fitted.bound(1) + steepest * noise
    if task.in_blocks:
        largest = largest_slot(task, length / UNIT)
    else:
        largest = max(length / UNIT, LIFT * max(task.pace.level, task.pace.gain))
    if task.row_sums:
        # Of 1 / (b factor) as well, as factor is at least 1.
        largest = max(largest, task.inverse_lift * (1 + INVERSE_ERROR) / task.inverse.low)
    release = length / UNIT
    proof = "the spectrum of the iteration's matrix"
    return SlotBounds.proven((largest,) * steps, release, proof, 2 * failure)
