"""What a model owns: from scores to predictions and back, its loss, its measures, its words.

A model is one file with one class, and one line in `protocols.models.registry`. Who trains,
reports, predicts or verifies asks it; nobody asks which model it is. Nothing here needs
scikit-learn: measures are formulas on arrays, the tests compare them with scikit-learn's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.links import decoded
from protocols.models.probabilities import probability_figures
from protocols.names import ENCRYPTED_ROWS
from protocols.numerics.approximation import (
    Approximation,
    Polynomial,
    error_bound,
    sigmoid_approximation,
)
from protocols.words import NONE, Fact

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A figure of `Model.metrics` and its words.

    title: above a column, with its unit; form: of scale * figure in a table; words: of
    figure ** power in a sentence, empty: left out there; overall: one figure for all outputs, for
    a sentence only.
    """

    key: str
    title: str
    form: str
    scale: float = 1.0
    words: str = ""
    power: float = 1.0
    overall: bool = False

    def shown(self, value: float) -> str:
        """In a table; a dash where there is no figure."""
        return NONE if np.isnan(value) else self.form.format(self.scale * value).replace("-", "−")


class Model(ABC):
    """A generalised linear model with scores X W.

    name: in plans and on the command line. title: in a sentence. link: from coefficients to a
    prediction, in words. unit: of a coefficient. optimum: what plain training gives, and its
    meaning. numeric: whether targets on [0, 1] are predicted, several at once, W of shape (d, c);
    several: whether a label of several classes, likewise; else a label in {0, 1}, W of shape (d,).
    reference: the model whose optimum a run is compared
    with. curvature: bound on the loss's second derivative in the score. protocols: that train it.
    certified: whether runs on encrypted rows or sums may promise privacy. measures: of `metrics`.
    drawn: the one that is drawn by iteration, and its axis. update: the rule that trains it by
    default, where there is a choice; private_update: with privacy, if another. stand_in: what a
    link's polynomial stands for, its unit.
    """

    __slots__ = ()
    name: ClassVar[str]
    title: ClassVar[str]
    link: ClassVar[str]
    unit: ClassVar[str]
    numeric: ClassVar[bool]
    several: ClassVar[bool] = False
    reference: ClassVar[str]
    optimum: ClassVar[tuple[str, str]]
    curvature: ClassVar[float]
    protocols: ClassVar[tuple[str, ...]] = (ENCRYPTED_ROWS,)
    certified: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]]
    drawn: ClassVar[tuple[str, str]]
    update: ClassVar[str] = ""
    private_update: ClassVar[str] = ""
    stand_in: ClassVar[tuple[str, str]] = ("sigmoid", "as a probability")

    def decode(self, scores: Array) -> Array:
        """Predictions: of targets on [0, 1], or the probability of a label or of classes."""
        return decoded(self.name, scores)

    @abstractmethod
    def loss(self, scores: Array, y: Array) -> Array:
        """What training minimises the mean of, entry by entry."""

    @abstractmethod
    def metrics(self, weights: Array, x: Array, y: Array, width: Any = 1.0) -> dict[str, Any]:
        """Figures by key, of an output each a list; width: of the targets' ranges, shape (c,)."""

    @abstractmethod
    def course(
        self, weights: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> dict[str, Any]:
        """Figures of an iteration; train, test: encoded (x, y)."""

    def residual_bound(self, outputs: int, norm: int) -> float:
        """Bound on the norm of a row's residual, mean less target: entries are at most 1."""
        return math.pow(outputs, 1 / norm)

    def start_loss(self, outputs: int) -> float:
        """Loss of a row at weights 0."""
        scores: Array = np.zeros((1, outputs))
        return float(np.mean(self.loss(scores, np.eye(outputs)[:1])))

    def approximation(self, degree: int, radius: float) -> Approximation:
        """The mean of an outcome on [0, 1], given its score on [-radius, radius]."""
        return sigmoid_approximation(degree, radius)

    def link_error(self, link: Polynomial) -> float:
        """Certified distance of a link to that mean, on its interval."""
        return error_bound(link, "sigmoid", link.low, link.high)

    def check_ranges(self, lows: Mapping[str, float]) -> None:
        """Refuse public ranges of targets that it cannot predict; lows: their beginnings, by name.

        Raises:
            SchemaError: names the bound and the cure.
        """
        _ = lows

    def in_data_units(
        self, coef: Array, intercept: Array, low: Array, width: Array
    ) -> tuple[Array, Array]:
        """What `link` speaks of: of raw columns, shapes (c, d - 1) and (c,), from scores'."""
        _ = low, width
        return coef, intercept

    def facts(self) -> Iterator[Fact]:
        """Its constants, for a reader."""
        return iter(())

    def words(self, figures: dict[str, Any], outputs: tuple[str, ...] = ()) -> str:
        """Figures in a line, those that exist; outputs: names of the targets."""

        def line(pick: Any) -> str:
            found = [(m, pick(figures[m.key])) for m in self.measures if m.words]
            return ", ".join(
                m.words.format(m.scale * value**m.power) for m, value in found if value == value
            )

        if not self.numeric:
            return line(lambda value: value)
        return "; ".join(
            f"{name}: {line(lambda values, k=k: values[k])}" for k, name in enumerate(outputs)
        )


ACCURACY = Measure(
    key="accuracy",
    title="Accuracy [% of test rows]",
    form="{:.1f} %",
    scale=100.0,
    words="accuracy {:.2f} %",
)
LOG_LOSS = Measure(key="log_loss", title="Log loss [nats]", form="{:.4f}", words="log loss {:.4f}")


class Classifier(Model):
    """Of a label, whose values have codes 0, 1, ..."""

    __slots__ = ()

    @abstractmethod
    def called(self, scores: Array) -> NDArray[np.intp]:
        """Code of the label that each row of scores predicts, shape (rows,)."""

    @abstractmethod
    def code_of(self, y: Array) -> NDArray[np.intp]:
        """Code of each row's own label, shape (rows,)."""


class LabelModel(Classifier):
    """Of a label in {0, 1}; positive above score 0."""

    __slots__ = ()
    numeric = False
    drawn = ("accuracy", "accuracy on test rows [%]")
    unit = "log-odds per unit of the column"
    measures = (
        ACCURACY,
        Measure(
            key="auc",
            title="Area under ROC curve [0 to 1]",
            form="{:.4f}",
            words="area under ROC {:.4f}",
        ),
        LOG_LOSS,
        Measure(key="base_rate_log_loss", title="Log loss of the base rate", form="{:.4f}"),
        Measure(key="brier", title="Brier score [0 is perfect]", form="{:.4f}"),
        Measure(key="calibration_slope", title="Calibration slope [1 is perfect]", form="{:.3f}"),
        Measure(
            key="calibration_intercept",
            title="Calibration intercept [log-odds, 0 is perfect]",
            form="{:.3f}",
        ),
    )

    def called(self, scores: Array) -> NDArray[np.intp]:
        """1 above score 0, else 0."""
        return (scores > 0).astype(np.intp)

    def code_of(self, y: Array) -> NDArray[np.intp]:
        """The label."""
        return (y > 0.5).astype(np.intp)

    def metrics(self, weights: Array, x: Array, y: Array, width: Any = 1.0) -> dict[str, Any]:
        """Accuracy at score 0, area under the ROC curve, and `probability_figures`."""
        z, positive = x @ weights, y > 0.5
        return {**_ranked(z, positive), **probability_figures(z, positive)}

    def course(
        self, weights: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> dict[str, Any]:
        """Mean loss on the training rows; on the test rows accuracy and area under ROC."""
        loss = float(np.mean(self.loss(train[0] @ weights, train[1])))
        return {"loss": loss, **_ranked(test[0] @ weights, test[1] > 0.5)}


def _ranked(z: Array, positive: NDArray[np.bool_]) -> dict[str, float]:
    """Accuracy at score 0 and area under the ROC curve."""
    return {"accuracy": float(np.mean((z > 0) == positive)), "auc": area_under_roc(z, positive)}


def area_under_roc(z: Array, positive: NDArray[np.bool_]) -> float:
    """Mann and Whitney's statistic, ties counting half; NaN with one class only."""
    from scipy.stats import rankdata  # takes longer to load than most commands take

    hits, others = int(positive.sum()), int((~positive).sum())
    if not (hits and others):
        return float("nan")
    above = float(rankdata(z)[positive].sum()) - hits * (hits + 1) / 2
    return above / (hits * others)


class TargetModel(Model):
    """Of numeric targets, scaled to [0, 1] by public ranges."""

    __slots__ = ()
    numeric = True
    drawn = ("mean_relative_mse", "squared error / range²")
    unit = "score per unit of the column"
    reference = "linear"
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(
            key="mse",
            title="Mean squared error [target’s unit, squared]",
            form="{:.4g}",
            words="root mean squared error {:.4g}",
            power=0.5,
        ),
        Measure(
            key="relative_mse", title="relative to the range squared", form="{:.3f} %", scale=100.0
        ),
        Measure(key="r2", title="R² [1 is perfect, 0 the mean]", form="{:.4f}", words="R² {:.4f}"),
        Measure(
            key="mean_relative_mse",
            title="Mean over the targets of the squared error relative to the range squared",
            form="{:.4g}",
            overall=True,
        ),
    )

    @abstractmethod
    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets on [0, 1], shape (rows, c)."""

    @abstractmethod
    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""

    def of_tallies(self, mean: Mapping[str, Array], width: Array) -> dict[str, Any]:
        """Measures from means over rows of what `tables.tallied` names, shape (c,)."""
        _ = mean, width
        return {}

    def metrics(self, weights: Array, x: Array, y: Array, width: Any = 1.0) -> dict[str, Any]:
        """Mean squared error [data units squared], over the range squared, its mean, and R².

        R² = 1 - mse / variance, NaN where the targets are constant.
        """
        errors = np.mean((self.decode(x @ weights) - y) ** 2, axis=0)
        spread = y.var(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = np.where(spread > 0, 1 - errors / spread, np.nan)
        return {
            "mse": (errors * np.square(width)).tolist(),
            "relative_mse": errors.tolist(),
            "mean_relative_mse": float(np.mean(errors)),
            "r2": r2.tolist(),
        }

    def course(
        self, weights: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> dict[str, Any]:
        """Mean relative error on the training rows, errors on the test rows."""
        trained, tested = self.metrics(weights, *train), self.metrics(weights, *test)
        return {
            "training_mse": trained["mean_relative_mse"],
            **{key: tested[key] for key in ("relative_mse", "mean_relative_mse")},
        }
