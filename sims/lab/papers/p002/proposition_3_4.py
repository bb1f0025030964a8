r"""Proposition 3.4: the heavy-ball method's error by a matrix inequality of size 3.

For F of curvature mu to L, V = (xi - xi*)^T P (xi - xi*) + c (F(x) - F*), xi = (x, x_prev):

    c_0 X_0 + c (X_1 + (1 - rho^2) X_2) >= Phi(A, B, P, rho)   gives
    E V_{t+1} <= rho^2 E V_t + alpha^2 (P_11 + c L / 2) E |w|^2,

and (23) divides V by c + 2 |P| / (L P_22), the least of V over F - F*. Two slips are mended:

- (18) has B = (alpha, 0) where (16) subtracts alpha times the gradient: B = (-alpha, 0). The
  printed sign, which proves nothing, finds a slower rate;
- (23) has d E_T for E |w|^2, and E_T has d already: `proposition_3_3`.

P, c_0 (c = 1) by a barrier method: Newton steps on cost - log det of all blocks, which stays inside
what the inequality allows, so that what is found is a certificate. rho by bisection, then P and rho
of the least bound at T. **Truth**: on a quadratic, whose eigenvalues are mu and L, exactly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from sims.lab.papers.accelerated import Floats
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.heavy_ball import exact_error, heavy_ball_rate
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings

MU, SMOOTHNESS, FEATURES, START = 0.1, 1.0, 2, 10.0
STEPS, BETAS, ROUNDS, STD = (0.1, 1.0), (0.0, 0.1, 0.3), 250, 0.01
PUBLISHED_SIGN, SIGN = 1, -1
LARGEST = 1e4
"""Of tr P + c_0, with c = 1."""
UNITS = tuple(
    np.array(p, dtype=float) for p in (((1, 0), (0, 0)), ((0, 1), (1, 0)), ((0, 0), (0, 1)))
)
"""P = P_11 UNITS[0] + P_12 UNITS[1] + P_22 UNITS[2]."""


@dataclass(frozen=True, kw_only=True)
class HeavyBallLmi:
    """alpha, beta; sign: of B, see the module."""

    alpha: float
    beta: float
    sign: int = SIGN

    def blocks(self, rho: float) -> list[Floats]:
        """Of what has to be positive: constant, P_11, P_12, P_22, c_0; shape (7, 7) each."""
        a, b, mu, most = self.alpha, self.beta, MU, SMOOTHNESS
        moved = np.array([[1 + b, -b, self.sign * a], [1.0, 0.0, 0.0]])
        kept = rho * np.eye(2, 3)
        x_0 = np.array([[2 * mu * most, 0, -mu - most], [0, 0, 0], [-mu - most, 0, 2.0]])
        push = np.array([1.0, -1.0, 0.0])
        pull, end = np.array([0.0, 0.0, 1.0]), (1 - most * a) * b
        cross = np.outer(push, pull) + np.outer(pull, push)
        x_1 = -most * b**2 * np.outer(push, push) - end * cross
        x_1 = (x_1 + a * (2 - most * a) * np.outer(pull, pull)) / 2
        x_2 = np.array([[mu, 0, -1], [0, 0, 0], [-1, 0, 0.0]]) / 2
        weights = [
            block_diag(kept.T @ p @ kept - moved.T @ p @ moved, p, 0.0, -np.trace(p)) for p in UNITS
        ]
        constant = block_diag(x_1 + (1 - rho**2) * x_2, np.zeros((2, 2)), 0.0, LARGEST)
        return [constant, *weights, block_diag(x_0, np.zeros((2, 2)), 1.0, -1.0)]

    def inside(self, rho: float) -> Floats | None:
        """P_11, P_12, P_22, c_0 with every block positive; None: not found."""
        blocks = [*self.blocks(rho), np.eye(7)]
        start = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
        start[-1] = 1.0 - float(np.linalg.eigvalsh(_sum(blocks, start))[0])
        found = least(blocks, np.eye(5)[-1], start, enough=lambda x: x[-1] < -1e-9)
        return found[:-1] if found[-1] < 0 else None

    def rate(self) -> float | None:
        """The least rho that is certified, to 1e-4; None: none below 1."""
        low, high = 0.0, 1 - 1e-6
        if self.inside(high) is None:
            return None
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if self.inside(middle) is None else (low, middle)
        return high

    def bound(self, rho: float, std: float, rounds: int) -> tuple[float, float] | None:
        """(23) as printed, with E_T = d std^2, and mended, by the P of the least mended one.

        x_0 = x_{-1} with |x_0 - x*|^2 = START / 2, the eigenvalues' directions alike.
        """
        start = self.inside(rho)
        if start is None:
            return None
        noise = FEATURES * std**2 * self.alpha**2 * (1 - rho ** (2 * rounds)) / (1 - rho**2)
        place, fade = START / 2, rho ** (2 * rounds)
        gap = place * (MU + SMOOTHNESS) / 4
        cost = fade * place * np.array([1.0, 2.0, 1.0, 0.0]) + np.array([noise, 0, 0, 0])
        one, both, two, _ = least(self.blocks(rho), cost / np.abs(cost).max(), start)
        det = one * two - both**2
        size = SMOOTHNESS * two + 2 * det
        first = fade * (place * (one + 2 * both + two) + gap)
        last = noise * SMOOTHNESS / 2 * (1 + 2 * both**2 / size)
        return first + FEATURES * last, first + last


def _sum(blocks: Sequence[Floats], x: Floats) -> Floats:
    """F_0 + sum x_i F_i, of the last len(x) + 1 of them."""
    return np.asarray(blocks[0] + np.tensordot(x, np.array(blocks[1:]), axes=1))


def least(
    blocks: Sequence[Floats],
    cost: Floats,
    x: Floats,
    enough: Callable[[Floats], bool] = lambda _: False,
) -> Floats:
    """cost . x least where F(x) = F_0 + sum x_i F_i is positive, from an x inside.

    Newton on scale cost . x - log det F: gradient scale cost_i - tr(F^-1 F_i), Hessian
    tr(F^-1 F_i F^-1 F_j); damped by 1 / (1 + its decrement), which keeps F positive.
    """
    parts, scale = np.array(blocks[1:]), 1.0
    while scale < 1e9:
        for _ in range(50):
            inner = np.linalg.solve(_sum(blocks, x), parts)
            gradient = scale * cost - np.trace(inner, axis1=1, axis2=2)
            hessian = np.einsum("aij,bji->ab", inner, inner)
            step = np.linalg.lstsq(hessian, gradient, rcond=1e-14)[0]
            decrement = math.sqrt(max(0.0, float(gradient @ step)))
            x = x - step / (1 + decrement)
            if decrement < 1e-3 or enough(x):
                break
        if enough(x):
            break
        scale *= 8
    return x


def bounds(lmi: HeavyBallLmi, rate: float, tries: int) -> tuple[float, float]:
    """(23) as printed and mended at the rho of the least mended one, of so many."""
    grid = np.linspace(rate + 1e-4, 1, tries, endpoint=False)
    found = [each for rho in grid if (each := lmi.bound(float(rho), STD, ROUNDS))]
    return min(found, key=lambda each: each[1])


def run(settings: Settings) -> Result:
    """Rates and bounds by step and momentum, beside the truth on a quadratic."""
    shown, curves = [], []
    for alpha in STEPS[-1:] if settings.quick else STEPS:
        betas, certified = BETAS[:2] if settings.quick else BETAS, []
        for beta in betas:
            began, lmi = time.perf_counter(), HeavyBallLmi(alpha=alpha, beta=beta)
            rate = lmi.rate()
            printed = HeavyBallLmi(alpha=alpha, beta=beta, sign=PUBLISHED_SIGN).rate()
            true = heavy_ball_rate((MU, SMOOTHNESS), alpha, beta)
            name = f"alpha = {alpha:g}, beta = {beta:g}"
            shown += [
                Row(quantity=f"{name}: least rate certified", ours=rate, published=printed),
                Row(quantity=f"{name}: rate on a quadratic", ours=true),
            ]
            if rate is None:
                continue
            certified.append(rate)
            published, mended = bounds(lmi, rate, 2 if settings.quick else 12)
            end = exact_error((MU, SMOOTHNESS), alpha, beta, rounds=ROUNDS, std=STD, start=START)
            shown += [
                Row(
                    quantity=f"{name}: bound (23), T = {ROUNDS}",
                    ours=mended,
                    published=published,
                    seconds=time.perf_counter() - began,
                ),
                Row(quantity=f"{name}: true error, T = {ROUNDS}", ours=end),
            ]
        panel, at = f"alpha = {alpha:g}", list(betas[: len(certified)])
        truth = [heavy_ball_rate((MU, SMOOTHNESS), alpha, beta) for beta in at]
        curves += [Curve(panel, "certified", certified, at=at), Curve(panel, "truth", truth, at=at)]
    gap = max(c - t for a, b in zip(curves[::2], curves[1::2], strict=True)
              for c, t in zip(a.values, b.values, strict=True))  # fmt: skip
    return Result(
        rows=tuple(shown),
        notes=(
            f"mu = {MU:g}, L = {SMOOTHNESS:g}, noise of std {STD:g} on {FEATURES} coordinates",
            f"the certified rate is at most {gap:.2g} above that on a quadratic",
        ),
        draw=lambda: curves_figure(curves, axis="rate", log=False, along="beta"),
    )


ABOUT = About(
    title="heavy ball's rate and error by a matrix inequality, and the truth",
    verdict=CORRECTED,
    finding="certified numerically, after two slips, beside the truth",
    unknown=("an example, P and rho: the paper has none",),
    remarks=(
        "B has the wrong sign in the text's (18), and (23) counts the dimension twice: "
        "sims/lab/papers/p002/proposition_3_4.py",
    ),
    seconds=8,
)
