"""What an encrypted run is compared with: the plaintext twin and the optimum without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

from ciphercohort.results.result import Course, Figures, shifted
from protocols.models.improved_lffr import ImprovedLffr
from protocols.models.poisson import Poisson
from protocols.models.registry import model_named
from protocols.privacy.laws import RandomSource
from protocols.rows.plan import RowsPlan
from protocols.rows.training import PlainGradient, train_plain

Array = NDArray[np.float64]
# The optimum is regularised this little only so that it exists for separable data.
OPTIMUM_RIDGE = 1e-6


def score(weights: Array, x: Array, y: Array) -> Figures:
    """Accuracy and area under the ROC curve of a logistic model."""
    return Figures(model_named("logistic").metrics(weights, x, y))


def run_twin(
    plan: RowsPlan,
    x: Array,
    y: Array,
    noise: Array,
    test_x: Array,
    test_y: Array,
    *,
    weight: Array | float = 1.0,
    offset: Array | float = 0.0,
    sources: Sequence[RandomSource] = (),
) -> tuple[Array, tuple[Figures, ...]]:
    """The plan in float64 on pooled rows, with the parties' summed noise (`RowsPlan.draw_noise`).

    weight, offset: of the training rows, as in `Shard`; test_x: `shifted` by theirs; sources: see
    `PlainGradient.of`.

    Returns the weights, shape (num_features,), of a target (num_features, 1), and the metrics of
    every iteration.
    """
    train = shifted(x, offset) if isinstance(offset, np.ndarray) else x
    course = Course(model_named(plan.model), (train, y), (test_x, test_y))
    x, y = plan.encode(x, y)
    gradient = PlainGradient.of(plan, x, y, noise, sources, weight=weight, offset=offset)

    def record(t: int, weights: Array) -> None:
        course.record(t, plan.decode(weights).reshape(plan.layout.shape), gradient.largest)

    weights = plan.decode(train_plain(plan.rule, gradient, noise.shape[1:], record))
    return weights.reshape(plan.layout.shape), tuple(course.metrics)


def ridge_solution(rows: Array, targets: Array, ridge: float, weight: Array | None = None) -> Array:
    """Minimiser of mean |X W - Y|^2 + ridge |W|^2 by scikit-learn, shape (d, c).

    ridge 0: least squares of least norm.
    """
    # scikit-learn minimises the sum, and the bias is a column of ours like any other.
    fit = LinearRegression(fit_intercept=False)
    if ridge:
        fit = Ridge(alpha=len(rows) * ridge, fit_intercept=False, solver="cholesky")
    coef = np.asarray(fit.fit(rows, targets, sample_weight=weight).coef_)
    return coef.reshape(targets.shape[1], -1).T


def fit_optimum(
    x: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """Maximum likelihood without privacy on pooled rows, shape (d,); bias is the last column."""
    if offset is not None and offset.any():
        return _fit_shifted(x, y, np.ones(len(x)) if weight is None else weight, offset)
    model = LogisticRegression(C=1 / (OPTIMUM_RIDGE * len(x)), fit_intercept=False, max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y, sample_weight=weight)
    weights: Array = model.coef_[0]
    return weights


def _fit_shifted(x: Array, y: Array, weight: Array, offset: Array) -> Array:
    """The same with offsets, which scikit-learn's does not take."""

    def loss(w: Array) -> tuple[float, Any]:
        z = x @ w + offset
        value = (
            float(weight @ (np.logaddexp(0.0, z) - y * z)) / len(x)
            + OPTIMUM_RIDGE * float(w @ w) / 2
        )
        return value, x.T @ (weight * (expit(z) - y)) / len(x) + OPTIMUM_RIDGE * w

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    return np.asarray(found.x)


def fit_counts(
    x: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """Maximum likelihood of `models.poisson`, y on [0, 1] of shape (rows, 1); shape (d, 1)."""
    model = PoissonRegressor(alpha=OPTIMUM_RIDGE, fit_intercept=False, max_iter=5000, tol=1e-8)
    scale, exposure = np.exp(Poisson().radius), np.exp(0.0 if offset is None else offset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Of rates y / e, each with weight e: the likelihood of counts of mean e exp(x w).
        own = exposure * (np.ones(len(x)) if weight is None else weight)
        model.fit(x, scale * y[:, 0] / exposure, sample_weight=own)
    weights: Array = model.coef_[:, None]
    return weights


def fit_softmax(
    x: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """Multinomial maximum likelihood, y one-hot of shape (rows, K); (d, K); no offset is taken."""
    classes = y.shape[1]
    # A row of zeros of every class moves nothing, and makes all of them known.
    rows, labels = np.vstack([x, np.zeros((classes, x.shape[1]))]), [*y.argmax(1), *range(classes)]
    own = np.append(np.ones(len(x)) if weight is None else weight, np.ones(classes))
    model = LogisticRegression(C=1 / (OPTIMUM_RIDGE * len(x)), fit_intercept=False, max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, labels, sample_weight=own)
    weights: Array = model.coef_.T
    return weights


def fit_each(x: Array, y: Array, weight: Array | None = None, offset: Array | None = None) -> Array:
    """`fit_optimum` of every class against the rest, y one-hot of shape (rows, K); (d, K)."""
    rows = np.vstack([x, np.zeros((2, x.shape[1]))])
    own = np.append(np.ones(len(x)) if weight is None else weight, np.ones(2))
    return np.column_stack([fit_optimum(rows, np.append(hit, [0, 1]), own) for hit in y.T])


def _fit_targets(
    x: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """Least squares; no offset is taken."""
    return ridge_solution(x, y, 0.0, weight)


def _fit_logits(
    x: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """Least squares of improved LFFR's logits; no offset is taken."""
    return ridge_solution(x, ImprovedLffr().encode(y), 0.0, weight)


Fit = Callable[..., Array]
"""Of rows and outcomes; then perhaps weights, then offsets, each shape (rows,)."""
OPTIMA: dict[str, Fit] = {
    "logistic": fit_optimum,
    "poisson": fit_counts,
    "linear": _fit_targets,
    "improved-lffr": _fit_logits,
    "softmax": fit_softmax,
    "one-vs-rest": fit_each,
}
"""What plain training on all rows gives, by `Model.reference`."""


def fit_unclipped(
    fit: Fit, raw: Array, y: Array, weight: Array | None = None, offset: Array | None = None
) -> Array:
    """One of `OPTIMA` on rows as they are, standardised for the fit alone.

    raw: rows in the data's own units, bias last, shape (N, d).

    Returns: weights of such rows, shape (d,) or (d, c).
    """
    shift, spread = raw[:, :-1].mean(axis=0), raw[:, :-1].std(axis=0)
    spread[spread == 0] = 1.0
    scaled = np.column_stack([(raw[:, :-1] - shift) / spread, raw[:, -1]])
    weights = fit(scaled, y, weight, offset)
    slopes = (weights[:-1].T / spread).T
    found: Array = np.concatenate([slopes, [weights[-1] - shift @ slopes]])
    return found
