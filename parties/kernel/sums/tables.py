"""What a row adds to the tables that a model is judged by: a label, classes, numeric targets.

Of a label. A score z = x w falls into one of `bins` bins of equal width around 0, the first and the
last of which take all that is beyond; the bin in which `centre` lies, the log-odds of the threshold
of the confusion matrix, is in two there. A row adds a one to the count of its bin and label. Of
several classes it does so for each class against the rest, by the log-odds of its probability, and
adds a one to the cell of its class and of the one that is called. Of numeric targets on [0, 1] it
adds moments of target and prediction.

Every row counts once, whatever its weight in training. A party of `sites` adds the same to a table
of its own, too, which makes norm and diameter sqrt(2) times those of one table.

Every table has `size` values, a bound `norm` on a row's part, Euclidean, and the `diameter` of all
such parts. Counts of one, K of them, have norm sqrt(K); K values on [0, 1] have at most that.
Counts of two rows are sqrt(2 K) apart at most, and K values on [0, 1] at most sqrt(K): less than
twice the norm. Without privacy (`exact`) what bins only approximate is summed, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from parties.kernel.integers import added
from parties.kernel.integers.exact import Exact, joined
from parties.kernel.sums.integer_sums import log_sum, row_scores, summed
from parties.kernel.sums.links import CLASSES, MODELS, TARGETS, decoded, deviances, logits
from parties.kernel.sums.row_function import LARGEST, Array, SumFunction, check_sizes, of_sites
from protocols.errors import ParameterError

DECILES = 10
BIGGEST = 1 << 14
"""Of bins."""
OF_TARGET = ("y", "yy", "p", "pp", "yp", "absolute")
"""Of every target, whatever the model."""


def tallied(name: str) -> tuple[str, ...]:
    """What is summed of each target of a model."""
    return (*OF_TARGET, *(("deviance", "entropy") if name == "poisson" else ()))


@dataclass(frozen=True, slots=True)
class Bins:
    """Of scores: count of one width around 0 [log-odds], one of them in two at cut, if not at 0."""

    count: int
    width: float
    cut: float

    @property
    def size(self) -> int:
        """With both parts."""
        return self.count + bool(self.cut)

    @property
    def edges(self) -> Array:
        """Shape (count + 1,), ascending; the ends take what is beyond."""
        return np.asarray(self.width * (np.arange(self.count + 1) - self.count / 2))

    def of(self, z: Array) -> NDArray[np.intp]:
        """Index of the bin of every score; on an edge, or on the cut, it belongs to that below."""
        whole = np.searchsorted(self.edges[1:-1], z, side="left")
        return np.asarray(whole + (z > self.cut) * bool(self.cut), dtype=np.intp)

    def counts(self, z: Array, positive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Negative and positive rows by bin, one after the other, shape (2 size,)."""
        return np.bincount(2 * self.of(z) + positive, minlength=2 * self.size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(ABC):
    """Of one model and the same rows.

    model: its name; outputs: scores of a row; bins: of scores; exact: without privacy; largest:
    bound on |score|.
    """

    model: str
    outputs: int
    bins: Bins
    exact: bool
    largest: float

    @property
    @abstractmethod
    def size(self) -> int:
        """Values."""

    @property
    @abstractmethod
    def norm(self) -> float:
        """Bound on a row's part."""

    @property
    def diameter(self) -> float:
        """Of two rows' parts; of counts, if not overridden."""
        return self.norm * (2.0 if self.exact else math.sqrt(2))

    @abstractmethod
    def of_rows(self, scores: Array, y: Array) -> Exact:
        """Sum over rows, with privacy of integers that each row gives by itself, shape (size,).

        scores: shape (rows, outputs); y: as in a shard.
        """


class LabelTable(Table):
    """Counts by bin and label.

    If exact, rows, positives and sum of probabilities by decile of the probability, log loss, Brier
    score.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Counts, and what is exact."""
        return 2 * self.bins.size + (3 * DECILES + 2 if self.exact else 0)

    @property
    def norm(self) -> float:
        """Of a count, three of a decile, a Brier score, a log loss of at most |z| + ln 2."""
        return math.sqrt(5 + (self.largest + math.log(2)) ** 2) if self.exact else 1.0

    def of_rows(self, scores: Array, y: Array) -> Exact:
        """See the class."""
        z, positive = scores[:, 0], y > 0.5
        counts = self.bins.counts(z, positive)
        if not self.exact:
            return Exact(counts, 0)
        p = decoded(self.model, z)
        decile = np.minimum((p * DECILES).astype(np.intp), DECILES - 1)
        ones = (decile[:, None] == np.arange(DECILES)).astype(np.float64)
        loss = np.logaddexp(0.0, np.where(positive, -z, z))
        return joined(
            Exact(counts, 0),
            *(_bounded(ones * each[:, None], 1.0) for each in (np.ones_like(p), positive, p)),
            _bounded(loss, self.largest + math.log(2)),
            _bounded((p - positive) ** 2, 1.0),
        )


class ClassTable(Table):
    """Of K classes, each against the rest, and rows by their class and the one that is called.

    Of a class: counts by bin of the log-odds of its probability, of rows of the others and of its
    own. If exact, log loss and Brier score.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Counts, and what is exact."""
        return self.outputs * (2 * self.bins.size + self.outputs) + 2 * self.exact

    @property
    def norm(self) -> float:
        """Of K + 1 counts, a Brier score of at most 2, and a log loss.

        -ln p_y <= ln K + 2 |z| of a softmax, ln K + |z| + ln 2 of sigmoids over their sum.
        """
        loss = 2 * self.largest + math.log(2 * self.outputs)
        return math.sqrt(self.outputs + 1 + (4 + loss**2 if self.exact else 0))

    def of_rows(self, scores: Array, y: Array) -> Exact:
        """See the class; y: one-hot, shape (rows, K).

        Raises:
            ParameterError: labels of another number of classes.
        """
        if y.shape[1:] != (self.outputs,):
            raise ParameterError(
                f"the model has {self.outputs} classes, labels have shape {y.shape[1:]}"
            )
        log_p, code = logits(self.model, scores), np.argmax(y, axis=1)
        odds = log_odds(log_p)
        counts = [self.bins.counts(odds[:, k], code == k) for k in range(self.outputs)]
        called = self.outputs * code + np.argmax(scores, axis=1)
        found = Exact(np.concatenate([*counts, np.bincount(called, minlength=self.outputs**2)]), 0)
        if not self.exact:
            return found
        own = np.take_along_axis(log_p, code[:, None], axis=1)[:, 0]
        loss = logsumexp(log_p, axis=1) - own
        brier = ((decoded(self.model, scores) - y) ** 2).sum(axis=1)
        most = 2 * self.largest + math.log(2 * self.outputs)
        return joined(found, _bounded(loss, most), _bounded(brier, 2.0))


def _bounded(parts: Array, most: float) -> Exact:
    """Sum of numbers of each row, on a grid by their public bound: everybody's is the same.

    On one by a party's own largest number, what is small beside that would be lost.
    """
    rows = parts.reshape(len(parts), -1)
    return Exact(*added(lambda some: rows[some], len(rows), rows.shape[1], most))


def log_odds(logits: Array) -> Array:
    """ln(p_k / (1 - p_k)) of p = exp(logits) / sum, shape kept; exact where p_k is nearly 1."""
    found = np.empty_like(logits)
    for k in range(logits.shape[1]):
        found[:, k] = logits[:, k] - log_sum(np.delete(logits, k, axis=1))
    return found


class TargetTable(Table):
    """Of each target y on [0, 1] and its prediction p: y, y^2, p, p^2, y p and |y - p|.

    And what the model's own measures need. With privacy p is held on [0, 1], so that all are.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Of all targets."""
        return len(tallied(self.model)) * self.outputs

    @property
    def norm(self) -> float:
        """|y - p| is at most 1 + top, p^2 top^2."""
        if not self.exact:
            return math.sqrt(self.size)
        ends = decoded(self.model, np.array([self.largest, -self.largest]))
        top = float(np.max(np.abs(ends)))
        return math.sqrt(self.size) * max(1 + top, top**2)

    @property
    def diameter(self) -> float:
        """Of values on [0, 1] the norm's bound."""
        return self.norm * (2.0 if self.exact else 1.0)

    def of_rows(self, scores: Array, y: Array) -> Exact:
        """See the class."""
        p = decoded(self.model, scores)
        if not self.exact:
            p = np.clip(p, 0.0, 1.0)
        products = np.stack([y, y * y, p, p * p, y * p, np.abs(y - p)])
        if self.model == "poisson":
            products = np.concatenate([products, deviances(y, p)])
        # Shape (tallied, rows, outputs) to (rows, outputs tallied).
        parts = products.transpose(1, 2, 0).reshape(len(y), -1)
        return summed(lambda rows: parts[rows], len(parts), self.size, Fraction(self.norm))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged(SumFunction):
    """The table of all rows, then those of the sites.

    model: its name; weights: for scaled rows, bias last, one tuple per output; bins: even; width:
    of a bin [log-odds]; centre: log-odds of the threshold, 0: no bin is in two; exact: without
    privacy; row_norm: B, of every row; sites: parties with a table of their own.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "evaluation"

    model: str
    weights: tuple[tuple[float, ...], ...]
    bins: int
    width: float
    centre: float
    exact: bool
    row_norm: float
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ParameterError(f"model={self.model!r} is not one of {', '.join(MODELS)}")
        lengths = {len(row) for row in self.weights}
        if len(lengths) != 1 or not np.abs(self.weights).max(initial=0.0) <= LARGEST:
            raise ParameterError(
                f"weights of the model are no rows of the same length, or not within {LARGEST:g}"
            )
        outputs, several = len(self.weights), self.model in CLASSES
        if self.model not in TARGETS and (outputs < 3 if several else outputs != 1):
            due = "several classes have three or more" if several else "a label has one"
            raise ParameterError(f"weights has {outputs} outputs, {due}")
        if not 2 <= self.bins <= BIGGEST or self.bins % 2:
            raise ParameterError(f"bins={self.bins} is no even number from 2 to {BIGGEST}")
        check_sizes(width=self.width, row_norm=self.row_norm)
        if not abs(self.centre) <= LARGEST:
            raise ParameterError(f"centre={self.centre} is not within {LARGEST:g}")
        if len(set(self.sites)) != len(self.sites):
            raise ParameterError("sites: a party is named twice")

    @property
    def table(self) -> Table:
        """One of them."""
        kinds = {**dict.fromkeys(TARGETS, TargetTable), **dict.fromkeys(CLASSES, ClassTable)}
        return kinds.get(self.model, LabelTable)(
            model=self.model,
            outputs=len(self.weights),
            bins=Bins(self.bins, self.width, self.centre),
            exact=self.exact,
            largest=float(self._most.max()),
        )

    @property
    def without_noise(self) -> bool:  # type: ignore[override]
        """Bounds of exact sums are of labels as a model has them."""
        return self.exact

    def alone(self, roster: Collection[str], colluders: int) -> Collection[str]:
        """See `of_sites`."""
        return of_sites(self.sites, roster, colluders)

    def length(self, features: int) -> int:
        """Of all tables."""
        if len(self.weights[0]) != features:
            raise ParameterError(
                f"weights has {len(self.weights[0])} entries for {features} features, bias included"
            )
        return self.table.size * (1 + len(self.sites))

    def most(self, query: str) -> float:
        """Of one table or of two."""
        return self.table.norm * math.sqrt(2 if self.sites else 1)

    def moves(self, query: str) -> float:
        """Likewise."""
        return self.table.diameter * math.sqrt(2 if self.sites else 1)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """The tables, of one party's rows."""
        # Cut off at B |w|, which moves no row of norm B.
        scores = np.clip(row_scores(x, np.array(self.weights).T), -self._most, self._most)
        found = self.table.of_rows(scores, y)
        own = [found if site == name else Exact(0 * found.units, 0) for site in self.sites]
        return joined(found, *own)

    @property
    def _most(self) -> Array:
        """B |w| of every output."""
        return np.asarray(self.row_norm * np.linalg.norm(self.weights, axis=1))
