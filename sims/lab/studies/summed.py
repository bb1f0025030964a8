"""What every arm of the study of sums adds up, and how it is measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate import AggregateParameters
from protocols.aggregate.choice import choose
from protocols.errors import ParameterError

Array = NDArray[np.float64]

BOUND = 1.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """What every arm sums: uniform values in [-1, 1].

    precision: bound on the error of an encrypted sum; seed: of the values.

    Raises:
        ParameterError: a field is out of range.
    """

    parties: int
    features: int
    rounds: int
    precision: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("parties", 2), ("features", 2), ("rounds", 1)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name}={getattr(self, name)} is below {least}")

    @property
    def names(self) -> tuple[str, ...]:
        """Party names."""
        return tuple(f"party-{k + 1}" for k in range(self.parties))

    @cached_property
    def vectors(self) -> Array:
        """Float64 array, shape (rounds, parties, features)."""
        shape = (self.rounds, self.parties, self.features)
        return np.random.default_rng(self.seed).uniform(-BOUND, BOUND, shape)

    @cached_property
    def sums(self) -> Array:
        """Over the parties, shape (rounds, features)."""
        total: Array = self.vectors.sum(axis=1)
        return total

    @cached_property
    def cipher(self) -> AggregateParameters:
        """Of the encrypted sums."""
        largest = self.parties * BOUND
        return choose(parties=self.parties, largest_sum=largest, precision=self.precision)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lap:
    """Costs between two moments.

    seconds: wall clock, everyone one after the other; cpu_seconds: of the process;
    coordinator_seconds, party_seconds: own time of the coordinator and of the slowest party;
    bytes_down, bytes_up: to and from the party with the most traffic.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    coordinator_seconds: float = 0.0
    party_seconds: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def num_bytes(self) -> int:
        """Of a party, both directions."""
        return self.bytes_down + self.bytes_up


class Meter:
    """Adds up what the parties of one arm do; on_message: called after each of their replies."""

    def __init__(self, on_message: Callable[[], None]) -> None:
        self._on_message = on_message
        self.start()

    def start(self) -> None:
        """Begin a lap."""
        self._down, self._up = Counter[str](), Counter[str]()
        self._seconds: dict[str, float] = {}
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def add(self, party: str, *, down: int, up: int, seconds: float) -> None:
        """A party took a message of `down` bytes and gave one of `up` bytes."""
        self._down[party] += down
        self._up[party] += up
        self._seconds[party] = self._seconds.get(party, 0.0) + seconds
        self._on_message()

    def stop(self) -> Lap:
        """End the lap."""
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        busiest = max(self._seconds, key=lambda party: self._down[party] + self._up[party])
        return Lap(
            seconds=seconds,
            cpu_seconds=cpu,
            coordinator_seconds=seconds - sum(self._seconds.values()),
            party_seconds=max(self._seconds.values()),
            bytes_down=self._down[busiest],
            bytes_up=self._up[busiest],
        )
