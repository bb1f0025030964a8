r"""Appendix C.4: curvature of the barrier that Theorem 4 is applied to, and its gradient's error.

h(w) = -lambda B(Theta - |w|^2), B' = F: 1 / x on [kappa Theta, Theta], P below, moved to meet it.
Its Hessian has the eigenvalues 2 lambda F, m - 1 times, and 2 lambda F - 4 lambda F' |w|^2 along w.

- convexity: 2 lambda / Theta, as printed;
- smoothness: the paper has the larger of -4 lambda m_F' + F(Theta - R^2) and
  4 lambda (1 - kappa) Theta / (kappa Theta)^2 + 1 / (kappa Theta): **R^2 beside m_F', and
  2 lambda before F, are left out**, so that it is too small;
- |grad h - its polynomial| <= 2 lambda e_B R, as printed.
"""

from __future__ import annotations

import numpy as np

from protocols.numerics.approximation import reciprocal_approximation
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings

THETA, KAPPA, LAM, REACH = 4.0, 0.3, 1.0, 1.1
"""REACH: R over the root of Theta."""
DEGREES = (1, 3)


def measured(degree: int) -> dict[str, tuple[float, float, float]]:
    """As published, as derived, and the truth on a fine grid of |w|, by words."""
    reciprocal = reciprocal_approximation(degree, KAPPA * THETA, THETA)
    p, low, reach = reciprocal.polynomial, KAPPA * THETA, REACH * THETA**0.5
    norm = np.linspace(0.0, reach, 200_001)
    place = THETA - norm**2
    inner = place >= low
    level = 1 / low - float(p(np.array([low]))[0])
    value = np.where(inner, 1 / np.where(inner, place, 1.0), level + p(place))
    slope = np.where(inner, -1 / np.where(inner, place, 1.0) ** 2, p.derivative()(place))
    along = 2 * LAM * value - 4 * LAM * slope * norm**2
    steep, top = float(slope[~inner].min()), float(value[-1])
    edge = 4 * LAM * (1 - KAPPA) * THETA / low**2
    away = float((2 * LAM * np.abs(value - p(place)) * norm).max())
    bound = 2 * LAM * reciprocal.max_error * reach
    return {
        "least curvature": (2 * LAM / THETA, 2 * LAM / THETA, float(2 * LAM * value.min())),
        "largest curvature": (
            max(-4 * LAM * steep + top, edge + 1 / low),
            max(-4 * LAM * steep * reach**2 + 2 * LAM * top, edge + 2 * LAM / low),
            float(along.max()),
        ),
        "error of the gradient": (bound, bound, away),
    }


def run(settings: Settings) -> Result:
    """By the degree of P."""
    del settings
    shown = []
    for degree in DEGREES:
        for words, (published, derived, truth) in measured(degree).items():
            note = f"as derived {derived:.5g}"
            name = f"degree {degree}, {words}"
            shown.append(Row(quantity=name, published=published, ours=truth, note=note))
    return Result(
        rows=tuple(shown),
        notes=(
            f"Theta = {THETA:g}, kappa = {KAPPA:g}, lambda = {LAM:g}, R^2 = {REACH**2:g} Theta",
        ),
    )


ABOUT = About(
    title="curvature of the barrier, and the error of its gradient",
    verdict=CORRECTED,
    finding="convexity and error are exact; the printed smoothness is too small",
    remarks=(
        "the smoothness leaves out R^2 beside the slope and 2 lambda before F: "
        "sims/lab/papers/p003/appendix_c_4.py",
    ),
    seconds=1,
)
