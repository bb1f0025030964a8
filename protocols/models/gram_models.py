"""The models that are fitted on Gram sums, by name."""

from __future__ import annotations

from protocols.errors import ParameterError
from protocols.models.improved_lffr import ImprovedLffr
from protocols.models.linear import Linear

GramModel = Linear | ImprovedLffr
GRAM_MODELS: dict[str, type[Linear] | type[ImprovedLffr]] = {
    Linear.name: Linear,
    ImprovedLffr.name: ImprovedLffr,
}


def gram_model(name: str) -> GramModel:
    """The model of this name, gamma = 1/2 as in the paper.

    Raises:
        ParameterError: there is none.
    """
    if name not in GRAM_MODELS:
        raise ParameterError(f"model={name!r} is not one of {', '.join(GRAM_MODELS)}")
    return GRAM_MODELS[name]()
