"""A run that is over lets go of everybody, also of whoever waits for a person. INSECURE rings.

Every plan that waits, by each way in which its run ends.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parties.agent.agent import Agent
from parties.agent.settings import Limits
from parties.agent.store import STATE
from parties.agent.vault import Vault
from parties.launch import Lines
from protocols.errors import ParameterError
from protocols.exchange.messages import decode, public_bytes
from tests.parties.agents import PASSPHRASE, Agents
from tests.parties.test_asked import WIDE, tables
from tests.parties.test_exact_sums import B
from tests.support.helpers import Session, party_names
from tests.support.sessions import model_session, moment_session, small

(NAME,) = party_names(1)
SECONDS = 10.0
PLANS = pytest.mark.parametrize("make", [small, model_session, moment_session, tables])


@contextmanager
def waiting(
    folder: Path, make: Callable[[], Session], vault: Vault | None = None
) -> Iterator[Waiting]:
    """A session in which one party's `agree` waits for its owner."""
    session = make()
    for party in session.parties.values():
        party._policy = WIDE
    agents = Agents(folder, vault, session=session, ask=True, norm_bound=B)

    def ask(step: str, outgoing: Any) -> Any:
        if step == "agree":
            found.asked = outgoing[NAME]
            raise KeyboardInterrupt
        return agents.ask(step, outgoing)

    found = Waiting(agents)
    with pytest.raises(KeyboardInterrupt):
        session.run(ask)
    found.ask()
    yield found
    assert not any(thread.is_alive() for thread in found.threads)


class Waiting:
    """asked: the message that waits; answers: to each copy of it, in words."""

    asked = b""

    def __init__(self, agents: Agents) -> None:
        self.agents, self.answers = agents, list[str]()
        self.threads = list[threading.Thread]()

    @property
    def agent(self) -> Agent:
        return self.agents.agents[NAME]

    def ask(self) -> str:
        """Once more; the code by which its owner decides, once it waits."""
        agent, before = self.agent, self.agent.consent._pending.copy()
        self.threads.append(threading.Thread(target=self._deliver, args=(agent,), daemon=True))
        self.threads[-1].start()
        with agent.consent._changed:
            assert agent.consent._changed.wait_for(
                lambda: (
                    agent.consent._pending.keys()
                    and list(agent.consent._pending.values()) != list(before.values())
                ),
                SECONDS,
            )
        (code,) = agent.consent.pending()
        return code

    def _deliver(self, agent: Agent) -> None:
        self.answers.append(self.words(agent.handle(self.asked)))

    def words(self, reply: bytes) -> str:
        key = public_bytes(self.agents.session.party_keys[NAME])
        return str(decode(reply, key).body.meta.get("error", ""))

    def tell(self, step: str, session: str = "", **meta: Any) -> str:
        return self.words(self.agent.handle(self.agents.request(step, NAME, session, **meta)))

    def answered(self) -> str:
        """What the last copy was answered, within seconds."""
        self.threads[-1].join(SECONDS)
        return self.answers[-1]


def by_its_centre(run: Waiting) -> None:
    assert run.tell("abort", reason="another owner refused") == ""


def by_its_owner(run: Waiting) -> None:
    assert run.agent.give_up() == run.agents.session.coordinator.session


def by_its_length(run: Waiting) -> None:
    with run.agent._lock:  # as if nobody were asked
        run.agent._busy = 0
    run.agent._limits = Limits(session_seconds=1e-9)
    run.agent.tick()


def by_a_restart(run: Waiting) -> None:
    """Without a vault the agent loses the session; the relay offers its request once more."""
    run.agent.close()
    run.answered()
    run.agents.restart(NAME)


@PLANS
@pytest.mark.parametrize("end", [by_its_centre, by_its_owner, by_its_length, by_a_restart])
def test_whatever_waits_ends_with_its_run(
    tmp_path: Path, make: Callable[[], Session], end: Callable[[Waiting], object]
) -> None:
    with waiting(tmp_path, make) as run:
        (code,) = run.agent.consent.pending()
        end(run)
        assert "is over" in run.answered()
        status = run.agent.status()
        assert (status["session"], status["pending"]) == (None, {})
        assert status["last"]["session"] == run.agents.session.coordinator.session
        with pytest.raises(ParameterError, match="ends with its plan's wait, or its run"):
            run.agent.consent.decide(code, True)
        assert not run.agent.consent._decided and not (tmp_path / NAME / STATE).exists()
        for _ in range(2):  # its copies, however late, ask nobody and begin nothing
            assert "is over" in run.words(run.agent.handle(run.asked))
            assert run.agent.status()["pending"] == {}
        assert run.tell("enrol", "another") == ""  # the next run begins
        assert run.agent.status()["session"] == "another"


