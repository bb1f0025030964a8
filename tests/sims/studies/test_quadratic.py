"""The quadratic-gradient study on a toy ring: its folds, its scaling, its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parties.data.encode import encode_shard
from protocols.errors import DataError, ParameterError
from sims.config import SimulationConfig
from sims.studies import quadratic
from sims.studies.quadratic import Table, cross_validate, curve_and_config, unit_schema

CONFIG = SimulationConfig(
    parties=2,
    update="quadratic-nag",
    rounds=2,
    degree=5,
    radius=8.0,
    seed=1,
    profile="fast-insecure",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform([0, -3, 10], [1, 5, 90], (61, 3))
    score = 4 * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["y"] = (score + rng.logistic(size=61) > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "tiny.csv"
    frame.to_csv(path, index=False)
    return path


def test_columns_are_scaled_to_the_unit_interval(file: Path) -> None:
    table = Table.load(file, "y")
    x = encode_shard(table.frame, table.schema).x
    np.testing.assert_allclose(x[:, :-1].min(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(x[:, :-1].max(axis=0), 1.0, atol=1e-12)
    raw = table.frame[["a", "b", "c"]].to_numpy()
    wanted = (raw - raw.min(axis=0)) / (raw.max(axis=0) - raw.min(axis=0))
    np.testing.assert_allclose(x[:, :-1], wanted, atol=1e-12)
    constant = unit_schema(table.frame.assign(c=7.0), "y")
    assert not encode_shard(table.frame.assign(c=7.0), constant).x[:, 2].any()


def test_folds_are_disjoint_and_of_floor_size(file: Path) -> None:
    table = Table.load(file, "y")
    order = np.random.default_rng(1).permutation(61)
    parts = [table.fold(order, 5, k) for k in range(5)]
    assert [len(test) for _, test in parts] == [12] * 5
    tested = np.concatenate([test.index for _, test in parts])
    assert len(set(tested)) == 60
    for train, test in parts:
        assert sorted([*train.index, *test.index]) == list(range(61))


def test_refusals_name_the_cure(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'z' must exist"):
        Table.load(file, "z")
    with pytest.raises(DataError, match="hold 0 and 1"):
        Table.load(file, "a")
    with pytest.raises(ParameterError, match="folds=62"):
        next(cross_validate(Table.load(file, "y"), 62, CONFIG))


def test_the_curve_climbs_and_keeps_to_its_interval(file: Path) -> None:
    table = Table.load(file, "y")
    curves = {u: curve_and_config(table, u, 12, CONFIG)[0] for u in quadratic.UPDATES}
    assert all(curve.likelihood.shape == (12,) for curve in curves.values())
    labels = table.frame["y"].to_numpy()
    share = labels.mean()
    entropy = share * np.log(share) + (1 - share) * np.log(1 - share)
    for curve in curves.values():
        assert curve.base_rate == pytest.approx(entropy)
        assert max(curve.likelihood) <= curve.optimum < 0
    axes = quadratic.convergence_figure([], list(curves.values())).axes[0]
    assert {"optimum without privacy", "base rate"} <= set(axes.get_legend_handles_labels()[1])
    assert curves["quadratic-nag"].likelihood[-1] > curves["nag"].likelihood[-1] > -np.log(2)


def test_an_interval_too_small_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadratic, "INTERVALS", (0.1,))
    with pytest.raises(ParameterError, match="logits leave"):
        curve_and_config(Table.load(file, "y"), "nag", 8, CONFIG)
