"""How many rows private standard errors need, told from public figures before anything is spent.

`estimate.clear_inverse` refuses an information of d columns whose least eigenvalue is below CLEAR
times tau sqrt(2 d), tau the std of its noise. Of N rows the eigenvalues have the mean N v q, q the
mean square of an entry of a row and v the largest variance of an outcome given the row: the least
one is at most that, whatever the columns. Entries are on [-1, 1], so q <= 1; v is 1/4 of a label,
1 of a count over its range, and least squares have none (1).

Of independent columns the least is N v q itself, q the least variance of one. USUAL is q of columns
whose standard deviation is a sixth of their range; of labels one in five is taken to be positive,
counts to be a fifth of their range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.statistics.inference.budget import COUNTED
from protocols.statistics.inference.estimate import CLEAR, noise_norm

USUAL = 1 / 9
MOST = {"logistic": 1 / 4, "poisson": 1.0, "linear": 1.0}
LIKELY = {"logistic": 0.16, "poisson": 0.2, "linear": 1.0}


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows below which there are no intervals.

    least: of any columns; usual: of independent ones; wider: how many times as wide as without
    privacy intervals of these are, NaN where there are none or the variance of an outcome is not
    known; variance: that each column needs, of numbers on [-1, 1] and flags of 0 and 1.
    """

    least: int
    usual: int
    wider: float
    variance: float


def reach(model: str, *, features: int, rows: int, sigma: float, tau: float) -> Reach:
    """Of a model's sums.

    features: d, bias included; sigma, tau: std of a sum's score and of its information, had it the
    whole budget of standard errors.
    """
    # Of two sums that count; `products` of a linear model are one.
    share = 1.0 if model == "linear" else math.sqrt(sum(COUNTED))
    needed = CLEAR * noise_norm(tau / share, features)
    found = LIKELY[model] * USUAL
    wider = math.sqrt(1 + (sigma / share) ** 2 / (found * rows))
    known = model != "linear" and rows * found >= needed
    return Reach(
        least=math.ceil(needed / MOST[model]),
        usual=math.ceil(needed / found),
        wider=wider if known else math.nan,
        variance=needed / (LIKELY[model] * rows),
    )


def spread_of(variance: float) -> float:
    """Standard deviation of a number on [-1, 1], as a share of its range."""
    return math.sqrt(variance) / 2


def needs_words(variance: float) -> str:
    """What columns need for so large a variance, which is at most 1/4."""
    share = (1 - math.sqrt(1 - 4 * variance)) / 2
    return (
        f"every number needs a standard deviation of some {spread_of(variance):.2g} of its range, "
        f"every category some {100 * share:.2g} % of the rows"
    )
