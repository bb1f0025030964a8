"""How large the errors are that flooding has to hide (`ckks.flooding`): sigma_e, from above.

For weights in the units in which they are encrypted:

- each iteration rounds once more. The rounding of a rescaling is tau_0 + tau_1 s, tau_i uniform
  below 1/2 in size and s the sum of P uniform ternary secrets: variance (1 + 2 n P / 3) / 12. The
  rule sums T of them up with a gain, sqrt(T) where no iteration expands distances;
- the rows carry the noise of P fresh encryptions, std sigma P sqrt(4 n / 3), and move the mean
  gradient by 1 / sqrt(N) of it, the same way in every iteration.

That errors add up as independent ones do is what this stands on. A key switch leaves K times the
variance of a rescaling and mean zero, as `evaluation` makes sure of; groups of rows that are alike
round independently, as their encryptions do, or as `parties.kernel.model.clear_rows` makes sure of.

An encrypted model counts the noise of its gradients, with a margin of 2 for the rule's own path
(`protocols.model.errors`). Elsewhere MARGIN covers what is smaller: the columns' noise that a
refresh sums up, key switches, digits of its mask. Either is an estimate that tests compare with
measurements, not a proof. Random rows stay below 0.6 of it, from 2 to 200 rows, 1 to 40 columns,
degrees 3 to 15 and all rules. So do rows that are all alike, one or several groups of them in each
party: 0.06 to 0.13 of it for an encrypted model of few parts at rings 2^11, 2^13 and 2^15, up to 20
rounds, a quarter of it at 64 parts, a third of it for encrypted rows (`tests.support.alike`). A
factor f above 1 would take 2 log2 f bits of s.
"""

from __future__ import annotations

import math

from scipy.special import chdtri

from protocols.ckks import CkksParameters
from protocols.ckks.flooding import FINE, FRESH_ERROR_STD, Flooding, rounding_std

MARGIN = 3.0
FEW_MARGIN = 2.0


def fresh_std(params: CkksParameters, parties: int) -> float:
    """Noise of the sum of P fresh encryptions, per coefficient [integer units]."""
    return FRESH_ERROR_STD * parties * math.sqrt(4 * params.ring_dim / 3)


def scatter(count: int) -> float:
    """What the root mean square of `count` standard normal numbers exceeds once in 2^40."""
    return math.sqrt(float(chdtri(count, 2.0**-40)) / count)


def few_margin(count: int) -> float:
    """What takes the place of MARGIN for `count` slots: they scatter about their average."""
    return max(FEW_MARGIN, scatter(2 * count))


def error_std(
    params: CkksParameters,
    parties: int,
    *,
    rounding_gain: float,
    row_gain: float,
    margin: float = MARGIN,
) -> float:
    """Estimate of sigma_e from above, per coefficient [integer units]; see the module.

    rounding_gain: std of the model's error over that of one iteration's; row_gain: of the model's
    error over that of the rows' encryption.
    """
    rounding = rounding_gain * rounding_std(params, parties)
    return margin * math.hypot(rounding, row_gain * fresh_std(params, parties))


def slot_std(params: CkksParameters, coefficient_std: float) -> float:
    """Standard deviation of a decoded slot for i.i.d. coefficients: sqrt(n / 2) std / scale."""
    return math.sqrt(params.ring_dim / 2) * coefficient_std / 2.0**params.scale_bits


def drawn_std(flooding: Flooding) -> float:
    """Of the coordinates that are shown, with the finer noise that `Flooding.draw` adds."""
    is_fine = max(flooding.std, flooding.rest) > FINE
    return math.hypot(flooding.std, FINE if is_fine else 0.0)
