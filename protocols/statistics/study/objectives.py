"""The sums of a clinical study; what a row adds: `parties.kernel.study`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from parties.kernel.study.described import Described
from parties.kernel.study.glm import TARGETS, Generalised
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.kernel.study.lifetimes import Lifetimes
from parties.kernel.study.person_time import PersonTime
from parties.kernel.sums.row_function import SumFunction
from protocols.exchange.serialise import to_plain
from protocols.names import CELLS_VIEW, RANGES_VIEW
from protocols.sums.one_sum import EVERYBODY, OneSum

SERIES = (
    "it is one of several sums, each at a point that follows from those before, for which you are "
    "asked again"
)


OF_COX = ("strata", "curves", "bins", "least", "imputations")
OF_GLM = (
    *("target", "family", "link", "weight", "offset", "alpha"),
    *("propensity", "estimand", "trim", "propensity_columns"),
    *("site_intercepts", "cluster", "imputations"),
)


class _Study(OneSum):
    """adds: what a row adds; begins: options by name of the study whose first sum it may be."""

    __slots__ = ()
    alone_shows: ClassVar[str]
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    adds: Any

    @property
    def row_function(self) -> SumFunction:
        """As the plan has it."""
        found: SumFunction = self.adds
        return found

    @property
    def places(self) -> tuple[int, ...]:
        """Of covariates, strata and groups."""
        named = ("columns", "strata", "groups")
        return tuple(place for name in named for place in getattr(self.adds, name, ()))

    def remarks(self) -> tuple[str, ...]:
        """What is exact."""
        exact: bool = getattr(self, "exact", True)
        return (f"sums are exact: {self.alone_shows}",) * exact

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class DescriptionObjective(_Study):
    """Cells and moments of columns; exact: without privacy.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = Described.kind
    statistic = "a descriptive table (Table 1)"
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {"describe": ("by", "sites", "bins", "least")}
    released = "how often each column has which value, by group, and its mean and variance"
    view = CELLS_VIEW
    several = None
    # Moments of few rows, beside all.
    precision = 2.0**-40
    alone_shows = "a cell that one row is in shows this row's value"

    adds: Described
    exact: bool

    @property
    def places(self) -> tuple[int, ...]:
        """All that a row is read at: features of each column, its indicator, and groups."""
        own = ((*range(f, f + n), *((m,) if m >= 0 else ())) for f, n, m, _ in self.adds.columns)
        return (*(place for each in own for place in each), *self.adds.groups)

    @property
    def alone(self) -> tuple[str, ...]:
        """Sites."""
        return self.adds.sites


@dataclass(frozen=True, kw_only=True, slots=True)
class LifetimesObjective(_Study):
    """Rows by group, time and event; exact: without privacy.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = Lifetimes.kind
    statistic = "survival by time: Kaplan-Meier curves, or the intervals of a Cox model"
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "survival": ("by", "bins", "tau", "begin", "least"),
        "cox": OF_COX,
    }
    released = "how many rows of each group end at which time, with and without an event"
    view = RANGES_VIEW
    alone_shows = "a time at which one row ends shows this row's"

    adds: Lifetimes
    exact: bool


class _Exact(_Study):
    """One that has no private form."""

    __slots__ = ()

    @property
    def exact(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonTimeObjective(_Study):
    """Score and information of a regression of hazards with noise, at a point.

    epsilon_in_all: announced, of all sums of the series.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = PersonTime.kind
    statistic = "a Cox model with privacy noise: hazards that are constant on intervals"
    released = (
        "at given hazard ratios, score and information of a regression of hazards, over all rows"
    )
    view = RANGES_VIEW

    adds: PersonTime
    epsilon_in_all: float

    @property
    def exact(self) -> bool:
        """There is noise."""
        return False

    def remarks(self) -> tuple[str, ...]:
        """Of the other sums."""
        return (
            SERIES,
            f"the coordinator announces that they spend epsilon={self.epsilon_in_all:g} together; "
            "a ledger counts each",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskSetsObjective(_Exact):
    """Sums over risk sets at a point.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = RiskSets.kind
    statistic = "a Cox model at given hazard ratios"
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {"cox": OF_COX}
    released = (
        "at given hazard ratios, by time and stratum, weighted sums of the covariates and of their "
        "products"
    )
    view = RANGES_VIEW
    # The sums of few rows at risk, beside those of all.
    precision = 2.0**-46
    alone_shows = "a time at which one row ends shows all covariates of this row"

    adds: RiskSets

    def remarks(self) -> tuple[str, ...]:
        """Of the other sums, and what is exact."""
        return SERIES, *_Study.remarks(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoxRowsObjective(_Exact):
    """Residuals, concordance and adjusted curves of a fitted model.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = CoxRows.kind
    statistic = "a fitted Cox model: robust errors, concordance and adjusted curves"
    released = (
        "products of the score residuals of a fitted model; rows by time, event and score; mean "
        "survival by time"
    )
    view = RANGES_VIEW
    # Residuals beside the largest that could be.
    precision = 2.0**-56
    alone_shows = "a time or a score that one row has shows this row's"

    adds: CoxRows


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneralisedObjective(_Exact):
    """Score, information and deviance of a generalised linear model at a point.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = Generalised.kind
    statistic = "a generalised linear model at given coefficients"
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {"glm": OF_GLM}
    released = (
        "at given coefficients, score, information, deviance and products of the scores of all rows"
    )
    view = RANGES_VIEW
    alone_shows = "a category or a value that few rows have shows these rows"

    adds: Generalised

    @property
    def precision(self) -> float:  # type: ignore[override]
        """Squares of scores beside the largest that could be; of rows that weigh 1 / trim, too."""
        return 2.0**-72 * (self.adds.trim**2 if self.adds.estimand else 1.0)

    @property
    def places(self) -> tuple[int, ...]:
        """Of covariates, of what weights are computed of, and of features that are a target."""
        adds = self.adds
        numbers = (adds.target, adds.weight, adds.offset)
        named = (each[0] - TARGETS for each in numbers if each and each[0] >= TARGETS)
        return (*adds.columns, *adds.treatment, *adds.scored, *map(int, named))

    @property
    def alone(self) -> tuple[str, ...]:
        """Of totals of owners, and of rows about an owner's own mean, each has to accept them."""
        return EVERYBODY if self.adds.clusters or self.adds.within else ()

    def remarks(self) -> tuple[str, ...]:
        """Of the other sums, of parties' own totals, and what is exact."""
        clusters = (
            "sums of products of each owner's whole score are among them: of few owners these tell "
            "of one",
        ) * self.adds.clusters
        own = (
            f"a row weighs by its probability of a treatment ({self.adds.estimand}), which you "
            "compute of a logistic model that the plan states; no weight is sent alone",
        ) * bool(self.adds.estimand)
        return SERIES, *clusters, *own, *_Study.remarks(self)
