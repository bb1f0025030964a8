"""What an encrypted run is compared with: the plaintext twin and the optimum without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from protocols.models.poisson import Poisson
from protocols.models.registry import model_named
from protocols.rows import RowsPlan
from protocols.train import PlainGradient, train_plain
from sims.regression_twin import ridge_solution
from sims.result import Course, Figures

Array = NDArray[np.float64]
# The optimum is regularised this little only so that it exists for separable data.
OPTIMUM_RIDGE = 1e-6


def score(weights: Array, x: Array, y: Array) -> Figures:
    """Accuracy and area under the ROC curve of a logistic model."""
    return Figures(model_named("logistic").metrics(weights, x, y))


def logistic_loss(weights: Array, x: Array, y: Array) -> float:
    """Mean logistic loss."""
    return float(np.mean(model_named("logistic").loss(x @ weights, y)))


def run_twin(
    plan: RowsPlan, x: Array, y: Array, noise: Array, test_x: Array, test_y: Array
) -> tuple[Array, tuple[Figures, ...]]:
    """The plan in float64 on pooled rows, with the parties' summed noise (`RowsPlan.draw_noise`).

    Returns the weights, shape (num_features,), of a target (num_features, 1), and the metrics of
    every iteration.
    """
    course = Course(model_named(plan.model), (x, y), (test_x, test_y))
    x, y = plan.encode(x, y)
    inverse = plan.curvature.preconditioner(x) if plan.curvature else 1.0
    gradient = PlainGradient(x, y, noise, plan.link, inverse)

    def record(t: int, weights: Array) -> None:
        course.record(t, plan.decode(weights).reshape(plan.layout.shape), gradient.largest)

    weights = plan.decode(train_plain(plan.rule, gradient, noise.shape[1:], record))
    return weights.reshape(plan.layout.shape), tuple(course.metrics)


def fit_optimum(x: Array, y: Array) -> Array:
    """Maximum likelihood without privacy on pooled rows, shape (d,); bias is the last column."""
    model = LogisticRegression(C=1 / (OPTIMUM_RIDGE * len(x)), fit_intercept=False, max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    weights: Array = model.coef_[0]
    return weights


def fit_counts(x: Array, y: Array) -> Array:
    """Maximum likelihood of `models.poisson`, y on [0, 1] of shape (rows, 1); shape (d, 1)."""
    model = PoissonRegressor(alpha=OPTIMUM_RIDGE, fit_intercept=False, max_iter=5000, tol=1e-8)
    scale = np.exp(Poisson().radius)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, scale * y[:, 0])
    weights: Array = model.coef_[:, None]
    return weights


OPTIMA: dict[str, Callable[[Array, Array], Array]] = {
    "logistic": fit_optimum,
    "poisson": fit_counts,
    "linear": lambda x, y: ridge_solution(x, y, 0.0),
}
"""What plain training on all rows gives, by `Model.reference`."""


def fit_unclipped(fit: Callable[[Array, Array], Array], raw: Array, y: Array) -> Array:
    """One of `OPTIMA` on rows as they are, standardised for the fit alone.

    raw: rows in the data's own units, bias last, shape (N, d).

    Returns: weights of such rows, shape (d,) or (d, c).
    """
    shift, spread = raw[:, :-1].mean(axis=0), raw[:, :-1].std(axis=0)
    spread[spread == 0] = 1.0
    weights = fit(np.column_stack([(raw[:, :-1] - shift) / spread, raw[:, -1]]), y)
    slopes = (weights[:-1].T / spread).T
    found: Array = np.concatenate([slopes, [weights[-1] - shift @ slopes]])
    return found
