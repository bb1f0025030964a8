"""`cohort simulate` and `cohort plan` as functions: their options, defaults and refusals.

The commands read their options and call what is here. Libraries load when a function is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any

from protocols.documents import suggest
from protocols.errors import ParameterError
from sims.config import (
    ANY,
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTIES,
    FORMER,
    BudgetOptions,
    DataOptions,
    EncryptionOptions,
    OutputOptions,
    PrivacyOptions,
    SimulationConfig,
    TrainingOptions,
    option_name,
    options_of,
)
from sims.options import DeployOptions, PlanOptions, SimulateOptions
from sims.places import check_places

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sims.planning import Forecast
    from sims.result import RunResult
    from sims.simulation import OnEvent

SIMULATE = options_of(
    *(DataOptions, TrainingOptions, BudgetOptions, PrivacyOptions),
    *(EncryptionOptions, OutputOptions),
)
"""Options of `simulate`."""
PLAN = tuple(each for each in SIMULATE if option_name(each) in PlanOptions.__annotations__)
"""Options of `plan`."""
DEPLOY = tuple(each for each in SIMULATE if option_name(each) in DeployOptions.__annotations__)
"""Options of `Coordinator.init`."""


def simulate(on_event: OnEvent | None = None, **options: Unpack[SimulateOptions]) -> RunResult:
    """Train on encrypted rows of several parties, all simulated on this machine.

    Without `data` it uses a data set that scikit-learn ships; epsilon = 1 unless another promise
    or `no_privacy=True` is given.

    Args:
        on_event: is told of phases and progress.
        options: of `cohort simulate --help`, by name; data: a path, a pandas frame, or arrays
            (X, y).

    Returns:
        Weights, scores, the plaintext twin, plan, costs.

    Raises:
        CohortError: an option or the data are refused before any key is made; the message names
            field, value and cure. Or the protocol was aborted.
    """
    config = configured(**options)
    from sims.simulation import simulate as run

    return run(config, on_event)


def plan(
    *,
    rows: int | None = None,
    features: int | None = None,
    norm_bound: float | None = None,
    classes: int | None = None,
    timing: bool = True,
    **options: Unpack[PlanOptions],
) -> Forecast:
    """What a run would promise and cost; nothing is encrypted.

    Args:
        rows: training rows of all parties; with features the shape in place of `data`.
        features: columns without the bias.
        norm_bound: public bound on every row's norm [1].
        classes: of the label, of models softmax and one-vs-rest.
        timing: predict seconds, which measures this machine once.
        options: of `cohort plan --help`, by name.

    Returns:
        Setting, plan, epsilon by coalition, seconds, bytes and memory.

    Raises:
        PrivacyError: no certified setting exists; the message names the condition that binds.
        CohortError: an option or the data are refused.
    """
    config = configured("plan", **options)
    from sims.planning import forecast, shape_asked

    return forecast(*shape_asked(config, rows, features, norm_bound, classes), timing=timing)


def configured(function: str = "simulate", /, **options: Any) -> SimulationConfig:
    """The configuration that the options ask for; None is as good as left out.

    Raises:
        ParameterError, DataError: options that do not exist, contradict one another, are out of
            range, or name files that are not there. Nothing was loaded to find out.
    """
    given = known_fields(function, PLAN if function == "plan" else SIMULATE, options)
    if "data" not in given:
        for name, field in (("label", "label"), ("target", "targets")):
            # A plan of regressions counts its targets; it reads no column.
            if field in given and (name, function) != ("target", "plan"):
                raise ParameterError(f"{name}={given[field]!r} is given without data: add --data")
    if "test" in given and "test_share" in given:
        raise ParameterError("test and test_share are both given: choose one of them")
    if "within" in given and given.get("model", "logistic") == "logistic":
        given.setdefault("protocol", ANY)
    promise = {name: given.pop(name, None) for name in ("epsilon", "delta", "colluders")}
    given |= privacy_fields(given.pop("no_privacy", False), **promise)
    by_column = str(given.get("split", "")).startswith("by:")
    given.setdefault("parties", None if by_column else DEFAULT_PARTIES)
    config = SimulationConfig(**given)
    check_places(config)
    return config


def known_fields(
    function: str, offered: Sequence[Field[Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Options by the names of their fields; None is as good as left out.

    Raises:
        ParameterError: the function has no such option, or one is given by two names.
    """
    known = {option_name(f): f.name for f in offered} | {"no_privacy": "no_privacy"}
    known |= {old: name for old, name in FORMER.items() if name in known}
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise ParameterError(
                f"{name} is no option of {function}, which takes "
                f"{', '.join(sorted(known))}{suggest(name, known)}"
            )
        if value is not None and known[name] in found:
            other = next(given for given in options if known[given] == known[name])
            raise ParameterError(f"{other} and {name} are names of one option: leave one out")
        if value is not None:
            found[known[name]] = value
    return found


def privacy_fields(
    no_privacy: bool, epsilon: float | None, delta: float | None, colluders: int | None
) -> dict[str, Any]:
    """Fields of the configuration; the default promise where nothing is chosen.

    Raises:
        ParameterError: the options contradict one another.
    """
    given = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
    given = {name: value for name, value in given.items() if value is not None}
    if no_privacy and given:
        raise ParameterError(
            f"no-privacy is given together with {', '.join(given)}: leave one or the other out"
        )
    if no_privacy:
        return {}
    return {"epsilon": DEFAULT_EPSILON, "delta": DEFAULT_DELTA, **given}
