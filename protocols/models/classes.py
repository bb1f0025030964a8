"""What models of a label of K >= 3 classes share: one score a class, the largest is predicted.

Targets are one-hot, shape (rows, K): 1 for a row's class, 0 for the others. A row's gradient is
x (m - y)^T, shape (d, K), m the means that a model gives the classes: its Euclidean norm is
|x| |m - y|, and so for every entrywise norm.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, logsumexp, softmax

from parties.kernel.sums.links import logits
from protocols.models.model import ACCURACY, LOG_LOSS, Array, Classifier, Measure, area_under_roc
from protocols.names import SECURE_AGGREGATION


class ClassModel(Classifier):
    """Of a label of several classes, W of shape (d, K)."""

    __slots__ = ()
    numeric = False
    several = True
    drawn = ("accuracy", "accuracy on test rows [%]")
    unit = "log-odds per unit of the column"
    update = "nag"
    private_update = "nag-opt"
    protocols = (SECURE_AGGREGATION,)
    measures: ClassVar[tuple[Measure, ...]] = (
        ACCURACY,
        Measure(
            key="auc",
            title="Area under ROC curve, mean of classes [0 to 1]",
            form="{:.4f}",
            words="mean area under ROC {:.4f}",
        ),
        LOG_LOSS,
        Measure(key="base_rate_log_loss", title="Log loss of the base rates", form="{:.4f}"),
        Measure(key="brier", title="Brier score [0 is perfect, 2 the worst]", form="{:.4f}"),
    )

    def logits(self, scores: Array) -> Array:
        """Log-probabilities of the classes up to a constant of each row, shape (rows, K)."""
        return logits(self.name, scores)

    def called(self, scores: Array) -> NDArray[np.intp]:
        """The class of the largest score, which has the largest probability."""
        return np.asarray(np.argmax(scores, axis=1))

    def code_of(self, y: Array) -> NDArray[np.intp]:
        """Where a row's 1 stands."""
        return np.asarray(np.argmax(y, axis=1))

    def metrics(self, weights: Array, x: Array, y: Array, width: Any = 1.0) -> dict[str, Any]:
        """Accuracy, area under ROC, log loss and Brier score (sum over the classes).

        The area is the mean of each class's against the rest, by probability, of those that occur.
        """
        logits, shares = self.logits(x @ weights), y.mean(axis=0)
        return {
            **self._ranked(x @ weights, y),
            "log_loss": float(np.mean(logsumexp(logits, axis=1) - (y * logits).sum(axis=1))),
            "base_rate_log_loss": float(entr(shares).sum()),
            "brier": float(np.mean(((softmax(logits, axis=1) - y) ** 2).sum(axis=1))),
        }

    def course(
        self, weights: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> dict[str, Any]:
        """Mean loss on the training rows; on the test rows accuracy and area under ROC."""
        loss = float(np.mean(self.loss(train[0] @ weights, train[1])))
        return {"loss": loss, **self._ranked(test[0] @ weights, test[1])}

    def _ranked(self, scores: Array, y: Array) -> dict[str, float]:
        p, hit = self.decode(scores), y > 0.5
        areas = [area_under_roc(p[:, k], hit[:, k]) for k in range(y.shape[1])]
        known = [area for area in areas if not np.isnan(area)]
        right = self.called(scores) == self.code_of(y)
        return {
            "accuracy": float(np.mean(right)),
            "auc": float(np.mean(known)) if known else float("nan"),
        }
