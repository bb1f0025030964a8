r"""Theorem 1 and Claim A.1: where descent on an approximate gradient ends, without noise.

eta = 1 / beta_g and T = 2 beta_g (g(w_0) - L) / rho^2, L = 0 as in section D. Then some iterate
before T has |grad g| <= rho (Claim A.1), and

    f(w_T) - f* <= 2 alpha + (rho + zeta)^2 / (2 mu),   |w_T - w*|^2 <= 2 / mu times that,

with alpha and zeta bounds on |f - g| and |grad f - grad g|. Appendix A.1 has zeta |w_T - w_t| in
place of 2 alpha, w_t the iterate of the claim. Here f is the logistic loss of `theorem_4`'s rows
with mu / 2 |w|^2, and g has the antiderivative of p, which is ln 2 at 0.
"""

from __future__ import annotations

import math

import numpy as np

from protocols.numerics.approximation import Polynomial, sigmoid_approximation
from sims.lab.baselines import optimum
from sims.lab.papers.item import REPRODUCED, About, Result, Row, Settings
from sims.lab.papers.p003.figure_3 import Floats, points, steepest
from sims.lab.papers.p003.theorem_4 import RADIUS, made_rows

SETTINGS = ((3, 0.1, 0.1), (5, 0.1, 0.05), (7, 0.3, 0.02))
"""Degree, mu, rho."""


def antiderivative(link: Polynomial) -> Polynomial:
    """ln 2 at the middle."""
    powers = (c * link.radius / k for k, c in enumerate(link.coefficients, 1))
    return Polynomial(coefficients=(math.log(2), *powers), center=link.center, radius=link.radius)


def measured(degree: int, mu: float, rho: float) -> dict[str, tuple[float, float]]:
    """Bound and truth by words; of the claim: T, and the first iterate that it promises."""
    x, y = made_rows(np.random.default_rng(0))
    best = optimum("logistic", mu, x, 2 * y - 1)
    link = sigmoid_approximation(degree, RADIUS)
    area = antiderivative(link.polynomial)

    def objective(w: Floats) -> float:
        z = x @ w
        return float(np.mean(np.logaddexp(0, z) - y * z) + mu / 2 * w @ w)

    grid = points(link.polynomial)
    alpha = float(np.abs(area(grid) - np.logaddexp(0, grid)).max())
    beta = steepest(link.polynomial) + mu
    steps = math.ceil(2 * beta * math.log(2) / rho**2)
    w: Floats = np.zeros(x.shape[1])
    place, first = None, math.inf
    for t in range(steps):
        gradient = (link.polynomial(x @ w) - y) @ x / len(x) + mu * w
        if place is None and np.linalg.norm(gradient) <= rho:
            place, first = w, t
        w = w - gradient / beta
    rest = (rho + link.max_error) ** 2 / (2 * mu)
    gap = objective(w) - objective(best)
    found = {
        "step with |grad g| <= rho": (float(steps), float(first)),
        "f(w_T) - f*": (2 * alpha + rest, gap),
        "|w_T - w*|^2": (2 / mu * (2 * alpha + rest), float((w - best) @ (w - best))),
    }
    if place is not None:
        moved = link.max_error * float(np.linalg.norm(w - place))
        found["f(w_T) - f* by A.1"] = moved + rest, gap
    return found


def run(settings: Settings) -> Result:
    """Three settings; quick: the first."""
    shown, kept = [], True
    for degree, mu, rho in SETTINGS[: 1 if settings.quick else None]:
        for words, (bound, truth) in measured(degree, mu, rho).items():
            kept = kept and truth <= bound
            name = f"degree {degree}, mu = {mu:g}, rho = {rho:g}"
            shown.append(Row(quantity=f"{name}: {words}, at most", published=bound, ours=truth))
    return Result(rows=tuple(shown), notes=(f"every bound {'holds' if kept else 'does not hold'}",))


ABOUT = About(
    title="end of descent on an approximate gradient, and its bounds",
    verdict=REPRODUCED,
    finding="Theorem 1, Claim A.1 and Appendix A.1 beside the truth",
    remarks=("the published column has the bounds, ours what they bound",),
    seconds=1,
)
