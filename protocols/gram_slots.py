"""Bounds on the slots of regression on Gram sums (`gram_training`), by the spectrum of M.

D = b + 2 ridge + floor, diagonal (scale I with privacy), u = 1 / D to a relative error e, H = 2 X^T
X / N, and with privacy H + 2 E. K = D^-1/2 (H + 2 E + 2 ridge) D^-1/2, so that M = D^-1/2 (I - K)
D^1/2 and D^1/2 W_t = phi_t(K) D^-1/2 G, phi_t(k) = (1 - (1 - k)^t) / k, G = 2 X^T Y / N (+ 2 E').

**0 <= K <= 1 + e.** Without privacy by Gershgorin, sum_j |H_kj| <= b_k, where every owner sees to b
<= `curvature_bound` (`GramPlan.contribution`). With it because |E| <= tau <= ridge, |X^T X / N| <=
C^2 and `curvature_bound` >= 2 (C^2 + tau): `gram_certificate`.

**Targets.** With A = sqrt(2 / N) X D^-1/2, A^T A <= K and D^-1/2 G = A^T y, |y|^2 <= 2 Y^2, Y the
bound on a target. |phi_t(K) A^T|^2 = |A phi_t(K)|^2 <= max k phi_t(k)^2 <= min(t, 1 / k_min), since
phi_t <= min(t, 1 / k); all up to (1 + e)^t where e > 0. So, entry by entry,

    |W_t| <= sqrt(2 min(t, 1 / k_min) / low) Y,   k_min = 2 ridge / high,

low, high the range of D; k_min = 0 with privacy, where E may use up the ridge. Noise adds at most
2 t |E'_o| / scale, |E'_o| <= tau_0 (sqrt(d) + sqrt(2 ln(c / failure))).

**M.** |M_kj| <= 1 + e: off the diagonal by Gershgorin, or by |M| <= 1 where D = scale I.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from protocols.gram import INVERSE_ERROR, LIFT, UNIT
from protocols.privacy.budget import DELTA_SHARE, GRID_MARGIN
from protocols.privacy.gram_certificate import noise_norm_bound
from protocols.slot_bounds import SlotBounds

if TYPE_CHECKING:
    from protocols.gram_plan import GramPlan


def bounds(plan: GramPlan, norm_bound: float) -> SlotBounds:
    """Of a plan, for rows of norm at most `norm_bound`."""
    task, steps = plan.task, len(plan.refreshes)
    off = (1 + INVERSE_ERROR) if task.row_sums else 1.0
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
    low = task.inverse.low * task.scale if task.row_sums else task.scale
    flat = 2 * plan.ridge / (task.scale * off) if task.row_sums else 0.0
    grown = off**1.5

    def length(t: int) -> float:
        times = min(t, 1 / flat) if flat else t
        target = plan.fitted.bound(1)
        return float(grown * math.sqrt(2 * times / low) * target + t * noise)

    largest = max(length(plan.rounds) / UNIT, LIFT * off)
    if task.row_sums:
        # Of 1 / (b factor) as well, as factor is at least 1.
        largest = max(largest, off / task.inverse.low)
    release = length(plan.rounds) / UNIT
    proof = "the spectrum of the iteration's matrix"
    return SlotBounds.proven((largest,) * steps, release, proof, 2 * failure)
