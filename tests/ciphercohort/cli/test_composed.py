"""Epsilon of all rounds composed beside the promise: certificate, consent, console and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ciphercohort
from ciphercohort.cli.console import closing_lines
from ciphercohort.report.report import render_report
from ciphercohort.verify.folder import verify_run
from parties.agent.manifest import describe_plan
from protocols.words import HOLDS, count, number
from tests.sims.model_runs import cohort

ROWS = np.random.default_rng(3).uniform(-1, 1, (300, 3))
FRAME = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(y=(ROWS[:, 0] > 0).astype(int))
SUMS: dict[str, Any] = {"protocol": "secure-aggregation"}
RUNS: dict[str, dict[str, Any]] = {
    "sums": SUMS | {"iterations": 3, "update": "nag"},
    "secret batches": SUMS
    | {"update": "scd", "batches": 4, "schedule": "poisson", "iterations": 4},
    "encrypted rows": {
        "profile": "fast-insecure",
        "update": "gd",
        "iterations": 2,
        "degree": 3,
    },
}


@pytest.mark.parametrize("kind", RUNS)
def test_it_stands_in_every_report(kind: str, tmp_path: Path) -> None:
    options = {"data": FRAME, "label": "y", "epsilon": 3.0, "colluders": 1} | RUNS[kind]
    result = ciphercohort.simulate(**options, out=tmp_path / "run")
    release = tmp_path / "run" / "release"
    certificate = json.loads((release / "certificate.json").read_text())
    composed = certificate["epsilon_composed"]
    assert certificate["epsilon_holds"] == HOLDS and len(composed) == len(certificate["epsilon"])
    own = composed[1]
    assert (own > 1.01 * 3.0) == (kind == "secret batches")
    assert f"all rounds composed: epsilon={own:.4g}; {HOLDS}" in list(closing_lines(result))
    for half in (release, tmp_path / "run" / "private"):
        page = (half / "report.html").read_text()
        assert "ε of all rounds composed" in page and number(own) in page and HOLDS in page
    assert f"ε = {number(own)}; {HOLDS}" in result._repr_html_()
    told = describe_plan(result.plan, result.plan.names[0], result.schema.norm_bound)
    assert "with your noise" in told and "without noise" not in told
    for k, (epsilon, all_rounds) in enumerate(zip(certificate["epsilon"], composed, strict=True)):
        who = f"and {count(k, 'other owner')}" if k else "alone"
        assert f"towards the coordinator {who}: epsilon={epsilon:.4g}" in told
        assert f"of all rounds composed {all_rounds:.4g}" in told
    assert f"  {HOLDS}" in told
    assert not any("epsilon_composed" in check.detail for check in verify_run(tmp_path / "run"))
    certificate["epsilon_composed"] = [each / 2 for each in composed]
    (release / "certificate.json").write_text(json.dumps(certificate))
    assert any("epsilon_composed" in check.detail for check in verify_run(tmp_path / "run"))


@pytest.mark.parametrize("kind", ["sums", "encrypted rows"])
def test_a_consent_to_no_noise_speaks_of_none(kind: str) -> None:
    result = ciphercohort.simulate(data=FRAME, label="y", no_privacy=True, **RUNS[kind])
    told = describe_plan(result.plan, result.plan.names[0], result.schema.norm_bound)
    assert "without noise" in told and "NO NOISE" in told
    assert "with your noise" not in told and "noise included" not in told
    page = render_report(result)
    assert ("were opened, as exact sums" in page) == (kind == "sums")
    assert not any("certified ridge" in note for note in result.public_warnings)


def test_a_forecast_has_it_too() -> None:
    words = ("plan", "--rows", 3000, "--features", 4, "--update", "gd", "--epsilon", 2)
    shown = cohort(*words, "--no-timing")
    assert HOLDS in " ".join(shown.stdout.split())
    found = json.loads(cohort(*words, "--no-timing", "--json").stdout)
    assert found["epsilon_composed"] == pytest.approx(found["epsilon"], rel=1e-9)
