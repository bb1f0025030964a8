"""The main job as a Flower app, on a grid that this project does not operate.

Each site starts an agent of its own, in a process of its own; the grid calls the app for every
message. `tests.flower.elsewhere` has the same on a SuperLink over TLS.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ciphercohort.deploy import flower_job
from ciphercohort.deploy.flower_job import result_lines, results_in, run_job
from ciphercohort.flower.in_process import InProcessGrid
from ciphercohort.results.predict import load_model
from ciphercohort.verify.folder import verify_run
from parties import flower_site
from parties.reader.schema import Schema
from parties.reader.shard import encode_shard
from protocols.errors import CohortError
from sims.lab.studies.flower.workloads import App
from tests.flower.environment import ROOT

FOLDER = ROOT / "examples" / "flower-regression"
NODES = (101, 102, 103)
TOY = {"cohort-allow-insecure": True}
QUICK = {"join_seconds": 0.5}


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the sites' agents."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    for agent in flower_site._AGENTS:
        agent.wait(30)


@pytest.fixture(scope="module")
def app() -> App:
    """What `flwr run .` starts in the repository's root: the same app."""
    return App(ROOT)


def grid_of(app: App, **by_node: Mapping[str, Any]) -> InProcessGrid:
    """Three sites; by_node: settings of single ones, by their number."""
    nodes = {
        node: {
            "partition-id": k,
            "num-partitions": len(NODES),
            **TOY,
            **by_node.get(f"n{node}", {}),
        }
        for k, node in enumerate(NODES)
    }
    return InProcessGrid(app.component("clientapp")[1], nodes, app.config)


def config_of(app: App, out: Path, protocol: str, **changes: Any) -> dict[str, Any]:
    config = {**app.config, "protocol": protocol, "out": str(out)}
    return {**config, **{name.replace("_", "-"): value for name, value in changes.items()}}


