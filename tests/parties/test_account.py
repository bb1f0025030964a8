"""A run counts once in its owner's ledger, whenever the agent dies. INSECURE rings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parties.account import Account
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.kernel.sums.session import SumsSession
from parties.verifier.party import Party
from protocols.errors import PolicyError, PrivacyError
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger
from tests.parties.agents import PASSPHRASE, Agents
from tests.support.helpers import log2_error

NAME = "hospital-1"
EVENT = GaussianEvent(noise_multiplier=10.0)
COST = Mechanism(
    certificate=Certificate(method="none", setting=None, conditions=(), figures={}, events=(EVENT,))
)


class Died(BaseException):
    """kill -9 of one agent."""


class Keeping(Agents):
    """Agents whose parties keep a ledger each."""

    def ledger(self, name: str) -> Ledger:
        return Ledger(path=self.folder / f"{name}.jsonl", epsilon=1.0, delta=1e-5)

    def make_party(self, name: str) -> Party:
        party = super().make_party(name)
        party.run.account = Account(self.ledger(name), "rows")
        return party

    def kinds(self, name: str) -> list[str]:
        """Lines of the ledger."""
        lines = self.ledger(name).path.read_text().splitlines()
        return [json.loads(line)["kind"] for line in lines]


@pytest.mark.parametrize(
    ("step", "lost"),
    [
        ("enrol", "save"),
        ("enrol", "begin"),
        ("agree", "save"),
        ("contribute", "save"),
        ("decrypt", "save"),
        ("finish", "end"),
    ],
)
def test_an_agent_that_dies_before_it_notes_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, lost: str
) -> None:
    """The step was carried out, and neither its reply nor the new state has left memory."""
    monkeypatch.setattr("parties.verifier.party.recompute", lambda plan, bound: COST)
    agents = Keeping(tmp_path, Vault(PASSPHRASE))

    def die(*arguments: Any) -> None:
        raise Died

    def ask(now: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if now == step:
            with monkeypatch.context() as patch, pytest.raises(Died):
                patch.setattr(SessionStore, lost, die)
                agents.agents[NAME].handle(outgoing[NAME])
            agents.restart(NAME)
        return agents.ask(now, outgoing)

    assert log2_error(agents.session.run(ask).weights, agents.session.twin()) < -17
    for name in agents.agents:
        assert agents.kinds(name) == ["reserve", "spend", "commit"]
    record = SessionStore(tmp_path / NAME, None).record(agents.session.coordinator.session)
    assert record is not None and record.reason == "finished"


def test_a_name_is_reserved_once(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "ledger", epsilon=1.0, delta=1e-5)
    assert not ledger.is_open("run")
    for _ in range(3):
        assert ledger.reserve("rows", [EVENT], identifier="run") == "run"
    assert ledger.spent("rows").runs == 1 and ledger.is_open("run")
    with pytest.raises(PrivacyError, match="another run"):
        ledger.reserve("rows", [EVENT, EVENT], identifier="run")
    ledger.commit("run")
    assert not ledger.is_open("run")
    with pytest.raises(PrivacyError, match="another run"):
        ledger.reserve("rows", [EVENT], identifier="run")


def test_a_restored_account_of_a_closed_run_is_over(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "ledger", epsilon=1.0, delta=1e-5)
    account = Account(ledger, "rows")
    account.reserve(COST, "run")
    account.spend()
    state = account.state()
    account.commit()
    again = Account(ledger, "rows")
    again.restore(state)
    again.commit()  # nothing is open: not an error
    assert ledger.spent("rows").runs == 1


def test_encrypted_sums_keep_their_secret_in_memory() -> None:
    session = SumsSession.__new__(SumsSession)
    session._share = None
    session.state()
    session._share = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(PolicyError, match="in memory only"):
        session.state()
