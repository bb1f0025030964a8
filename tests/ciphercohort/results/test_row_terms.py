"""Weights, class weights and offsets in whole runs: scikit-learn's and statsmodels' models.

Sums open at 128 bits without noise; runs under CKKS are on INSECURE toy rings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils import estimator_checks

from ciphercohort import FederatedLogisticRegression, FederatedRegression
from ciphercohort.job.config import SimulationConfig
from ciphercohort.results.predict import ReleasedModel
from parties.reader.look import bounds_notes
from parties.reader.schema import Label, NumericColumn, Offset, Schema, Targets, Weight
from parties.reader.shard import encode_shard
from protocols.errors import DataError, ParameterError, SchemaError
from sims.simulation import simulate
from sims.twin import OPTIMA, fit_unclipped

Floats = NDArray[np.float64]
COLUMNS = tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(1, 3))
LABEL = Label(name="y", positive="1", negative="0")
# Rows stay as they are: coefficients are scikit-learn's.
SCHEMA = Schema(columns=COLUMNS, label=LABEL, scaling="range", weight=Weight(name="w", bound=3))
TOY: dict[str, Any] = {"profile": "fast-insecure", "epsilon": None}
SUMS: dict[str, Any] = {"protocol": "secure-aggregation", "epsilon": None, "parties": 2}
CLOSE = 1e-3
few_iterations = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(count: int = 120, seed: int = 4) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """x, y, weights 0 … 3, offsets."""
    rng = np.random.default_rng(seed)
    x, offset = rng.uniform(-1, 1, (count, 2)), rng.uniform(-1, 1, count)
    y = (x @ [2, -1] + offset + rng.logistic(size=count) > 0).astype(int)
    return x, y, rng.integers(0, 4, count).astype(float), offset


X, Y, W, SHIFT = rows()
SHARDS = {"north": (X[:50], Y[:50]), "south": (X[50:], Y[50:])}


def parts(values: Floats) -> dict[str, Floats]:
    return {"south": values[50:], "north": values[:50]}  # by name, in any order


def both(model: Any) -> Floats:
    """Coefficients, then the intercept."""
    return np.append(np.ravel(model.coef_), model.intercept_)


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", [None, {1: 2.5}, "balanced"])
def test_weighted_logistic_regression_is_scikit_learns(class_weight: Any) -> None:
    """With the intercept as a column, as C penalises it here."""
    found = FederatedLogisticRegression(
        **SUMS, C=0.1, class_weight=class_weight, iterations=60, schema=SCHEMA
    ).fit(SHARDS, sample_weight=parts(W))
    own = LogisticRegression(
        C=0.1, class_weight=class_weight, fit_intercept=False, tol=1e-10, max_iter=1000
    )
    own.fit(np.column_stack([X, np.ones(len(X))]), Y, sample_weight=W)
    np.testing.assert_allclose(both(found), own.coef_[0], atol=CLOSE)
    unweighted = LogisticRegression(C=0.1, fit_intercept=False).fit(own_columns(), Y)
    assert np.abs(both(found) - unweighted.coef_[0]).max() > 20 * CLOSE


def own_columns() -> Floats:
    return np.column_stack([X, np.ones(len(X))])


def test_weighted_least_squares_on_encrypted_sums_is_scikit_learns() -> None:
    target = X @ [1.0, -0.5] + 0.3 + 0.3 * np.sin(7 * X[:, 0])
    shards = [(X[:50], target[:50]), (X[50:], target[50:])]
    found = FederatedRegression(**TOY, iterations=40).fit(shards, sample_weight=[W[:50], W[50:]])
    result, own = found.result_, LinearRegression().fit(X, target, sample_weight=W)
    assert result.max_abs_diff_to_twin < 1e-4
    np.testing.assert_allclose(both(found), both(own), atol=CLOSE)
    assert np.abs(both(found) - both(LinearRegression().fit(X, target))).max() > 5 * CLOSE
    # Which a run is compared with.
    np.testing.assert_allclose(result.optimum_weights.ravel(), scaled(own, result), atol=1e-6)


def scaled(own: Any, result: Any) -> Floats:
    """Least squares of the target on [0, 1]."""
    label = result.schema.label
    assert isinstance(label, Targets)
    slopes = np.append(own.coef_, own.intercept_ - label.low[0])
    return np.asarray(slopes / label.width[0])


@few_iterations
@pytest.mark.parametrize("offset", [None, SHIFT])
def test_encrypted_model_with_weights_and_offsets_is_its_twin(offset: Any) -> None:
    schema = replace(SCHEMA, offset=None if offset is None else Offset(name="o", low=-1, high=1))
    model = FederatedLogisticRegression(
        **TOY, protocol="encrypted-model", update="nag", degree=3, iterations=3, schema=schema
    )
    given = None if offset is None else parts(offset)
    model.fit(SHARDS, sample_weight=parts(W), offset=given)
    assert model.result_.max_abs_diff_to_twin < 1e-5
    plain = FederatedLogisticRegression(
        **TOY, protocol="encrypted-model", update="nag", degree=3, iterations=3, schema=schema
    )
    # The twin is no twin of other weights.
    other = plain.fit(SHARDS, sample_weight=parts(3 - W), offset=given)
    assert np.abs(both(other) - both(model)).max() > 0.01


def test_class_weights_of_a_private_run() -> None:
    private = FederatedLogisticRegression(**SUMS | {"epsilon": 1.0}, update="nag", iterations=3)
    with pytest.raises(ParameterError, match="counts labels, which are private"):
        private.set_params(class_weight="balanced").fit(SHARDS)
    found = private.set_params(class_weight={0: 1, 1: 4}, schema=SCHEMA).fit(
        SHARDS, sample_weight=parts(W)
    )
    # The public bound of the product.
    assert found.schema_.weight == Weight(name="w", bound=12)
    assert found.result_.plan.row_terms == {"weight": 12.0}
    assert found.result_.certificate["satisfied"]


@pytest.mark.parametrize(
    ("options", "fit", "kind", "words"),
    [
        ({}, {"sample_weight": W}, ParameterError, "protocol encrypted-rows encrypts rows once"),
        (SUMS, {"sample_weight": -W}, DataError, "weight 'weight' is negative"),
        (SUMS, {"sample_weight": W[:5]}, DataError, r"weights have shape \(5,\) for 120 rows"),
        (SUMS | {"class_weight": {7: 1.0}}, {}, ParameterError, "7, which is no label"),
        (SUMS | {"class_weight": 3}, {}, ParameterError, "not a dict or 'balanced'"),
        (SUMS | {"class_weight": {0: -1, 1: 2}}, {}, ParameterError, "below 0"),
        (SUMS | {"schema": SCHEMA}, {"offset": SHIFT}, SchemaError, "the schema has no offset"),
        (SUMS | {"schema": SCHEMA}, {}, SchemaError, "column 'w' of the schema is not in"),
    ],
)
def test_refusals(options: dict[str, Any], fit: dict[str, Any], kind: Any, words: str) -> None:
    subject = FederatedLogisticRegression(**{"epsilon": None} | options)
    with pytest.raises((kind, DataError, SchemaError), match=words):
        subject.fit(X, Y, **fit)


@few_iterations
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_sample_weights_list,
        estimator_checks.check_sample_weights_shape,
        estimator_checks.check_class_weight_classifiers,
    ],
)
def test_scikit_learns_checks_of_weights(check: Any) -> None:
    """On opened sums: with encrypted rows weights are refused, which `test_estimator` expects."""
    check(
        "FederatedLogisticRegression",
        FederatedLogisticRegression(**SUMS, update="nag", iterations=4),
    )


# -- offsets --------------------------------------------------------------------------------------


@few_iterations
def test_offsets_on_opened_sums_are_statsmodels() -> None:
    """Encrypted = twin; with the optimum's weights every number in data units is statsmodels'."""
    schema = replace(SCHEMA, offset=Offset(name="o", low=-0.5, high=1.5))
    table = pd.DataFrame({"x1": X[:, 0], "x2": X[:, 1], "w": W, "o": np.clip(SHIFT, -0.5, 1.5)})
    frames = [part.assign(y=y) for part, y in ((table[:50], Y[:50]), (table[50:], Y[50:]))]
    # Weights and offsets come with the frames.
    found = FederatedLogisticRegression(**SUMS, update="gd", iterations=2, schema=schema)
    result = found.fit(frames).result_
    assert result.max_abs_diff_to_twin < 1e-6
    own = sm.GLM(
        Y,
        own_columns(),
        family=sm.families.Binomial(),
        freq_weights=W,
        offset=table["o"].to_numpy(),
    ).fit(tol=1e-12)
    found._keep(replace(result, weights=result.clipped_optimum_weights))
    np.testing.assert_allclose(both(found), own.params, atol=CLOSE)
    expected = own.predict(own_columns(), offset=table["o"])
    np.testing.assert_allclose(found.predict_proba(table)[:, 1], expected, atol=CLOSE)
    given = found.decision_function(table[["x1", "x2"]], offset=table["o"])
    np.testing.assert_array_equal(given, found.decision_function(table))
    with pytest.raises(DataError, match="trained with offsets: give offset="):
        found.predict(table[["x1", "x2"]])
    released = ReleasedModel(schema=schema, weights=result.clipped_optimum_weights)
    np.testing.assert_allclose(released.predict(table)["probability"], expected, atol=CLOSE)
    scores = released.score(table.assign(y=Y))
    assert scores.log_loss == pytest.approx(
        -np.mean(np.log(np.where(Y, expected, 1 - expected))), abs=CLOSE
    )


def counts(size: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.uniform(-1, 1, (size, 2)), columns=["x1", "x2"])
    frame["years"], frame["w"] = rng.uniform(0.5, 4, size), rng.integers(1, 4, size)
    mean = frame["years"] * np.exp(0.4 + 0.5 * frame["x1"] - 0.3 * frame["x2"])
    return frame.assign(falls=np.minimum(rng.poisson(mean), 12))


COUNTED = Schema(
    columns=COLUMNS,
    label=Targets(columns=(NumericColumn(name="falls", low=0, high=12),)),
    scaling="range",
    weight=Weight(name="w", bound=3),
    offset=Offset(name="years", low=0.5, high=4, log=True),
)


@few_iterations
def test_poisson_exposures_are_statsmodels() -> None:
    """Encrypted = twin on a toy ring; in data units what statsmodels finds, to the polynomial."""
    frame = counts()
    shards = [frame[:70], frame[70:].reset_index(drop=True)]
    model = FederatedRegression(
        **TOY, model="poisson", protocol="encrypted-model", schema=COUNTED, iterations=3
    ).fit(shards)
    result = model.result_
    assert result.max_abs_diff_to_twin < 1e-5
    own = sm.GLM(
        frame["falls"],
        np.column_stack([frame[["x1", "x2"]], np.ones(len(frame))]),
        family=sm.families.Poisson(),
        freq_weights=frame["w"],
        offset=np.log(frame["years"]),
    ).fit(tol=1e-12)
    shard = encode_shard(frame, COUNTED)
    best = OPTIMA["poisson"](shard.x, shard.y, shard.weight, shard.offset)
    exact = FederatedRegression()
    exact._flat = True
    exact._keep(replace(result, weights=best))
    np.testing.assert_allclose(both(exact), own.params, atol=CLOSE)
    exact.schema_ = COUNTED
    released = ReleasedModel(schema=COUNTED, weights=best, model="poisson")
    expected = np.asarray(own.fittedvalues)
    np.testing.assert_allclose(released.predict(frame)["falls"], expected, rtol=3 * CLOSE)


def test_the_twin_of_poisson_exposures_reaches_statsmodels() -> None:
    """What the encrypted run repeats, over more iterations than a test has time for."""
    from protocols.models.poisson import Poisson
    from protocols.rows.training import PlainGradient, train_plain
    from protocols.updates.momentum import Nesterov

    shard = encode_shard(counts(), COUNTED)
    rule = Nesterov(rounds=600, learning_rate=1 / COUNTED.norm_bound**2)
    link = Poisson().approximation(7).polynomial
    gradient = PlainGradient(
        shard.x, shard.y, np.zeros((600, 3, 1)), link, weight=shard.weight, offset=shard.offset
    )
    reached = train_plain(rule, gradient, (3, 1))
    best = OPTIMA["poisson"](shard.x, shard.y, shard.weight, shard.offset)
    np.testing.assert_allclose(reached, best, atol=CLOSE)


def test_the_optimum_of_rows_as_they_are_knows_weights_and_offsets() -> None:
    raw = 5 + 3 * own_columns()
    raw[:, -1] = 1.0
    found = fit_unclipped(OPTIMA["logistic"], raw, Y.astype(float), W / 3, SHIFT)
    own = sm.GLM(Y, raw, family=sm.families.Binomial(), freq_weights=W, offset=SHIFT).fit(tol=1e-12)
    np.testing.assert_allclose(found, own.params, atol=CLOSE)


# -- simulations ----------------------------------------------------------------------------------


def test_a_simulation_says_what_bounds_do_to_rows(tmp_path: Any) -> None:
    frame = counts().assign(y=lambda t: (t["falls"] > 2).astype(int))
    # Half of the rows are longer than the row norm, and weights use a tenth of their bound.
    schema = replace(SCHEMA, row_norm=1.2, weight=Weight(name="w", bound=20))
    path = tmp_path / "schema.json"
    schema.save(path)
    config = SimulationConfig(
        data=frame, label="y", schema=path, seed=1, rounds=2, update="gd",
        protocol="secure-aggregation", parties=2,
    )  # fmt: skip
    notes = "\n".join(simulate(config).warnings)
    assert "of those trained on are longer than row_norm=1.2" in notes
    assert "weights use 10% of their bound" in notes
    with pytest.raises(ParameterError, match="inference with rows that have a weight"):
        simulate(replace(config, inference=True))
    assert bounds_notes([encode_shard(frame, SCHEMA)], SCHEMA) == []
