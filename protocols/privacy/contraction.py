"""What T noisy rounds cost when only the last iterate is released and every round contracts.

**Theorem.** X_0 = X'_0 and X_{k+1} = phi(X_k) + Z_k, X'_{k+1} = phi'(X'_k) + Z'_k, the Z i.i.d.
N(0, s^2 I). If phi and phi' have the Lipschitz constant c <= 1, and |phi - phi'| <= D everywhere,
then telling X_T from X'_T is at least as hard as telling N(0, 1) from N(mu, 1), where

    mu = D / s sqrt(F),   F = (1 + c) / (1 - c) (1 - c^T) / (1 + c^T)   (T for c = 1).

This is Bok, Su and Altschuler, "Shifted interpolation for differential privacy", arXiv:2403.00278,
for strongly convex losses; the proof needs no loss, a contraction will do.

*Proof.* Let W_0 = X_0, z_0 = 0 and W_{k+1} = phi'(W_k) + l_k (phi(X_k) - phi'(W_k)) + Z_k with l_k
in [0, 1], l_{T-1} = 1. By the triangle inequality |phi(X_k) - phi'(W_k)| <= c z_k + D, where z_k
bounds |X_k - W_k|, so that z_{k+1} = (1 - l_k)(c z_k + D) does so next, and W_T = X_T. Given W_k,
the shift a = l_k (phi(X_k) - phi'(W_k)) is independent of Z_k and at most a_k = l_k (c z_k + D)
long: a + Z_k is a_k / s-GDP from Z_k, also as a mixture over a. X'_{k+1} is made of (X'_k, Z'_k) as
W_{k+1} is of (W_k, a + Z_k), so by composition (Dong, Roth, Su, arXiv:1905.02383, Theorem 3.2 and
Corollary 3.3) mu^2 grows by (a_k / s)^2 at most. z_T = 0 says that sum c^(T-1-k) a_k = D sum
c^(T-1-k); the least sum of squares has a_k proportional to c^(T-1-k). Those grow with k, so that no
z_k is negative and l_k is in [0, 1]; their squares sum up to D^2 F. (Equality: phi(x) = c x + D.)

**On a ball.** Where both conditions hold in a ball only, they hold everywhere for phi composed with
the projection onto it, which has the Lipschitz constant 1. That process differs from the true one
only if an iterate leaves the ball: delta_norm on either side, as in `budget`.

**Arithmetic.** Let each round add an error of norm e at most, which may depend on the whole past.
The proof allows that on the side of X, with D + e in place of D (W then compares by phi' alone).
So X is mu(D + e) from an X' without errors, which is mu(e) from the one with errors; distances in
mu add up along a chain, and mu(D + e) + mu(e) = mu(D + 2 e).

**Here.** phi(w) = (1 - eta lam) w - eta / N sum_i (p(<w, x_i>) - y_i) x_i + (noise that a coalition
knows), D = eta Delta / N, s = eta sigma, Delta the replace-one sensitivity of the sum. Its Jacobian
is (1 - eta lam) I - eta X^T diag(p'(z_i)) X / N, symmetric, and X^T X / N <= S: `lipschitz`. What
it takes:

- full batches, one fixed step, no momentum: with a second vector in the state, a round is no
  contraction of both. A barrier's force is another map;
- lam > 0, and p' >= 0 on all of [-B R, B R], up to lam: a polynomial that falls somewhere expands;
- S from a public bound, B^2, for *both* neighbours. A bound that holds with high probability holds
  for each with that probability: delta counts it;
- that no iterate but the last is seen: refreshes are masked, and `Budget` pays for masks and
  flooding. F takes the place of T in mu^2 and nowhere else: noise grids and the norm event are
  those of all T rounds.
"""

from __future__ import annotations

import math

from protocols.approximation import Polynomial, range_bound
from protocols.errors import ParameterError
from protocols.privacy.gdp import ROUNDING


def lipschitz(
    p: Polynomial, *, eta: float, ridge: float, norm_bound: float, radius: float, spectrum: float
) -> float:
    """c of one round, in the ball |w| <= R: the largest |eigenvalue| of its Jacobian, certainly.

    1 - eta lam where p rises and eta (2 lam + S max p') <= 2.

    Args:
        p: the link's polynomial.
        eta: learning rate.
        ridge: lam, coefficient of w in the update, >= 0.
        norm_bound: B, bound on the rows' norms.
        radius: R.
        spectrum: S, bound on the eigenvalues of X^T X / N, of any neighbour; B^2 always is one.

    Raises:
        ParameterError: an argument is out of range.
    """
    for name, value in (("eta", eta), ("norm_bound", norm_bound), ("radius", radius)):
        if not 0 < value < math.inf:
            raise ParameterError(f"{name}={value} must be positive and finite")
    if not 0 <= ridge < math.inf or not 0 <= spectrum < math.inf:
        raise ParameterError(f"ridge={ridge}, spectrum={spectrum}: both must be finite, 0 or more")
    ends = norm_bound * radius
    least, most = range_bound(p.derivative(), -ends, ends)
    slowest = 1 - eta * (ridge + spectrum * min(least, 0.0))
    fastest = 1 - eta * (ridge + spectrum * max(most, 0.0))
    return max(abs(slowest), abs(fastest)) * (1 + ROUNDING)


def effective_rounds(c: float, rounds: int) -> float:
    """F: as many rounds, all of them released, cost as much; between 1 and T, rounded up.

    tanh(T u / 2) / tanh(u / 2), u = -ln c; T where the round is no contraction.

    Raises:
        ParameterError: c is negative, or rounds below 1.
    """
    if not c >= 0 or rounds < 1:
        raise ParameterError(f"c={c}, rounds={rounds}: need c >= 0 and rounds >= 1")
    if c >= 1:
        return float(rounds)
    half = -math.log(c) / 2 if c else math.inf
    found = math.tanh(rounds * half) / math.tanh(half) * (1 + ROUNDING)
    return min(float(rounds), max(1.0, found))
