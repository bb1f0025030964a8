"""The engine: resumed studies are the same, files keep their promise, refusals are rows."""

from __future__ import annotations

import csv
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from protocols.errors import ParameterError, PlatformError, SchemaError
from protocols.rows.training import PlainGradient, train_plain
from sims.lab.studies.noise import store as stores
from sims.lab.studies.noise.grid import Cell, Grid, cells_of, colluders_of, read_grids
from sims.lab.studies.noise.report import write_all
from sims.lab.studies.noise.source import Source, open_pool
from sims.lab.studies.noise.store import (
    NAME,
    Measurement,
    Progress,
    Store,
    measure,
    run_study,
    units_of,
)
from sims.lab.studies.noise.tables import COLUMNS
from sims.lab.studies.noise.twins import measure_twin, open_setting

WHOLE = pytest.mark.skipif(not os.environ.get("COHORT_SLOW"), reason="minutes: set COHORT_SLOW=1")
GRID = Grid(
    protocol="secure-aggregation",
    parties=(1, 2, 4),
    colluders=("0", "all-but-one"),
    iterations=(5,),
    noises=("honest", "all"),
)
ABOUT = {"source": Source().to_dict()}


def study(out: Path, grid: Grid = GRID, stop_after: int | None = None) -> list[Measurement]:
    """A study in this process, stopped after some units."""
    store = Store(out, ABOUT)
    for unit in units_of(cells_of([grid], 455), 3, 1)[:stop_after]:
        if any((unit.cell.key, seed) not in store for seed in unit.seeds):
            store.add(measure(unit, Source()))
    return store.measurements


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# -- grid -----------------------------------------------------------------------------------------


def test_coalitions() -> None:
    assert [colluders_of(c, 10) for c in ("0", "1", "half", "all-but-one")] == [0, 1, 5, 9]
    assert [colluders_of(c, 1) for c in ("0", "1", "half", "all-but-one")] == [0, None, 0, 0]
    with pytest.raises(ParameterError, match="most"):
        colluders_of("most", 3)


def test_one_change_at_a_time() -> None:
    """6 cells at the base, 6 with T = 10, 6 with everyone adding all; no combination of both."""
    wide = replace(GRID, iterations=(5, 10))
    cells = cells_of([wide, wide], 455)
    assert len(cells) == len({cell.key for cell in cells}) == 18
    assert not [c for c in cells if c.rounds == 10 and c.noise == "all"]
    both = cells_of([replace(wide, modes=("fixed", "growing"))], 455)
    assert {c.rows_per_party for c in both if c.mode == "growing"} == {113}
    assert len(both) == 24


def test_a_key_names_all_fields() -> None:
    cell = Cell(parties=3, coalition="1")
    changes = {"parties": 4, "coalition": "0", "noise": "all", "rounds": 3, "kind": "encrypted"}
    assert len({cell.key, *(replace(cell, **{k: v}).key for k, v in changes.items())}) == 6
    assert cell.seed_words(0) != cell.seed_words(1)
    # Seeds derive from it: studies of earlier releases come out the same.
    assert Cell().key == "87bf219db5aac4fc"


def test_grids_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    text = "grids:\n- {protocol: gradients, parties: [2, 3], updates: nag}\n- {norms: 2}\n"
    path.write_text(text)
    first, second = read_grids(path)
    assert (first.parties, first.updates, second.norms) == ((2, 3), ("nag",), (2,))
    for text, words in (("partys: 3\n", "partys"), ("[unclosed", str(path))):
        path.write_text(text)
        with pytest.raises(ParameterError, match=words):
            read_grids(path)


# -- twins ----------------------------------------------------------------------------------------


def test_without_noise_it_is_the_twin() -> None:
    """All seeds at once, in blocks: the weights' scores are those of the ordinary twin."""
    cell = Cell(parties=4, epsilon=None, rounds=6)
    (found,) = measure_twin(cell, Source(), [0])
    pool = open_pool(Source(), None)
    rows, features = pool.rows.shape
    bound = pool.schema.norm_bound
    setting, _ = open_setting(Source().config(cell), (rows,), features, bound)
    gradient = PlainGradient(pool.rows, pool.labels, np.zeros((6, features)), setting.link)
    weights = train_plain(setting.rule, gradient, features)
    right = (pool.test.x @ weights > 0) == (pool.test.y > 0.5)
    assert found.values["accuracy"] == right.mean()
    assert found.values["largest_iterate"] == pytest.approx(np.linalg.norm(weights))
    assert "privacy_ratio" not in found.values


