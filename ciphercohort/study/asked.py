"""What studies are asked for: records of options that commands, simulations, deployments read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, get_type_hints

from ciphercohort.job.options import HOWEVER_NOISY, checked, names_in, option
from protocols.errors import ParameterError
from protocols.exchange.documents import shown, suggest

LEAST = 10
"""Exact counts below it are not shown."""
TRIM = 0.01
"""Least probability of either arm that weights are made of."""
Record = TypeVar("Record")


def parted(record: type[Record], given: dict[str, Any]) -> tuple[Record, dict[str, Any]]:
    """The record that options make, and those that it has no fields for."""
    own = {each.name for each in fields(record)} & {*given}  # type: ignore[arg-type]
    rest = {name: value for name, value in given.items() if name not in own}
    return record(**{name: given[name] for name in own}), rest


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Checked at birth, and so before a sum is opened.

    Raises:
        ParameterError: an option is out of range.
    """

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for each in fields(self):
            if each.name != "sites":  # a text or names
                checked(each, kinds[each.name], getattr(self, each.name))


def _by() -> Any:
    return option(None, "Column with groups, of categories or two numbers.")


def _least() -> Any:
    return option(LEAST, "Exact counts below it are left out.", least=2)


def _imputations() -> Any:
    words = "Fits of rows whose missing cells are drawn from the schema's models, pooled (Rubin)."
    return option(None, words, least=2)


def _bins() -> Any:
    words = "Bins of time. Default: the recorded unit of 50 to 1,100 of them, else 500."
    return option(None, words, name="grid", least=2)


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(_Options):
    """Of a table. sites: parties that consent to one of their own; of a simulation, or "all"."""

    by: str | None = _by()
    sites: str | tuple[str, ...] = option(
        "", "Parties that consent to a table of their own: a,b; of a simulation, or all."
    )
    bins: int | None = option(
        None, "Of numeric columns. Default: about 200, with epsilon 20.", least=2
    )
    least: int = _least()

    @property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return tuple(filter(None, names_in(self.sites)))


@dataclass(frozen=True, kw_only=True)
class CurveOptions(_Options):
    """Of curves. bins: see `Stays.of`; tau: None: the last time that all groups reach.

    begin: curves are of who lived to this time; None: or to where their group is large enough.
    """

    by: str | None = _by()
    bins: int | None = _bins()
    tau: float | None = option(None, "Of kaplan-meier: end of the restricted mean survival time.")
    begin: float | None = option(
        None, "Of kaplan-meier: curves are of who lived to this time.", name="from"
    )
    least: int = _least()


@dataclass(frozen=True, kw_only=True)
class CoxOptions(_Options):
    """Of a Cox model. bins: see `Stays.of`."""

    strata: str | None = option(
        None, "Of cox: column with groups, each with a baseline hazard of its own."
    )
    curves: str | None = option(None, "Of cox: covariate with groups, for adjusted curves.")
    bins: int | None = _bins()
    least: int = _least()
    imputations: int | None = _imputations()


@dataclass(frozen=True, kw_only=True)
class Insists:
    """What moves no figure, and so is no part of what a study was asked for."""

    however_noisy: bool = option(False, HOWEVER_NOISY)


