"""A clinical study over the rows of several simulated parties, by secure sums."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ciphercohort.after.sums import SpentError, spent_is_told, sums_wanted
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_PARTIES, SimulationConfig
from ciphercohort.job.inputs import GIVEN, INFERRED, schema_notes
from ciphercohort.job.layout import DESCRIPTION, GLM, SURVIVAL
from ciphercohort.job.options import FilePath, names_in
from ciphercohort.results.exact_sums import tell
from ciphercohort.study.asked import (
    ChosenColumns,
    CoxOptions,
    CurveOptions,
    DescribeOptions,
    GlmOptions,
    Insists,
    StayColumns,
    parted,
)
from ciphercohort.study.cox import Cox
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.files import check_folder, write
from ciphercohort.study.glm import Glm, glm_by, with_ranges
from ciphercohort.study.imputed import Pooled, imputed_by
from ciphercohort.study.private_cox import PrivateCox, hazards_by
from ciphercohort.study.stays import check_exact, with_stays
from ciphercohort.study.survival import Survival, survival_by
from parties.reader.arms import arm_of
from parties.reader.cells import missing_cells, text_cells
from parties.reader.infer import infer_column
from parties.reader.look import undeclared
from parties.reader.schema import Classes, Label, Schema
from parties.reader.shard import encode_shard
from parties.reader.table import Table, read_table
from parties.reader.views import by_range, cells_schema, encode_with_views
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.exchange.documents import suggest
from protocols.statistics.evaluation.figures import LEAST
from protocols.words import NOT_PRIVATE
from sims.evaluation import shown_sites
from sims.prepare import chosen_schema, inferred, split_rows
from sims.simulated_sums import Sums
from sims.simulation import noise_root, party_specs

log = logging.getLogger(__name__)
Found = TypeVar("Found", bound=Any)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who has which rows, and what is promised; fields as of `simulate`.

    reference: see `infer_schema`; on_progress: see `SumSeries`.
    """

    data: Table
    schema: FilePath | None = None
    exclude: Sequence[str] = ()
    include: Sequence[str] = ()
    reference: Sequence[str] = ()
    parties: int | None = None
    split: str = "even"
    epsilon: float | None = None
    delta: float = DEFAULT_DELTA
    colluders: int = 0
    ledger: FilePath | None = None
    seed: int | None = None
    out: FilePath | None = None
    on_progress: Callable[[str, int, int], None] = lambda unit, done, total: None

    def __post_init__(self) -> None:
        for name in ("exclude", "include", "reference"):
            object.__setattr__(self, name, names_in(getattr(self, name)))

    @property
    def split_column(self) -> tuple[str, ...]:
        """That says which party a row belongs to, if one does."""
        kind, _, column = self.split.partition(":")
        return (column,) * (kind == "by")

    @property
    def schema_notes(self) -> tuple[str, ...]:
        """Where the schema comes from, for a reader; empty: it was given."""
        found = GIVEN if self.schema is not None else INFERRED
        return schema_notes(found, private=self.epsilon is not None)

    def table(self, *needed: str) -> pd.DataFrame:
        """The rows.

        Raises:
            SchemaError: a column is missing. DataError: the table cannot be read.
        """
        frame = read_table(self.data, label=needed[0] if needed else "y")
        for name in needed:
            if name not in frame.columns:
                known = list(map(str, frame.columns))
                raise SchemaError(f"{name!r} is not a column{suggest(name, known)}")
        return frame

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that no feature is made of."""
        return (*self.exclude, *self.split_column)

    def schema_given(self, needed: Sequence[str | None] = ()) -> Schema | None:
        """The schema's file, if there is one; needed: see `chosen_schema`."""
        if self.schema is None:
            return None
        chosen = {"exclude": self.exclude, "include": self.include, "reference": self.reference}
        return chosen_schema(Path(self.schema), needed=needed, **chosen)

    def inferred(
        self, frame: pd.DataFrame, outcome: Any, needed: Sequence[str | None] = (), **more: Any
    ) -> Schema:
        """A schema of the rows, with `outcome` as its label, or its targets.

        needed: columns that are used, whether included or not.
        """
        chosen: dict[str, Any] = {"exclude": self.left_out, "reference": self.reference}
        if self.include:
            predicted = {outcome} if isinstance(outcome, str) else {*outcome}
            used = dict.fromkeys((*self.include, *filter(None, needed)))
            chosen["include"] = [name for name in used if name not in predicted]
        return inferred(frame, outcome, [], **{"missing": "indicator", **chosen, **more})

    def check_folder(self, name: str) -> None:
        """Before anything is asked; see `files.check_folder`."""
        if self.out is not None:
            check_folder(Path(self.out), name)

    def kept(self, found: Found, name: str) -> Found:
        """What was found, and its documents where some are asked for."""
        if self.epsilon is not None:
            seeded = (NOT_PRIVATE,) * (self.seed is not None)
            found = replace(found, notes=(*seeded, *self.schema_notes, *found.notes))
        if self.out is not None:
            write(Path(self.out), name, found.released(), found.documents())
        return found

    def found(self, find: Callable[[Sums, Any], Found], sums: Sums, own: Any, name: str) -> Found:
        """What sums find, and its documents; own: options.

        Raises:
            SpentError: noisy sums gave no result, as the document says. CohortError: as of `find`.
        """
        try:
            with spent_is_told(sums):
                result = find(sums, own)
        except SpentError as error:
            if self.out is not None:
                promise = {"epsilon": self.epsilon, "delta": self.delta}
                notes = [NOT_PRIVATE] * (self.seed is not None)
                body = {**error.documented, "privacy": promise, "notes": notes}
                write(Path(self.out), name, body, ())
            raise
        return self.kept(result, name)

    def sums(
        self, frame: pd.DataFrame, schema: Schema, own: Schema, sites: tuple[str, ...] | str = ()
    ) -> tuple[Sums, tuple[str, ...]]:
        """Over rows of simulated parties, encoded by `own`; and those with tables of their own.

        schema: of the rows.
        """
        config = self._config(schema)
        root = noise_root(config)
        rng = np.random.default_rng(root)
        frames, names = split_rows(frame, config.parties, self.split, schema.label.names[0], rng)
        if len(names) < 2:
            raise ParameterError(f"split={self.split!r} gives one party: a sum needs two or more")
        parts = dict(zip(names, frames, strict=True))
        shards = {name: encode_shard(part, own) for name, part in parts.items()}
        shown, _ = shown_sites({name: shard.rows for name, shard in shards.items()}, sites, LEAST)
        for words in undeclared(shards.values()) if self.epsilon is not None else ():
            log.warning("for whoever has all rows, not for a paper: %s", words)
        wanted = sums_wanted(self.epsilon, self.delta, self.colluders)
        specs = party_specs(config, shards, root, "")
        tell(self.epsilon is None)
        views = {
            name: encode_with_views(part, schema, coins=rng.bytes(32))[1]
            for name, part in (parts if own.imputation else {}).items()
        }
        sums = Sums(
            specs=specs, schema=own, wanted=wanted, views=views, on_progress=self.on_progress
        )
        return sums, shown

    def _config(self, schema: Schema) -> SimulationConfig:
        names = schema.label.names
        outcome: dict[str, Any] = {"model": "linear", "targets": names}
        if isinstance(schema.label, (Label, Classes)):
            outcome = {"label": names[0]}
        return SimulationConfig(
            **outcome,
            data=self.data,
            parties=self.parties or (None if self.split_column else DEFAULT_PARTIES),
            split=self.split,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            ledger=Path(self.ledger) if self.ledger else None,
            seed=self.seed,
        )


