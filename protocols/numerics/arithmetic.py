"""What threshold CKKS costs in privacy, in every run that evaluates a circuit on ciphertexts.

The arithmetic's error depends on the data, so none of it counts as noise:

- **Sensitivity**, where noise is added to gradients under encryption. One iteration moves w / R by
  rounding and encryption noise, at most `TAIL` standard deviations per slot. In units of the
  gradient's sum over rows that is e_ckks = TAIL R slot_std N / eta. Neighbours may differ by 2
  e_ckks per coordinate. The standard deviation is that of the whole run's iterates
  (`kinds.iterate_error_std`), which no single iteration exceeds. Sums that have their noise
  before they are encrypted (`GramPlan`) are not widened: see `certificates.gram`.
- **delta.** Gaussian tails of T m slots; and the masks of refreshes, of 2^k values
  (`ckks.sampling`): a coefficient of at most 2^scale_bits `LARGEST_SLOT` is off uniform by the
  ratio. No proven bound on slots is above that (`slot_bounds`), and delta has paid for noise that
  breaks the proof.
- **Decryption.** What the decrypted polynomial holds beside the model is flooded by each party so
  that e^T Sigma^-1 e <= 1 / (12 2^40) for the whole error vector e (`ckks.flooding`, whose bounds
  are above its standard deviation). Neighbours differ by twice that: a Gaussian release of
  mu = 2 / (sqrt(12) 2^20), which is added to mu^2. With cover the model may be seen under two
  floodings, each of sqrt(2) times that std: together the same mu. It is no statistical distance of
  2^-40: that of two Gaussians is about mu / 2.5, which is 2^-22.

Settings are chosen before the ring, so certificates count the fixed allowances below; `check`
refuses a plan that exceeds one of them. Both sides of a run use this file.
"""

from __future__ import annotations

import math
from typing import Any

from protocols.ckks.circuits.choice import smallest_mask_bits
from protocols.ckks.circuits.errors import slot_std
from protocols.ckks.flooding import STATISTICAL_SECURITY_BITS
from protocols.errors import ParameterError
from protocols.numerics.slot_bounds import LARGEST_SLOT
from protocols.plan import kinds
from protocols.plan.circuit_plan import CircuitPlan

TAIL = 9.0
"""P(|Z| > 9) < 2^-61."""
ERROR_SHARE = 2.0**-12
OTHER_DELTA = 2.0**-30
"""Of tails and masks."""


FLOODING_MU = 2 / (math.sqrt(12) * 2 ** (STATISTICAL_SECURITY_BITS / 2))
"""mu of the one decryption."""


def allowed_error(row_bound: float, size: int) -> float:
    """e_ckks that certificates count: with it, sigma grows by at most 2^-12.

    row_bound: norm of one row's part of the gradient's sum; size: coordinates of the model.
    """
    return ERROR_SHARE * row_bound / math.sqrt(size)


def beside() -> dict[str, Any]:
    """What a `Budget` pays for beside the rounds."""
    return {"other_delta": OTHER_DELTA, "spent_mu": FLOODING_MU}


def allowances(row_bound: float, size: int) -> dict[str, Any]:
    """What a search for a setting is told; arguments as in `allowed_error`."""
    return {"encryption_error": allowed_error(row_bound, size), **beside()}


def counted(plan: CircuitPlan, norm_bound: float) -> dict[str, Any]:
    """The same for a plan, with rows of norm at most `norm_bound`."""
    return allowances(plan.row_bound(norm_bound), plan.model_size)


def error_of(plan: CircuitPlan) -> float:
    """e_ckks of a plan, per coordinate of the gradient's sum."""
    slot = slot_std(plan.ckks, kinds.iterate_error_std(plan))
    return TAIL * plan.unit * slot / plan.learning_rate_per_row


def delta_of(plan: CircuitPlan) -> float:
    """Tails of all slots, and masks of all refreshes."""
    tails = plan.rounds * plan.model_size * math.erfc(TAIL / math.sqrt(2))
    # With cover, a refresh may be seen under two independent masks.
    masks = (
        plan.decryptions
        * sum(plan.refreshes)
        * plan.ckks.ring_dim
        * LARGEST_SLOT
        * 2.0 ** (plan.ckks.scale_bits - smallest_mask_bits(plan.ckks, len(plan.members)))
    )
    return tails + masks


def check(plan: CircuitPlan, norm_bound: float) -> None:
    """Refuse a plan whose arithmetic is worse than its certificate counts.

    Raises:
        ParameterError: names the figure, its value and its bound.
    """
    bounds = counted(plan, norm_bound)
    for name, found in {"encryption_error": error_of(plan), "other_delta": delta_of(plan)}.items():
        if not found <= bounds[name]:
            raise ParameterError(
                f"{name}={found:.3g} of this plan's arithmetic exceeds {bounds[name]:.3g}, which "
                "its certificate counts: take fewer rows or iterations, or a larger learning rate"
            )
