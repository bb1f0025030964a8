"""A study across machines: the sums of a description or of a survival analysis, by sessions.

The first session's name stands for all: its folder gets the documents, and an interrupted series
goes on by it, opening no sum twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciphercohort.after.sums import SpentError, SumSeries, noise_std, spent_is_told, sums_wanted
from ciphercohort.deploy.asked import PROMISE
from ciphercohort.deploy.deployed import options_asked
from ciphercohort.deploy.inference import DeployedSums, Drive, noted
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import DESCRIPTION, GLM, SURVIVAL
from ciphercohort.job.options import names_in, option_name
from ciphercohort.results.documents import to_json
from ciphercohort.results.result import Array
from ciphercohort.study.asked import (
    ChosenColumns,
    CoxOptions,
    CurveOptions,
    DescribeOptions,
    GlmOptions,
    Insists,
    parted,
)
from ciphercohort.study.cox import Cox
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.files import write
from ciphercohort.study.glm import Glm, glm_by
from ciphercohort.study.imputed import Pooled, imputed_by
from ciphercohort.study.private_cox import PrivateCox, hazards_by
from ciphercohort.study.stays import Stays
from ciphercohort.study.survival import Survival, survival_by
from coordinator.settings import SCHEMA, Settings
from parties.reader.schema import Schema
from parties.reader.views import by_range, cells_schema
from protocols.errors import ParameterError
from protocols.exchange.documents import shown
from protocols.sums.plan import GradientPlan

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator


def describe(centre: Coordinator, **given: Any) -> tuple[Path, Description]:
    """A descriptive table over the rows of all admitted parties.

    given: fields of `DescribeOptions` and `ChosenColumns`; epsilon, delta, colluders, session and
    tell, as of `Coordinator.infer`.

    Returns: description.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `Coordinator.run`; or an option does not fit the schema.
    """
    return _found(centre, "describe", **given)


def survival(centre: Coordinator, **given: Any) -> tuple[Path, Survival]:
    """Survival curves; given: fields of `CurveOptions`, and as of `describe`.

    The schema's targets are time, event and, if rows enter late, entry.

    Returns: survival.json in the folder of the session, and what it holds.

    Raises:
        CohortError: as of `describe`.
    """
    return _found(centre, "survival", **given)


def cox(centre: Coordinator, **given: Any) -> tuple[Path, Cox | PrivateCox | Pooled]:
    """A Cox model, with epsilon one of piecewise hazards; with imputations several, pooled.

    given: fields of `CoxOptions`, `ChosenColumns` and `Insists`, and as of `survival`, which see.
    A series that is gone on with is not refused for its noise.
    """
    insists, given = parted(Insists, given)
    return _found(centre, "cox", insists, **given)


def glm(centre: Coordinator, **given: Any) -> tuple[Path, Glm | Pooled]:
    """A generalised linear model; given: fields of `GlmOptions`, else as of `describe`.

    Returns: glm.json in the folder of the first session, and what it holds.

    Raises:
        CohortError: as of `describe`.
    """
    return _found(centre, "glm", **given)


def forecast(
    centre: Coordinator,
    study: str,
    *,
    epsilon: float | None = None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    **given: Any,
) -> dict[str, Any]:
    """What the first sum of a study opens; options are checked, and nobody is asked.

    Notes of what the rows need are logged, as they are before a first sum.

    study: `describe`, `survival`, `cox` or `glm`; given: as of its function.

    Raises:
        CohortError: an option is refused, or no plan can be certified.
    """
    settings, kind = centre.settings, KINDS[study]
    insists, given = parted(Insists, given) if study == "cox" else (Insists(), given)
    options, columns = _asked(kind, settings, given)
    sums = _Foreseen(
        schema=kind.view(Schema.load(settings.folder / SCHEMA)),
        sizes={card.name: card.rows for card in settings.owners().values()},
        wanted=sums_wanted(epsilon, delta, colluders),
        columns=columns,
        however_noisy=insists.however_noisy,
    )
    try:
        kind.find(sums, options)
    except _PlannedError as error:
        plan = error.plan
    else:
        raise AssertionError("a study without a sum")
    return {
        "statistic": plan.statistic,
        "released": plan.task.released,  # type: ignore[attr-defined]
        "rows": sums.rows,
        "values": plan.length,
        "bytes": plan.cipher.num_bytes(plan.length),
        "noise_std": noise_std(plan) * sums.rows,
    }


class _PlannedError(Exception):
    """In the place of a sum."""

    def __init__(self, plan: GradientPlan) -> None:
        self.plan = plan


@dataclass(frozen=True, kw_only=True)
class _Foreseen(SumSeries):
    """Ends at its first sum."""

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """It is planned."""
        raise _PlannedError(template)


def _of_stays(schema: Schema) -> Schema:
    own = by_range(schema)
    Stays.of(own)
    return own


def _covariates(schema: Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns)


def _all_columns(schema: Schema) -> tuple[str, ...]:
    return (*_covariates(schema), *schema.label.names)


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A study.

    view: of the schema; name: of its JSON document; record: of options; find: by sums; columns: to
    choose from, None: it takes none; command: if it has another name.
    """

    view: Callable[[Schema], Schema]
    name: str
    record: type[Any]
    find: Callable[[SumSeries, Any], Any]
    columns: Callable[[Schema], tuple[str, ...]] | None = _covariates
    command: str = ""


