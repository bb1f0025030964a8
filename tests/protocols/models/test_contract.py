"""What every model promises, whichever it is; a new one is tested by its line in the registry."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    d2_tweedie_score,
    log_loss,
    mean_absolute_error,
    mean_poisson_deviance,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)

from protocols.errors import ParameterError
from protocols.models.model import Array, Model
from protocols.models.probabilities import calibration
from protocols.models.registry import MODELS, model_named

CALIBRATION = ("calibration_slope", "calibration_intercept")
GRID = np.linspace(-9, 9, 36001)


def rows(model: Model, seed: int = 1) -> tuple[Array, Array, Array]:
    """Weights, rows and outcomes of a model with two targets, three classes, or a label."""
    rng = np.random.default_rng(seed)
    x = np.hstack([rng.uniform(-1, 1, (60, 3)), np.ones((60, 1))])
    if model.numeric:
        return rng.normal(size=(4, 2)), x, rng.uniform(size=(60, 2))
    if model.several:
        return rng.normal(size=(4, 3)), x, np.eye(3)[rng.integers(0, 3, 60)]
    return rng.normal(size=4), x, rng.integers(0, 2, 60).astype(float)


def scores(model: Model) -> Array:
    """The grid; of classes along the direction in which the loss bends most, of two of them."""
    return np.column_stack([GRID, -GRID]) / np.sqrt(2) if model.several else GRID


def targets(model: Model, outcome: float) -> Array:
    """The same for every score."""
    one = np.full_like(GRID, outcome)
    return np.column_stack([one, 1 - one]) if model.several else one


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return model_named(request.param)


def test_it_is_known_by_its_name_and_says_what_it_does(model: Model) -> None:
    assert MODELS[model.name] and model_named(model.name) is model
    assert model_named(model.reference).optimum
    assert all((model.title, "coef . x" in model.link, model.unit))
    assert model.drawn[0] in {measure.key for measure in model.measures}


@pytest.mark.parametrize("outcome", [0.2, 0.5, 0.9])
def test_the_loss_is_least_where_the_prediction_is_true(model: Model, outcome: float) -> None:
    best = np.argmin(model.loss(scores(model), targets(model, outcome)))
    predicted = np.ravel(model.decode(scores(model)[best : best + 1]))[0]
    assert predicted == pytest.approx(outcome, abs=1e-3)


def test_the_curvature_bounds_the_loss_and_is_nearly_reached(model: Model) -> None:
    step = GRID[1] - GRID[0]
    losses = (model.loss(scores(model), targets(model, y)) for y in np.linspace(0, 1, 11))
    bends = max(float(np.diff(loss, 2).max()) for loss in losses) / step**2
    assert 0.95 * model.curvature < bends < model.curvature + 1e-4


def test_metrics_are_scikit_learns(model: Model) -> None:
    weights, x, y = rows(model)
    predicted = model.decode(x @ weights)
    if model.numeric:
        width = np.array([2.0, 5.0])
        found = model.metrics(weights, x, y, width)
        errors = mean_squared_error(y, predicted, multioutput="raw_values")
        expected = {
            "mse": errors * width**2,
            "relative_mse": errors,
            "mean_relative_mse": errors.mean(),
            "r2": r2_score(y, predicted, multioutput="raw_values"),
        }
        if "deviance" in found:
            pairs = [(y[:, k], predicted[:, k]) for k in range(2)]
            expected |= {
                "deviance": width * [mean_poisson_deviance(*pair) for pair in pairs],
                "mae": width * mean_absolute_error(y, predicted, multioutput="raw_values"),
                "d2": [d2_tweedie_score(*pair, power=1) for pair in pairs],
            }
    elif model.several:
        found, classes = model.metrics(weights, x, y), y.argmax(axis=1)
        shares = np.tile(y.mean(axis=0), (60, 1))
        expected = {
            "accuracy": accuracy_score(classes, predicted.argmax(axis=1)),
            "auc": roc_auc_score(classes, predicted, multi_class="ovr"),
            "log_loss": log_loss(classes, predicted),
            "base_rate_log_loss": log_loss(classes, shares),
            "brier": 3 * mean_squared_error(y, predicted),
        }
    else:
        weights, x = np.ones(4), np.round(x)  # many ties
        found = model.metrics(weights, x, y)
        predicted = model.decode(x @ weights)
        expected = {
            "accuracy": accuracy_score(y, predicted > 0.5),
            "auc": roc_auc_score(y, predicted),
            "log_loss": log_loss(y, predicted),
            "base_rate_log_loss": log_loss(y, np.full(60, y.mean())),
            "brier": brier_score_loss(y, predicted),
            **dict(zip(CALIBRATION, calibration(x @ weights, y > 0.5), strict=True)),
        }
    assert found.keys() == expected.keys() == {m.key for m in model.measures}
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_the_course_of_a_label_is_the_log_loss(name: str) -> None:
    model = model_named(name)
    weights, x, y = rows(model)
    found = model.course(weights, (x, y), (x, y))
    assert found["loss"] == pytest.approx(log_loss(y, model.decode(x @ weights)))


def test_other_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="model='forest' is not one of logistic, linear"):
        model_named("forest")
