"""Judge a model by a sum over rows; what a row adds: `parties.kernel.sums.tables`.

Whoever plans an evaluation chooses the threshold. The bins have their places from `bins` and
`width`, which follow from the model alone; the threshold cuts one of them in two, and both parts
are one bin again (`whole`) for every figure but the confusion matrix and the accuracy, which are
exact at any threshold. So nobody makes a bin wider, moves its middle, or chooses another figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from parties.kernel.sums.tables import Bins, Judged
from protocols.errors import ParameterError
from protocols.exchange.serialise import to_plain
from protocols.models.registry import model_named
from protocols.names import RANGES_VIEW
from protocols.sums.one_sum import OneSum


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationObjective(OneSum):
    """Judge a model; fields: see `Judged`; of_ranges: whether it scores rows of that view.

    Raises:
        ParameterError: a field is out of range; a threshold where none decides, or no probability.
    """

    kind = "evaluation"
    statistic = "the evaluation of a model"
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
    of_ranges: bool = False

    def __post_init__(self) -> None:
        _ = self.row_function
        if self.centre and (self.several or self.numeric):
            raise ParameterError(f"centre={self.centre}: {self.model} has no threshold, leave it 0")
        if not 0 < self.threshold < 1:
            raise ParameterError(
                f"centre={self.centre}: the log-odds of no probability between 0 and 1"
            )

    @property
    def row_function(self) -> Judged:
        """Tables."""
        return Judged(
            model=self.model,
            weights=self.weights,
            bins=self.bins,
            width=self.width,
            centre=self.centre,
            exact=self.exact,
            row_norm=self.row_norm,
            sites=self.sites,
        )

    @property
    def view(self) -> str:  # type: ignore[override]
        """The model's."""
        return RANGES_VIEW if self.of_ranges else ""

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
    def middles(self) -> NDArray[np.float64]:
        """Of whole bins [log-odds], shape (bins,)."""
        edges = self.of_scores.edges
        return np.asarray((edges[1:] + edges[:-1]) / 2)

    @property
    def threshold(self) -> float:
        """Probability above which a row is called positive."""
        return float(expit(self.centre))

    @property
    def below(self) -> int:
        """Counts of a label of rows that are not called positive: the first ones."""
        return 1 + int((self.of_scores.edges[1:-1] < self.centre).sum())

    def whole(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of whole bins: counts by bin, both parts of the one that is cut together.

        counts: shape (bins, …), one more where there is a cut.
        """
        if not self.centre:
            return counts
        found = np.delete(counts, self.below, axis=0)
        found[self.below - 1] += counts[self.below]
        return found

    @property
    def block(self) -> int:
        """Values of one table."""
        return self.row_function.table.size

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        plain = dict(to_plain(self))
        if not self.of_ranges:
            del plain["of_ranges"]  # such plans have the digests that they had without the field
        return {"kind": self.kind, **plain}
