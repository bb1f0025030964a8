"""A SuperLink over TLS and three SuperNodes that Flower's own commands started.

One run always, by `cohort coordinator run --superlink`; COHORT_SLOW adds encrypted rows by `flwr
run`, beside statsmodels.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from coordinator.certificates import CA
from sims.deploy_coordinator import Coordinator
from sims.predict import load_model
from sims.studies.flower.fleet import Fleet
from tests.flower.elsewhere import APP, EXACT, hospitals, women

ONE_PORT = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="1.41's SuperLink takes other options: see flower_commands"
)


@pytest.mark.slow
@ONE_PORT
def test_a_run_by_an_address(tmp_path: Path) -> None:
    """One iteration with noise: documents come back in the log."""
    there = Fleet(tmp_path / "there", hospitals(tmp_path / "hospitals"), registered=False)
    schema = tmp_path / "hospitals" / "schema.json"
    fields = json.loads(schema.read_text())
    schema.write_text(json.dumps({**fields, "row_norm": 3.0}))
    options = {"protocol": "secure-aggregation", "update": "gd", "iterations": 1}
    centre = Coordinator.init(tmp_path / "centre", schema=schema, epsilon=1.0, **options)
    told: list[str] = []
    with there.running():
        model = centre.run_on(there.control, root_certificates=there.folder / CA, tell=told.append)
    assert np.isfinite(model.weights).all() and np.abs(model.weights).max() > 0
    (out,) = (path.parent for path in (tmp_path / "centre").rglob("certificate.json"))
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["satisfied"] and certificate["inputs"] == {"schema": "given"}
    members = [member["name"] for member in json.loads((out / "plan.json").read_text())["members"]]
    assert members == ["hospital-a", "hospital-b", "hospital-c"]
    homes = [tmp_path / "hospitals" / f"home{k}" for k in range(3)]
    assert all((home / "ledger.jsonl").exists() for home in homes)


@pytest.mark.slow
@ONE_PORT
@pytest.mark.skipif(not os.environ.get("COHORT_SLOW"), reason="minutes: set COHORT_SLOW=1")
def test_encrypted_rows_of_a_foreign_table(tmp_path: Path) -> None:
    """14 iterations leave 1 % of what statsmodels' maximum of the likelihood gains."""
    statsmodels = pytest.importorskip("statsmodels.api")
    there = Fleet(tmp_path / "there", hospitals(tmp_path / "hospitals", **EXACT))
    config = {
        "protocol": "encrypted-rows",
        "no-privacy": True,
        "update": "quadratic-nag",
        "iterations": 14,
        "schema": str(tmp_path / "hospitals" / "schema.json"),
        "out": str(tmp_path / "out"),
    }
    with there.running():
        status, log = there.run(APP, config)
    assert status == "finished:completed", log[-3000:]
    frame = women()
    model = load_model(tmp_path / "out" / "model.json")
    predicted = model.predict_proba(frame)[:, 1]
    y = frame.affair.to_numpy()
    best = statsmodels.Logit(y, statsmodels.add_constant(frame.drop(columns="affair"))).fit(disp=0)
    loss = -np.mean(np.log(np.where(y == 1, predicted, 1 - predicted)))
    lowest, none = -best.llf / len(y), -best.llnull / len(y)
    assert lowest <= loss < lowest + 0.02 * (none - lowest)