KINDS = {
    "describe": _Kind(
        view=cells_schema,
        name=DESCRIPTION,
        record=DescribeOptions,
        find=describe_by,
        columns=_all_columns,
    ),
    "survival": _Kind(
        view=_of_stays, name=SURVIVAL, record=CurveOptions, find=survival_by, columns=None
    ),
    "cox": _Kind(
        view=_of_stays,
        name=SURVIVAL,
        record=CoxOptions,
        find=partial(imputed_by, hazards_by),
        command="survival --model cox",
    ),
    "glm": _Kind(view=by_range, name=GLM, record=GlmOptions, find=partial(imputed_by, glm_by)),
}


def _found(
    centre: Coordinator,
    study: str,
    insists: Insists | None = None,
    *,
    epsilon: float | None = None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    session: str | None = None,
    tell: Callable[[str], None] = print,
    **given: Any,
) -> tuple[Path, Any]:
    """What is found by sums, and its documents."""
    kind = KINDS[study]
    options = [*fields(kind.record), *fields(ChosenColumns)]
    begun, terms = options_asked(
        centre.settings,
        kind.command or study,
        session,
        {**given, "epsilon": epsilon, "delta": delta, "colluders": colluders},
        {**{each.name: each.default for each in options}, **PROMISE},
        {each.name: option_name(each) for each in options},
    )
    promise = {name: terms.pop(name) for name in PROMISE}
    drive = centre.driving(tell, session, begun)
    record, columns = _asked(kind, centre.settings, _tuples(terms))
    asked = {"study": study, "options": asdict(record), "columns": [*columns], **promise}
    found, body, sessions = _by_sums(centre.settings, asked, drive, session, insists)
    folder = centre.settings.session_folder(sessions[0])
    if isinstance(found, SpentError):
        write(folder, kind.name, body, {}, fresh=False)
        raise noted(folder, found)
    return write(folder, kind.name, body, found.documents(), fresh=False), found


def _tuples(terms: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(x) if isinstance(x, list) else x for name, x in terms.items()}


def _asked(kind: _Kind, settings: Settings, given: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Its record of options, and columns that are taken; no columns: all, or it takes none.

    Raises:
        ParameterError: an option is out of range; see `ChosenColumns.of`; or it takes no columns.
    """
    chosen, own = parted(ChosenColumns, given)
    options = kind.record(**own)
    schema = Schema.load(settings.folder / SCHEMA)
    if isinstance(options, GlmOptions):
        options = options.settled(_covariates(schema), names_in(chosen.exclude))
    if not (chosen.include or chosen.exclude):
        return options, ()
    if kind.columns is None:
        raise ParameterError(
            "include and exclude choose covariates, and curves have none: leave them out"
        )
    needed = (getattr(options, name, None) for name in ("by", "strata", "curves", "treatment"))
    known = kind.columns(schema)
    return options, chosen.of(known, filter(None, needed))


def _by_sums(
    settings: Settings,
    asked: Mapping[str, Any],
    drive: Drive | None,
    first: str | None,
    insists: Insists | None = None,
) -> tuple[Any, dict[str, Any], list[str]]:
    """What is found, or why nothing is, its JSON document and the sums' sessions.

    Raises:
        ParameterError: the series has more sums than these options take, or began with others.
    """
    # As given: a promise that is out of range is refused beside exact sums, too.
    wanted = sums_wanted(asked["epsilon"], asked["delta"], asked["colluders"])
    kind, asked = KINDS[asked["study"]], _typed(asked)
    whole = Schema.load(settings.folder / SCHEMA)
    schema, columns = kind.view(whole), tuple(asked["columns"])
    if strange := [*{*columns}.difference(kind.columns(whole) if kind.columns else ())]:
        raise ParameterError(f"columns, {shown(strange[0])}: this table has none of this name")
    sums = DeployedSums.of(settings, drive, schema, wanted, first, columns=columns, asked=asked)
    sums = replace(sums, however_noisy=bool(insists and insists.however_noisy))
    try:
        with spent_is_told(sums):
            found = kind.find(sums, kind.record(**asked["options"]))
        told = found.released()
    except SpentError as error:
        found, told = error, error.documented
    if len(sums.done) != len(sums.sessions):
        raise ParameterError(
            f"session {sums.sessions[0]!r} began a series of {len(sums.sessions)} sums, and what "
            f"was asked takes {len(sums.done)}: its documents cannot be made of them"
        )
    return found, {**told, "asked": asked, "sessions": sums.sessions}, sums.sessions


def _typed(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Its fields and their defaults alone; without epsilon the defaults of delta and colluders."""
    epsilon = asked["epsilon"]
    own = (asked["delta"], asked["colluders"]) if epsilon is not None else (DEFAULT_DELTA, 0)
    return {
        "study": asked["study"],
        "options": asdict(KINDS[asked["study"]].record(**asked["options"])),
        "columns": [*asked["columns"]],
        **{"epsilon": epsilon, "delta": own[0], "colluders": own[1]},
    }


def written_again(
    settings: Settings, folder: Path, asked: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Documents of a study by its first session's folder and its sums, and their sessions.

    asked: as its first plan states it.

    Raises:
        ParameterError: it is malformed, its sums are of something else, or not all of it.
    """
    try:
        found, body, sessions = _by_sums(settings, asked, None, folder.name)
    except (TypeError, KeyError) as error:
        raise ParameterError(f"what was asked is malformed: {error!r}") from None
    beside = {} if isinstance(found, SpentError) else dict(found.documents())
    return {KINDS[asked["study"]].name: to_json(body), **beside}, sessions