def agents(scratch: Path) -> list[int]:
    """Processes of hosted agents below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()  # empty of one that ended
            if b"parties.agent.hosted" in words and str(scratch) in os.readlink(entry / "cwd"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def all_gone(scratch: Path) -> bool:
    for _ in range(200):
        if not agents(scratch):
            return True
        time.sleep(0.1)
    return False


SCHEMA = FOLDER / "joint_model" / "schema.json"


# With 1.30 secure aggregation's is on a SuperLink: test_elsewhere.py.
PROTOCOLS = ["encrypted-rows", "encrypted-model"]
PROTOCOLS += ["secure-aggregation"] if sys.version_info >= (3, 12) else []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_to_its_last_file(app: App, protocol: str, scratch: Path, capsys: Any) -> None:
    out = scratch / "out"
    toy = {} if protocol == "secure-aggregation" else {"profile": "fast-insecure"}
    run = run_job(grid_of(app), config_of(app, out, protocol, log_results=True, **toy), SCHEMA)
    assert [member.name for member in run.plan.members] == ["site-0", "site-1", "site-2"]
    for name in ("model.json", "plan.json", "certificate.json", "run.json", "report.html"):
        assert (out / name).stat().st_size > 100, name
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["satisfied"] and certificate["inputs"] == {"schema": "given"}
    assert np.abs(load_model(out / "model.json").weights).max() > 1e-3
    # The log alone has them as well.
    logged = results_in(capsys.readouterr().out)
    assert logged == {name: (out / name).read_bytes() for name in logged} and len(logged) == 6
    assert all(each.passed for each in verify_run(out))
    assert all_gone(scratch)


@pytest.mark.slow
def test_exact_sums_reach_scikit_learns_optimum(app: App, scratch: Path) -> None:
    """An outside truth: on the same encoded rows."""
    terms = {"cohort-exact-sums": True, "cohort-min-colluders": 0}
    grid = grid_of(app, **{f"n{node}": terms for node in NODES})
    asked = {"no_privacy": True, "iterations": 60, "update": "nag"}
    run_job(grid, config_of(app, scratch / "out", "secure-aggregation", **asked), SCHEMA)
    shards = [encode_shard(rows_of(k), Schema.load(SCHEMA)) for k in range(3)]
    x, y = (np.concatenate([getattr(s, name) for s in shards]) for name in "xy")
    best = LogisticRegression(C=np.inf, fit_intercept=False, max_iter=10_000).fit(x, y).coef_[0]
    weights = load_model(scratch / "out" / "model.json").weights
    lost = [log_loss(y, 1 / (1 + np.exp(-x @ w))) for w in (weights, best, 0 * best)]
    assert lost[1] <= lost[0] < lost[1] + 0.02 * (lost[2] - lost[1])


def rows_of(partition: int) -> Any:
    data = import_module("examples.flower-regression.joint_model.data")
    node = {"partition-id": partition, "num-partitions": 3}
    return data.load_rows(SimpleNamespace(node_config=node))


def refused(app: App, scratch: Path, words: str, config: Mapping[str, Any], **nodes: Any) -> None:
    wanted = config_of(app, scratch / "out", **{"protocol": "secure-aggregation", **config})
    with pytest.raises(CohortError, match=words):
        run_job(grid_of(app, **nodes), wanted, SCHEMA)
    assert not (scratch / "out").exists() and all_gone(scratch)


@pytest.mark.parametrize(
    ("words", "config"),
    [
        ("run-config epsilom is none of .*did you mean", {"epsilom": 1.0}),
        ("protocol='rows'", {"protocol": "rows"}),
        ("3 of 4 sites have joined", {"parties": 4, "join_seconds": 3.0}),
    ],
)
def test_a_run_that_cannot_be_says_why(
    app: App, scratch: Path, words: str, config: Mapping[str, Any]
) -> None:
    refused(app, scratch, words, config)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("is none of cohort-data", {"cohort-dta": "rows.csv"}),
        ("rows.csv' is not there", {"cohort-data": "rows.csv", "cohort-schema": str(SCHEMA)}),
        ("no schema of its rows", {"cohort-data": "rows.csv"}),
        ("this site takes 00", {"cohort-coordinator": "00" * 32}),
        ("max_epsilon=-1", {"cohort-max-epsilon": -1.0}),
    ],
)
def test_a_site_that_cannot_take_part_says_why_to_its_owner_alone(
    app: App, scratch: Path, words: str, settings: Mapping[str, Any], caplog: Any
) -> None:
    grid = grid_of(app, n101=settings)
    schema = ConfigRecord({"coordinator": "ab" * 32, "schema": SCHEMA.read_text()})
    with caplog.at_level(logging.INFO, logger="flwr.ciphercohort"):
        reply = ask(grid, "join", schema)
    assert reply.has_error() and not re.search(words, str(reply.error))
    assert re.search(words, caplog.text) and all_gone(scratch)


def test_a_run_without_enough_sites_says_how_many_do_not_take_part(
    app: App, scratch: Path, caplog: Any
) -> None:
    with caplog.at_level(logging.INFO, logger="flwr.ciphercohort"):
        away = {"cohort-dta": "rows.csv"}
        refused(app, scratch, "2 of 3 sites.*1 nodes do not take part", QUICK, n102=away)
    assert "node 102 does not take part" in caplog.text


def test_two_sites_of_one_name_are_refused(app: App, scratch: Path) -> None:
    same = {"cohort-name": "hospital"}
    refused(app, scratch, "more than one is called hospital", QUICK, n101=same, n103=same)


def test_a_site_that_pins_others_refuses_the_run(app: App, scratch: Path) -> None:
    pins = scratch / "pins"
    pins.write_text("ab" * 32)
    words = "'site-1' refuses.*does not know 'site-0'"
    refused(app, scratch, words, {"iterations": 2}, n102={"cohort-pins": str(pins)})


@pytest.mark.slow
def test_an_owners_budget_outlives_a_run(
    app: App, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = scratch / "home"
    node, asked = {"n102": {"cohort-home": str(home)}}, {"iterations": 2, "update": "gd"}
    config = config_of(app, scratch / "first", "secure-aggregation", **asked)
    first = run_job(grid_of(app, **node), config, SCHEMA)
    key = (home / "identity.key").read_bytes()
    assert (home / "ledger.jsonl").exists() and first.plan.privacy is not None
    # The next run, on the same node and on one with another number and name.
    for k, again in enumerate((node, {"n103": {**node["n102"], "cohort-name": "another"}})):
        (scratch / f"run{k}").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch / f"run{k}"))
        refused(app, scratch, "budget|ledger", asked, **again)
    assert (home / "identity.key").read_bytes() == key


@pytest.mark.parametrize("data", [True, False])
def test_by_another_schema_no_row_is_read(
    app: App, scratch: Path, data: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that fit, or do not, would tell a coordinator whose label stands among them.

    The file of rows is not there: whoever looked for it would say so.
    """
    own = {"cohort-data": str(scratch / "none.csv"), "cohort-schema": str(SCHEMA)} if data else {}
    fields = json.loads(SCHEMA.read_text())
    for change in (
        {"label": {**fields["label"], "positive": "somebody"}},
        {"columns": fields["columns"][1:]},
        {"columns": [{**fields["columns"][0], "high": 27.0}, *fields["columns"][1:]]},
        {"row_norm": 1.0},
    ):
        caplog.clear()
        asked = ConfigRecord({"coordinator": "ab" * 32, "schema": json.dumps({**fields, **change})})
        assert ask(grid_of(app, n101=own), "join", asked).has_error()
        assert "another column schema than this site reads its rows by" in caplog.text
    assert not agents(scratch)


