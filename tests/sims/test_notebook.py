"""Protocol and C of the estimator beside scikit-learn; how a notebook shows results."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from sklearn.linear_model import LogisticRegression

import ciphercohort
from ciphercohort import FederatedLogisticRegression
from protocols.errors import ParameterError
from sims.console import closing_lines
from sims.inference import Inference
from sims.result import Figures, RunResult, label_of
from tests.sims.fake_run import make_result
from tests.sims.test_estimator import rows

SUMS = "secure-aggregation"


class Cells(HTMLParser):
    """Texts of the cells; every tag is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


# -- the estimator's parameters -------------------------------------------------------------------


def overlapping(count: int) -> Any:
    X, _ = rows(count)
    rng = np.random.default_rng(1)
    return X, (X[:, 0] + (X[:, 1] - 50) / 10 + rng.logistic(size=count) > 0).astype(int)


@pytest.fixture(scope="module")
def penalised() -> FederatedLogisticRegression:
    X, y = overlapping(120)
    model = FederatedLogisticRegression(protocol=SUMS, C=0.2, iterations=120, epsilon=None)
    return model.fit([(X[:70], y[:70]), (X[70:], y[70:])])


def test_c_is_that_of_scikit_learn(penalised: FederatedLogisticRegression) -> None:
    """On the encoded rows, whose last column is the bias: all coefficients are penalised."""
    result = penalised.result_
    assert result.plan.protocol == SUMS and result.plan.update["kind"] == "nag-sc"
    known = LogisticRegression(C=0.2, fit_intercept=False, tol=1e-9)
    known.fit(result.test_x, result.test_y)
    np.testing.assert_allclose(result.weights, known.coef_[0], atol=1e-4)
    # With ten times the penalty it is another model.
    known.set_params(C=0.02).fit(result.test_x, result.test_y)
    assert np.abs(result.weights - known.coef_[0]).max() > 0.1


def test_the_protocol_is_that_of_the_plan() -> None:
    X, y = rows(40)
    model = FederatedLogisticRegression(
        protocol="encrypted-model",
        update="gd",
        iterations=1,
        degree=3,
        epsilon=None,
        profile="fast-insecure",
    )
    assert model.fit(X, y).result_.plan.protocol == "encrypted-model"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"C": 1.0, "protocol": "encrypted-rows"}, "C=1.0 is of protocol='secure-aggregation'"),
        ({"C": 0.0}, "C=0.0 must be a positive number"),
        ({"C": "many"}, "C='many' must be a positive number"),
        ({"C": True}, "C=True must be a positive number"),
        ({"C": 1.0, "update": "adam"}, "ridge=0.025 is an option of --update gd, .* for adam"),
        ({"protocol": "somehow"}, "protocol='somehow' is not one of"),
    ],
)
def test_a_parameter_that_would_be_dropped_is_refused(changes: dict[str, Any], words: str) -> None:
    X, y = rows(40)
    model = FederatedLogisticRegression(**{"protocol": SUMS, "epsilon": None, **changes})
    with pytest.raises(ParameterError, match=words):
        model.fit(X, y)


# -- notebooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [True, False])
def test_a_result_shows_scores_and_promise(private: bool) -> None:
    result = make_result(privacy=private)
    text = result._repr_html_()
    cells = Cells(text).cells
    assert "plaintext twin" in cells and f"{100 * result.scores.accuracy:.1f}" in " ".join(cells)
    privacy = result.plan.privacy
    assert ("ε = " in text) is private and ("No privacy noise" in text) is not private
    assert privacy is None or f"δ = {privacy.delta:g}" in text
    assert ("INSECURE" in text) is result.insecure


@pytest.fixture
def with_inference() -> RunResult:
    names = ("intercept", "<b>age</b>")
    table = Inference(
        model="logistic", names=names, outputs=("",), coef=np.array([[0.1, 2.0]]),
        se=np.array([[0.5, 0.25]]), added=np.zeros((1, 2)), freedom=np.inf, num_rows=90, rounds=3,
        budget=None, mechanisms=(),
    )  # fmt: skip
    return replace(make_result(privacy=False), inference=table)


@pytest.mark.parametrize("better", [True, False])
def test_an_optimum_that_is_not_the_best_is_explained(better: bool) -> None:
    """By a sentence under the table, wherever the table is."""
    made = make_result(privacy=False)
    worse = made.scores.log_loss + (-0.1 if better else 0.1)
    result = replace(made, optimum=Figures(made.optimum | {"log_loss": worse}))
    told = "fits the training rows as closely as they allow"
    assert (told in result._repr_html_()) is (told in " ".join(closing_lines(result))) is not better


def test_a_result_shows_its_intervals(with_inference: RunResult) -> None:
    found = with_inference.inference
    text = with_inference._repr_html_()
    assert found is not None and "95 % intervals" in text and "[0.025" in Cells(text).cells
    assert all(name in Cells(text).cells for name in found.names)


def test_a_column_name_is_no_markup() -> None:
    made = make_result(privacy=False)
    label = structs.replace(label_of(made.schema), name="<script>x</script>")
    result = replace(made, schema=replace(made.schema, label=label))
    assert "<script>" not in result._repr_html_() and "&lt;script&gt;" in result._repr_html_()


def test_a_forecast_shows_what_it_would_cost() -> None:
    found = ciphercohort.plan(rows=1000, features=9, parties=4, colluders=2, timing=False)
    text = found._repr_html_()
    cells = Cells(text).cells
    assert cells[cells.index("Owners") + 1] == "4" and "not timed" in cells
    shown = cells[cells.index("ε by number of colluding owners") + 1]
    assert len(shown.split(", ")) == len(found.epsilon_by_coalition) == 4