def describe(data: Table, **given: Any) -> Description:
    """A descriptive table of all rows, by group and by site, without pooling them.

    given: fields of `DescribeOptions` and of `Asked`; epsilon: None: sums are exact.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    own, asked = parted(DescribeOptions, given)
    terms = Asked(data=data, **asked)
    frame = terms.table(*filter(None, [own.by]))
    schema = _schema_of(terms, frame, own.by)
    terms.check_folder(DESCRIPTION)
    sites = "all" if own.names == ("all",) else own.names
    sums, shown = terms.sums(frame, schema, cells_schema(schema), sites)
    return terms.found(describe_by, sums, replace(own, sites=shown), DESCRIPTION)


def survival(data: Table, **given: Any) -> Survival:
    """Survival curves of all rows, or by group, without pooling them.

    given: fields of `StayColumns`, `CurveOptions` and `Asked`; epsilon: None: sums are exact.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    own, asked = parted(CurveOptions, given)
    terms, sums = _of_stays(data, asked, (own.by,))
    return terms.found(survival_by, sums, own, SURVIVAL)


def cox(data: Table, **given: Any) -> Cox | PrivateCox | Pooled:
    """A Cox model of all rows, without pooling them; with epsilon one of piecewise hazards.

    With imputations several, of rows whose missing cells are drawn, and what they tell together.

    given: fields of `StayColumns`, `CoxOptions`, `Insists` and `Asked`.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    insists, given = parted(Insists, given)
    own, asked = parted(CoxOptions, given)
    terms, sums = _of_stays(data, asked, (own.strata, own.curves), own.imputations)
    sums = replace(sums, however_noisy=insists.however_noisy)
    return terms.found(partial(imputed_by, hazards_by), sums, own, SURVIVAL)


def glm(data: Table, **given: Any) -> Glm | Pooled:
    """A generalised linear model of all rows, without pooling them; imputations: as of `cox`.

    given: fields of `GlmOptions` and `Asked`.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    check_exact(given.get("epsilon"))
    own, asked = parted(GlmOptions, given)
    terms = Asked(data=data, **asked)
    # Of two models each takes columns that the other may leave out.
    whole = terms if own.propensity is None else replace(terms, include=())
    named = tuple(filter(None, (own.target, own.weight, own.offset)))
    frame = whole.table(*(name for name in named if "=" not in name))
    if (found := whole.schema_given()) is not None:
        schema = found
    elif own.target is None:
        raise ParameterError("target: name a column, or give a schema")
    else:
        if "=" in own.target and own.target not in frame.columns:
            whole, frame = _with_category(whole, frame, own.target)
        schema = with_ranges(
            whole.inferred(frame, named, **_drawn(own.imputations)),
            frame,
            own.family,
            own.target,
            own.weight,
        )
    columns: tuple[str, ...] = ()
    if own.propensity is not None and terms.include:
        names = [column.name for column in schema.columns]
        columns = ChosenColumns(include=tuple(terms.include)).of(names, (own.treatment,))
    terms.check_folder(GLM)
    sums, _ = terms.sums(frame, schema, by_range(schema))
    return terms.found(partial(imputed_by, glm_by), replace(sums, columns=columns), own, GLM)