def test_an_encrypted_model_promises_what_encrypted_rows_do() -> None:
    """Who multiplies whose rows changes no noise; what travels is another thing."""
    rows, model = (
        measure_twin(Cell(parties=3, rounds=4, protocol=name), Source(), [0])[0]
        for name in ("encrypted-rows", "encrypted-model")
    )
    assert model.values["sigma"] == rows.values["sigma"]
    assert model.predicted["privacy_ratio"] == rows.predicted["privacy_ratio"] == 1
    assert model.predicted["bytes_party"] != rows.predicted["bytes_party"]
    assert model.predicted["bytes_coordinator"] == 3 * model.predicted["bytes_party"]


def test_a_clip_bounds_what_a_row_adds() -> None:
    """With equal weights of unequal clients, the noise follows the smallest one's rows."""
    cell = Cell(
        protocol="secure-aggregation", parties=3, split="dirichlet:0.3", weights="equal", rounds=5
    )
    one, two = measure_twin(cell, Source(), [0, 1])
    assert one.facts["smallest"] != two.facts["smallest"]
    ratio = one.values["sigma"] / two.values["sigma"]
    assert ratio == pytest.approx(two.facts["smallest"] / one.facts["smallest"], rel=1e-6)


def test_no_certified_setting_is_a_row(tmp_path: Path) -> None:
    grid = Grid(parties=(50,), colluders=("0",), epsilons=(1e-3,), updates=("nag",))
    (cell,) = grid.cells()
    store = Store(tmp_path, ABOUT)
    store.add(measure_twin(cell, Source(), [0]))
    assert "no nag setting is certified" in store.measurements[0].refusal
    write_all(tmp_path, "t", "c", store.measurements, [grid])
    assert "no nag setting" in (tmp_path / "report.html").read_text()
    (row,) = read(tmp_path / "measurements.csv")
    assert "no nag setting" in row["refusal"]


# -- killed and resumed ----------------------------------------------------------------------------


