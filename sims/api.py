"""`cohort simulate` and `cohort plan` as functions: their options, defaults and refusals.

The commands read their options and call what is here. Libraries load when a function is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from protocols.errors import ParameterError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sims.config import SimulationConfig
    from sims.planning import Forecast
    from sims.result import AnyRun
    from sims.simulation import OnEvent

DEFAULT_EPSILON, DEFAULT_DELTA, DEFAULT_PARTIES = 1.0, 1e-5, 3
FilePath = str | os.PathLike[str]
# Option -> field of SimulationConfig, where the two differ.
_FIELDS = {"iterations": "rounds", "interval": "radius", "target": "targets"}
_FILES = ("schema", "test", "out", "ledger")
_LISTS = ("target", "exclude")


class PlanOptions(TypedDict, total=False):
    """Options of `cohort plan` by name; None is as good as left out.

    data: path of a CSV or Parquet file, a pandas frame, or arrays (X, y). Otherwise see
    `cohort plan --help`.
    """

    data: Any
    label: str | None
    positive: str | None
    schema: FilePath | None
    test: FilePath | None
    holdout: float | None
    exclude: str | Sequence[str] | None
    strict: bool
    parties: int | None
    split: str
    update: str
    iterations: int | None
    degree: int | None
    learning_rate: float | None
    interval: float | None
    seed: int | None
    epsilon: float | None
    delta: float | None
    colluders: int | None
    no_privacy: bool
    cover: int | None
    profile: str
    ring_dim: int | None


class SimulateOptions(PlanOptions, total=False):
    """Options of `cohort simulate` by name; see `cohort simulate --help`."""

    model: str
    target: str | Sequence[str] | None
    protocol: str
    ridge: float | None
    momentum: float | None
    clip: float | None
    weights: str
    loss: str
    batches: int
    schedule: str
    mechanism: str
    processes: bool
    ledger: FilePath | None
    out: FilePath | None
    keep_messages: bool


def simulate(on_event: OnEvent | None = None, **options: Unpack[SimulateOptions]) -> AnyRun:
    """Train on encrypted rows of several parties, all simulated on this machine.

    Without `data` it uses a data set that scikit-learn ships; epsilon = 1 unless another promise
    or `no_privacy=True` is given. on_event: is told of phases and progress.

    Returns: a `sims.result.RunResult`, or of a regression a
    `sims.regression_result.RegressionResult`: weights, scores, the plaintext twin, plan, costs.

    Raises:
        CohortError: an option or the data are refused before any key is made; the message names
            field, value and cure. Or the protocol was aborted.
    """
    from sims.simulation import simulate as run

    return run(configured(**options), on_event)


def plan(
    *,
    rows: int | None = None,
    features: int | None = None,
    norm_bound: float | None = None,
    timing: bool = True,
    **options: Unpack[PlanOptions],
) -> Forecast:
    """What a run would promise and cost; nothing is encrypted.

    rows, features, norm_bound: shape of the data in place of `data`: training rows of all parties,
    columns without the bias, public bound on every row's norm [1]. timing: predict seconds, which
    measures this machine once.

    Returns: setting, plan, epsilon by coalition, seconds, bytes and memory.

    Raises:
        PrivacyError: no certified setting exists; the message names the condition that binds.
        CohortError: an option or the data are refused.
    """
    from sims.planning import forecast, shape_asked

    _check_names(options, PlanOptions, "plan")
    config, shape = shape_asked(configured(**options), rows, features, norm_bound)
    return forecast(config, shape, timing=timing)


def configured(**options: Unpack[SimulateOptions]) -> SimulationConfig:
    """The configuration that the options ask for.

    Raises:
        ParameterError: options that do not exist, contradict one another or are out of range.
    """
    from sims.config import SimulationConfig

    _check_names(options, SimulateOptions, "simulate")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "data" not in given:
        for name in ("label", "target"):
            if name in given:
                raise ParameterError(f"{name}={given[name]!r} is given without data: add --data")
    if "test" in given and "holdout" in given:
        raise ParameterError("test and holdout are both given: choose one of them")
    promise = {name: given.pop(name, None) for name in ("epsilon", "delta", "colluders")}
    given |= privacy_fields(given.pop("no_privacy", False), **promise)
    given["parties"] = party_count(given.get("parties"), given.get("split", "even"))
    for name in given.keys() & _FILES:
        given[name] = Path(given[name])
    for name in given.keys() & _LISTS:
        given[name] = names_in(given[name])
    return SimulationConfig(**{_FIELDS.get(name, name): value for name, value in given.items()})


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


def party_count(parties: int | None, split: str) -> int | None:
    """Number of parties; None where the split decides."""
    if parties is None and not split.startswith("by:"):
        return DEFAULT_PARTIES
    return parties


def names_in(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names; of a text those that commas separate."""
    if names is None:
        return ()
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(","))
    return tuple(names)


def _check_names(options: Mapping[str, Any], known: Any, function: str) -> None:
    for name in options:
        if name not in known.__optional_keys__:
            raise ParameterError(
                f"{name} is no option of {function}, which takes "
                f"{', '.join(sorted(known.__optional_keys__))}"
            )
