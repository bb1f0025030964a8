"""The regression estimator: what scikit-learn expects, shards, schemas, refusals; toy ring."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_linnerud
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ciphercohort import FederatedLogisticRegression, FederatedRegression
from ciphercohort.estimators import base as estimator
from ciphercohort.job.inputs import NOT_MET, READ_FROM_ROWS
from ciphercohort.results.result import RunResult
from parties.reader.infer import infer_schema
from parties.reader.schema import Schema
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.privacy.calibrate.gram import QUIET_FLOOR
from tests.sims.model_runs import make_frame

TARGETS = ["cost", "days"]


# Fits of few iterations.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fast(**changes: Any) -> FederatedRegression:
    settings: dict[str, Any] = {"iterations": 2, "epsilon": None, "profile": "fast-insecure"}
    return FederatedRegression(**(settings | changes))


def wards() -> dict[str, pd.DataFrame]:
    """Two owners of different size."""
    frame = make_frame(200)
    return {
        "north": frame[:150].reset_index(drop=True),
        "south": frame[150:].reset_index(drop=True),
    }


@pytest.fixture(scope="module")
def fitted() -> FederatedRegression:
    return fast(targets=TARGETS, iterations=80).fit(wards())


def test_shards_of_frames(fitted: FederatedRegression) -> None:
    frame = make_frame(200)
    assert fitted.coef_.shape == (2, 4) and fitted.intercept_.shape == (2,)
    assert fitted.schema_.feature_names == ("a", "b", "ward=A", "ward=B")
    assert isinstance(fitted.result_, RunResult) and fitted.n_iter_ == 80
    numbers = frame[["a", "b"]].assign(B=frame["ward"] == "B")
    least = LinearRegression().fit(numbers, frame[TARGETS])
    np.testing.assert_allclose(fitted.coef_[:, :2], least.coef_[:, :2], atol=0.4)
    assert fitted.score(frame, frame[TARGETS]) > 0.95
    np.testing.assert_allclose(fitted.predict(frame), least.predict(numbers), atol=0.5)


def test_arrays_of_one_and_of_several_targets() -> None:
    data = load_linnerud()
    one = fast(iterations=3).fit(data.data, data.target[:, 0])
    assert one.predict(data.data).shape == (20,) and one.coef_.shape == (3,)
    assert isinstance(one.intercept_, float) and one.schema_.label.names == ("y",)
    many = fast(iterations=3).fit(data.data, data.target)
    assert many.predict(data.data).shape == (20, 3) and many.coef_.shape == (3, 3)
    assert many.schema_.label.names == ("y1", "y2", "y3")
    # All outputs share their ciphertexts, and do not see one another.
    narrow = many.schema_.label.columns[0]
    np.testing.assert_allclose(narrow.low, one.schema_.label.columns[0].low)
    np.testing.assert_allclose(many.coef_[0], one.coef_, atol=1e-3 * np.abs(one.coef_).max())
    single = fast(iterations=1, floor=0.25).fit(data.data, data.target[:, :1])
    assert single.predict(data.data).shape == (20, 1) and single.coef_.shape == (1, 3)
    assert (many.result_.plan.floor, single.result_.plan.floor) == (QUIET_FLOOR, 0.25)


def test_coefficients_predict_within_the_bounds(fitted: FederatedRegression) -> None:
    frame = make_frame(50, seed=4)
    inside = frame[(frame[["a", "b"]].abs() < 0.9).all(axis=1)]
    raw = np.column_stack([inside[["a", "b"]], inside["ward"] == "A", inside["ward"] == "B"])
    own = raw.astype(float) @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(fitted.predict(inside), own, rtol=1e-9)


def test_another_model_and_privacy(fitted: FederatedRegression) -> None:
    frame = make_frame(120)
    model = fast(model="improved-lffr", epsilon=8.0, iterations=3, targets=TARGETS).fit(frame)
    assert model.coef_.shape == (2, 4) and model.predict(frame).shape == (120, 2)
    for found, private in ((model, True), (fitted, False)):
        assert (estimator.NO_NOISE in found.notes_) is not private
        assert any("ridge=" in note for note in found.notes_) is private
        assert (NOT_MET if private else READ_FROM_ROWS) in found.notes_


def test_what_scikit_learn_expects(fitted: FederatedRegression) -> None:
    with pytest.raises(NotFittedError):
        fast().predict([[1.0]])
    again = clone(fitted)
    assert again.get_params() == fitted.get_params() and not hasattr(again, "coef_")
    copy = pickle.loads(pickle.dumps(fitted))
    frame = make_frame(9)
    np.testing.assert_array_equal(copy.predict(frame), fitted.predict(frame))
    assert not hasattr(copy, "result_")
    x, y = frame[["a", "b"]].to_numpy(), frame["cost"].to_numpy()
    pipe = make_pipeline(StandardScaler(), fast(parties=2)).fit(x, y)
    assert pipe.predict(x).shape == (9,)
    data = load_linnerud()
    assert len(cross_val_score(fast(iterations=1), data.data, data.target, cv=2)) == 2


def test_a_schema_file_names_targets_and_columns(tmp_path: Path) -> None:
    frame = make_frame(100)
    schema = infer_schema(frame, TARGETS, scaling="range", row_norm=None, exclude=["ward"])
    schema.save(tmp_path / "schema.json")
    model = fast(schema=tmp_path / "schema.json").fit(frame)
    assert model.schema_ == schema == Schema.load(tmp_path / "schema.json")
    assert READ_FROM_ROWS not in model.notes_ and model.coef_.shape == (2, 2)
    arrays = frame[["a", "b"]].to_numpy(), frame[TARGETS].to_numpy()
    assert fast(schema=schema, iterations=1).fit(*arrays).coef_.shape == (2, 2)


X, Y = np.arange(20.0).reshape(10, 2), np.arange(20.0).reshape(10, 2) ** 2


@pytest.mark.parametrize(
    ("error", "message", "attempt"),
    [
        (DataError, "requires y to be passed", lambda: fast().fit(X)),
        (DataError, "2 columns where 1 targets", lambda: fast(targets="t").fit(X, Y)),
        (DataError, "missing", lambda: fast().fit(X, np.where(Y == 4, np.nan, Y))),
        (DataError, "text or objects", lambda: fast().fit(X, [["secret"] * 2] * 10)),
        (DataError, "same value", lambda: fast().fit(X, np.ones(10))),
        (DataError, "shard 'b'", lambda: fast().fit({"a": (X, Y), "b": (X, Y[:, :1])})),
        (ParameterError, "ridge='a'", lambda: fast(ridge="a").fit(X, Y)),
        (ParameterError, "skews classes", lambda: fast(split="dirichlet:1").fit(X, Y)),
        (ValueError, "inconsistent", lambda: fast().fit(X, Y[:5])),
    ],
)
def test_refusals(error: type[Exception], message: str, attempt: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message) as caught:
        attempt()
    assert "secret" not in str(caught.value)


def test_targets_and_labels_do_not_mix() -> None:
    frame = make_frame(30)
    schema = infer_schema(frame, ["cost"], scaling="range", row_norm=None)
    with pytest.raises(ValueError, match="Maybe you are trying to fit a classifier"):
        FederatedLogisticRegression(schema=schema, profile="fast-insecure").fit(frame)
    labelled = infer_schema(frame, "ward")
    with pytest.raises((SchemaError, DataError)):
        fast(schema=labelled).fit(frame)
