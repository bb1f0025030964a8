"""A SuperLink over TLS and three SuperNodes that Flower's own commands started.

Always on one SuperLink: the main job by `cohort coordinator run --superlink`, and an app with
secure sums by `flwr run`. COHORT_SLOW adds encrypted rows by `flwr run`, beside statsmodels.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ciphercohort.deploy.coordinator import Coordinator
from ciphercohort.results.predict import load_model
from coordinator.certificates import CA
from sims.lab.studies.flower.fleet import Fleet
from tests.flower.elsewhere import APP, EXACT, hospitals, women
from tests.flower.environment import ROOT

SKLEARN = ROOT / "examples" / "flower-quickstart-sklearn"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of hospitals and fleet."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def there(home: Path) -> Iterator[Fleet]:
    """Running; its nodes serve both apps."""
    nodes = [
        {**node, "partition-id": k, "num-partitions": 3}
        for k, node in enumerate(hospitals(home / "hospitals"))
    ]
    found = Fleet(home / "there", nodes, registered=False)
    with found.running():
        yield found


@pytest.mark.slow
def test_secure_sums_by_flwr_run(there: Fleet, tmp_path: Path) -> None:
    """The page's example: a client's memory is kept by Flower between processes of its own."""
    shutil.copytree(SKLEARN, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path / "model.npz"
    status, log = there.run(tmp_path / "app", {"num-server-rounds": 1, "out": str(out)})
    assert status == "finished:completed", log[-3000:]
    # One reply, which is the mean of three.
    assert "Received 1 results and 0 failures" in log and "mean of 3 clients" in log
    assert all(np.isfinite(array).all() and array.any() for array in np.load(out).values())


@pytest.mark.slow
def test_a_run_by_an_address(there: Fleet, home: Path, tmp_path: Path) -> None:
    """One iteration with noise: documents come back in the log."""
    schema = home / "hospitals" / "schema.json"
    fields = json.loads(schema.read_text())
    schema.write_text(json.dumps({**fields, "row_norm": 3.0}))
    options = {"protocol": "secure-aggregation", "update": "gd", "iterations": 1}
    centre = Coordinator.init(tmp_path / "centre", schema=schema, epsilon=1.0, **options)
    told: list[str] = []
    model = centre.run_on(there.control, root_certificates=there.folder / CA, tell=told.append)
    assert np.isfinite(model.weights).all() and np.abs(model.weights).max() > 0
    (out,) = (path.parent for path in (tmp_path / "centre").rglob("certificate.json"))
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["satisfied"] and certificate["inputs"] == {"schema": "given"}
    members = [member["name"] for member in json.loads((out / "plan.json").read_text())["members"]]
    assert members == ["hospital-a", "hospital-b", "hospital-c"]
    homes = [home / "hospitals" / f"home{k}" for k in range(3)]
    assert all((home / "ledger.jsonl").exists() for home in homes)


@pytest.mark.slow
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
