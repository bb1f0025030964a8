"""Linear and improved LFFR: what is fitted, mapped back, and how far a row's targets reach."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.models.gram_models import GRAM_MODELS, GramModel, gram_model
from protocols.models.improved_lffr import ImprovedLffr
from protocols.models.linear import Linear

MODELS = [Linear(), ImprovedLffr(), ImprovedLffr(gamma=0.9)]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_decode_inverts_encode(model: GramModel) -> None:
    targets = np.random.default_rng(1).uniform(0, 1, (200, 3))
    targets[:2] = [[0.0] * 3, [1.0] * 3]
    np.testing.assert_allclose(model.decode(model.encode(targets)), targets, atol=1e-14)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_bound_holds_and_is_attained(model: GramModel) -> None:
    targets = np.random.default_rng(2).integers(0, 2, (500, 4)).astype(float)
    targets[0] = 1.0
    norms = np.linalg.norm(model.encode(targets), axis=1)
    assert norms.max() == pytest.approx(model.bound(4))
    assert norms.max() <= model.bound(4) * (1 + 1e-12)


def test_improved_lffr_is_the_papers() -> None:
    """y' = ln(p / (1 - p)), p = gamma t + 1/2 - gamma / 2: 0, 1/2, 1 -> -ln 3, 0, ln 3."""
    encoded = ImprovedLffr().encode(np.array([[0.0, 0.5, 1.0]]))
    np.testing.assert_allclose(encoded, [[-np.log(3), 0, np.log(3)]], atol=1e-15)
    # Predictions may leave [0, 1] by (1 / gamma - 1) / 2, and no further.
    far = ImprovedLffr().decode(np.array([[-50.0, 50.0]]))
    np.testing.assert_allclose(far, [[-0.5, 1.5]])


def test_models_by_name() -> None:
    assert {name: gram_model(name).name for name in GRAM_MODELS} == {
        "linear": "linear",
        "improved-lffr": "improved-lffr",
    }
    with pytest.raises(ParameterError, match="model='lffr' is not one of linear, improved-lffr"):
        gram_model("lffr")
    for gamma in (0.0, 1.0, float("nan")):
        with pytest.raises(ParameterError, match="gamma="):
            ImprovedLffr(gamma=gamma)
