"""A clinical study over the rows of several simulated parties, by secure sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ciphercohort.after.sums import sums_wanted
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_PARTIES, SimulationConfig
from ciphercohort.job.inputs import GIVEN, INFERRED, schema_notes
from ciphercohort.job.options import FilePath
from ciphercohort.results.exact_sums import tell
from ciphercohort.study.cox import Cox
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.files import DESCRIPTION, GLM, SURVIVAL, check_folder, write
from ciphercohort.study.glm import Glm, glm_by, with_ranges
from ciphercohort.study.private_cox import PrivateCox, hazards_by
from ciphercohort.study.stays import check_exact, with_stays
from ciphercohort.study.survival import Survival, survival_by
from parties.reader.cells import missing_cells
from parties.reader.schema import Classes, Label, Schema
from parties.reader.shard import encode_shard
from parties.reader.table import Table, read_table
from parties.reader.views import by_range, cells_schema
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.exchange.documents import suggest
from protocols.statistics.evaluation.figures import LEAST
from sims.evaluation import shown_sites, specs_of
from sims.prepare import inferred, split_rows
from sims.simulated_sums import Sums
from sims.simulation import noise_root


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who has which rows, and what is promised; fields as of `simulate`."""

    data: Table
    schema: FilePath | None = None
    exclude: Sequence[str] = ()
    parties: int | None = None
    split: str = "even"
    epsilon: float | None = None
    delta: float = DEFAULT_DELTA
    colluders: int = 0
    ledger: FilePath | None = None
    seed: int | None = None
    out: FilePath | None = None

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

    def sums(
        self, frame: pd.DataFrame, schema: Schema, own: Schema, sites: tuple[str, ...] | str = ()
    ) -> tuple[Sums, tuple[str, ...]]:
        """Over rows of simulated parties, encoded by `own`; and those with tables of their own.

        schema: of the rows.
        """
        root = noise_root(self._config(schema))
        config = self._config(schema)
        rng = np.random.default_rng(root)
        frames, names = split_rows(frame, config.parties, self.split, schema.label.names[0], rng)
        if len(names) < 2:
            raise ParameterError(f"split={self.split!r} gives one party: a sum needs two or more")
        shards = {name: encode_shard(part, own) for name, part in zip(names, frames, strict=True)}
        shown, _ = shown_sites({name: shard.rows for name, shard in shards.items()}, sites, LEAST)
        wanted = sums_wanted(self.epsilon, self.delta, self.colluders)
        specs = specs_of(config, shards, root, shown)
        tell(self.epsilon is None)
        return Sums(specs=specs, schema=own, wanted=wanted), shown

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


def describe(
    data: Table,
    *,
    by: str | None = None,
    sites: tuple[str, ...] | str = (),
    bins: int | None = None,
    least: int = LEAST,
    **asked: Any,
) -> Description:
    """A descriptive table of all rows, by group and by site, without pooling them.

    by: a column with categories. sites: parties that consent to a table of their own, or "all".
    bins: of numeric columns, for quantiles. least: exact counts below it are left out. asked: see
    `Asked`; epsilon: None: sums are exact.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    terms = Asked(data=data, **asked)
    frame = terms.table(*filter(None, [by]))
    schema = _schema_of(terms, frame, by)
    if terms.out is not None:
        check_folder(Path(terms.out), DESCRIPTION)
    sums, shown = terms.sums(frame, schema, cells_schema(schema), sites)
    found = describe_by(sums, by, sites=shown, bins=bins, least=least)
    if terms.epsilon is not None:
        found = replace(found, notes=(*terms.schema_notes, *found.notes))
    if terms.out is not None:
        write(Path(terms.out), DESCRIPTION, found.released(), found.documents())
    return found


def survival(
    data: Table,
    *,
    time: str | None = None,
    event: str | None = None,
    entry: str | None = None,
    by: str | None = None,
    bins: int | None = None,
    tau: float | None = None,
    least: int = LEAST,
    **asked: Any,
) -> Survival:
    """Survival curves of all rows, or by group, without pooling them.

    time, event, entry: columns; None: the schema's targets. by: a column with categories. bins: of
    times, None: see `stays`. tau: end of the restricted mean. asked: see `Asked`; epsilon: None:
    sums are exact.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    terms = Asked(data=data, **asked)
    frame, schema = _with_stays(terms, time, event, entry)
    sums, _ = terms.sums(frame, schema, by_range(schema))
    found = survival_by(sums, by, bins=bins, tau=tau, least=least)
    if terms.epsilon is not None:
        found = replace(found, notes=(*terms.schema_notes, *found.notes))
    if terms.out is not None:
        write(Path(terms.out), SURVIVAL, found.released(), found.documents())
    return found


