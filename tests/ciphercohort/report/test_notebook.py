"""How a notebook shows results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

import ciphercohort
from ciphercohort.after.inference import Inference
from ciphercohort.cli.console import closing_lines
from ciphercohort.results.result import Figures, RunResult, label_of
from tests.sims.document import Document
from tests.sims.fake_run import make_result


@pytest.mark.parametrize("private", [True, False])
def test_a_result_shows_scores_and_promise(private: bool) -> None:
    result = make_result(privacy=private)
    text = result._repr_html_()
    cells = Document(text).cells
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
    assert found is not None and "95 % intervals" in text and "[0.025" in Document(text).cells
    assert all(name in Document(text).cells for name in found.names)


def test_a_result_shows_every_note(with_inference: RunResult) -> None:
    """Such as why sums that were paid for gave no table."""
    told = ("no standard errors: noise", "no evaluation on rows that were held back")
    text = replace(with_inference, inference=None, warnings=told)._repr_html_()
    assert all(words in text for words in told)


def test_a_column_name_is_no_markup() -> None:
    made = make_result(privacy=False)
    label = structs.replace(label_of(made.schema), name="<script>x</script>")
    result = replace(made, schema=replace(made.schema, label=label))
    assert "<script>" not in result._repr_html_() and "&lt;script&gt;" in result._repr_html_()


def test_a_forecast_shows_what_it_would_cost() -> None:
    found = ciphercohort.plan(rows=1000, features=9, parties=4, colluders=2, timing=False)
    text = found._repr_html_()
    cells = Document(text).cells
    assert cells[cells.index("Owners") + 1] == "4" and "not rehearsed" in cells
    shown = cells[cells.index("ε by number of colluding owners") + 1]
    assert len(shown.split(", ")) == len(found.epsilon_by_coalition) == 4
