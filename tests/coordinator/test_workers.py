"""Groups of rows over workers: the same bits, whoever computes which, and whoever dies.

INSECURE toy rings. A run without workers is recorded; then the coordinator's half runs again on the
recorded replies with workers, and every request must be the recorded one, to the bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coordinator.workers import workers_of
from protocols.errors import ParameterError, ProtocolError
from protocols.steps import workers
from protocols.steps.workers import LostWorkerError, Share, Spool, WorkersError
from sims.api import simulate
from tests.support.helpers import Session
from tests.support.sessions import lffr_session, quadratic_session, small


class Workers:
    """Workers in this process; dies: after how many answers of a method a worker does."""

    def __init__(self, count: int, **dies: tuple[str, int]) -> None:
        self.names = [f"w{k}" for k in range(count)]
        self.dies, self.lost = dies, 0
        self.calls: list[tuple[str, str, Any]] = []

    def workers(self) -> list[str]:
        if not self.names:
            raise WorkersError("no worker came")
        return list(self.names)

    def place(self, worker: str, make: Callable[[], Any]) -> Any:
        held = make()

        def start(method: str, *arguments: Any) -> Callable[[], Any]:
            fatal, outlived = self.dies.get(worker, ("", 0))
            dead = method == fatal and len(self.of(worker, method)) == outlived
            self.calls.append((worker, method, arguments[0]))
            if dead:
                self.lost += 1
                self.lose(worker)
                return self.died
            return lambda: getattr(held, method)(*arguments)

        return start

    def lose(self, worker: str) -> None:
        """For good."""
        self.names.remove(worker)

    def died(self) -> Any:
        """What waiting for it shows."""
        raise LostWorkerError("died")

    def of(self, worker: str, method: str) -> list[Any]:
        """First argument of each call."""
        return [first for who, name, first in self.calls if (who, name) == (worker, method)]


class Restarting(Workers):
    """A worker that dies is back at once under its name, and has forgotten everything."""

    def lose(self, worker: str) -> None:
        """For a moment."""
        del self.dies[worker]

    def died(self) -> Any:
        """It answers, but not for what it held."""
        return Share().total([0], [])


def again(
    session: Session, engine: Any, at_refresh: Callable[[int], object] = lambda k: None
) -> None:
    """The coordinator's half of a finished run with workers, on the recorded replies."""
    recorded = {(step, name): (request, reply) for step, name, request, reply in session.recorded}
    successor = session.successor()
    successor._engine = engine
    asked = list[str]()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        asked.append(step)
        if step.startswith("refresh/"):
            at_refresh(int(step.partition("/")[2]))
        for name, request in outgoing.items():
            # The decoder's own noise is in the weights of `finish`.
            assert step == "finish" or request == recorded[step, name][0], f"{step} differs"
        return {name: recorded[step, name][1] for name in outgoing if step != "finish"}

    with pytest.raises(ProtocolError, match="no reply"):
        successor.run(ask)
    assert asked == list(dict.fromkeys(step for step, *_ in session.recorded))


CASES: dict[str, Callable[[], Session]] = {
    # five groups of rows, each in two parts
    "rows": lambda: small(rows=[300, 340], features=3, features_per_ciphertext=2),
    # a preconditioner, which workers multiply into their rows
    "quadratic": lambda: quadratic_session(rows=[150, 100, 70]),
    "lffr": lffr_session,
}
FATES: dict[str, Callable[[], Workers]] = {
    "three": lambda: Workers(3),
    "dies before it has keys": lambda: Workers(2, w0=("begin", 0)),
    "dies while it takes groups": lambda: Workers(2, w0=("take", 0)),
    "dies in an iteration": lambda: Workers(2, w0=("total", 1)),
    "is started again": lambda: Restarting(2, w0=("total", 1)),
}


@pytest.fixture(scope="module", params=CASES)
def finished(request: pytest.FixtureRequest) -> Session:
    session = CASES[request.param]()
    session.run()
    return session


@pytest.mark.parametrize("fate", FATES)
def test_the_same_bits(finished: Session, fate: str) -> None:
    """Of every request; a group that was with a dead worker is with another one afterwards."""
    engine, layout = FATES[fate](), finished.plan.layout
    again(finished, engine)
    assert engine.lost == (fate != "three")
    taken = Counter(group for _, method, group in engine.calls if method == "take")
    assert set(taken) == set(range(layout.groups))
    assert (max(taken.values()) > 1) == (engine.lost > 0 and "keys" not in fate)
    totals = [groups for _, method, groups in engine.calls if method == "total"]
    assert sum(map(len, totals)) >= layout.groups * finished.plan.rounds
    if fate == "three" and layout.groups >= 3:
        assert all(engine.of(name, "total") for name in engine.names)


def test_workers_that_only_die() -> None:
    """Are given up, with what to look at."""

    class Doomed(Workers):
        def lose(self, worker: str) -> None:
            """Another one comes under its name."""

        def of(self, worker: str, method: str) -> list[Any]:
            return []

    session = small(rounds=1)
    session.coordinator._engine = Doomed(1, w0=("begin", 0))
    with pytest.raises(WorkersError, match=f"{workers.MOST_LOST + 1} workers died.*memory"):
        session.run()


def test_a_file_of_residues() -> None:
    """As a dictionary, in whatever order."""
    rng, spool = np.random.default_rng(1), Spool()
    rows = {k: rng.integers(0, 2**60, (4, 8), np.uint64) for k in (3, 0, 2)}
    for index in (3, 0, 2):
        spool[index] = np.zeros((4, 8), np.uint64)
        spool[index] = rows[index]
    assert sorted(spool) == [0, 2, 3] and len(spool) == 3 and 1 not in spool
    for index, row in rows.items():
        np.testing.assert_array_equal(spool[index], row)


def test_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hands its groups on; a model that rows reach as sums has none, and says so before any key."""
    engine, rng = Workers(2), np.random.default_rng(1)
    monkeypatch.setattr("sims.simulation.workers_of", lambda n: nullcontext(engine if n else None))
    frame = pd.DataFrame({"a": rng.random(40), "y": rng.integers(0, 2, 40)})
    options: dict[str, Any] = {"data": frame, "no_privacy": True, "profile": "fast-insecure"}
    options |= {"workers": 2, "parties": 2, "iterations": 2, "seed": 1}
    found = simulate(label="y", update="gd", degree=3, **options)
    np.testing.assert_allclose(found.weights, found.twin_weights, atol=1e-3)
    assert sum(method == "total" for _, method, _ in engine.calls) == 2
    with pytest.raises(ParameterError, match="model='linear': its rows reach the coordinator as s"):
        simulate(target="y", model="linear", **options)


def test_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for none, a run needs none; asked for some, it says what is missing."""
    monkeypatch.setattr("coordinator.workers.ENGINES", ())
    with workers_of(0) as engine:
        assert engine is None
    with pytest.raises(ParameterError, match="workers=2: no adapter"):
        workers_of(2)
