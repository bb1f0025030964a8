"""All models by name: one line each, loaded when asked for, so that names cost no library."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from protocols.errors import ParameterError

if TYPE_CHECKING:
    from protocols.models.model import Classifier, Model, TargetModel

MODELS = {
    "logistic": "logistic.Logistic",
    "linear": "linear.Linear",
    "improved-lffr": "improved_lffr.ImprovedLffr",
    "lffr": "lffr.Lffr",
    "poisson": "poisson.Poisson",
    "softmax": "softmax.Softmax",
    "one-vs-rest": "one_vs_rest.OneVsRest",
}
CLASSIFIERS = ("logistic", "softmax", "one-vs-rest")
"""Those of labels, the others are of numeric targets."""


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


def classifier_named(name: str) -> Classifier:
    """The model of a label that has this name.

    Raises:
        ParameterError: there is none.
    """
    from protocols.models.model import Classifier

    model = model_named(name)
    if not isinstance(model, Classifier):
        raise ParameterError(f"model={name!r} predicts no label")
    return model


def target_model(name: str) -> TargetModel:
    """The model of numeric targets that has this name.

    Raises:
        ParameterError: there is none.
    """
    from protocols.models.model import TargetModel

    model = model_named(name)
    if not isinstance(model, TargetModel):
        raise ParameterError(f"model={name!r} predicts no targets")
    return model
