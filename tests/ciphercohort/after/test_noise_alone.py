"""Evaluations in which noise has left nothing: every output says so, and none fails."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.after.evaluation_words import lines
from ciphercohort.after.judged import Evaluation, judged
from ciphercohort.report.notebook import evaluation_html
from ciphercohort.report.release_report import held_out_table
from ciphercohort.results.predict import ReleasedModel
from sims.evaluation import evaluate
from tests.ciphercohort.after import test_class_evaluation as classes
from tests.sims.evaluation_tables import COSTED, COUNTED, MODEL, table

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
        assert not [
            each for each in (*told, *rows, *alts) if any(x in each for x in ("nan", "None"))
        ]
        # The reader of a document is told what the reader of a screen is.
        assert len(rows) == len(list(found.measures()))
        none += sum("noise has left none" in each for each in rows)
    assert none > 0, "no table took a figure away"
