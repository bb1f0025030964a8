"""A study across machines: the sums of a description or of a survival analysis, by sessions.

The first session's name stands for all: its folder gets the documents, and an interrupted series
goes on by it, opening no sum twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ciphercohort.after.sums import sums_wanted
from ciphercohort.deploy.inference import DeployedSums
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.study.cox import Cox
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.files import DESCRIPTION, GLM, SURVIVAL, write
from ciphercohort.study.glm import Glm, glm_by
from ciphercohort.study.private_cox import PrivateCox, hazards_by
from ciphercohort.study.stays import Stays, check_exact
from ciphercohort.study.survival import Survival, survival_by
from coordinator.settings import SCHEMA
from parties.reader.schema import Schema
from parties.reader.views import by_range, cells_schema
from protocols.statistics.evaluation.figures import LEAST

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator

Found = TypeVar("Found", bound=Any)


def describe(
    centre: Coordinator,
    *,
    by: str | None = None,
    sites: tuple[str, ...] = (),
    bins: int | None = None,
    least: int = LEAST,
    **asked: Any,
) -> tuple[Path, Description]:
    """A descriptive table over the rows of all admitted parties; see `sims.study.describe`.

    asked: epsilon, delta, colluders, session and tell, as of `Coordinator.infer`.

    Returns: description.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `Coordinator.run`; or `by` is no column with categories.
    """
    schema = Schema.load(centre.settings.folder / SCHEMA)
    return _written(
        centre,
        cells_schema(schema),
        DESCRIPTION,
        lambda sums: describe_by(sums, by, sites=sites, bins=bins, least=least),
        **asked,
    )


def survival(
    centre: Coordinator,
    *,
    by: str | None = None,
    bins: int | None = None,
    tau: float | None = None,
    least: int = LEAST,
    **asked: Any,
) -> tuple[Path, Survival]:
    """Survival curves over the rows of all admitted parties; see `sims.study.survival`.

    The schema's targets are time, event and, if rows enter late, entry. asked: as of `describe`.

    Returns: survival.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `Coordinator.run`; or the schema has other targets.
    """
    return _of_stays(
        centre, lambda sums: survival_by(sums, by, bins=bins, tau=tau, least=least), **asked
    )


def cox(
    centre: Coordinator,
    *,
    strata: str | None = None,
    curves: str | None = None,
    bins: int | None = None,
    least: int = LEAST,
    **asked: Any,
) -> tuple[Path, Cox | PrivateCox]:
    """A Cox model over the rows of all admitted parties; see `sims.study.cox`, and `survival`."""
    return _of_stays(
        centre,
        lambda sums: hazards_by(sums, strata=strata, curves=curves, bins=bins, least=least),
        **asked,
    )


def glm(
    centre: Coordinator,
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
) -> tuple[Path, Glm]:
    """A generalised linear model over the rows of all admitted parties; see `sims.study.glm`.

    target, weight, offset: among the schema's targets. asked: as of `describe`.

    Returns: glm.json in the folder of the first session, and what it holds.

    Raises:
        CohortError: as of `Coordinator.run`; or an option does not fit the schema.
    """
    check_exact(asked.get("epsilon"))
    schema = by_range(Schema.load(centre.settings.folder / SCHEMA))

    def find(sums: DeployedSums) -> Glm:
        return glm_by(
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

    return _written(centre, schema, GLM, find, **asked)


def _of_stays(
    centre: Coordinator, find: Callable[[DeployedSums], Found], **asked: Any
) -> tuple[Path, Found]:
    schema = by_range(Schema.load(centre.settings.folder / SCHEMA))
    Stays.of(schema)
    return _written(centre, schema, SURVIVAL, find, **asked)


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
    sums = DeployedSums.of(centre.settings, centre.driving(tell), schema, wanted, session)
    found = find(sums)
    folder = centre.settings.session_folder(sums.sessions[0])
    body = {**found.released(), "sessions": sums.sessions}
    return write(folder, name, body, found.documents(), fresh=False), found
