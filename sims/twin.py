"""What an encrypted run is compared with: the plaintext twin and the non-private optimum."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from protocols.rows import RowsPlan
from protocols.train import PlainGradient, train_plain
from sims.result import IterationMetrics, Scores

Array = NDArray[np.float64]
# The optimum is regularised this little only so that it exists for separable data.
OPTIMUM_RIDGE = 1e-6


def score(weights: Array, x: Array, y: Array) -> Scores:
    """Accuracy at probability 1/2 and area under the ROC curve (ties count half)."""
    z = x @ weights
    auc = float(roc_auc_score(y, z)) if 0 < y.sum() < len(y) else float("nan")
    return Scores(accuracy=float(np.mean((z > 0) == (y > 0.5))), auc=auc)


def logistic_loss(weights: Array, x: Array, y: Array) -> float:
    """Mean logistic loss."""
    z = x @ weights
    return float(np.mean(np.logaddexp(0.0, z) - y * z))


def run_twin(
    plan: RowsPlan, x: Array, y: Array, noise: Array, test_x: Array, test_y: Array
) -> tuple[Array, tuple[IterationMetrics, ...]]:
    """The plan in float64 on pooled rows, with the parties' summed noise (`RowsPlan.draw_noise`).

    Returns the weights, shape (num_features,), and the metrics of every iteration.
    """
    first, noise = plan.divide_noise(noise)
    inverse = plan.curvature.preconditioner(x, first) if plan.curvature else 1.0
    gradient = PlainGradient(x, y, noise, plan.link, inverse)
    metrics: list[IterationMetrics] = []

    def record(t: int, weights: Array) -> None:
        quality = score(weights, test_x, test_y)
        metrics.append(
            IterationMetrics(
                iteration=t + 1,
                loss=logistic_loss(weights, x, y),
                accuracy=quality.accuracy,
                auc=quality.auc,
                weight_norm=float(np.linalg.norm(weights)),
                largest_logit=gradient.largest,
            )
        )

    weights = train_plain(plan.rule, gradient, plan.num_features, record)
    return weights, tuple(metrics)


def fit_optimum(x: Array, y: Array) -> Array:
    """Non-private maximum likelihood on pooled rows, shape (d,); bias is the last column."""
    model = LogisticRegression(C=1 / (OPTIMUM_RIDGE * len(x)), fit_intercept=False, max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    weights: Array = model.coef_[0]
    return weights
