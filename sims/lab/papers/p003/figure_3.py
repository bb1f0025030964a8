r"""Figure 3: |w_t - w*|^2 of descent with a minimax and with a least-squares polynomial.

Degree 7, step 1 / beta with beta = max |p'| m, as in Table 3; m: columns without the bias. "MM" is
the paper's own polynomial, interpolation at 9 of Chebyshev's nodes rather than minimax; the true
minimax stands beside it. w*: the optimum of the logistic loss (scikit-learn).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from protocols.numerics.approximation import Polynomial, sigmoid_approximation
from sims.lab.papers.barrier import Rows, plain_rows
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.data import ADULT, ADULT_TEST, COMPAS, CREDIT, MNIST
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings

Floats = NDArray[np.float64]
NEEDS = (MNIST, ADULT, COMPAS, CREDIT)
RADII: Mapping[str, tuple[float, ...]] = {
    "mnist_3v8": (20, 25, 30),
    "adult": (10, 15, 20),
    "compas": (7, 10, 15),
    "credit": (10, 15, 20),
}
ERRORS: Mapping[str, Mapping[float, float]] = {
    "MM": {7: 0.0224, 10: 0.0632, 15: 0.1356, 20: 0.1920, 25: 0.2335, 30: 0.3904},
    "LS": {7: 0.0230, 10: 0.0498, 15: 0.0955, 20: 0.1439, 25: 0.1834, 30: 0.4250},
}
"""Of Table 3, by polynomial and radius."""
STEPS = 1000


def interpolant(radius: float) -> Polynomial:
    """The paper's "minimax": at 9 Chebyshev nodes; even coefficients vanish but the constant."""
    nodes = np.cos(np.pi * (np.arange(9) + 0.5) / 9)
    powers = np.polynomial.chebyshev.cheb2poly(
        np.polynomial.chebyshev.chebfit(nodes, expit(radius * nodes), 8)
    )
    return Polynomial(coefficients=tuple(powers[:8]), center=0.0, radius=radius)


@lru_cache
def least_squares(radius: float) -> Polynomial:
    """On 100,000 points, degree 7."""
    grid = np.linspace(-1, 1, 100_000)
    powers = np.polynomial.polynomial.polyfit(grid, expit(radius * grid), 7)
    return Polynomial(coefficients=tuple(powers), center=0.0, radius=radius)


KINDS: Mapping[str, Callable[[float], Polynomial]] = {
    "MM": interpolant,
    "LS": least_squares,
    "true minimax": lambda radius: sigmoid_approximation(7, radius).polynomial,
}


def points(link: Polynomial) -> Floats:
    """A fine grid of its interval."""
    return np.linspace(-link.radius, link.radius, 20_001, dtype=np.float64)


def steepest(link: Polynomial) -> float:
    """Largest slope on its interval, on a fine grid."""
    return float(np.abs(link.derivative()(points(link))).max())


def error_of(link: Polynomial) -> float:
    """Largest distance to the sigmoid, likewise."""
    grid = points(link)
    return float(np.abs(link(grid) - expit(grid)).max())


def optimum_of(rows: Rows) -> Floats:
    """w*."""
    model = LogisticRegression(C=1e4, fit_intercept=False, tol=1e-8, solver="newton-cholesky")
    return np.asarray(model.fit(rows.x, rows.y).coef_[0])


Step = Callable[[Floats, Floats], Floats]
"""(weights, mean gradient) -> next weights."""


def descent(rate: float) -> Step:
    """Plain steps."""
    return lambda w, g: w - rate * g


def weights_of(rows: Rows, link: Polynomial, step: Step) -> Iterator[tuple[Floats, Floats]]:
    """Weights and scores after each step from w = 0."""
    w: Floats = np.zeros(rows.x.shape[1])
    z: Floats = np.zeros(len(rows.x))
    while True:
        w = step(w, (link(z) - rows.y) @ rows.x / len(rows.x))
        z = rows.x @ w
        yield w, z


def course(rows: Rows, link: Polynomial, rate: float, best: Floats, steps: int) -> list[float]:
    """|w_t - w*|^2, t = 1 .. steps."""
    path = islice(weights_of(rows, link, descent(rate)), steps)
    return [float(((w - best) ** 2).sum()) for w, _ in path]


def run(settings: Settings) -> Result:
    """Every table that is there, every interval."""
    steps = 30 if settings.quick else STEPS
    there, notes = settings.present(NEEDS)
    shown, curves = [], []
    for need in there:
        rows = plain_rows(need, settings)
        best = optimum_of(rows)
        for radius in RADII[need.name][: 1 if settings.quick else 3]:
            for kind, make in KINDS.items():
                began = time.perf_counter()
                link = make(radius)
                beta = steepest(link) * (rows.x.shape[1] - 1)
                values = course(rows, link, 1 / beta, best, steps)
                shown.append(
                    Row(
                        quantity=f"{need.name}, {kind} on [-{radius:g}, {radius:g}]: "
                        f"|w_t - w*|^2 after {steps} steps",
                        ours=values[-1],
                        seconds=time.perf_counter() - began,
                        note=f"step {1 / beta:.4f}; from {float(best @ best):.4g}; error of p "
                        f"{error_of(link):.5f}",
                    )
                )
                curves.append(Curve(f"{need.name} [-{radius:g}, {radius:g}]", kind, values))
    return Result(
        rows=tuple(shown),
        notes=tuple(notes),
        draw=lambda: curves_figure(curves, axis="|w_t - w*|^2", log=True),
    )


ABOUT = About(
    title="distance to the optimum by step, minimax and least-squares polynomials",
    verdict=CORRECTED,
    finding="the true minimax polynomial beside the paper's; Table 3 has the errors",
    data=(MNIST, ADULT, ADULT_TEST, COMPAS, CREDIT),
    unknown=("the distances: the figure is an image",),
    remarks=(
        "the paper's minimax is interpolation at Chebyshev's nodes, and its coefficients are "
        "rounded to 10 decimals: sims/lab/papers/p003/figure_3.py",
    ),
    seconds=8,
)
