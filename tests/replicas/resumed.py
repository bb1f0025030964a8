"""Runs that go on: the coordinator killed in any step, owners restarted. INSECURE toy rings."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.coordinator import arrivals
from coordinator.log import FOLDER, past, recorded
from coordinator.relay import RESTARTS
from protocols.errors import PolicyError, ProtocolError
from protocols.exchange.messages import public_bytes
from tests.replicas.deviations import relayed, with_replicas
from tests.support.helpers import Session
from tests.support.sessions import StopHere


@dataclass
class Unsteady:
    """A transport on which a step is the coordinator's last, or finds an owner restarted.

    rng: with chance `dies`, the coordinator is killed before a step, after it or within it; with
    chance `falls` one owner of those who are asked was restarted before it, no more than RESTARTS
    times in one step. killed, restarted: how often. memory: owners keep their secret in memory
    alone, and none is restarted.
    """

    session: Session
    ask: Any
    rng: random.Random
    dies: float = 0.1
    falls: float = 0.2
    killed: int = 0
    restarted: int = 0
    memory: bool = False
    fell: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __call__(self, step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Deliver a step, as far as it comes."""
        names = [*outgoing]
        if not self.memory and names and self.rng.random() < self.falls:
            self._restart(step, self.rng.choice(names))
        heard = self.rng.randrange(len(names) + 1) if self._is_last() else None
        yield from arrivals(self.ask(step, {n: outgoing[n] for n in names[:heard]}))
        if heard is not None:
            self.killed += 1
            raise StopHere

    def _restart(self, step: str, name: str) -> None:
        if self.fell[step, name] < RESTARTS:
            try:
                self.session.restart(name)
            except PolicyError:
                self.memory = True
            else:
                self.restarted += 1
                self.fell[step, name] += 1

    def _is_last(self) -> bool:
        return self.killed < 3 and self.rng.random() < self.dies


def resumed(
    session: Session, folder: Path, unsteady: Unsteady, witnesses: tuple[str, ...] = ()
) -> str:
    """What ended a run that went on whenever its coordinator died; empty: it came to its end."""
    with_replicas(session, witnesses)
    key, kept = public_bytes(session.coordinator_key), folder / FOLDER

    def keep(ask: Any) -> Any:
        return recorded(ask, kept, key, session.verify_keys, durable=False)

    while True:
        try:
            session.run(relayed(session, unsteady, keep, partial(past, kept)))
        except StopHere:
            session.coordinator = session.successor()
        except ProtocolError as error:
            return str(error)
        else:
            return ""
