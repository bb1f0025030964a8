"""A weighted Cox regression by sums per time of event, over four hospitals.

The plain app has the messages of FedECA (Ogier du Terrail et al., 2025), on Flower: moments, then
events by time, then for each step of Newton's the sums over those at risk, pickled. With at most 30
changed lines its server gets sums only; the truth is one maximisation over all rows in one place.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from ciphercohort.flower.in_process import InProcessGrid
from ciphercohort.flower.memory import RECORD
from sims.lab.studies.flower.workloads import App
from tests.flower.environment import ROOT
from tests.flower.test_examples import apply, environment, folder_of

HOSPITALS = 4


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.syspath_prepend(str(folder_of("survival")))
    return App(folder_of("survival"))


class Kept(InProcessGrid):
    """Keeps what the server gets."""

    def pull_messages(self, message_ids: Any) -> Any:
        for reply in super().pull_messages(message_ids):
            self.kept = [*getattr(self, "kept", []), reply]
            yield reply


def federation(app: App, hospitals: int = HOSPITALS) -> Kept:
    nodes = {1 + k: {"partition-id": k} for k in range(hospitals)}
    return Kept(app.component("clientapp")[1], nodes, app.config)


def fitted(app: App) -> Any:
    server = app.component("serverapp")[0]
    return server.fit(server.SecureGrid(federation(app)), 20)


def pooled() -> Any:
    task = importlib.import_module("survival.task")
    rows = [task.load_rows(k) for k in range(HOSPITALS)]
    return [np.concatenate(parts) for parts in zip(*rows, strict=True)]


def partial_likelihood(times: Any, events: Any, x: Any, weights: Any) -> Any:
    """Minus its logarithm, ties as Breslow has them, row by row."""

    def value(beta: Any) -> float:
        risk = x @ beta
        at_risk = [weights[times >= t] @ np.exp(risk[times >= t]) for t in times]
        return float(-(weights * events) @ (risk - np.log(at_risk)))

    return value


def test_coefficients_are_those_of_all_rows_in_one_place(app: App) -> None:
    beta, inverse = fitted(app)
    times, events, x, weights = pooled()
    assert len(np.unique(times)) < len(times)
    scale = x.std(axis=0)
    value = partial_likelihood(times, events, (x - x.mean(axis=0)) / scale, weights)
    found = optimize.minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-7})
    # BFGS by differences stops some 1e-7 of a step away.
    assert np.abs(beta * scale - found.x).max() < 1e-5
    step, units = 1e-3, np.eye(3)
    # f(+,+) - f(+,-) - f(-,+) + f(-,-) over (2 h)^2: the observed information, to O(h^2).
    information = [
        [
            sum(
                s * r * value(found.x + step * (s * left + r * right))
                for s in (1, -1)
                for r in (1, -1)
            )
            / (2 * step) ** 2
            for right in units
        ]
        for left in units
    ]
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert np.abs(np.sqrt(np.diag(inverse)) * scale / errors - 1).max() < 0.01


def test_whole_weights_are_rows_as_often(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """By statsmodels, which knows no weights."""
    regression = pytest.importorskip("statsmodels.duration.hazard_regression")
    task = importlib.import_module("survival.task")
    plain = task.load_rows
    whole = lambda k: plain(k)._replace(weights=np.ceil(plain(k).weights))  # noqa: E731
    monkeypatch.setattr(task, "load_rows", whole)
    monkeypatch.setattr(app.component("clientapp")[0], "load_rows", whole)
    beta, inverse = fitted(app)
    times, events, x, weights = pooled()
    often = weights.astype(int)
    model = regression.PHReg(
        np.repeat(times, often),
        np.repeat(x, often, axis=0),
        np.repeat(events, often),
        ties="breslow",
    ).fit()
    assert np.abs(beta - model.params).max() < 1e-7
    assert np.abs(np.sqrt(np.diag(inverse)) / model.bse - 1).max() < 1e-6


def test_no_message_that_the_server_keeps_holds_a_hospitals_statistics(app: App) -> None:
    """Each is uniform words, sealed shares, keys: no number of a hospital's stands in any."""
    grid, server = federation(app), app.component("serverapp")[0]
    server.fit(server.SecureGrid(grid), 20)
    task = importlib.import_module("survival.task")
    steps = {tuple(reply.content) for reply in grid.kept}
    assert steps == {(RECORD,), (RECORD, "secure-sum.words")}
    sent = b"".join(
        part
        for reply in grid.kept
        if "secure-sum.words" in reply.content
        for part in (
            reply.content["secure-sum.words"]["words"].data,
            *reply.content[RECORD]["shares"],
        )
    )
    for k in range(HOSPITALS):
        own = task.moments(task.load_rows(k))
        for value in (*own["sum"], *own["squares"]):
            assert np.float64(value).tobytes() not in sent
    counts = np.bincount(np.frombuffer(sent, np.uint8), minlength=256)
    expected = len(sent) / 256
    # Chi-squared with 255 degrees of freedom: mean 255, std 22.6.
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * 22.6


def test_it_is_its_plain_app_with_at_most_thirty_lines_changed(tmp_path: Path) -> None:
    """And gives that one's coefficients."""
    import shutil

    diff = (folder_of("survival") / "from-plain.diff").read_text(encoding="utf-8")
    changed = [line for line in diff.splitlines() if re.match(r"\+(?!\+)", line)]
    assert len(changed) <= 30
    folders = [tmp_path / "secure", tmp_path / "plain"]
    for folder in folders:
        shutil.copytree(folder_of("survival"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    apply(folders[1], "-R")
    texts = [path.read_text() for path in folders[1].rglob("*.py")]
    assert not any("ciphercohort" in text for text in texts) and "pickle" in "".join(texts)
    outs = [tmp_path / "secure.npz", tmp_path / "plain.npz"]
    command = [sys.executable, "-m", "tests.flower.run_example"]
    for folder, out in zip(folders, outs, strict=True):
        done = subprocess.run(
            [*command, str(folder), str(out)],
            cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    secure, plain = (np.load(out)["arr_0"] for out in outs)
    assert np.abs(secure - plain).max() < 1e-10
