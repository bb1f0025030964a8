"""A study across sites beside the same one on pooled rows, by statsmodels and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from sims.lab.studies import pooled

HOLED = ("age", "ward")
COLUMNS = (
    NumericColumn("age", 20.0, 100.0, typical=60.0, spread=10.0),
    NumericColumn("dose", -5.0, 5.0, typical=0.0, spread=1.0),
    CategoricalColumn("ward", ("A", "B")),
)
SCHEMA = Schema(columns=COLUMNS, label=Label("died", "yes", "no"), row_norm=2.0)


def table(rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.integers(20, 90, rows), "dose": rng.normal(0, 1, rows)})
    frame["ward"] = rng.choice(["A", "B", "?"], rows, p=[0.5, 0.4, 0.1])
    risk = (frame["age"] - 60) / 15 + frame["dose"] + (frame["ward"] == "B")
    return frame.assign(died=np.where(risk + rng.logistic(size=rows) > 0, "yes", "no"))


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled, "ITERATIONS", 4)
        return {row["missing"]: row for row in pooled.compare(table(), SCHEMA, HOLED)}


def test_sites_say_what_pooled_rows_say(rows: dict[str, dict[str, Any]]) -> None:
    for missing in ("nothing", "typical", "indicator"):
        row = rows[missing]
        assert row["coefficient"] < 1e-3 and row["standard error"] < 0.01, missing
        assert row["ROC area"] < 0.002, missing
    assert rows["typical"]["same bytes"] == "yes"
    for name in HOLED:
        assert f"column '{name}' " in rows["refuse"]["refused"]


@pytest.mark.parametrize(("missing", "typical"), [("typical", 50.0), ("indicator", 60.0)])
def test_another_way_to_fill_cells_is_noticed(missing: Any, typical: float) -> None:
    """Pooled rows with another value in the empty cells, or the indicator at other rows."""
    asked = pooled.with_answer(SCHEMA, HOLED, missing)
    holed = pooled.with_holes(table(), HOLED)
    shard, (imputed, x) = encode_shard(holed, asked), pooled.pooled(holed, asked)
    kept = np.ones(1 + x.shape[1], dtype=bool)
    wrong = x.copy()
    if missing == "typical":
        wrong[holed["age"].isna(), 0] = typical
        assert (imputed["age"][holed["age"].isna()] == 60.0).all()
    else:
        wrong[:, 1] = np.roll(x[:, 1], 1)
    true, false = (pooled.statsmodels_fit(each, shard.y, kept)[0] for each in (x, wrong))
    assert np.abs(true - false).max() > 1e-2


def test_holes_are_in_the_named_columns_alone() -> None:
    whole, holed = table(), pooled.with_holes(table(), HOLED)
    missing = holed.isna().mean()
    assert (missing[list(HOLED)] > 0.05).all() and (missing[list(HOLED)] < 0.15).all()
    assert (missing[["dose", "died"]] == 0).all() and not whole.isna().any(axis=None)
