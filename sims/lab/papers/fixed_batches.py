r"""Laplace releases of m of n rows drawn anew in every round, by a curator whom everybody trusts.

**Mechanism.** Each round draws a set of m of the n rows, uniformly and in secret, and releases the
mean of what they add at the earlier releases, with Laplace noise of scale b on every coordinate. A
row's part depends on the row and on earlier releases alone, and two rows' parts are at most S apart
in l1. Neighbours replace one row.

**One round.** Let q = m / n and e = exp(S / (m b)). Given whether row k is drawn, the release has
density p_0 (it is not; the same for both neighbours), p_1 or p_1' (it is), and the neighbours'
densities are P = (1 - q) p_0 + q p_1 and Q = (1 - q) p_0 + q p_1'. Then p_1 <= e p_1', because the
same sets differ in the row k alone, and p_1 <= e p_0, because putting one of the n - m others in
the place of k, each as likely, makes the sets without k of those with it. So
p_1 - p_1' <= (e - 1) min(p_0, p_1') <= (e - 1) Q if p_1' <= p_0, and otherwise
p_1 - p_1' < p_1 - p_0 <= (e - 1) p_0 <= (e - 1) Q. Both give P - Q = q (p_1 - p_1') <= q (e - 1) Q:

    eps = ln(1 + q (exp(S / (m b)) - 1)),       b = S / (m ln(1 + (exp(eps) - 1) / q)).

That is equations (11) to (13) of arXiv:2008.01989, there by reference to Balle, Barthe, Gaboardi
(arXiv:1807.01647, Theorem 9). It is reached: all others at one end of an interval of length S, row
k and its replacement at the other end and at theirs. **All rounds**: the bound holds given any
earlier releases, so the eps_t add up.

**Not covered.** Rows that are drawn by their owners or by a coordinator, who know the draw: hence
no run of the federation claims it (`privacy.loss.poisson` says what does). Rows with a hidden
state of their own.

**Division.** sum_t a_t b(eps_t)^2 is least under sum_t eps_t = eps where a_t |d b^2 / d eps| is the
same for all t. With u = ln(1 + (exp(eps) - 1) / q) that is a_t u' / u^3, u' = exp(eps) / (q +
exp(eps) - 1); u grows and u' falls, so each term falls with eps_t and the optimum is unique. At
q = 1 it is a_t^(1/3) (Proposition 4.2). The paper takes that for q < 1 too (Remark 4.2), where
eps_t is far below q; `optimal_shares` needs no such condition.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Floats = NDArray[np.float64]
_BISECTIONS = 80


def laplace_scale(epsilon: Floats, *, sensitivity: float, batch: int, rows: int) -> Floats:
    """b of rounds that cost epsilon each, shape of `epsilon`.

    Args:
        epsilon: of each round, > 0.
        sensitivity: S, largest l1 distance of two rows' parts.
        batch: m, rows drawn in a round, 1 .. rows.
        rows: n.

    Raises:
        ParameterError: the batch is not in 1 .. rows.
    """
    rate = batch / rows
    _check(rate)
    return np.asarray(sensitivity / (batch * np.log1p(np.expm1(epsilon) / rate)))


def optimal_shares(log_weights: Floats, *, epsilon: float, rate: float) -> Floats:
    """Shares of epsilon, shape (T,), summing to 1, that minimise sum_t a_t b_t^2.

    log_weights: ln a_1 .. ln a_T; epsilon: of all rounds together; rate: q.

    Raises:
        ParameterError: rate is not in (0, 1].
    """
    _check(rate)
    weights: Floats = np.asarray(log_weights, dtype=np.float64)

    def spent(level: float) -> Floats:
        """eps_t at which ln(a_t u' / u^3) is `level`, by bisection in ln eps_t."""
        low, high = np.full(weights.shape, -60.0), np.full(weights.shape, np.log(epsilon))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            steep = weights + _log_slope(np.exp(middle), rate) > level
            low, high = np.where(steep, middle, low), np.where(steep, high, middle)
        found: Floats = np.exp(high)
        return found

    ends = weights + _log_slope(np.full(weights.shape, epsilon), rate)
    low, high = float(ends.min()) - 1.0, float(ends.max()) + 200.0
    for _ in range(_BISECTIONS):  # a higher level spends less
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle).sum() > epsilon else (low, middle)
    shares = spent(high)
    return np.asarray(shares / shares.sum())


def _log_slope(epsilon: Floats, rate: float) -> Floats:
    """ln(u' / u^3)."""
    u = np.log1p(np.expm1(epsilon) / rate)
    return np.asarray(epsilon - np.log(rate + np.expm1(epsilon)) - 3 * np.log(u))


def _check(rate: float) -> None:
    if not 0 < rate <= 1:
        raise ParameterError(f"rate={rate} is outside (0, 1]: draw 1 to all of the rows")