@dataclass(frozen=True, kw_only=True)
class GlmOptions(_Options):
    """Of a generalised linear model. target, weight, offset: numbers of the schema's targets."""

    target: str | None = option(
        None, "Column of numbers or of two, or COLUMN=GROUP. Default: the schema's first."
    )
    family: str = option("binomial", "binomial, poisson, negative-binomial, gamma or gaussian.")
    link: str | None = option(
        None, "Of binomial: logit, probit or cloglog. Default: the usual one."
    )
    weight: str | None = option(None, "Column of how many times a row counts.")
    offset: str | None = option(None, "Column that is added to scores, such as a log of exposure.")
    alpha: float | None = option(None, "Of negative-binomial: dispersion. Default: estimated.")
    propensity: str | None = option(
        None, "COLUMN=GROUP: inverse probability of treatment weights, made at home."
    )
    estimand: str | None = option(None, "Of propensity: ate, att or overlap. Default: ate.")
    trim: float | None = option(
        None, "Of propensity: probabilities are held within it and 1 less it. Default: 0.01."
    )
    propensity_columns: tuple[str, ...] | None = option(
        None, "Of propensity: columns of its model, a,b. Default: all but the treatment's."
    )
    site_intercepts: bool = option(False, "Each site has one of its own, which stays there.")
    cluster: bool = option(False, "Standard errors by site, too; of four sites or more.")
    imputations: int | None = _imputations()

    @property
    def treatment(self) -> str | None:
        """Column of the propensity's category."""
        return self.propensity and self.propensity.partition("=")[0]

    def settled(self, known: Sequence[str], exclude: Sequence[str]) -> GlmOptions:
        """What weights follow from, in full; known: covariates; exclude: those of neither model.

        Raises:
            ParameterError: no column is left for the treatment's model, or one is left out of it
                and named.
        """
        if self.propensity is None:
            return self
        gone = {*exclude, self.treatment, (self.target or "").partition("=")[0]}
        columns = names_in(self.propensity_columns)
        if both := [name for name in columns if name in exclude]:
            raise ParameterError(
                f"exclude={shown(both[0])} is also in propensity_columns: leave it out of one"
            )
        if known and not columns:
            columns = tuple(name for name in known if name not in gone)
            if exclude and not columns:
                raise ParameterError("propensity: exclude leaves no column for its model")
        return replace(
            self,
            estimand=self.estimand or "ate",
            trim=TRIM if self.trim is None else self.trim,
            propensity_columns=columns,
        )


@dataclass(frozen=True, kw_only=True)
class ChosenColumns:
    """Columns of a deployment's schema that one table or model takes, over the same rows."""

    include: tuple[str, ...] = option((), "The only columns to take (default: all); a,b.")
    exclude: tuple[str, ...] = option((), "Columns to leave out; a,b, or repeated.")

    def of(self, known: Sequence[str], needed: Iterable[str | None]) -> tuple[str, ...]:
        """Those of `known` that are taken, in its order; needed: taken whether included or not.

        Raises:
            ParameterError: there is no such column, none is left, or one is to be used and left
                out.
        """
        include, exclude, used = names_in(self.include), names_in(self.exclude), {*needed}
        for option_, names in (("include", include), ("exclude", exclude)):
            for name in names:
                if name not in known:
                    raise ParameterError(
                        f"{option_}={shown(name)} is none of the columns that there are to take: "
                        f"{', '.join(map(shown, known))}{suggest(name, list(known))}"
                    )
        if both := [name for name in exclude if name in include or name in used]:
            raise ParameterError(
                f"exclude={shown(both[0])} is also in include, or named by by, "
                "strata, curves or propensity: leave it out of one"
            )
        taken = {*(include or known)} | used
        found = tuple(name for name in known if name in taken and name not in exclude)
        if not found:
            raise ParameterError("no column is left: include one or more")
        return found


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """Whether a deployment's command asks nobody."""

    dry_run: bool = option(False, "Check options, say what the first sum needs, and ask nobody.")


@dataclass(frozen=True, kw_only=True)
class StayColumns:
    """Columns of a simulation's stays; None: the schema's targets."""

    time: str | None = option(None, "Column of times. Default: the schema's.")
    event: str | None = option(
        None, "Column with 1 for an event, 0 for none. Default: the schema's."
    )
    entry: str | None = option(None, "Column of times at which rows enter late.")

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are given."""
        return tuple(filter(None, (self.time, self.event, self.entry)))


@dataclass(frozen=True, kw_only=True)
class SurvivalModel:
    """Curves or a Cox model: whose options are taken, `CurveOptions` or `CoxOptions`."""

    model: str = option(
        "kaplan-meier", "kaplan-meier (curves, log-rank test), or cox (hazard ratios)."
    )
