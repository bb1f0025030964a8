"""Agents vanish, restart and come back while others stand in for them. INSECURE toy ring."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ciphercohort.report.status_page import page, status_tables
from coordinator.errors import LostError
from coordinator.log import FOLDER, TRANSCRIPT, MessageLog, rebuild_transcript, recorded_finish
from coordinator.replay import replay
from coordinator.status import read_status
from parties.agent.vault import Vault
from protocols.exchange.messages import public_bytes
from protocols.plan.run_plan import Member
from protocols.rows.plan import RowsPlan
from tests.coordinator import test_deployment
from tests.parties import agents
from tests.parties.agents import PASSPHRASE
from tests.support.helpers import log2_error, make_plan

NAMES = tuple(f"hospital-{k}" for k in (1, 2, 3, 4))
LOST = NAMES[1]


class Centre(test_deployment.Centre):
    """Four parties, any two of which stand in for others; LOST vanishes at a step."""

    at, back = "refresh/0", False

    def plan(self, digest: str) -> RowsPlan:
        members = tuple(
            Member(name=name, rows=4, verify_key=key, commitment="00" * 32)
            for name, key in self.keys.items()
        )
        shape: dict[str, Any] = {"rounds": 3, "degree": 3, "update": "gd", "ring_dim": 512}
        rows = (4,) * 4
        return make_plan(rows=rows, members=members, schema={"digest": digest}, cover=2, **shape)

    def losing(self, step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """A transport on which LOST is not there, from `at` on, but for the end."""
        gone = self.back and step != "abort"
        gone = self.back = gone or step == self.at
        for name, data in outgoing.items():
            if name != LOST or not gone:
                yield name, self.ask(step, {name: data})[name]
        if gone and LOST in outgoing:
            raise LostError(f"no reply to {step!r} from {LOST}", (LOST,))

    def finished(self, session: str) -> dict[str, Any]:
        """The status, once everything that was recorded has been checked."""
        folder = self.settings.session_folder(session)
        assert log2_error(self.weights(session), self.twin()) < -17
        log = MessageLog(folder)
        log.check(session, self.keys)
        log.check_strays()
        assert {step.name: step.lost for step in log.steps if step.lost} == {self.at: (LOST,)}
        assert not replay(folder).passed
        assert replay(folder, statements=[self.agents.agents[LOST].statement()]).passed
        assert json.loads((folder / "outcome.json").read_text())["missing"] == [LOST]
        status = read_status(folder)
        assert status is not None
        assert (status["state"], status["reason"], status["missing"]) == ("finished", "", [LOST])
        return status


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def centre(tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Centre:
    monkeypatch.setattr(agents, "SMALL", agents.SMALL | {"parties": 4, "rounds": 3, "cover": 2})
    monkeypatch.setattr(test_deployment, "NAMES", NAMES)
    return Centre(tmp_path, vault)


@pytest.mark.parametrize("step", ["refresh/0", "decrypt"])
def test_a_lost_party_is_told_at_the_end(centre: Centre, step: str) -> None:
    """Nothing of its key share, or of the shares that others hold, is left anywhere."""
    centre.at = step
    session, _ = centre.begin()
    centre.serve(session, centre.losing)
    status = centre.finished(session)
    screen = Console(width=100, record=True, file=StringIO())
    for table in status_tables([status]):
        screen.print(table)
    words = f"{LOST} (missing: others stand in)"
    assert words in screen.export_text() and words in page([status])
    assert centre.asked[-1] == ("abort", LOST)
    assert centre.forgotten()


@pytest.mark.parametrize("step", ["refresh/1", "decrypt"])
def test_coordinator_and_agents_die_at_every_message(centre: Centre, step: str) -> None:
    """What was settled stays settled, though the lost party is back: who stands in, for whom."""
    centre.at, steps = step, list[str]()
    session, folder = centre.begin()

    def dying(current: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        steps.append(current)
        if len(steps) % 2 and current not in ("abort", step):
            first = next(iter(outgoing))
            centre.ask(current, {first: outgoing[first]})
            raise KeyboardInterrupt  # one party has answered, and its reply is lost
        yield from centre.losing(current, outgoing)

    for _ in range(100):
        try:
            centre.serve(session, dying)
            break
        except KeyboardInterrupt:
            centre.back = False  # the lost party answers again, if it is asked
            for name in NAMES:
                centre.agents.restart(name)
    assert centre.finished(session)["attempts"] > 5
    after = centre.asked[[s for s, _ in centre.asked].index(f"cover-{step}") :]
    assert {s for s, name in after if name == LOST} == {"abort"}
    # The chain of the recorded messages is the one that was written.
    before = (folder / TRANSCRIPT).read_bytes()
    key = public_bytes(centre.agents.session.coordinator_key)
    rebuild_transcript(folder / FOLDER, folder / TRANSCRIPT, centre.keys, key)
    assert (folder / TRANSCRIPT).read_bytes() == before


def test_weights_count_once_all_who_are_left_are_told(centre: Centre) -> None:
    session, folder = centre.begin()
    messages = folder / FOLDER
    key = public_bytes(centre.agents.session.coordinator_key)
    with pytest.raises(KeyboardInterrupt):
        centre.serve(session, test_deployment.dies_before("finish", centre.losing))
    done = recorded_finish(messages, NAMES, key)
    assert done is not None and tuple(done.requests) == (NAMES[0], *NAMES[2:])
    last = sorted(messages.glob("*.msg"))[-1]
    kept = last.read_bytes()
    last.unlink()
    assert recorded_finish(messages, NAMES, key) is None
    last.write_bytes(kept)
    centre.serve(session, centre.losing)
    centre.finished(session)
