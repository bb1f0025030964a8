"""Every cure that a warning of training proposes is followed: the warning is gone.

INSECURE toy rings.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from sims.api import simulate
from tests.sims.model_runs import make_counts, make_frame

RNG = np.random.default_rng(5)
FRAME = make_frame(300)
ODDS = FRAME[["a", "b", "ward"]].assign(
    y=np.where(FRAME.a - FRAME.b + RNG.logistic(0, 0.6, 300) > 0, "yes", "no")
)
APART = FRAME[["a", "b"]].assign(y=np.where(FRAME.cost > 50, "yes", "no"))
SUMS: dict[str, Any] = {"protocol": "secure-aggregation", "no_privacy": True}
TOY: dict[str, Any] = {"profile": "fast-insecure", "no_privacy": True, "as_trained": True}
HOME: dict[str, Any] = TOY | {"protocol": "encrypted-model"}
LABEL, TARGETS = {"label": "y"}, {"target": "cost,days"}
SHORT: dict[str, dict[str, Any]] = {
    "sums, nag": SUMS | LABEL | {"data": ODDS, "update": "nag", "iterations": 6},
    "sums, quadratic": SUMS | LABEL | {"data": ODDS, "update": "quadratic-nag", "iterations": 4},
    "rows, gd": TOY | LABEL | {"data": ODDS, "update": "gd", "iterations": 3},
    "rows, poisson": TOY
    | {"data": make_counts(), "model": "poisson", "target": "visits"}
    | {"iterations": 2},
    "gram": TOY | TARGETS | {"data": FRAME, "model": "linear", "iterations": 2},
    "home, linear": HOME | TARGETS | {"data": FRAME, "model": "linear", "iterations": 3},
}
UNTRIED: dict[str, dict[str, Any]] = {
    "sums, barrier": SUMS | LABEL | {"data": ODDS, "update": "barrier", "iterations": 2},
    "rows, barrier": TOY | LABEL | {"data": ODDS, "update": "barrier", "iterations": 2},
}
"""Rules whose steps follow from the number of iterations."""
ENDLESS: dict[str, dict[str, Any]] = {
    "sums, labels apart": SUMS | LABEL | {"data": APART, "update": "gd", "iterations": 3},
    "rows, steps that diverge": TOY | LABEL | {"data": APART, "update": "nag", "iterations": 4},
    "rows, labels apart": TOY | LABEL | {"data": APART, "update": "gd", "iterations": 3},
}


def told(options: dict[str, Any]) -> list[str]:
    result = simulate(seed=1, **options)
    return [words for words in result.warnings if "has not converged" in words]


@pytest.mark.parametrize("case", SHORT)
def test_as_many_iterations_as_are_named_are_enough(case: str) -> None:
    (words,) = told(SHORT[case])
    found = re.search(r"; take --iterations (\d+)$", words)
    assert found, words
    assert told(SHORT[case] | {"iterations": int(found[1])}) == []


@pytest.mark.parametrize("case", UNTRIED)
def test_what_was_not_tried_is_not_promised(case: str) -> None:
    (words,) = told(UNTRIED[case])
    other = "another --update" if "sums" in case else "--update quadratic-nag"
    assert words.endswith(f"; more of them may do, {other} may")


@pytest.mark.parametrize("case", ENDLESS)
def test_no_number_is_named_where_none_was_found(case: str) -> None:
    """Weights grow without an end of labels that columns separate, or out of the polynomial."""
    (words,) = told(ENDLESS[case])
    assert re.search(r"; not even \d+ of them would be enough, .*--update.* may$", words)
