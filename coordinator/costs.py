"""What a run costs: seconds and bytes by phase."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from protocols.plan.protocol import PHASES


@dataclass(slots=True)
class Costs:
    """What a run cost, by phase.

    seconds: wall clock, parties included; bytes_per_party: largest party's traffic in both
    directions, wire bytes; iteration_seconds: one entry per iteration, the coordinator's own
    work, its part of the refresh included, waiting for parties not; reading_seconds: of each of
    them, what checking and adding up the parties' replies takes, done as they arrive;
    whole_seconds: of each of them, everybody's, as the clock says; path_seconds: the same with the
    slowest party alone, where parties answer one after the other in one process, and less what the
    coordinator does meanwhile; waiting_seconds, read_seconds: in all; slowest_seconds: of the
    slowest party, beyond the coordinator's work at the same time, in all.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    traffic: dict[str, dict[str, int]] = field(default_factory=dict)
    iteration_seconds: list[float] = field(default_factory=list)
    reading_seconds: list[float] = field(default_factory=list)
    whole_seconds: list[float] = field(default_factory=list)
    path_seconds: list[float] = field(default_factory=list)
    waiting_seconds: float = 0.0
    slowest_seconds: float = 0.0
    read_seconds: float = 0.0

    def __add__(self, other: Costs) -> Costs:
        """Of one run after the other; iterations: those of the second."""
        traffic = {
            phase: {
                party: self.traffic.get(phase, {}).get(party, 0)
                + other.traffic.get(phase, {}).get(party, 0)
                for party in {**self.traffic.get(phase, {}), **other.traffic.get(phase, {})}
            }
            for phase in {**self.traffic, **other.traffic}
        }
        return Costs(
            seconds={phase: s + other.seconds[phase] for phase, s in self.seconds.items()},
            traffic=traffic,
            iteration_seconds=other.iteration_seconds,
            reading_seconds=other.reading_seconds,
            whole_seconds=other.whole_seconds,
            path_seconds=other.path_seconds,
            waiting_seconds=self.waiting_seconds + other.waiting_seconds,
            slowest_seconds=self.slowest_seconds + other.slowest_seconds,
            read_seconds=self.read_seconds + other.read_seconds,
        )

    def count(self, phase: str, party: str, num_bytes: int) -> None:
        """Add bytes of one message."""
        by_party = self.traffic.setdefault(phase, {})
        by_party[party] = by_party.get(party, 0) + num_bytes

    @property
    def bytes_per_party(self) -> dict[str, int]:
        """Largest party's bytes by phase."""
        return {phase: max(self.traffic.get(phase, {0: 0}).values()) for phase in PHASES}


class LapClock:
    """Appends the coordinator's own seconds since the last lap."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._mark()

    def _mark(self) -> None:
        costs, self._since = self._costs, time.perf_counter()
        self._read, self._waited = costs.read_seconds, costs.waiting_seconds
        self._slowest = costs.slowest_seconds

    def lap(self) -> None:
        """End one iteration."""
        costs, whole = self._costs, time.perf_counter() - self._since
        own = whole - (costs.waiting_seconds - self._waited)
        costs.iteration_seconds.append(own)
        costs.reading_seconds.append(costs.read_seconds - self._read)
        costs.whole_seconds.append(whole)
        costs.path_seconds.append(own + costs.slowest_seconds - self._slowest)
        self._mark()
