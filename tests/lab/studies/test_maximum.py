"""Models beside statsmodels' on the pooled table: how far off they are is what is printed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.reader.schema import Label, NumericColumn, Schema, Targets
from parties.reader.shard import encode_shard
from protocols.names import ENCRYPTED_ROWS
from sims.lab.studies import maximum


@pytest.mark.parametrize("model", maximum.MODELS)
@pytest.mark.parametrize("off", [0.0, 0.01])
def test_what_is_off_is_told_in_standard_errors(
    model: str, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model as trained is the best on its encoded rows, and its intercept off by `off`."""
    monkeypatch.setattr(maximum, "MADE_COLUMNS", 2)
    frame, label = maximum.read(maximum.MADE, model, maximum.FOLDER, rows=150)

    def simulated(**asked: Any) -> Any:
        y = frame[label].to_numpy(float)
        columns = tuple(NumericColumn(name, -9.0, 9.0) for name in ("x1", "x2"))
        outcome = Targets((NumericColumn(label, -9.0, 9.0),))
        named = Label(label, "1", "0") if model == "logistic" else outcome
        schema = Schema(columns=columns, label=named, scaling="range")
        shard = encode_shard(frame, schema)
        best = maximum.pooled(np.asarray(shard.x), np.ravel(shard.y), model).params
        fit = maximum.pooled(np.column_stack([np.ones(len(y)), frame[["x1", "x2"]]]), y, model)
        found = SimpleNamespace(
            coef=(fit.params + off * fit.bse)[None], se=fit.bse[None] * (1 + off)
        )
        return SimpleNamespace(
            inference=found,
            plan=SimpleNamespace(rounds=12, security_bits=128),
            schema=schema,
            as_trained=(best + off * np.eye(len(best))[-1], None),
            costs=SimpleNamespace(whole_seconds=[1.0]),
        )

    monkeypatch.setattr(maximum, "simulate", simulated)
    found = maximum.beside(frame, label, model, ENCRYPTED_ROWS, "secure")
    assert found["coefficient"] == pytest.approx(off, abs=1e-9)
    assert found["standard error"] == pytest.approx(off, abs=1e-9)
    assert (found["as trained"] > 1e-9) == bool(off) and abs(found["as trained"]) < 0.05
    assert set(found) == set(maximum.FIGURES)