def _with_category(terms: Asked, frame: pd.DataFrame, name: str) -> tuple[Asked, pd.DataFrame]:
    """With a column of 0 and 1 for a category, in the place of the column that it is of.

    Raises:
        SchemaError: there is no such, or cells of the column are missing.
    """
    known = [*map(str, frame.columns)]
    column = max((each for each in known if name.startswith(f"{each}=")), key=len, default="")
    if column not in known:
        own = name.partition("=")[0]
        raise SchemaError(f"{own!r} is not a column{suggest(own, known)}")
    own_column = infer_column(frame[column], deliberate=True)
    arm_of([(0, own_column)], "target", name, alone=False)
    (codes, texts), category = text_cells(frame[column]), name.removeprefix(f"{column}=")
    if (codes < 0).any():
        raise SchemaError(f"target={name!r}: cells of {column!r} are missing: leave these rows out")
    frame = frame.assign(**{name: (codes == texts.index(category)).astype(float)})
    left = [each for each in terms.include if each != column]
    return replace(terms, exclude=(*terms.exclude, column), include=left), frame


def _drawn(imputations: int | None) -> dict[str, Any]:
    """How missing cells are inferred: models of them are of the rows themselves, here."""
    return {} if imputations is None else {"missing": "typical", "impute": imputations}


def _of_stays(
    data: Table,
    given: dict[str, Any],
    needed: Sequence[str | None],
    imputations: int | None = None,
) -> tuple[Asked, Sums]:
    """Sums over rows whose targets are time, event and entry; needed: see `Asked.inferred`."""
    columns, asked = parted(StayColumns, given)
    terms = Asked(data=data, **asked)
    frame = terms.table(*columns.names)
    if (found := terms.schema_given(needed)) is not None:
        schema = found
        if columns.names and columns.names != schema.label.names:
            raise SchemaError(
                f"time, event and entry {', '.join(columns.names)} are not the schema's targets "
                f"{', '.join(schema.label.names)}: leave them out, or give another schema"
            )
    elif columns.time is None or columns.event is None:
        raise ParameterError("time and event: name both columns, or give a schema")
    else:
        own = terms.inferred(frame, columns.names, needed, **_drawn(imputations))
        schema = with_stays(own, frame)
    terms.check_folder(SURVIVAL)
    sums, _ = terms.sums(frame, schema, by_range(schema))
    return terms, sums


def _schema_of(terms: Asked, frame: pd.DataFrame, by: str | None) -> Schema:
    """The schema that is given, or that of the rows, with one of the columns as its outcome.

    It is described as it would be among the others: a number as one, unless rows are grouped by it.
    """
    if (found := terms.schema_given((by,))) is not None:
        return found
    used = {*(terms.include or frame.columns), *filter(None, [by])} - {*terms.left_out}
    whole = [str(n) for n in frame.columns if n in used and not missing_cells(frame[n]).any()]
    if not whole:
        raise DataError("every column has missing cells: give a schema")
    outcome = by if by in whole else whole[0]
    kinds: list[tuple[Any, dict[str, Any]]] = [([outcome], {}), (outcome, {"several": True})]
    first, last = kinds[::-1] if outcome == by else kinds
    try:
        return terms.inferred(frame, first[0], (by,), **first[1])
    except SchemaError:
        return terms.inferred(frame, last[0], (by,), **last[1])
