"""Simulations in which a party vanishes: models, folders and words. INSECURE toy rings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.layout import RELEASE
from ciphercohort.verify.folder import verify_run
from coordinator.replay import CHECKS, replay
from parties.agent.manifest import describe_plan
from parties.policy import Policy
from protocols.errors import ParameterError, PolicyError
from protocols.plan.kinds import plan_from_dict
from protocols.plan.statement import make_statement
from sims.party_process import PartyProcess, PartySpec
from sims.simulation import simulate
from tests.sims.model_runs import Tables, cohort
from tests.support.helpers import NOISE, make_plan
from tests.support.rehearsals import BLOB

TOY = {"profile": "fast-insecure", "parties": 4, "cover": 2, "seed": 3}


class Mortal:
    """A simulated party that dies at a step."""

    def __init__(self, spec: PartySpec, step: bytes) -> None:
        self.party, self.step, self.dead = build(spec), step, False
        self.key = Ed25519PrivateKey.from_private_bytes(spec.signing_key)

    def handle(self, data: bytes) -> bytes:
        self.dead |= self.step in data[:400]
        if self.dead:
            raise ConnectionError("gone")
        return self.party.handle(data)

    def close(self) -> None:
        self.party.close()


build = PartySpec.build


def dies(patch: pytest.MonkeyPatch, name: str, step: str) -> list[Mortal]:
    """The party of this name vanishes at a step, for good; once built, it is in the list."""
    wanted, found = f'"step":"{step}"'.encode(), list[Mortal]()

    def built(spec: PartySpec) -> Any:
        if spec.name != name:
            return build(spec)
        found.append(Mortal(spec, wanted))
        return found[-1]

    patch.setattr(PartySpec, "build", built)
    return found


@pytest.mark.parametrize(
    ("model", "step"), [("logistic", "refresh/1"), ("linear", "decrypt"), ("lffr", "decrypt")]
)
def test_every_protocol_goes_on(
    model: str, step: str, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, Gram sums and LFFR: the twin's model, a folder that verifies and replays.

    All with what the lost party says it was asked, and without it all but that.
    """
    lost = "party-2"
    dead = dies(monkeypatch, lost, step)
    data: dict[str, Any] = vars(tables) | {"data": tables.train}
    del data["train"]
    data |= {"model": model, "targets": ("cost", "days")}
    out = tmp_path / "run"
    result = simulate(
        SimulationConfig(
            **({"update": "gd"} if model == "logistic" else data),
            **TOY,
            rounds=3,
            out=out,
            keep_messages=True,
        )
    )
    assert result.missing == (lost,)
    assert result.max_abs_diff_to_twin < 1e-4
    # Who was lost says what it was asked: `cohort party statement`.
    (found,) = (each for each in dead if each.dead)
    stated = make_statement(result.plan.session, lost, found.party.seen, found.key)
    assert all(check.passed for check in verify_run(out, statements=[stated]))
    checks = {check.name: check.passed for check in replay(out / RELEASE).checks}
    assert list(checks) == list(CHECKS)
    assert [name for name, passed in checks.items() if not passed] == ["records"]
    summary = json.loads((out / "private/summary.json").read_text())
    assert summary["missing"] == [lost]
    assert any(f"stood in for {lost}" in text for text in summary["warnings"])
    page = (out / "private/report.html").read_text()
    assert f"stood in for {lost}" in page and "any 2 could stand in" in page


def test_the_command_states_what_cover_costs(tmp_path: Path) -> None:
    out = tmp_path / "run"
    toy = ("--profile", "fast-insecure", "--parties", "3", "--colluders", "1", "--cover", "2")
    words = ("--epsilon", 10, "--update", "gd", "--iterations", 2, "--json")
    result = cohort("simulate", *toy, *words, "--out", out)
    assert result.exit_code == 0, result.stderr
    fields = json.loads((out / "release/plan.json").read_text())
    plan = plan_from_dict({k: v for k, v in fields.items() if k != "digest"})
    assert plan.cover == 2  # type: ignore[attr-defined]
    certificate = json.loads((out / "release/certificate.json").read_text())
    assert any("fewer than 2 parties collude" in each for each in certificate["assumptions"])
    assert all(check.passed for check in verify_run(out)), verify_run(out)
    refused = cohort("simulate", *toy, "--colluders", "2")
    assert refused.exit_code == 2 and "take --cover 3 or more" in refused.stderr


def test_the_plan_states_what_cover_costs(quick_machine: None) -> None:
    shape = ("plan", "--rows", "900", "--features", "4", "--parties", "5")
    plain, covered = (
        cohort(*shape, "--no-privacy", *more, "--json") for more in ((), ("--cover", "3"))
    )
    bodies = [json.loads(result.stdout) for result in (plain, covered)]
    assert [body["cover"] for body in bodies] == [None, 3]
    # Shares for and from four others, of a kilobyte each here; bytes themselves: test_predicted.
    sizes = [body["bytes_per_party"]["keys"] for body in bodies]
    assert 2 * 2 * 4 * BLOB < sizes[1] - sizes[0] < 2 * 2 * 4 * BLOB + 8_000
    errors = [body["decryption"]["release_error_std"] for body in bodies]
    assert errors[1] == pytest.approx(np.sqrt(2) * errors[0])
    screen = cohort(*shape, "--no-privacy", "--cover", "3").stdout.replace("\n", " ")
    assert "up to 2 parties may vanish" in screen and "any 3 that collude have every key" in screen


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cover": 1}, "cover=1 is outside 2"),
        ({"cover": 4, "parties": 4}, "cover=4 is outside 2"),
        ({"cover": 2, "epsilon": 1.0, "colluders": 2}, "take --cover 3 or more"),
        ({"cover": 2, "protocol": "secure-aggregation"}, "an option of --protocol encrypted-rows"),
    ],
)
def test_options_that_do_not_fit(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        SimulationConfig(**({"parties": 4} | fields))


def test_a_party_is_told_and_may_fear_more() -> None:
    plan = make_plan(rows=(4,) * 4, privacy=NOISE, cover=2)
    told = describe_plan(plan, "hospital-1", 1.0)
    assert "any 2 of the others can stand in for them" in told
    assert "any 2 parties that collude can read everybody's rows" in told
    assert "1 x shares of your key share" in told and "1 x nothing: you receive" in told
    assert "stand in" not in describe_plan(make_plan(rows=(4,) * 4), "hospital-1", 1.0)
    terms = {"allow_insecure": True, "max_epsilon": 1.0}
    Policy(**terms, min_colluders=1).check(plan)
    with pytest.raises(PolicyError, match="cover=2 gives 2 colluding parties every key"):
        Policy(**terms, min_colluders=2).check(plan)


def test_a_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned party is killed before a refresh."""
    handle, killed = PartyProcess.handle, list[str]()

    def killing(self: PartyProcess, data: bytes) -> bytes:
        if b'"step":"refresh/0"' in data[:400] and self.name == "party-2":
            self._process.kill()
            self._process.join()
            killed.append(self.name)
        return handle(self, data)

    monkeypatch.setattr(PartyProcess, "handle", killing)
    monkeypatch.setattr(
        PartySpec,
        "build",
        lambda spec: PartyProcess(spec) if spec.name == "party-2" else build(spec),
    )
    fields = TOY | {"parties": 3, "update": "gd"}
    result = simulate(SimulationConfig(**fields, rounds=2))
    assert killed == ["party-2"] == list(result.missing)
    assert result.max_abs_diff_to_twin < 1e-4
