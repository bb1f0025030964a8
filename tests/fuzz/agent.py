"""Hostile bytes against a party agent: on its socket, as a process, and at `Agent.handle`.

INSECURE toy ring. The agent is met at every step of a session; afterwards it must be the same
process, have grown by less than HEADROOM, have printed no traceback, and finish a session with the
right model.
"""

from __future__ import annotations

import json
import resource
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coordinator.coordinator import Coordinator
from parties.agent import doors, frames
from protocols.exchange.transcript import Transcript
from protocols.plan.protocol import sequence
from tests.faults.relay import frame
from tests.faults.world import NAMES, World
from tests.fuzz import targets
from tests.fuzz.mutate import Rng, Template, edit
from tests.fuzz.worker import COSTLY_INPUTS, Report
from tests.parties.agents import Agents

SOCKET_SHARE = 0.2
# Inputs at one step of one session on the socket, and of one session in the process.
VISIT_INPUTS, ROUND_INPUTS = 400, 4000
HEADROOM_BYTES = 150 << 20
NAME = NAMES[0]
CONTROLS = (frames.STATUS, frames.CONSENT, frames.GIVE_UP, b"?", frames.REPLY, frames.REFUSAL)
JSON = (b"{}", b"[]", b"null", b"1e999", b'{"plan":"', b'{"plan":1}', b'{"accept":true}')


def run(inputs: int, seed: int) -> Report:
    """So many inputs, repeatable but for the keys."""
    rng, report = np.random.default_rng(seed), Report()
    # In memory where that is: an agent waits for the disk at every step that it answers.
    home = next(path for path in ("/dev/shm", "/tmp") if Path(path).is_dir())
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=home) as folder:
        _on_the_socket(Path(folder), int(SOCKET_SHARE * inputs), rng, report)
        _in_process(Path(folder), inputs, rng, report)
    return report


# -- a process behind its socket -------------------------------------------------------------------


def _on_the_socket(folder: Path, inputs: int, rng: Rng, report: Report) -> None:
    world = World(folder)
    try:
        process = world.agents[NAME]
        reference = _model(world)
        report.warm, start = _resident(process.pid), time.perf_counter()
        while report.inputs < inputs:
            count = min(VISIT_INPUTS, inputs - report.inputs)
            for data in _visit(world, rng, count):
                report.note("socket", partial(_send, world), data)
            report.peak = max(report.peak, _resident(process.pid))
        report.seconds += time.perf_counter() - start
        if not process.is_alive():
            report.findings.append("the agent is dead")
        if float(np.max(np.abs(_model(world) - reference))) > 1e-4:
            report.findings.append("another model after the fuzz")
        if "Traceback" in (log := (world.folder / NAME / "agent.log").read_text()):
            report.findings.append(log[log.index("Traceback") :][:2000])
        if report.peak - report.warm > HEADROOM_BYTES:
            report.findings.append("the agent's memory has grown")
    finally:
        world.close()


def _model(world: World) -> Any:
    for name in NAMES:
        _give_up(world, name)
    world.begin()
    world.wait()
    return world.weights()


def _give_up(world: World, name: str) -> None:
    client = frames.AgentClient(world.folder / f"{name}.sock", patience=10, reply_seconds=30)
    client.control(frames.GIVE_UP, {})


class Arrived(BaseException):
    """The session is where the fuzz wants it."""


def _visit(world: World, rng: Rng, count: int) -> Iterator[bytes]:
    """Bring a session to a random step, and yield hostile frames for it."""
    for name in NAMES:
        _give_up(world, name)
    steps = sequence(world.template)
    stop = steps[rng.integers(len(steps))]
    seen: list[Template] = []
    key = world.settings.signing_key()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        seen.append(Template.of(outgoing[NAME], key))
        if step == stop:
            raise Arrived
        return {name: world.relays[name].deliver(data)[1] for name, data in outgoing.items()}

    with suppress(Arrived):
        _coordinator(world).run(ask)
    for _ in range(count):
        other = seen[-1] if rng.integers(4) else seen[rng.integers(len(seen))]
        yield _hostile(other, rng)


def _hostile(template: Template, rng: Rng) -> bytes:
    """A frame, whole or not."""
    kind = rng.integers(10)
    if kind < 6:
        return frame(frames.MESSAGE, template.mutant(rng))
    if kind == 6:
        return rng.bytes(int(rng.integers(300)))
    if kind == 7:
        whole = frame(frames.MESSAGE, template.mutant(rng))
        return whole[: rng.integers(len(whole))]
    if kind == 8:
        size = int(rng.choice([0, 1, 1 << 16, (1 << 16) + 1, 1 << 29, (1 << 29) + 1, 1 << 63]))
        name = CONTROLS[rng.integers(len(CONTROLS))]
        return frames.MAGIC + name + size.to_bytes(8, "big") + rng.bytes(int(rng.integers(64)))
    payload = JSON[rng.integers(len(JSON))]
    return frame(CONTROLS[rng.integers(len(CONTROLS))], edit(payload, rng))


def _send(world: World, data: bytes) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        path = world.folder / f"{NAME}.sock"
        is_control = data[4:5] in CONTROLS
        connection.connect(str(doors.owner_path(path) if is_control else path))
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        try:
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except ConnectionResetError:
            return "hung up before all was read"
    if not answer:
        raise RuntimeError("no answer at all")
    if answer[4:5] == frames.REFUSAL:
        return "refused by the socket"
    return _kind_of(answer[13:])


def _kind_of(payload: bytes) -> str:
    if payload.startswith(b"{"):
        return "a control answer"
    end = 9 + int.from_bytes(payload[5:9], "little")
    return "refused" if "error" in json.loads(payload[9:end])["meta"] else "answered"


def _coordinator(world: World) -> Coordinator:
    session = uuid.uuid4().hex
    return Coordinator(
        session=session,
        signing_key=world.settings.signing_key(),
        party_keys={name: card.identity for name, card in world.settings.cards().items()},
        make_plan=lambda members: replace(world.template, session=session, members=members),
        transcript=Transcript(),
    )


def _resident(pid: int | None) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# -- in this process -------------------------------------------------------------------------------


def _in_process(folder: Path, inputs: int, rng: Rng, report: Report) -> None:
    start, number = time.perf_counter(), 0
    while report.inputs < inputs:
        number += 1
        agents = Agents(folder / f"in-process-{number}", None)
        _session(agents, min(ROUND_INPUTS, inputs - report.inputs), rng, report)
    report.seconds += time.perf_counter() - start


def _session(agents: Agents, inputs: int, rng: Rng, report: Report) -> None:
    """A session whose agent meets mutants before every step; undone after each."""
    end = report.inputs + inputs

    def inputs_at(step: str) -> int:
        left = end - report.inputs
        costly = step.partition("/")[0] in targets.COSTLY
        return min(left, COSTLY_INPUTS if costly else left // (1 if step == "finish" else 4))

    note, agent = partial(report.note, "handle"), agents.agents[NAME]
    targets.fuzz_role(agents.session, agent, agents.ask, inputs_at, rng, note)
