"""The models of numeric targets, by name, whichever protocol fits them."""

from __future__ import annotations

from protocols.errors import ParameterError
from protocols.models.gram_models import GRAM_MODELS, GramModel, gram_model
from protocols.models.lffr import Lffr

RegressionModel = GramModel | Lffr
REGRESSION_MODELS = (*GRAM_MODELS, Lffr.name)


def regression_model(name: str) -> RegressionModel:
    """The model of this name.

    Raises:
        ParameterError: there is none.
    """
    if name not in REGRESSION_MODELS:
        raise ParameterError(f"model={name!r} is not one of {', '.join(REGRESSION_MODELS)}")
    return Lffr() if name == Lffr.name else gram_model(name)
