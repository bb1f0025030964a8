"""A machine that takes a millisecond for everything: rehearsals that nobody has to wait for."""

from __future__ import annotations

import pytest

from ciphercohort.planning import predicted
from ciphercohort.planning.rehearsed import Rehearsal, Said, Trip, shortened
from protocols.plan.protocol import BEFORE, FINISH, protocol_of
from protocols.plan.run_plan import RunPlan

LASTS, BLOB = 1e-3, 1000
"""Of whatever is done [s]; of everything that a message carries [bytes]."""


def made_up(plan: RunPlan, **_: object) -> Rehearsal:
    """Of every step a millisecond and a kilobyte, for each that it carries."""
    short, trips = shortened(plan), []
    protocol = protocol_of(short)
    for step in protocol.sequence(short):
        kind, _, index = step.partition("/")
        carried = 0
        if kind not in (*BEFORE, FINISH):
            every = protocol.place(step).step.carries(short, 0)
            carried = every[int(index or 0)] if every else 1
        said = Said(meta={"seed": "0" * 64} if kind == "reveal" else {}, blobs=(BLOB,) * carried)
        waits = (LASTS,) * len(short.members)
        trips.append(Trip(step=step, own=LASTS, waits=waits, reading=0.0, asked=said, replied=said))
    return Rehearsal(
        plan=short.to_dict(),
        trips=tuple(trips),
        apart=True,
        loaded=100 << 20,
        together=300 << 20,
        alone=200 << 20,
    )


@pytest.fixture
def quick_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is known at once, and nothing from before."""
    monkeypatch.setattr(predicted, "rehearsed", made_up)
    monkeypatch.setattr(predicted, "cached", lambda short: None)
