"""The study on small problems: what it compares, what it writes, and that it repeats."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from parties.data.schema import CategoricalColumn, Label, NumericColumn, Schema
from protocols.errors import SchemaError
from sims.studies import coordinate
from sims.studies.coordinate import best_without_privacy, run_method
from sims.studies.coordinate_data import Problem, diabetes, from_files, phishing_like, unit_rows
from sims.studies.coordinate_methods import METHODS, dual_plan


def small() -> Problem:
    return phishing_like(np.random.default_rng(0), rows=800)


def app() -> typer.Typer:
    found = typer.Typer()
    found.command()(coordinate.main)
    return found


def test_problems_have_unit_rows_in_disjoint_parts() -> None:
    for problem in (small(), diabetes(np.random.default_rng(0))):
        parts = (problem.fit, problem.validation, problem.test)
        for part in parts:
            np.testing.assert_allclose(np.linalg.norm(part.x, axis=1), 1.0, atol=1e-12)
        total = sum(len(part.x) for part in parts)
        assert total == {"phishing-like": 800, "diabetes": 442}[problem.name]
        assert abs(len(problem.test.x) / total - 0.25) < 0.01
        assert best_without_privacy(problem) < 0.6 * problem.trivial()
    full = phishing_like(np.random.default_rng(0))
    assert sum(len(p.x) for p in (full.fit, full.validation, full.test)) == 11_055
    assert full.fit.x.shape[1] == 31
    assert not unit_rows(np.zeros((2, 3))).any()


def test_files_give_a_ridge_and_a_logistic_problem(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    age = rng.integers(18, 90, size=120)
    frame = pd.DataFrame({"age": age, "kind": rng.choice(["a", "b"], 120)})
    frame["rich"] = np.where(age > 50, "yes", "no")
    frame.to_csv(tmp_path / "people.csv", index=False)
    schema = Schema(
        columns=(
            NumericColumn(name="age", low=0.0, high=100.0, typical=50.0, spread=10.0),
            CategoricalColumn(name="kind", categories=("a", "b")),
        ),
        label=Label(name="rich", positive="yes", negative="no"),
    )
    data = tmp_path / "people.csv"
    ridge, logistic = from_files(data, None, schema, "age", rng)
    assert (ridge.loss, logistic.loss) == ("ridge", "logistic")
    assert ridge.fit.x.shape[1] == logistic.fit.x.shape[1] - 1  # age is not its own feature
    assert np.abs(ridge.fit.y).max() <= 3.0
    wanted = sorted(np.clip((age - 50.0) / 10.0, -3, 3))
    got = sorted(np.concatenate([p.y for p in (ridge.fit, ridge.validation, ridge.test)]))
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    assert set(logistic.fit.y) == {-1.0, 1.0}
    with pytest.raises(SchemaError, match="kind"):
        from_files(data, None, schema, "kind", rng)
    given = from_files(data, data, schema, "age", rng)[0]
    assert len(given.test.x) == 120


@pytest.mark.parametrize("method", [m for m in METHODS if m.effort == 1], ids=lambda m: m.name)
def test_with_little_noise_every_method_learns(method: object) -> None:
    assert isinstance(method, type(METHODS[0]))
    problem = small()
    found = run_method(problem, method, 4.0, delta=1e-2, tries=8, seeds=3)
    assert found.errors.shape == (3,)
    assert found.errors.mean() < 0.7 * problem.trivial()
    assert found.tried == min(8 * method.effort, found.available)


def test_choices_are_distinct_and_repeat() -> None:
    for method in METHODS:
        once, again = (method.choices(30, np.random.default_rng(3)) for _ in range(2))
        assert once == again
        assert len({tuple(c.values()) for c in once}) == len(once)
        assert all(c[k] in v for c in once for k, v in method.values.items())
    problem, method = small(), METHODS[0]
    one, two = (run_method(problem, method, 1.0, delta=1e-5, tries=2, seeds=2) for _ in range(2))
    np.testing.assert_array_equal(one.errors, two.errors)
    assert one.errors[0] != one.errors[1]


def test_the_clip_is_in_units_of_a_step() -> None:
    choice = {"lambda": 1e-3, "batches": 4.0, "epochs": 3.0, "clip": 0.3}
    plan = dual_plan(small(), choice, "poisson")
    assert plan.rounds == 12
    assert plan.clip * (1 + plan.curvature) == pytest.approx(0.3)


def test_the_command_writes_figures_table_and_text(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app(), ["--out", str(tmp_path / "new"), "--seeds", "2", "--tries", "1", "--epsilon", "2"]
    )
    assert done.exit_code == 0, done.output
    out = tmp_path / "new"
    for name in ("diabetes", "phishing-like"):
        assert (out / f"coordinate-{name}.svg").read_text().lstrip().startswith("<?xml")
        assert (out / f"coordinate-{name}.png").read_bytes().startswith(b"\x89PNG")
    with (out / "coordinate.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(METHODS)
    text = (out / "coordinate.txt").read_text()
    for row in rows:
        assert f"{float(row['error_mean']):.4f} +- {float(row['error_std']):.4f}" in text
        assert row["configurations_tried"] == ("4" if "4 x" in row["method"] else "1")
        assert row["neighbours"] in text
        assert row["seeds"] == "2"


def test_data_without_a_schema_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app(), ["--out", str(tmp_path), "--data", "x.csv"])
    assert done.exit_code == 2
    assert "schema is missing" in done.output
