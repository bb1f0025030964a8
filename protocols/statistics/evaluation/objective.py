"""Judge a model by a sum over rows; what a row adds: `parties.kernel.sums.tables`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from parties.kernel.sums.tables import Bins, Judged
from protocols.errors import ParameterError
from protocols.exchange import RANGES_VIEW
from protocols.exchange.serialise import to_plain
from protocols.models.registry import model_named
from protocols.sums.one_sum import OneSum


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationObjective(OneSum):
    """Judge a model; fields: see `Judged`; of_ranges: whether it scores rows of that view.

    Raises:
        ParameterError: a field is out of range; or a threshold where none decides.
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
    def reach(self) -> float:
        """To either side of 0, of scores that are told apart [log-odds]."""
        return self.bins * self.width / 2 - abs(self.centre)

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
