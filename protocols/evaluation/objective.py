"""What a row adds to the sum that a model is judged by.

Of a label. A score z = x w falls into one of `bins` bins of equal width around `centre`, the log-
odds of the threshold of the confusion matrix, which is therefore an edge; the first and the last
bin take all that is beyond. A row adds a one to the count of its bin and label. Without privacy
(`exact`) it adds to three more tables, which bins would only approximate: rows, positives and sum
of probabilities by decile of the probability; log loss; Brier score.

Of numeric targets on [0, 1], for each: y, y^2, p, p^2, y p and |y - p|, p the prediction, and what
the model's own measures need (`TargetModel.tallies`). With privacy p is held on [0, 1], so that all
are.

Every row counts once, whatever its weight in training.

A party of `sites` adds the same to a table of its own, too.

Norms. A count of one has norm 1, k values on [0, 1] have at most sqrt(k); a second table makes it
sqrt(2) times that. Counts of two rows are sqrt(2) apart at most, and so are k values on [0, 1] at
most sqrt(k): less than twice the norm, `diameter`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.models.registry import model_named, target_model
from protocols.one_sum import LARGEST, OneSum, check_sizes
from protocols.serialise import to_plain

Array = NDArray[np.float64]
DECILES = 10
OF_TARGET = ("y", "yy", "p", "pp", "yp", "absolute")
"""Of every target, whatever the model."""
BIGGEST = 1 << 14
"""Of bins."""


def tallied(name: str) -> tuple[str, ...]:
    """What is summed of each target of a model."""
    return (*OF_TARGET, *target_model(name).tallied)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationObjective(OneSum):
    """Judge a model.

    model: its name; weights: for scaled rows, bias last, one tuple per output; bins: even; width:
    of a bin [log-odds]; centre: log-odds of the threshold; exact: without privacy; row_norm: B, of
    every row; sites: parties with a table of their own.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "evaluation"
    judges = True
    released = "counts of rows by score and label, and what follows: how good a model is"
    drops: ClassVar[Mapping[str, str]] = {"offset": OneSum.drops["offset"]}

    model: str
    weights: tuple[tuple[float, ...], ...]
    bins: int
    width: float
    centre: float
    exact: bool
    row_norm: float
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if model_named(self.model).several:
            raise ParameterError(
                f"model={self.model!r} has several classes, and sums of scores are of two: "
                "load_model(...).score(table) judges it on rows that are at hand"
            )
        numeric = model_named(self.model).numeric
        lengths = {len(row) for row in self.weights}
        if len(lengths) != 1 or not np.abs(self.weights).max(initial=0.0) <= LARGEST:
            raise ParameterError(
                f"weights of the model are no rows of the same length, or not within {LARGEST:g}"
            )
        if not numeric and len(self.weights) != 1:
            raise ParameterError(f"weights has {len(self.weights)} outputs, a label has one")
        if not 2 <= self.bins <= BIGGEST or self.bins % 2:
            raise ParameterError(f"bins={self.bins} is no even number from 2 to {BIGGEST}")
        check_sizes(width=self.width, row_norm=self.row_norm)
        if not abs(self.centre) <= LARGEST:
            raise ParameterError(f"centre={self.centre} is not within {LARGEST:g}")
        if len(set(self.sites)) != len(self.sites):
            raise ParameterError("sites: a party is named twice")

    @property
    def alone(self) -> tuple[str, ...]:
        """Sites."""
        return self.sites

    def remarks(self) -> tuple[str, ...]:
        """What is exact."""
        if not self.exact:
            return ()
        return ("sums are exact: a score or a label that few rows have shows these rows",)

    @property
    def numeric(self) -> bool:
        """Whether it predicts targets."""
        return model_named(self.model).numeric

    @property
    def block(self) -> int:
        """Values of one table."""
        if self.numeric:
            return len(tallied(self.model)) * len(self.weights)
        return 2 * self.bins + (3 * DECILES + 2 if self.exact else 0)

    @property
    def edges(self) -> Array:
        """Of the bins, shape (bins + 1,), ascending [log-odds]."""
        steps = np.arange(self.bins + 1) - self.bins / 2
        return np.asarray(self.centre + self.width * steps)

    def length(self, features: int) -> int:
        """The table of all, then those of the sites.

        Raises:
            ParameterError: the weights are for other rows.
        """
        if len(self.weights[0]) != features:
            raise ParameterError(
                f"weights has {len(self.weights[0])} entries for {features} features, bias included"
            )
        return self.block * (1 + len(self.sites))

    @property
    def _largest(self) -> float:
        """Bound on the norm of a row's part of one table."""
        if not self.exact:
            return math.sqrt(self.block) if self.numeric else 1.0
        score = self.row_norm * max(float(np.linalg.norm(w)) for w in self.weights)
        if self.numeric:
            top = float(np.max(np.abs(self._decode(np.array([score, -score])))))
            # |y - p| is at most 1 + top, p^2 top^2.
            return math.sqrt(self.block) * max(1 + top, top**2)
        # A count, three of a decile, a Brier score, a log loss of at most |z| + ln 2.
        return math.sqrt(5 + (score + math.log(2)) ** 2)

    def norm_bound(self, query: str) -> float:
        """Of one table or of two."""
        return self._largest * math.sqrt(2 if self.sites else 1)

    def diameter(self, query: str) -> float:
        """See the module."""
        if self.exact:
            return 2 * self.norm_bound(query)
        return self.norm_bound(query) * (1.0 if self.numeric else math.sqrt(2))

    def of_rows(self, x: Array, y: Array, name: str) -> Array:
        """The tables, of one party's rows."""
        table = self._targets(x, y) if self.numeric else self._label(x, y)
        own = [table if site == name else np.zeros_like(table) for site in self.sites]
        return np.concatenate([table, *own])

    def _decode(self, scores: Array) -> Array:
        return model_named(self.model).decode(scores)

    def _scores(self, x: Array) -> Array:
        """Shape (rows, outputs), cut off at B |w|, which moves no row of norm B."""
        weights = np.array(self.weights).T
        most = self.row_norm * np.linalg.norm(weights, axis=0)
        scores: Array = np.clip(x @ weights, -most, most)
        return scores

    def _label(self, x: Array, y: Array) -> Array:
        z, positive = self._scores(x)[:, 0], y > 0.5
        counts = np.bincount(2 * self.bin_of(z) + positive, minlength=2 * self.bins).astype(
            np.float64
        )
        if not self.exact:
            return counts
        p = self._decode(z)
        decile = np.minimum((p * DECILES).astype(np.intp), DECILES - 1)
        tables = [
            np.bincount(decile, weights=values, minlength=DECILES)
            for values in (np.ones_like(p), positive.astype(np.float64), p)
        ]
        loss = np.logaddexp(0.0, np.where(positive, -z, z)).sum()
        return np.concatenate([counts, *tables, [loss, ((p - positive) ** 2).sum()]])

    def bin_of(self, z: Array) -> NDArray[np.intp]:
        """Index of the bin of every score; a score on an edge belongs to the bin below."""
        found = np.searchsorted(self.edges[1:-1], z, side="left")
        return np.asarray(found, dtype=np.intp)

    def _targets(self, x: Array, y: Array) -> Array:
        p = self._decode(self._scores(x))
        if not self.exact:
            p = np.clip(p, 0.0, 1.0)
        products = np.stack([y, y * y, p, p * p, y * p, np.abs(y - p)])
        own = target_model(self.model).tallies(y, p)
        return np.asarray(np.concatenate([products, own]).sum(axis=1).T.ravel())

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
