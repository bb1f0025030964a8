"""What an option is: a field with its words and bounds; and all of them as types.

The options themselves are in `config`; see `--help-all` for words.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, TypedDict, get_args, get_origin

from protocols.errors import ParameterError
from protocols.exchange.documents import shown, suggest


def option(
    default: Any,
    words: str,
    *,
    name: str = "",
    panel: str = "",
    choices: tuple[Any, ...] = (),
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    cure: str = "",
    of: str = "",
    is_asked: bool = False,
) -> Any:
    """A field of the configuration.

    words: its help. name: on the command line, if another. panel: of the help, if not the group's.
    choices; above <, least <=, below >: what values may be. cure: what to do otherwise. of: the
    models or the protocol that it belongs to. is_asked: the command tells "not given" from default.
    """
    found = {k: v for k, v in locals().items() if k != "default"}
    return field(default=default, metadata=found)


def options_of(*groups: type, without: tuple[str, ...] = ()) -> tuple[Field[Any], ...]:
    """The fields of some groups."""
    return tuple(f for group in groups for f in fields(group) if f.name not in without)


def option_name(each: Field[Any]) -> str:
    """What a person calls a field."""
    return str(each.metadata["name"] or each.name)


def names_in(names: Any) -> tuple[str, ...]:
    """Column names; of a text those that commas separate."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(","))
    return tuple(names or ())


def checked(each: Field[Any], kind: Any, value: Any) -> Any:
    """The value of a field, of its kind and within its bounds.

    Raises:
        ParameterError: it is not; the message names option, value, bound and cure.
    """
    limits = each.metadata
    if value is None and each.name != "data" and type(None) not in get_args(kind):
        raise ParameterError(f"{option_name(each)}=None: leave it out for {each.default}")
    if value is None or kind is Any or get_origin(kind) is tuple:
        return value
    told, wanted = f"{option_name(each)}={shown(value)}", {kind, *get_args(kind)}
    if wanted & {int, float}:
        is_whole = int in wanted
        is_fine = isinstance(value, numbers.Integral if is_whole else numbers.Real)
        if isinstance(value, bool) or not is_fine or not math.isfinite(float(value)):
            what = "whole number" if is_whole else "finite number"
            raise ParameterError(f"{told} is not a {what}: give one")
        above, least, below = limits["above"], limits["least"], limits["below"]
        is_low = not value > above if above is not None else least is not None and value < least
        if below is not None and (is_low or not value < below):
            bracket = "[" if above is None else "("
            raise ParameterError(f"{told} is outside {bracket}0, {below:g}){limits['cure']}")
        if is_low and above is not None:
            raise ParameterError(f"{told} must be positive{limits['cure']}")
        if is_low:
            raise ParameterError(f"{told} is below {least:g}{limits['cure']}")
    elif Path in wanted:
        if not isinstance(value, (str, os.PathLike)):
            raise ParameterError(f"{told} is not a path or None")
        value = Path(value)
    elif wanted & {str, bool} and not isinstance(value, bool if bool in wanted else str):
        raise ParameterError(f"{told} is a {type(value).__name__}: give {limits['words']}")
    choices = limits["choices"]
    if choices and value not in choices:
        known = [str(choice) for choice in choices]
        raise ParameterError(f"{told} is not one of {', '.join(known)}{suggest(str(value), known)}")
    return value


# -- types -----------------------------------------------------------------------------------------

FilePath = str | os.PathLike[str]
HOWEVER_NOISY = (
    "Go on where privacy noise will probably leave nothing of the result; without this, that is "
    "refused before anything is spent."
)


class DeployOptions(TypedDict, total=False):
    """Of `cohort coordinator init`: what settles the plan; None is as good as left out."""

    model: str | None
    protocol: str | None
    update: str | None
    iterations: int | None
    degree: int | None
    learning_rate: float | None
    radius: float | None
    ridge: float | None
    floor: float | None
    momentum: float | None
    clip: float | None
    batches: int | None
    schedule: str | None
    epsilon: float | None
    delta: float | None
    colluders: int | None
    no_privacy: bool
    moment_epsilon: float | None
    cover: int | None
    held_out: float | None
    profile: str | None
    ring_dim: int | None
    as_trained: bool | None


class PlanOptions(DeployOptions, total=False):
    """Of `cohort plan`; interval is another name for radius, holdout for test_share."""

    data: Any
    label: str | None
    target: str | Sequence[str] | None
    positive: str | None
    schema: FilePath | None
    test: FilePath | None
    test_share: float | None
    holdout: float | None
    exclude: str | Sequence[str] | None
    include: str | Sequence[str] | None
    strict: bool | None
    parties: int | None
    split: str | None
    interval: float | None
    weights: str | None
    loss: str | None
    seed: int | None
    within: str | None
    bandwidth: float | None
    latency: float | None
    inference: bool | None


class SimulateOptions(PlanOptions, total=False):
    """Of `cohort simulate`."""

    processes: bool | None
    workers: int | None
    ledger: FilePath | None
    out: FilePath | None
    keep_messages: bool | None
    replicas: str | None
    evaluate: bool | None
    however_noisy: bool | None