def cox(
    data: Table,
    *,
    time: str | None = None,
    event: str | None = None,
    entry: str | None = None,
    strata: str | None = None,
    curves: str | None = None,
    bins: int | None = None,
    least: int = LEAST,
    **asked: Any,
) -> Cox | PrivateCox:
    """A Cox model of all rows, without pooling them; with epsilon one of piecewise hazards.

    time, event, entry, bins: as of `survival`. strata: a column with categories, each with a
    baseline hazard of its own. curves: a covariate with categories, for adjusted curves. asked: see
    `Asked`.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    terms = Asked(data=data, **asked)
    frame, schema = _with_stays(terms, time, event, entry)
    sums, _ = terms.sums(frame, schema, by_range(schema))
    found = hazards_by(sums, strata=strata, curves=curves, bins=bins, least=least)
    if isinstance(found, PrivateCox):
        found = replace(found, notes=(*terms.schema_notes, *found.notes))
    if terms.out is not None:
        write(Path(terms.out), SURVIVAL, found.released(), found.documents())
    return found


def glm(
    data: Table,
    *,
    target: str | None = None,
    weight: str | None = None,
    offset: str | None = None,
    family: str = "binomial",
    link: str | None = None,
    alpha: float | None = None,
    site_intercepts: bool = False,
    cluster: bool = False,
    **asked: Any,
) -> Glm:
    """A generalised linear model of all rows, without pooling them.

    target, weight, offset: columns of numbers; target None: the schema's first. family, link,
    alpha, site_intercepts, cluster: see `glm_by`. asked: see `Asked`.

    Raises:
        CohortError: an option or the data are refused; the message says why.
    """
    terms = Asked(data=data, **asked)
    check_exact(terms.epsilon)
    named = tuple(filter(None, (target, weight, offset)))
    frame = terms.table(*named)
    if terms.schema is not None:
        schema = Schema.load(Path(terms.schema))
    elif target is None:
        raise ParameterError("target: name a column, or give a schema")
    else:
        left_out, notes = (*terms.exclude, *terms.split_column), list[str]()
        given: dict[str, Any] = {"exclude": left_out, "missing": "indicator"}
        schema = inferred(frame, list(named), notes, **given)
        schema = with_ranges(schema, frame, family, target, weight)
    if terms.out is not None:
        check_folder(Path(terms.out), GLM)
    sums, _ = terms.sums(frame, schema, by_range(schema))
    found = glm_by(
        sums,
        target=target,
        weight=weight,
        offset=offset,
        family=family,
        link=link,
        alpha=alpha,
        site_intercepts=site_intercepts,
        cluster=cluster,
    )
    if terms.out is not None:
        write(Path(terms.out), GLM, found.released(), found.documents())
    return found


def _with_stays(
    terms: Asked, time: str | None, event: str | None, entry: str | None
) -> tuple[pd.DataFrame, Schema]:
    """The rows, and a schema whose targets are time, event and entry."""
    named = tuple(filter(None, (time, event, entry)))
    frame = terms.table(*named)
    if terms.schema is not None:
        schema = Schema.load(Path(terms.schema))
        if named and named != schema.label.names:
            raise SchemaError(
                f"time, event and entry {', '.join(named)} are not the schema's targets "
                f"{', '.join(schema.label.names)}: leave them out, or give another schema"
            )
    elif time is None or event is None:
        raise ParameterError("time and event: name both columns, or give a schema")
    else:
        left_out, notes = (*terms.exclude, *terms.split_column), list[str]()
        given: dict[str, Any] = {"exclude": left_out, "missing": "indicator"}
        schema = with_stays(inferred(frame, list(named), notes, **given), frame)
    if terms.out is not None:
        check_folder(Path(terms.out), SURVIVAL)
    return frame, schema


def _schema_of(terms: Asked, frame: pd.DataFrame, by: str | None) -> Schema:
    """The schema that is given, or that of the rows, with one of the columns as its outcome."""
    if terms.schema is not None:
        return Schema.load(Path(terms.schema))
    left_out = (*terms.exclude, *terms.split_column)
    whole = [
        str(n) for n in frame.columns if n not in left_out and not missing_cells(frame[n]).any()
    ]
    if not whole:
        raise DataError("every column has missing cells: give a schema")
    outcome = by if by in whole else whole[0]
    notes: list[str] = []
    given: dict[str, Any] = {"exclude": left_out, "missing": "indicator"}
    for label, more in ((outcome, {"several": True}), ([outcome], {})):
        try:
            return inferred(frame, label, notes, **given, **more)
        except SchemaError:
            if not isinstance(label, str):
                raise
    raise AssertionError("one of both has been tried last")
