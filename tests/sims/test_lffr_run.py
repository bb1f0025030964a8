"""LFFR from the command to its folder, on the toy ring (INSECURE, for tests only)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from ciphercohort import FederatedRegression
from parties.budget import recompute
from parties.data.encode import encode_shard
from parties.data.schema import Schema
from protocols.errors import PolicyError
from protocols.plans import plan_from_dict
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.calibrate.regression import largest_lffr_rate
from sims import cli
from sims.config import SimulationConfig
from sims.figures import figures_of
from sims.predict import load_model
from sims.prepare import prepare
from sims.verify import verify_run
from tests.helpers import Floats
from tests.sims.test_calibration import make_frame
from tests.sims.test_regression_run import LFFR, simulate, tables, tampered

__all__ = ["tables"]
PRIVATE = ("--epsilon", "5", "--colluders", "1", "--iterations", "4")


def run(tables: tuple[Path, Path, Path], name: str, *words: str | Path) -> tuple[Path, Any]:
    out = tables[0].with_name(name)
    result = simulate(tables, *LFFR, "--out", out, "--keep-messages", "--json", *words)
    assert result.exit_code == 0, result.stderr
    return out, json.loads(result.stdout)


@pytest.fixture(scope="module")
def plain(tables: tuple[Path, Path, Path]) -> tuple[Path, Any]:
    return run(tables, "lffr", "--no-privacy", "--iterations", "6")


@pytest.fixture(scope="module")
def private(tables: tuple[Path, Path, Path]) -> tuple[Path, Any]:
    return run(tables, "lffr-private", *PRIVATE)


def textbook(x: Floats, y: Floats, iterations: int, offset: float = 0.01) -> Floats:
    """Section 3.2 of multi-output LFFR: every step by 1 / b_k, b_k from row sums."""
    b = offset + 0.155 / len(x) * (np.abs(x).T @ np.abs(x).sum(axis=1))
    w = np.zeros((x.shape[1], y.shape[1]))
    for _ in range(iterations):
        z = x @ w
        p = 0.5 + 0.19824 * z - 0.0044650 * z**3
        w -= x.T @ (2 * (p - y) * p * (1 - p)) / len(x) / b[:, None]
    return w


def test_encrypted_is_the_twin_and_learns(
    plain: tuple[Path, Any], tables: tuple[Path, Path, Path]
) -> None:
    """Against a loop written here, to what the encrypted inverse of b leaves."""
    out, summary = plain
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-4)
    assert (
        summary["protocol"] == "encrypted-rows"
        and summary["model"] == "lffr"
        and summary["update"] == "fixed-hessian"
    )
    assert min(summary["r2"]) > 0.3
    shard = encode_shard(pd.read_csv(tables[0]), Schema.load(tables[2]), False)
    own = textbook(shard.x, shard.y, 6)
    weights = np.array(json.loads((out / "model.json").read_text())["weights"])
    np.testing.assert_allclose(weights, own, atol=0.01 * np.abs(own).max())


def test_predictions_follow_the_links_words(
    plain: tuple[Path, Any], tables: tuple[Path, Path, Path]
) -> None:
    fields = json.loads((plain[0] / "model.json").read_text())
    frame = pd.read_csv(tables[1]).query("abs(a) < 0.9 and abs(b) < 0.9")
    raw = frame.assign(**{f"ward={w}": 1.0 * (frame["ward"] == w) for w in "AB"})
    z = raw[fields["features"]].to_numpy(dtype=float) @ np.array(fields["coef"]).T
    columns = fields["schema"]["label"]["targets"]
    low, high = (np.array([c[name] for c in columns]) for name in ("low", "high"))
    own = low + (high - low) / (1 + np.exp(-z - np.array(fields["intercept"])))
    model = load_model(plain[0] / "model.json")
    np.testing.assert_allclose(model.predict(frame).to_numpy(), own, rtol=1e-9)
    assert "gamma" not in fields["link"] and "exp(-z)" in fields["link"]["meaning"]


def test_folders_verify_and_are_reproduced(
    plain: tuple[Path, Any], private: tuple[Path, Any], tables: tuple[Path, Path, Path]
) -> None:
    for out, extra in ((plain[0], set()), (private[0], {"certificate"})):
        checks = {check.name: check for check in verify_run(out, tables[1])}
        assert all(check.passed for check in checks.values()), checks
        assert {"test scores", "figures", "model"} | extra <= set(checks)
        audited: Result = CliRunner().invoke(cli.app, ["audit", "transcript", str(out)])
        assert audited.exit_code == 0, audited.output


def test_privacy_is_certified(private: tuple[Path, Any]) -> None:
    out, summary = private
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["method"] == "lffr" and certificate["satisfied"]
    setting, figures = certificate["setting"], certificate["figures"]
    assert summary["privacy"]["epsilon"] == 5.0 and setting["budget"]["colluders"] == 1
    # D = 2 B sqrt(c) 8/27, and sigma of T Gaussian rounds: at least sqrt(T) D / (N epsilon).
    exact = 2 * setting["norm_bound"] * np.sqrt(2) * 8 / 27
    assert figures["D"] == pytest.approx(exact, rel=1e-6)
    assert setting["sigma"] > 2 * exact / (240 * 5)
    assert figures["reached"] <= figures["R"]
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-4)
    assert summary["update"] == "gd"
    assert any("learning_rate=" in words for words in summary["warnings"])


@pytest.mark.parametrize(
    ("name", "path", "value", "expected"),
    [
        ("model.json", ("coef", 0, 1), 0.0, "model"),
        ("certificate.json", ("setting", "eta"), 1e-3, "certificate"),
        ("certificate.json", ("setting", "budget", "colluders"), 0, "certificate"),
        ("certificate.json", ("figures", "reached"), 0.0, "certificate"),
        ("summary.json", ("ridge",), 1.0, "figures"),
    ],
)
def test_a_changed_figure_is_found(
    private: tuple[Path, Any], tmp_path: Path, name: str, path: Any, value: Any, expected: str
) -> None:
    assert expected in tampered(private[0], tmp_path, name, *path, value=value)


def test_a_party_recomputes_the_cost(private: tuple[Path, Any]) -> None:
    """A plan with less noise, or a faster walk, is refused by every party."""
    fields = json.loads((private[0] / "plan.json").read_text())
    del fields["digest"]
    norm = json.loads((private[0] / "certificate.json").read_text())["setting"]["norm_bound"]
    cost = recompute(plan_from_dict(fields), norm)
    assert 0 < cost.epsilon <= 5 * (1 + 1e-9) and cost.certificate.method == "lffr"
    privacy = fields["privacy"]
    quiet = {k: privacy[k] / 2 for k in ("sigma", "share_std")}
    for change in (
        {"privacy": privacy | quiet},
        {"privacy": privacy | {"sensitivity": privacy["sensitivity"] / 2}},
        {"privacy": privacy | {"share_std": privacy["share_std"] / 2}},
        {"learning_rate": fields["learning_rate"] * 1.5},
    ):
        with pytest.raises(PolicyError):
            recompute(plan_from_dict({**fields, **change}), norm)
    with pytest.raises(PolicyError):
        recompute(plan_from_dict(fields), 2 * norm)


def test_the_report_names_the_model(plain: tuple[Path, Any], private: tuple[Path, Any]) -> None:
    text = (plain[0] / "report.html").read_text()
    for words in ("(LFFR)", "encrypted rows", "fixed Hessian", "No privacy noise"):
        assert words in text
    assert "encrypted sums" not in text
    assert "Conditions of the theorem" in (private[0] / "report.html").read_text()


def test_the_estimator() -> None:
    frame = make_frame(120)
    options = {"model": "lffr", "targets": ["cost", "days"], "profile": "fast-insecure"}
    model = FederatedRegression(**options, epsilon=None, iterations=3).fit(frame)
    assert model.coef_.shape == (2, 4) and model.predict(frame).shape == (120, 2)
    assert model.score(frame, frame[["cost", "days"]]) > 0


def test_the_rate_is_the_largest_that_stays_in_the_interval() -> None:
    """A stricter promise has a lower one; a step of 1 / 1000 more leaves the ball."""
    rates = []
    for epsilon in (0.5, 5.0):
        config = SimulationConfig(
            data=make_frame(120), model="lffr", targets=("cost", "days"), epsilon=epsilon, seed=1
        )
        data = prepare(config, np.random.default_rng(1))
        figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
        found = largest_lffr_rate(figures, Wanted.of(config)).setting
        largest = 1 / (0.155 * found.norm_bound**2)
        rates.append(found.eta)
        assert found.reached() <= found.radius and found.eta <= largest
        beyond = replace(found, eta=1.001 * found.eta)
        assert found.eta == largest or beyond.reached() > found.radius
    assert rates[0] < rates[1]
