"""ServerApp, ClientApp and the agent's relay under the installed Flower, whichever it is.

The cipher is the identity: parties answer a point with its distance to theirs, as plain float64.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from ciphercohort.job.config import SimulationConfig
from coordinator.coordinator import AskParties
from parties.agent.doors import Doors
from parties.agent.server import AgentServer
from protocols.errors import ProtocolError
from sims.local import SERVER_NODE, LocalGrid, run_session
from sims.simulation import simulate

Floats = NDArray[np.float64]
ROUNDS = 3
POINTS = {f"hospital-{k}": np.random.default_rng(k).normal(size=5) for k in range(3)}
NODES = {name: 11 + k for k, name in enumerate(POINTS)}


class Shard:
    """A party, and as much of an agent as its socket needs."""

    size_cap = 1 << 20

    def __init__(self, point: Floats) -> None:
        self.point, self.asked = point, 0

    def handle(self, data: bytes) -> bytes:
        self.asked += 1
        return (np.frombuffer(data) - self.point).tobytes()

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


def train(ask: AskParties) -> Floats:
    """ROUNDS steps towards the mean of the parties' points."""
    weights = np.zeros(5)
    for t in range(ROUNDS):
        replies = dict(ask(f"round/{t}", dict.fromkeys(POINTS, weights.tobytes())))
        gradient = np.mean([np.frombuffer(replies[name]) for name in POINTS], axis=0)
        weights = weights - 0.5 * gradient
    return weights


def twin() -> Floats:
    return train(lambda _, sent: ((n, Shard(POINTS[n]).handle(data)) for n, data in sent.items()))


def test_a_session_in_one_process() -> None:
    """The ServerApp drives it, ClientApps answer; nothing stays registered."""
    found: list[Floats] = []

    def coordinate(ask: AskParties) -> None:
        found.append(train(ask))

    parties = {name: Shard(point) for name, point in POINTS.items()}
    run_session("identity", coordinate, parties)
    assert (found[0] == twin()).all()
    assert {party.asked for party in parties.values()} == {ROUNDS}
    assert not party_app.LOCAL and not coordinator_app.SESSIONS


@contextmanager
def served(folder: Path, shard: Any) -> Iterator[str]:
    """A party behind an agent's socket; yields its address."""
    server = AgentServer(shard, Doors(folder / "agent.sock"))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"unix:{folder / 'agent.sock'}"
    finally:
        server.stop()
        thread.join(10)


def test_a_session_through_agents(tmp_path: Path) -> None:
    """The ClientApp relays to the socket that the node's configuration names."""
    with ExitStack() as stack:
        addresses = {
            NODES[name]: stack.enter_context(served(tmp_path / name, Shard(point)))
            for name, point in POINTS.items()
        }
        transport = coordinator_app.GridTransport(LocalGrid(addresses), NODES)
        assert (train(transport) == twin()).all()


def test_encrypted_gradients() -> None:
    """A whole run that needs no OpenFHE."""
    frame = pd.DataFrame(np.random.default_rng(1).uniform(-1, 1, (60, 2)), columns=["a", "b"])
    config = SimulationConfig(
        data=frame.assign(y=[0, 1] * 30),
        label="y",
        protocol="secure-aggregation",
        update="gd",
        rounds=2,
        epsilon=3.0,
        seed=1,
    )
    result: Any = simulate(config)
    assert result.max_abs_diff_to_twin < 1e-6 < np.abs(result.weights).max()


# -- what of a message Flower fills in ------------------------------------------------------------


def test_a_message_knows_its_run_and_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.41 refuses to make one in a process without identity; the reply names its request."""
    monkeypatch.setitem(party_app.LOCAL, "echo", Shard(np.zeros(1)))
    seen: list[Any] = []
    grid = LocalGrid({7: "local:echo"}, run_id=5)
    relay = party_app.relay

    def watched(message: Message, address: str) -> Message:
        seen.append(message.metadata)
        return relay(message, address)

    monkeypatch.setattr(party_app, "relay", watched)
    message = Message(party_app.to_record(bytes(8)), 7, MessageType.QUERY, group_id="step")
    (identifier,) = grid.push_messages([message])
    (reply,) = grid.pull_messages([identifier])
    (request,) = seen
    assert (request.run_id, request.src_node_id, request.dst_node_id) == (5, SERVER_NODE, 7)
    assert (request.message_id, request.group_id) == (identifier, "step")
    assert (reply.metadata.run_id, reply.metadata.src_node_id) == (5, 7)
    assert reply.metadata.dst_node_id == SERVER_NODE
    assert reply.metadata.reply_to_message_id == identifier


def test_a_relay_that_raises_is_told_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator counts such failures; other errors are waited for."""
    assert coordinator_app._RELAY_RAISED == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    monkeypatch.setattr(coordinator_app, "RETRY_SECONDS", 0.0)
    monkeypatch.setitem(party_app.LOCAL, "broken", Shard(np.zeros(3)))  # shapes do not fit
    transport = coordinator_app.GridTransport(
        LocalGrid({7: "local:broken"}), {"p": 7}, relay_attempts=3
    )
    with pytest.raises(ProtocolError, match=r"'p' failed \(Flower error 2\)"):
        dict(transport("step", {"p": np.zeros(2).tobytes()}))
    assert party_app.LOCAL["broken"].asked == 3
