"""What a row adds to the sum that a model is judged by.

Of a label. A score z = x w falls into one of `bins` bins of equal width around `centre`, the log-
odds of the threshold of the confusion matrix, which is therefore an edge; the first and the last
bin take all that is beyond. A row adds a one to the count of its bin and label. Of several classes
it does so for each class against the rest, by the log-odds of the class's probability, and adds a
one to the cell of its class and of the one that is called. Of numeric targets on [0, 1] it adds
moments of target and prediction. What else there is without privacy: `tables`.

Every row counts once, whatever its weight in training. A party of `sites` adds the same to a table
of its own, too, which makes norm and diameter sqrt(2) times those of one table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.integer_sums import Exact, joined, row_scores
from parties.kernel.sums.tables import Bins, ClassTable, LabelTable, Table, TargetTable
from protocols.errors import ParameterError
from protocols.models.registry import model_named
from protocols.one_sum import LARGEST, OneSum, check_sizes
from protocols.serialise import to_plain

Array = NDArray[np.float64]
BIGGEST = 1 << 14
"""Of bins."""


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
        model = model_named(self.model)
        lengths = {len(row) for row in self.weights}
        if len(lengths) != 1 or not np.abs(self.weights).max(initial=0.0) <= LARGEST:
            raise ParameterError(
                f"weights of the model are no rows of the same length, or not within {LARGEST:g}"
            )
        outputs = len(self.weights)
        if not model.numeric and (outputs < 3 if model.several else outputs != 1):
            due = "several classes have three or more" if model.several else "a label has one"
            raise ParameterError(f"weights has {outputs} outputs, {due}")
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
    def several(self) -> bool:  # type: ignore[override]
        """Whether it predicts one of several classes."""
        return model_named(self.model).several

    @property
    def of_scores(self) -> Bins:
        """The bins."""
        return Bins(self.bins, self.width, self.centre)

    @property
    def table(self) -> Table:
        """One of them."""
        kind = TargetTable if self.numeric else ClassTable if self.several else LabelTable
        return kind(
            model=self.model,
            outputs=len(self.weights),
            bins=self.of_scores,
            exact=self.exact,
            largest=float(self._most.max()),
        )

    @property
    def block(self) -> int:
        """Values of one table."""
        return self.table.size

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

    def norm_bound(self, query: str) -> float:
        """Of one table or of two."""
        return self.table.norm * math.sqrt(2 if self.sites else 1)

    def diameter(self, query: str) -> float:
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

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
