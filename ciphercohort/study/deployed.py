"""A study across machines: the sums of a description or of a survival analysis, by sessions.

The first session's name stands for all: its folder gets the documents, and an interrupted series
goes on by it, opening no sum twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ciphercohort.after.sums import SumSeries, spent_is_told, sums_wanted
from ciphercohort.deploy.inference import DeployedSums
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import DESCRIPTION, GLM, SURVIVAL
from ciphercohort.study.asked import (
    CoxOptions,
    CurveOptions,
    DescribeOptions,
    GlmOptions,
    Record,
    parted,
)
from ciphercohort.study.cox import Cox
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.files import write
from ciphercohort.study.glm import Glm, glm_by
from ciphercohort.study.imputed import Pooled, imputed_by
from ciphercohort.study.private_cox import PrivateCox, hazards_by
from ciphercohort.study.stays import Stays, check_exact
from ciphercohort.study.survival import Survival, survival_by
from coordinator.settings import SCHEMA
from parties.reader.schema import Schema
from parties.reader.views import by_range, cells_schema

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator

Found = TypeVar("Found", bound=Any)


def describe(centre: Coordinator, **given: Any) -> tuple[Path, Description]:
    """A descriptive table over the rows of all admitted parties.

    given: fields of `DescribeOptions`; epsilon, delta, colluders, session and tell, as of
    `Coordinator.infer`.

    Returns: description.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `Coordinator.run`; or an option does not fit the schema.
    """
    return _found(centre, cells_schema, DESCRIPTION, DescribeOptions, describe_by, given)


def survival(centre: Coordinator, **given: Any) -> tuple[Path, Survival]:
    """Survival curves; given: fields of `CurveOptions`, and as of `describe`.

    The schema's targets are time, event and, if rows enter late, entry.

    Returns: survival.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `describe`.
    """
    return _found(centre, _of_stays, SURVIVAL, CurveOptions, survival_by, given)


def cox(centre: Coordinator, **given: Any) -> tuple[Path, Cox | PrivateCox | Pooled]:
    """A Cox model, with epsilon one of piecewise hazards; with imputations several, pooled.

    given: fields of `CoxOptions`, and as of `survival`, which see.
    """
    return _found(centre, _of_stays, SURVIVAL, CoxOptions, partial(imputed_by, hazards_by), given)


def glm(centre: Coordinator, **given: Any) -> tuple[Path, Glm | Pooled]:
    """A generalised linear model; given: fields of `GlmOptions`, and as of `describe`.

    Returns: glm.json in the folder of the first session, and what it holds.

    Raises:
        CohortError: as of `describe`.
    """
    check_exact(given.get("epsilon"))
    return _found(centre, by_range, GLM, GlmOptions, partial(imputed_by, glm_by), given)


def _of_stays(schema: Schema) -> Schema:
    own = by_range(schema)
    Stays.of(own)
    return own


def _found(
    centre: Coordinator,
    view: Callable[[Schema], Schema],
    name: str,
    record: type[Record],
    find: Callable[[SumSeries, Record], Found],
    given: dict[str, Any],
) -> tuple[Path, Found]:
    asked, rest = parted(record, given)
    schema = view(Schema.load(centre.settings.folder / SCHEMA))
    return _written(centre, schema, name, lambda sums: find(sums, asked), **rest)


def _written(
    centre: Coordinator,
    schema: Schema,
    name: str,
    find: Callable[[DeployedSums], Found],
    *,
    epsilon: float | None = None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    session: str | None = None,
    tell: Callable[[str], None] = print,
) -> tuple[Path, Found]:
    """What is found by sums over rows of `schema`, and its documents."""
    wanted = sums_wanted(epsilon, delta, colluders)
    sums = DeployedSums.of(centre.settings, centre.driving(tell, session), schema, wanted, session)
    with spent_is_told(sums):
        found = find(sums)
    folder = centre.settings.session_folder(sums.sessions[0])
    body = {**found.released(), "sessions": sums.sessions}
    return write(folder, name, body, found.documents(), fresh=False), found
