r"""Replace-one accounting of Gaussian releases with secret Poisson sampling.

**Mechanism.** In round t every record joins with probability q, by a coin of its own that only its
owner sees. A record that joins adds a vector of norm at most C to a sum; the sum is released with
N(0, sigma^2) noise. What a record would add may depend on earlier releases and on a hidden state of
its own, which only its own coins and earlier releases have shaped. What the rest adds does not
depend on the record, given earlier releases and the rest's coins.

**One round.** Give the adversary the coins of all other records, for all rounds; they are
independent of the data. Given these and the earlier releases, the rest's sum s is a number that
both neighbours share, and the coin of record k in round t is still Bernoulli(q): it is independent
of everything before it. Averaging over k's hidden state, the release is distributed as
P = (1 - q) N(s) + q E N(s + M), with some random |M| <= C, and for the neighbour as
Q = (1 - q) N(s) + q E N(s + M'). The hidden state may depend on k's earlier coins, and these are
correlated with what was released; that only shapes the laws of M and M'. By joint convexity every
hockey-stick divergence H_g(P, Q) = sup_A P(A) - g Q(A) is at most that of some fixed m, m'.

**Worst m, m'.** For g >= 1, H_g = E phi(w_1 exp(Z_1 - K_11 / 2) + w_2 exp(Z_2 - K_22 / 2)) under
N(s + m), with phi(u) = max(0, q - u), w_1 = (1 - q)(g - 1), w_2 = g q, and centred Gaussian Z of
covariance K: K_11 = |m|^2, K_22 = |m' - m|^2, K_12 = <m, m - m'>, all over sigma^2. This grows
with every entry of K, because along a line of matrices its derivative is
1/2 sum_ij K'_ij w_i w_j E phi''(..) exp(Z_i + Z_j - K_ii / 2 - K_jj / 2) and phi is convex
(Kahane's convexity inequality). With |m|, |m'| <= C the entries are at most C^2, 4 C^2 and 2 C^2
over sigma^2, all reached by m' = -m, |m| = C. For g < 1 the same holds for the reversed pair,
H_g(P, Q) = 1 - g + g H_(1/g)(Q, P), and that pair is the mirror image. So
(1 - q) N(0) + q N(C) against (1 - q) N(0) + q N(-C) dominates every round, and this is the
REPLACE_ONE pair of `dp_accounting`.

**All rounds.** The bound holds for the conditional laws given any earlier releases, which is all
that composition of dominating pairs needs (Zhu, Dong, Wang, arXiv:2106.08567).

**Not covered.** Batches of fixed size drawn without replacement: the others' coins then tell k's,
and without them the rest's sum depends on hidden states whose law, given the releases, differs
between neighbours. Coins that the coordinator or a coalition knows. A published batch size.
"""

from __future__ import annotations

import math
from functools import lru_cache

from protocols.errors import ParameterError
from protocols.privacy.loss import check_delta, check_epsilon, epsilon_for_mu, mu_for_epsilon

_TOLERANCE = 1e-3
_FINEST, _COARSEST = 1e-5, 1e-3


def poisson_epsilon(*, noise_multiplier: float, rate: float, rounds: int, delta: float) -> float:
    """Epsilon at delta, replace-one, rounded up; infinity without noise.

    Args:
        noise_multiplier: sigma / C, where C bounds the norm of what ONE record adds (half of the
            replace-one sensitivity), >= 0.
        rate: q, in (0, 1]; 1 is the full batch, in closed form.
        rounds: T >= 1.
        delta: in (0, 1).
    """
    _check(rate, rounds)
    check_delta(delta)
    if not noise_multiplier >= 0:
        raise ParameterError(f"noise_multiplier={noise_multiplier} is below 0")
    if noise_multiplier == 0:
        return math.inf
    if rate == 1:
        return epsilon_for_mu(mu=2 * math.sqrt(rounds) / noise_multiplier, delta=delta)
    return _library(noise_multiplier, rate, rounds, delta, _COARSEST / 10)


@lru_cache(maxsize=4096)
def poisson_noise_multiplier(*, epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """The least sigma / C that gives (epsilon, delta), to one part in 1000, never too small.

    Arguments as in `poisson_epsilon`.
    """
    from scipy.optimize import brentq  # half of what an owner's process would load

    _check(rate, rounds)
    check_epsilon(epsilon)
    check_delta(delta)
    high = 2 * math.sqrt(rounds) / mu_for_epsilon(epsilon=epsilon, delta=delta)  # without coins
    if rate == 1:
        return high
    interval = min(_COARSEST, max(_FINEST, epsilon * 1e-3))

    def spare(log_z: float) -> float:  # grows with the noise
        spent = _library(math.exp(log_z), rate, rounds, delta, interval)
        return math.log(epsilon / max(spent, epsilon * 1e-9))

    # For many rounds the answer is close to q times the figure without coins, from above.
    low = math.log(high * rate * 0.95)
    top = low + 0.06
    while spare(top) < 0:
        if top >= math.log(high):
            return high
        low, top = top, top + 2 * (top - low)
    if spare(low) >= 0:
        return math.exp(low)
    root = float(brentq(spare, low, top, xtol=_TOLERANCE / 4))
    while spare(root) < 0:
        root += _TOLERANCE / 4
    return math.exp(root)


@lru_cache(maxsize=4096)
def _library(multiplier: float, rate: float, rounds: int, delta: float, interval: float) -> float:
    """Pessimistic epsilon of the dominating pair by privacy loss distributions."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    accountant = PLDAccountant(
        NeighboringRelation.REPLACE_ONE, value_discretization_interval=interval
    )
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def _check(rate: float, rounds: int) -> None:
    if not 0 < rate <= 1:
        raise ParameterError(f"rate={rate} is outside (0, 1]")
    if rounds < 1:
        raise ParameterError(f"rounds={rounds} is below 1")