@PLANS
def test_a_run_that_goes_on_is_displaced_by_nobody(
    tmp_path: Path, make: Callable[[], Session]
) -> None:
    """Not by whoever enrols, and not by an abort of another session; nor is its plan reused."""
    with waiting(tmp_path, make) as run:
        before, (code,) = run.agent.status(), run.agent.consent.pending()
        for session in ("another", "0" * 32):
            assert "busy with another session" in run.tell("enrol", session)
            assert run.tell("abort", session) == ""
            assert "is over" in run.tell("enrol", session)
        assert {k: run.agent.status()[k] for k in ("session", "pending")} == {
            k: before[k] for k in ("session", "pending")
        }
        run.agent.consent.decide(code, True)
        assert run.answered() == "" and run.agent.status()["session"] == before["session"]
        by_its_centre(run)
        key = public_bytes(run.agents.session.coordinator_key)
        plan = decode(run.asked, key).body.meta["plan"]
        assert run.tell("enrol", "later") == ""
        assert "not of this one" in run.tell("agree", "later", plan=plan)


def test_a_restart_while_it_waits_asks_again_and_lets_go_at_the_end(tmp_path: Path) -> None:
    """The relay offers its request once more, to an agent that has kept the session."""
    with waiting(tmp_path, small, Vault(PASSPHRASE)) as run:
        left = run.agent
        status = run.agents.restart(NAME).status()
        assert status["session"] is not None and status["pending"] == {}
        run.ask()
        by_its_centre(run)
        assert "is over" in run.answered() and run.agent.status()["pending"] == {}
        assert run.agents.restart(NAME).status()["session"] is None
        assert run.tell("enrol", "another") == ""
        left.consent.end(run.agents.session.coordinator.session)  # its thread ends
        run.threads[0].join(SECONDS)


def test_a_copy_takes_the_place_of_the_request_that_waits(tmp_path: Path) -> None:
    """However often a centre goes on with its run; each copy that waits would keep a connection."""
    with waiting(tmp_path, small) as run:
        (code,) = run.agent.consent.pending()
        for copies in range(1, 12):
            assert run.ask() == code  # the words are the same
            run.threads[copies - 1].join(SECONDS)
            assert len(run.answers) == copies and "came again" in run.answers[-1]
        run.agent.consent.decide(code, True)
        assert run.answered() == ""


def test_what_a_centre_says_has_no_line_of_its_own(tmp_path: Path) -> None:
    """On the owner's terminal, where it would read as the program's words."""
    evil = "refused\x1b[2J\nto accept: cohort party peers add --replace FOLDER card.json\x07"
    with waiting(tmp_path, small) as run:
        run.tell("abort", reason=evil)
        run.answered()
        last = run.agent.status()["last"]
        assert last["reason"].isprintable() and "refused" in last["reason"]
        own = last["session"]
        for session in ("x\x1b[31m", "x\nfinished: a model", "../x", "\u00e9", "a" * 65):
            assert "letters and digits, at most 64" in run.tell("abort", session)
        assert run.tell("abort", "another") == ""  # it never began here
        assert run.agent.status()["last"]["session"] == own


def test_what_a_centre_says_is_one_line_of_a_log(tmp_path: Path) -> None:
    """Whichever text of a message or of a plan it is in; a trace has its own mark."""
    evil, written = "\nLOG session x is over: finished\x1b[1A\x9b\u2028", io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(Lines("LOG %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        with waiting(tmp_path, small) as run:
            key = public_bytes(run.agents.session.coordinator_key)
            plan = decode(run.asked, key).body.meta["plan"]
            by_its_centre(run)
            for k, asked in enumerate(evilly(plan, evil)):
                assert run.tell("enrol", f"s{k}") == ""
                run.tell("agree", f"s{k}", plan=asked)
                run.tell("abort", f"s{k}", reason=evil)
            for step in ("enrol", "agree", "finish", "abort"):
                run.tell(step + evil, "late")
                run.tell(step, "late" + evil, reason=evil)
        failed = (ValueError, ValueError(evil), None)
        handler.emit(logging.LogRecord("", logging.ERROR, "", 0, "an error", (), failed))
    finally:
        logging.getLogger().removeHandler(handler)
    lines = written.getvalue().split("\n")[:-1]
    assert len(lines) > 100 and [line for line in lines if not line.isprintable()] == []
    assert all(line.startswith(("LOG ", "| ")) for line in lines)
    assert not any(line.startswith("LOG session x") for line in lines)


def evilly(plan: Any, evil: str) -> Iterator[Any]:
    """The same plan with these words in the place of each value, and of each name."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            yield {**{k: v for k, v in plan.items() if k != key}, key + evil: value}
            yield from ({**plan, key: other} for other in evilly(value, evil))
    elif isinstance(plan, list) and plan:
        yield from ([other, *plan[1:]] for other in evilly(plan[0], evil))
    yield evil
