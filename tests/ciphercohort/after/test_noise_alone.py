"""Evaluations and standard errors of which noise has left nothing: every output says so."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.after.evaluation_words import lines
from ciphercohort.after.inference import infer_by
from ciphercohort.after.inference_table import latex_table
from ciphercohort.after.judged import Evaluation, judged
from ciphercohort.report.notebook import evaluation_html, inference_html
from ciphercohort.report.release import with_limits
from ciphercohort.report.release_report import held_out_table, inference_table
from ciphercohort.results.documents import to_json
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import targets_of
from parties.reader.schema import NumericColumn, Schema, Targets
from parties.reader.views import by_range
from protocols.errors import CohortError
from sims.evaluation import evaluate
from tests.ciphercohort.after import test_class_evaluation as classes
from tests.sims.evaluation_tables import COSTED, COUNTED, MODEL, SCHEMA, table
from tests.sims.noise_alone import Alone, Make, opened, unsaid

VISITS = NumericColumn("visits", 0.0, 40.0)

LINEAR = ReleasedModel(schema=COSTED, weights=MODEL.weights[:, None], model="linear")
MODELS = {
    "logistic": MODEL,
    "softmax": classes.fitted("softmax"),
    "one-vs-rest": classes.fitted("one-vs-rest"),
    "linear": LINEAR,
    "poisson": replace(LINEAR, schema=COUNTED, model="poisson"),
}


@pytest.fixture(scope="module", params=MODELS)
def private(request: pytest.FixtureRequest) -> Evaluation:
    frame = classes.FRAME if request.param in classes.OF_CLASSES else table(600)
    asked: dict[str, Any] = {"split": "by:site", "sites": ("north",), "however_noisy": True}
    return evaluate(MODELS[request.param], frame, epsilon=2.0, seed=1, **asked)


def tables(of: Evaluation) -> list[np.ndarray]:
    """Nothing, every value alike, a single value, and noise from far less than rows to far more."""
    size, source = len(of.opened.values), np.random.default_rng(7)
    single = [sign * np.eye(size)[k] for sign in (1, -1) for k in source.integers(0, size, 8)]
    alike = [np.full(size, each) for each in (0.0, 1.0, -1.0)]
    noise = [source.normal(0, 10.0**power, size) for power in (-9, -4, -2, 0, 3) for _ in range(12)]
    return [*alike, *single, *noise]


def test_every_output_of_noise_alone(private: Evaluation, tmp_path: Path) -> None:
    none = 0
    for values in tables(private):
        opened = replace(private.opened, values=values)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = judged(private.model, opened, noise="system", least=10, small=private.small)
            told = [*lines(found), evaluation_html(found), *found.notes]
            read = held_out_table(json.loads(found.write(tmp_path).read_text()))
        rows = [str(each) for each in read["rows"]]
        alts = [alt for _, alt, _ in read["pictures"]]
        assert not [*filter(None, map(unsaid, (*told, *rows, *alts)))]
        # The reader of a document is told what the reader of a screen is.
        assert len(rows) == len(list(found.measures()))
        none += sum("noise has left none" in each for each in rows)
    assert none > 0, "no table took a figure away"


FITTED: dict[str, tuple[str, Schema]] = {
    "logistic": ("logistic", SCHEMA),
    "poisson": ("poisson", COUNTED),
    "linear": ("linear", COSTED),
    "several targets": (
        "linear",
        replace(COSTED, label=Targets((*targets_of(COSTED.label).columns, VISITS))),
    ),
}


def far(own: np.ndarray, _: float, power: int) -> np.ndarray:
    """The rows' own information, and a score of any size."""
    score = 10.0**power * np.random.default_rng(power + 9).normal(size=6)
    return np.concatenate([score, own[6:]])


@pytest.mark.parametrize("kind", FITTED)
def test_standard_errors_of_noise_alone(kind: str) -> None:
    """None, or in every document the same table, whatever is left of it."""
    model, schema = FITTED[kind]
    own, frame = by_range(schema, private=True), table(3000)
    shape = (6,) if model == "logistic" else (6, len(schema.label.names))
    made: list[Make] = [*opened(2)]
    if model != "linear":
        made += [partial(far, power=power) for power in (-6, 0, 1, 2, 4)]
    found, ratios = 0, ""
    for make in made:
        sums = replace(Alone.of(frame, own, make, 8.0), however_noisy=True)
        try:
            each = infer_by(sums, schema, np.zeros(shape), model)
        except CohortError as error:
            assert not unsaid(str(error))
            continue
        body = with_limits(json.loads(to_json(each.released())))
        read = latex_table(body["rows"], body["about"], each.ratio)
        page = str(inference_table(body["rows"], body["about"]))
        assert each.latex() == read and str(each.cells()[1])[1:-1] in page
        told = [each.text(), page, read, inference_html(each)]
        assert not [*filter(None, map(unsaid, told))]
        found, ratios = found + 1, ratios + page
    assert found
    ends = {end for end in ("> 1e+100", "< 1e-100") if end in ratios}
    assert ends == ({"> 1e+100", "< 1e-100"} if model == "logistic" else set())
