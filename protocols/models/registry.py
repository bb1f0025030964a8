"""All models by name: one line each, loaded when asked for, so that names cost no library."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from protocols.errors import ParameterError

if TYPE_CHECKING:
    from protocols.models.model import Model

Kind = TypeVar("Kind", bound="Model")
MODELS = {
    "logistic": "logistic.Logistic",
    "linear": "linear.Linear",
    "improved-lffr": "improved_lffr.ImprovedLffr",
    "lffr": "lffr.Lffr",
    "poisson": "poisson.Poisson",
    "softmax": "softmax.Softmax",
    "one-vs-rest": "one_vs_rest.OneVsRest",
}
ELSEWHERE = ("torch",)
"""Of plans of models whose code is their owners'."""
CLASSIFIERS = ("logistic", "softmax", "one-vs-rest")
"""Of labels."""
REGRESSIONS = tuple(name for name in MODELS if name not in CLASSIFIERS)
"""Of numeric targets, several at once."""


@cache
def model_named(name: str) -> Model:
    """The model of this name, with its usual constants.

    Raises:
        ParameterError: there is none.
    """
    if name not in MODELS:
        raise ParameterError(f"model={name!r} is not one of {', '.join(MODELS)}")
    home, _, kind = MODELS[name].partition(".")
    found: Model = getattr(import_module(f"protocols.models.{home}"), kind)()
    return found


def check_model(name: str) -> None:
    """Refuse what a plan calls its model, which is shown where it is consented to.

    Raises:
        ParameterError: no model has this name.
    """
    if name not in (known := (*MODELS, *ELSEWHERE)):
        raise ParameterError(f"model={str(name)[:80]!r} is not one of {', '.join(known)}")


def model_of(kind: type[Kind], name: str) -> Kind:
    """The model of this name, which is of this kind: a `Classifier`, or a `TargetModel`.

    Raises:
        ParameterError: there is none, or it predicts something else.
    """
    model = model_named(name)
    if not isinstance(model, kind):
        raise ParameterError(
            f"model={name!r} predicts no {'label' if model.numeric else 'targets'}"
        )
    return model
