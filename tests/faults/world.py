"""Two hospitals and a coordinator as processes with folders of their own, and relays between.

INSECURE toy ring, seeded noise. Nothing is shared but the files and the sockets.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coordinator.deployment import OUTCOME, create_session
from coordinator.settings import NODES, Settings
from coordinator.setup import admit, init_coordinator
from coordinator.status import read_status
from parties.agent import frames
from parties.agent.settings import CARD, FILE, STATE
from parties.agent.settings import Settings as PartySettings
from parties.agent.setup import init_party
from parties.agent.store import STATE as SEALED
from parties.reader.schema import Label, Schema
from protocols.plan.kinds import with_slot_bound
from protocols.plan.run_plan import Member
from protocols.rows.plan import RowsPlan
from tests.faults import roles
from tests.faults.relay import Relay
from tests.support.helpers import make_data, make_plan, unit_columns

NAMES = ("hospital-1", "hospital-2")
# Longest step by default: a restart of a party has to fit in.
STEP_SECONDS = 6.0
ROWS, FEATURES, SEED = (4, 4), 3, 20261121


class World:
    """Everyone of one deployment; sessions run in it one after the other."""

    def __init__(self, folder: Path, step_seconds: float = STEP_SECONDS) -> None:
        self.folder, self.step_seconds = folder, step_seconds
        # Longest silence until a party erases its key share; longest run.
        self.idle_seconds, self.hang_seconds = 2 * step_seconds, 15 * step_seconds
        self.settings = _found(folder, self.idle_seconds)
        self.template = _template(self.settings)
        self.agents: dict[str, BaseProcess] = {}
        self.coordinators: list[BaseProcess] = []
        self.session = ""
        self.relays = {
            name: Relay(name, folder / f"{name}.relay", folder / f"{name}.sock") for name in NAMES
        }
        self.lock = threading.Lock()
        for name in NAMES:
            self.start_agent(name)
        for name in NAMES:
            self.status_of(name)

    def close(self) -> None:
        """End every process."""
        for process in [*self.agents.values(), *self.coordinators]:
            process.kill()
            process.join()
        for relay in self.relays.values():
            relay.close()

    # -- parties --------------------------------------------------------------------------------

    def start_agent(self, name: str) -> None:
        """As its service manager would."""
        self.agents[name] = roles.start(roles.agent, self.folder / name)

    def end_agent(self, name: str, sign: int = signal.SIGKILL) -> None:
        """Kill it, or ask it to stop."""
        self.signal_agent(name, sign)
        self.agents[name].join(20)

    def signal_agent(self, name: str, sign: int) -> None:
        """SIGSTOP, SIGCONT …"""
        _signal(self.agents[name], sign)

    def status_of(self, name: str) -> dict[str, Any]:
        """What the agent says of itself, once it is up."""
        client = frames.AgentClient(self.folder / f"{name}.sock", patience=30.0, reply_seconds=30.0)
        return client.control(frames.STATUS, {})

    def keys_left(self) -> list[str]:
        """Parties that still hold a session or its sealed state."""
        sealed = [n for n in NAMES if (self.folder / n / STATE / SEALED).exists()]
        return sealed or [name for name in NAMES if self.status_of(name)["session"]]

    def shares_made(self, name: str) -> int:
        """Decryption shares that the party computed in this session, whether or not they left."""
        path = self.folder / name / roles.SHARES
        return path.read_text().split().count(self.session) if path.exists() else 0

    def shares_given(self, name: str) -> int:
        """Different decryption shares that left the party in this session."""
        return len(self.relays[name].given.get((self.session, "decrypt"), ()))

    # -- coordinator ----------------------------------------------------------------------------

    def begin(self) -> None:
        """A new session and its coordinator."""
        self.session, self.coordinators = create_session(self.settings, self.template), []
        self.start_coordinator()

    def start_coordinator(self) -> None:
        """A process that drives the session; there may be one already."""
        relays: Mapping[str, Path] = {name: self.folder / f"{name}.relay" for name in NAMES}
        arguments = (self.settings.folder, self.session, relays, self.step_seconds)
        self.coordinators.append(roles.start(roles.coordinator, *arguments))

    def end_coordinator(self, sign: int = signal.SIGKILL) -> None:
        """Kill the latest, or ask it to stop."""
        self.signal_coordinator(sign)
        self.coordinators[-1].join(20)

    def signal_coordinator(self, sign: int) -> None:
        """SIGSTOP, SIGCONT …"""
        _signal(self.coordinators[-1], sign)

    @property
    def session_folder(self) -> Path:
        """Of the session."""
        return self.settings.session_folder(self.session)

    def wait(self) -> tuple[dict[str, Any], float]:
        """The session's status once it is over, and when that was; empty if it hangs."""
        until, over = time.monotonic() + self.hang_seconds, 0.0
        status: dict[str, Any] = {}
        while time.monotonic() < until:
            status = read_status(self.session_folder) or {}
            if status.get("state") in ("finished", "aborted"):
                over = over or time.monotonic()
                if not any(process.is_alive() for process in self.coordinators):
                    return status, over
            time.sleep(0.05)
        return {}, time.monotonic()

    def weights(self) -> Any:
        """What was released."""
        return np.array(json.loads((self.session_folder / OUTCOME).read_text())["weights"])


def _signal(process: BaseProcess, sign: int) -> None:
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, sign)


def _found(folder: Path, idle_seconds: float) -> Settings:
    columns = unit_columns(FEATURES - 1)
    label = Label(name="y", positive="1", negative="0")
    schema = Schema(columns=columns, label=label, scaling="range")
    addresses = dict.fromkeys(("fleet", "control", "serverappio", "public"), "127.0.0.1:9092")
    invitation = init_coordinator(folder / "centre", schema.to_dict(), addresses, {})
    settings = Settings.load(folder / "centre")
    for name, (x, y) in zip(NAMES, make_data(ROWS, FEATURES, SEED), strict=True):
        frame = pd.DataFrame(x[:, :-1], columns=[column.name for column in columns])
        frame.assign(y=y.astype(int)).to_csv(folder / f"{name}.csv", index=False)
        init_party(
            folder / name,
            invitation,
            roles.PASSPHRASE,
            name=name,
            data=folder / f"{name}.csv",
            socket=folder / f"{name}.sock",
            insecure_noise_seed=SEED,
            consent={"mode": "policy", "wait_seconds": idle_seconds / 2},
            policy={"allow_insecure": True, "exact_sums": True},
            keep_ledger=False,
        )
        path = folder / name / FILE
        idle = f"idle_seconds = {idle_seconds}"
        path.write_text(re.sub(r"idle_seconds = [\d.]+", idle, path.read_text()))
        admit(settings, folder / name / CARD)
    for name in NAMES:
        for card in settings.cards().values():
            if card.name != name:
                PartySettings.load(folder / name).know(card.name, card.identity)
    nodes = {name: k for k, name in enumerate(NAMES)}
    (settings.folder / NODES).write_text(json.dumps(nodes))
    return settings


def _template(settings: Settings) -> RowsPlan:
    cards = settings.cards()
    members = tuple(
        Member(name=name, rows=card.rows, verify_key=card.identity, commitment="00" * 32)
        for name, card in cards.items()
    )
    return with_slot_bound(
        make_plan(
            rows=ROWS,
            features=FEATURES,
            rounds=2,
            degree=3,
            update="gd",
            ring_dim=512,
            members=members,
            schema={"digest": cards[NAMES[0]].schema},
        ),
        FEATURES**0.5,
    )
