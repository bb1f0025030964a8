"""The benchmarks on a toy ring: that they measure what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import baselines, cases, cell, ceremony, compare, fixed, session, table, trust
from benchmarks.__main__ import app
from ciphercohort.planning.rehearsed import shortened
from protocols.errors import ParameterError
from protocols.names import UNDER_CKKS
from protocols.plan.protocol import phase_of
from sims.rehearsal import rehearse

TOY = replace(cases.QUICK[0], rows=100)


@pytest.fixture(scope="module")
def result() -> dict[str, object]:
    return table.measure([TOY], None, lambda line: None)


def test_predicted_bytes_are_the_runs(result: dict[str, object]) -> None:
    for row in result["rows"]:
        assert row["predicted_bytes"] == pytest.approx(row["bytes_per_party"], rel=0.02)


def test_an_iteration_is_measured_and_predicted(result: dict[str, object]) -> None:
    for row in result["rows"]:
        assert len(row["laps"]) == TOY.rounds - 2
        assert row["ratio"] == row["predicted"] / row["iteration"] > 0
        assert 0 < row["beside"] < row["iteration"]
        assert row["peak_memory"] > 100e6


def test_every_cell_of_the_table_is_filled(result: dict[str, object], tmp_path: Path) -> None:
    table.save(result, tmp_path)
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == result
    text = (tmp_path / "benchmarks.md").read_text().splitlines()
    assert len(text) == 2 + len(cases.UPDATES)
    assert {line.count("|") for line in text} == {len(table.COLUMNS) + 1}
    others = result["rows"][0]["alternatives"]
    assert others["per_sample"]["ciphertexts"] == TOY.rows
    assert others["tenseal"] is None


def test_the_measured_run_trains() -> None:
    """Two parties' encrypted run against gradient descent on its polynomial, in NumPy."""
    found = session.run(TOY)
    x, y = TOY.data()
    rule, link, w = found.plan.rule, found.plan.link, np.zeros(x.shape[1])
    for _ in range(TOY.rounds):
        pull = 2 * rule.weight * rule.reciprocal(rule.theta - w @ w) * w
        w = w - rule.learning_rate * (x.T @ (link(x @ w) - y) / len(x) + pull)
    assert np.abs(w).max() > 0.05
    np.testing.assert_allclose(found.weights, w, atol=1e-2)


@pytest.mark.parametrize("layout", [baselines.per_sample, baselines.row_major])
def test_the_other_layouts_compute_the_same_gradient(layout: object) -> None:
    found = layout(session.plan_of(TOY), TOY.data()[0])
    assert found.error < 1e-6
    assert found.iteration > found.unit * (found.ciphertexts - 1)


def test_files_are_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cases, "DATA_FOLDER", tmp_path)
    x, _ = cases.FULL[0].data()
    assert x.shape == (1253, 10)


@pytest.mark.parametrize(
    "change",
    [{"update": "adam"}, {"protocol": "shares"}, {"rounds": 2}, {"rows": 1}],
    ids=lambda c: next(iter(c)),
)
def test_a_case_out_of_range_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        replace(TOY, **change)


def test_the_interval_of_a_ratio() -> None:
    """Half as long in every turn: 0.5 exactly; noise of 10 % around 1: 1 lies inside."""
    half = compare.ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (half.mean, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
    assert half.verdict == "faster"
    rng = np.random.default_rng(3)
    covered = sum(
        found.low <= 1 <= found.high
        for found in (compare.ratio(*np.exp(rng.normal(0, 0.1, (2, 7)))) for _ in range(400))
    )
    # 95 % of 400, six standard deviations either way.
    assert 354 <= covered <= 400
    with pytest.raises(ParameterError, match="turns=1"):
        compare.ratio([1.0], [1.0])


def test_this_tree_is_compared_with_itself() -> None:
    with compare.tree(compare.HERE) as folder:
        assert (folder / "benchmarks" / "fixed.py").exists()
    assert 0 < fixed.main(1024, 2) < 60


def test_the_ceremony_is_as_large_as_predicted() -> None:
    found = ceremony.measure(2, secure=False)
    plan = session.plan_of(replace(ceremony.SHAPE, parties=2, secure=False))
    played = rehearse(shortened(plan), apart=False).trips
    replies = (sum(t.replied.blobs) for t in played if phase_of(t.step) == "keys")
    assert found["upload_bytes"] == sum(replies)
    assert 0 < found["party_seconds"] < 60


def test_the_command_line_prints_one_cell() -> None:
    done = CliRunner().invoke(app, ["cell", json.dumps(TOY.to_dict())])
    assert done.exit_code == 0, done.output
    found = cell.from_dict(json.loads(done.output.splitlines()[-1]))
    assert found.to_dict()["case"] == TOY.to_dict()


# -- by trust -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_trust() -> dict[str, object]:
    return trust.measure([replace(TOY, parties=3)], None, lambda line: None)


def test_both_protocols_train_the_same_model(by_trust: dict[str, object]) -> None:
    assert [row["case"]["protocol"] for row in by_trust["rows"]] == list(UNDER_CKKS)[::-1]
    for row in by_trust["rows"]:
        assert 0 < row["difference"] < 1e-3
        # Three parties answer in turn: the slowest alone takes less than all.
        assert row["own"] < row["path"] < row["everybody"]
        assert 0 < row["share"] < row["everybody"]
        assert row["megabytes"]["refresh"] > 0
    model, rows = by_trust["rows"]
    assert model["megabytes"]["encrypt"] == 0 < rows["megabytes"]["encrypt"]
    assert model["megabytes"]["train"] > 0


def test_every_trust_has_its_lines(by_trust: dict[str, object], tmp_path: Path) -> None:
    dealt = {"iteration": 0.5, "difference": 1e-3, "version": "0.9.5"}
    body = {**by_trust, "rows": [*by_trust["rows"], {"case": TOY.to_dict(), "spu": dealt}]}
    trust.save(body, tmp_path)
    assert json.loads((tmp_path / "trust.json").read_text()) == body
    ours, cited = (tmp_path / "trust.md").read_text().split("Not measured here:")
    lines = ours.strip().splitlines()
    assert {line.count("|") for line in lines} == {len(trust.COLUMNS) + 1}
    assert "a dealer" in lines[-1] and "500 ms" in lines[-1]
    assert len(body["published"]) == 4
    for words in body["published"]:
        assert words in cited