def test_a_site_takes_one_list_of_members(app: App, scratch: Path) -> None:
    """A second list could add a member that nobody noted."""
    grid, key = grid_of(app), "ab" * 32
    schema = ConfigRecord({"coordinator": key, "schema": SCHEMA.read_text()})
    assert not ask(grid, "join", schema).has_error()
    listed = {"site-0": "cd" * 32}
    assert not ask(grid, "members", ConfigRecord(listed)).has_error()
    assert not ask(grid, "members", ConfigRecord(listed)).has_error()
    assert ask(grid, "members", ConfigRecord({**listed, "site-9": "ef" * 32})).has_error()
    assert not ask(grid, "leave", ConfigRecord({})).has_error()
    assert all_gone(scratch)
    # Nor does who has left come back, for another coordinator's list.
    other = ConfigRecord({"coordinator": "ef" * 32, "schema": SCHEMA.read_text()})
    assert ask(grid, "join", other).has_error() and ask(grid, "join", schema).has_error()
    assert not agents(scratch)


def ask(grid: InProcessGrid, kind: str, record: ConfigRecord) -> Message:
    message = Message(RecordDict({kind: record}), NODES[0], f"query.{kind}", group_id=kind)
    (reply,) = grid.pull_messages(grid.push_messages([message]))
    return reply


def test_documents_in_a_log_are_whole_or_left_out() -> None:
    data = os.urandom(30_000)
    lines = [f"INFO :   {line}" for line in result_lines("model.json", data)]
    assert len(lines) > 3
    other = list(result_lines("plan.json", b"{}"))
    assert results_in("\n".join([*lines, "else", *other])) == {
        "model.json": data,
        "plan.json": b"{}",
    }
    assert results_in("\n".join([*lines[1:], *other])) == {"plan.json": b"{}"}


@pytest.mark.parametrize("place", ["1/1", "1/²", "1/1e3", "-1/1", f"{'9' * 5000}/1", "/", "1"])
@pytest.mark.parametrize("text", ["%%%", "AAAA", "bomb"])
def test_a_log_is_anybodys_word(place: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged documents, and those that would fill the memory, are left out."""
    monkeypatch.setattr(flower_job, "_LONGEST_DOCUMENT", 1 << 16)
    bomb = base64.b64encode(zlib.compress(bytes(1 << 17))).decode()
    line = f"{flower_job.MARK} model.json {place} {bomb if text == 'bomb' else text}"
    good = list(result_lines("plan.json", bytes(1 << 16)))
    assert results_in("\n".join([line, *good])) == {"plan.json": bytes(1 << 16)}