def test_a_killed_study_gives_the_same_tables(tmp_path: Path) -> None:
    """Stopped in the middle, in the middle of a line too, and started again."""
    whole = study(tmp_path / "a")
    study(tmp_path / "b", stop_after=7)
    path = tmp_path / "b" / NAME
    path.write_bytes(path.read_bytes()[:-20])
    again = study(tmp_path / "b")
    assert [m.to_dict() for m in again] == [m.to_dict() for m in whole]
    for name, found in (("a", whole), ("b", again)):
        write_all(tmp_path / name, "title", "command", found, [GRID])
    tables = ("measurements.csv", "summary.csv", "slopes.csv")
    for file in (*tables, "report.html", "summary.txt", "tables.tex", "figures.tex", "methods.txt"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    documented(tmp_path / "a", whole)


def documented(out: Path, found: list[Measurement]) -> None:
    """The files of a study, of which every figure and column is explained."""
    rows = read(out / "measurements.csv")
    assert tuple(rows[0]) == tuple(COLUMNS) and all(row["unit"] for row in rows)
    key = [tuple(row[c] for c in COLUMNS if c not in ("value", "predicted")) for row in rows]
    assert len(set(key)) == len(rows), "one row per measurement"
    ratios = [row for row in rows if row["component"] == "privacy_ratio"]
    assert len(ratios) == len(found)
    assert all(float(row["value"]) > 0 and row["relation"] == "=" for row in ratios)
    text = (out / "columns.txt").read_text()
    assert all(f"\n{name} " in text for name in COLUMNS)
    assert "http" not in (out / "report.html").read_text().replace("http-equiv", "")
    figures = {path.stem for path in (out / "figures").glob("*.svg")}
    assert {"privacy_ratio_fixed", "accuracy_fixed", "privacy_noise_by_noise"} <= figures
    for kind in ("png", "pdf"):
        assert figures == {path.stem for path in (out / "figures").glob(f"*.{kind}")}


def test_a_store_refuses_other_data(tmp_path: Path) -> None:
    Store(tmp_path, ABOUT)
    Store(tmp_path, ABOUT)
    with pytest.raises(ParameterError, match="other data"):
        Store(tmp_path, {"source": "else"})
    (tmp_path / NAME).write_text("not json\n")
    with pytest.raises(ParameterError, match="no list of measurements"):
        Store(tmp_path, ABOUT)


@WHOLE
def test_spawned_workers_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, in whatever order they finish; a second start does nothing; then one dies."""
    small = replace(GRID, parties=(1, 2), iterations=(5,), noises=("honest",))
    store, units = Store(tmp_path, ABOUT), units_of(cells_of([small], 455), 3, 1)
    seen: list[Progress] = []
    run_study(units, Source(), store, jobs=2, on_progress=seen.append)
    alone = study(tmp_path / "alone", small)
    assert [m.to_dict() for m in store.measurements] == [m.to_dict() for m in alone]
    assert (seen[0].done, seen[-1].done, seen[-1].total, seen[-1].left) == (0, 4, 4, 0)
    again: list[Progress] = []
    run_study(units, Source(), store, jobs=2, on_progress=again.append)
    assert not again and not multiprocessing.active_children()
    monkeypatch.setattr(stores, "measure", os_exit)
    with pytest.raises(PlatformError, match="a worker died"):
        run_study(units, Source(), Store(tmp_path / "dead", ABOUT), jobs=1)
    assert not multiprocessing.active_children()


def os_exit(*arguments: object) -> None:
    """In place of a measurement: the worker is gone."""
    import os

    os._exit(1)


def test_a_refusal_of_a_worker_reaches_the_person(tmp_path: Path) -> None:
    units = units_of([Cell(parties=2, epsilon=None)], 1, 1)
    with pytest.raises(SchemaError, match="no such"):
        run_study(units, Source(label="no such"), Store(tmp_path, ABOUT), jobs=1)
    assert not multiprocessing.active_children()


# -- tables ----------------------------------------------------------------------------------------


def test_accuracy_against_epsilon(tmp_path: Path) -> None:
    grid = replace(GRID, parties=(3,), noises=("honest",), epsilons=(1.0, 0.1, 10.0))
    found = study(tmp_path, grid)
    write_all(tmp_path, "title", "command", found, [grid])
    assert (tmp_path / "figures" / "accuracy_by_epsilon.svg").exists()
    sigma = {m.cell.epsilon: m.values["sigma"] for m in found}
    assert sigma[0.1] > sigma[1.0] > sigma[10.0]


def test_the_commands(tmp_path: Path, quick_machine: None) -> None:
    out = ["--out", str(tmp_path)]
    wrong = CliRunner().invoke(app, ["study", "noise", "--parties", "two", *out])
    assert wrong.exit_code == 2 and "two" in wrong.output
    words = "--rows 1000,10000,100000 --features 9 --ring-dim none"
    done = CliRunner().invoke(app, ["study", "cost", *words.split(), *out])
    assert done.exit_code == 0, done.output
    counts = [int(row["data_ciphertexts"]) for row in read(tmp_path / "costs.csv")]
    assert counts == sorted(counts) and counts[-1] > counts[0]
    assert "slope" in (tmp_path / "summary.txt").read_text()


# -- encrypted runs -------------------------------------------------------------------------------


@WHOLE
def test_one_command_fits_the_stages_of_an_encrypted_model(tmp_path: Path) -> None:
    """Slopes stand beside their formulas: 1/2 for sums of errors, 1 for sums of encryptions.

    All parties flood by sigma_e, of plans whose layouts differ: its slope is near their formula's.
    """
    command = ["study", "noise", "--protocol", "encrypted-model", "--parties", "none"]
    command += ["--encrypted", "2,4,8", "--colluders", "0", "--epsilon", "none"]
    command += ["--iterations", "1", "--profile", "fast-insecure", "--ring-dim", "1024"]
    done = CliRunner().invoke(app, [*command, "--jobs", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    slopes = {row["component"]: row for row in read(tmp_path / "slopes.csv")}
    for name, order, near in (
        *(("secret", 0.5, 0.1), ("public_key", 0.5, 0.1), ("model_refresh", 0.5, 0.1)),
        *(("encryption", 0.5, 0.4), ("encryption_sum", 1.0, 0.65)),
    ):
        found = slopes[name]
        assert float(found["predicted"]) == pytest.approx(order, abs=0.02), name
        assert float(found["slope"]) == pytest.approx(order, abs=near), name
    flooding = {key: float(slopes["flooding"][key]) for key in ("predicted", "slope")}
    assert flooding["slope"] == pytest.approx(flooding["predicted"], abs=0.1)
    assert 0.5 <= flooding["predicted"] <= 1.5
    assert slopes["first_iterate"]["agrees"] == slopes["model_circuit"]["agrees"] == "yes"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "added by a refresh of an encrypted model" in page


def test_a_study_needs_test_rows() -> None:
    with pytest.raises(ParameterError, match="test_share=0: a study judges models on test rows"):
        open_pool(Source(test_share=0.0), None)


@pytest.mark.parametrize(
    ("alias", "name"), [("shards", "encrypted-rows"), ("gradients", "secure-aggregation")]
)
def test_former_names_of_the_protocols_are_aliases(alias: str, name: str) -> None:
    for given in (alias, name):
        assert Grid(protocol=given, updates=("gd",)).protocol == name
        assert Cell(protocol=given).protocol == name
