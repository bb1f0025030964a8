"""What threshold CKKS costs in privacy, in the encrypted-shard protocol on rows.

The arithmetic's error depends on the data, so none of it counts as noise:

- **Sensitivity.** One iteration moves w / R by rounding and encryption noise, at most `TAIL`
  standard deviations per slot. In units of the gradient's sum over rows that is
  e_ckks = TAIL R slot_std N / eta. Neighbours may differ by 2 e_ckks per coordinate. The standard
  deviation is that of the whole run's model (`RowsPlan.model_error_std`), which no single iteration
  exceeds.
- **delta.** Gaussian tails of T m slots; and the masks of refreshes, of 2^k values
  (`ckks.masks`): a coefficient of at most 2^(scale_bits + 1) is off uniform by the ratio. What is
  refreshed is the gradient's terms and w / R column by column, divided by what the refresh
  multiplies them by, 2^-6, and by the columns: slots of less than 2 in the mean.
- **Decryption.** What the decrypted polynomial holds beside the model is flooded by each party with
  std sqrt(12) 2^20 sigma_e. The error's norm is at most sqrt(n) sigma_e (`flooding.MARGIN` is above
  its standard deviation), so neighbours differ by twice that: a Gaussian release of
  mu = 2 sqrt(n) / (sqrt(12) 2^20), which is added to mu^2. With cover the model may be seen under
  two floodings, each of sqrt(2) times that std: together the same mu. It is no statistical distance
  of 2^-40: that of two Gaussians is about mu / 2.5, and delta could not pay for it.

Settings are chosen before the ring, so certificates count the fixed allowances below; `check`
refuses a plan that exceeds one of them. Both sides of a run use this file.
"""

from __future__ import annotations

import math
from typing import Any

from protocols.ckks.flooding import STATISTICAL_SECURITY_BITS, slot_std
from protocols.ckks.masks import smallest_mask_bits
from protocols.errors import ParameterError
from protocols.rows import RowsPlan

TAIL = 9.0
"""P(|Z| > 9) < 2^-61."""
MAX_RING_DIM = 1 << 17
ERROR_SHARE = 2.0**-12
OTHER_DELTA = 2.0**-30
"""Of tails and masks."""


def flooding_mu(ring_dim: int) -> float:
    """mu of the one decryption."""
    return 2 * math.sqrt(ring_dim) / (math.sqrt(12) * 2 ** (STATISTICAL_SECURITY_BITS / 2))


FLOODING_MU = flooding_mu(MAX_RING_DIM)


def allowed_error(norm_bound: float, features: int) -> float:
    """e_ckks that certificates count: with it, sigma grows by at most 2^-12."""
    return ERROR_SHARE * norm_bound / math.sqrt(features)


def allowances(norm_bound: float, features: int) -> dict[str, Any]:
    """What `find_setting` is told for a run with privacy."""
    return {
        "encryption_error": allowed_error(norm_bound, features),
        "other_delta": OTHER_DELTA,
        "spent_mu": FLOODING_MU,
    }


def error_of(plan: RowsPlan) -> float:
    """e_ckks of a plan, per coordinate of the gradient's sum."""
    slot = slot_std(plan.ckks, plan.model_error_std())
    # A preconditioner is at least 1 / high, and its rates at least 1.
    rate = 1 / plan.curvature.high if plan.curvature else float(plan.update["learning_rate"])
    return TAIL * plan.unit * slot * plan.num_rows / rate


def delta_of(plan: RowsPlan) -> float:
    """Tails of all slots, and masks of all refreshes."""
    tails = plan.rounds * plan.num_features * math.erfc(TAIL / math.sqrt(2))
    # With cover, a refresh may be seen under two independent masks.
    masks = (
        plan.decryptions
        * sum(plan.refreshes)
        * plan.ckks.ring_dim
        * 2.0 ** (plan.ckks.scale_bits + 1 - smallest_mask_bits(plan.ckks, len(plan.members)))
    )
    return tails + masks


def check(plan: RowsPlan, norm_bound: float) -> None:
    """Refuse a plan whose arithmetic is worse than its certificate counts.

    Raises:
        ParameterError: names the figure, its value and its bound.
    """
    figures = {
        "encryption_error": (error_of(plan), allowed_error(norm_bound, plan.num_features)),
        "other_delta": (delta_of(plan), OTHER_DELTA),
        "flooding_mu": (flooding_mu(plan.ckks.ring_dim), FLOODING_MU),
    }
    for name, (value, bound) in figures.items():
        if not value <= bound:
            raise ParameterError(
                f"{name}={value:.3g} of this plan's arithmetic exceeds {bound:.3g}, which its "
                "certificate counts: take fewer rows or iterations, or a larger learning rate"
            )
