"""The protocols beside one another, for the same figures, update and iterations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.predicted import Find, Line, Predicted, Seconds, predict
from protocols.errors import CohortError, ParameterError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION, UNDER_CKKS
from protocols.plan import kinds
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.updates.registry import UPDATES
from protocols.words import duration, size

REVEALED = {
    ENCRYPTED_ROWS: "the final model",
    ENCRYPTED_MODEL: "the final model",
    SECURE_AGGREGATION: "the sum of every round, every iterate",
}
"""To whoever runs or reads the run."""
ONLINE = {
    ENCRYPTED_ROWS: "keys, then one short answer an iteration",
    ENCRYPTED_MODEL: "keys, then two answers an iteration, one of them work",
    SECURE_AGGREGATION: "one answer an iteration, all of the work",
}
"""What owners have to be there for."""
COST = {
    ENCRYPTED_ROWS: "owners answer once an iteration, and hide as much",
    ENCRYPTED_MODEL: "owners answer twice an iteration, and rows stay home",
    SECURE_AGGREGATION: "owners stay online, and every iterate is public",
}
"""What another protocol is paid for with, in a sentence."""
CHEAPER = 1 / 3
"""Share of the time that a protocol must do with to be named where it reveals more."""
ALIKE = 1.1
"""Protocols whose times differ by less are as fast as one another."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One protocol.

    seconds: None where nothing was rehearsed, and then no bytes and no memory either; trips: round
    trips of an iteration and of the run; memory: everybody's, of one process; out: why the protocol
    does not take these figures.
    """

    protocol: str
    update: str = ""
    iterations: int = 0
    seconds: Seconds | None = None
    line: Line = field(default_factory=Line)
    num_bytes: int = 0
    iteration_bytes: int = 0
    trips: tuple[int, int] = (0, 0)
    memory: int = 0
    party_memory: int = 0
    out: str = ""

    @property
    def path(self) -> float:
        """An iteration of slowest party and coordinator, each on its machine, over the line."""
        if self.seconds is None:
            return math.inf
        return self.seconds.path + self.line.seconds(self.iteration_bytes, self.trips[0])

    @property
    def apart(self) -> float:
        """The same of the whole run."""
        if self.seconds is None:
            return math.inf
        alone = self.seconds.total - self.seconds.beside
        return alone + self.line.seconds(self.num_bytes, self.trips[1])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        if self.out:
            return {"protocol": self.protocol, "out": self.out}
        timed = self.seconds
        return {
            "protocol": self.protocol,
            "update": self.update,
            "iterations": self.iterations,
            "seconds_per_iteration_all": timed.everybody if timed else None,
            "seconds_per_iteration_path": timed.path if timed else None,
            "seconds_per_iteration_line": self.path if timed else None,
            "total_seconds": timed.total if timed else None,
            "total_seconds_line": self.apart if timed else None,
            "bytes_per_party": self.num_bytes if timed else None,
            "bytes_per_iteration": self.iteration_bytes if timed else None,
            "round_trips": self.trips[1] if timed else None,
            "party_memory_mb": round(self.party_memory / 1e6) if timed else None,
            "one_process_memory_mb": round(self.memory / 1e6) if timed else None,
            "revealed": REVEALED[self.protocol],
            "online": ONLINE[self.protocol],
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """ways: of every protocol; line: an owner's."""

    ways: tuple[Way, ...]
    line: Line

    @property
    def possible(self) -> tuple[Way, ...]:
        """Those that these figures allow."""
        return tuple(way for way in self.ways if not way.out)

    @property
    def recommended(self) -> Way | None:
        """The fastest that reveals the model alone; None without times.

        Encrypted rows where they are as fast: owners do less while it runs.
        """
        hidden = [way for way in self.possible if way.protocol in UNDER_CKKS] or self.possible
        least = min((way.apart for way in hidden), default=math.inf)
        if least == math.inf:
            return None
        return next(way for way in hidden if way.apart <= ALIKE * least)

    @property
    def reason(self) -> str:
        """A sentence; empty without times."""
        best = self.recommended
        if best is None:
            return ""
        others = [way for way in self.possible if way is not best]
        words = f"recommended: --protocol {best.protocol}, {duration(best.apart)}"
        for way in others:
            if way.protocol in UNDER_CKKS:
                same = "as fast as" if way.apart <= ALIKE * best.apart else "against"
                words += f" {same} {duration(way.apart)} of {way.protocol}"
        words += f": it reveals {REVEALED[best.protocol]}; {COST[best.protocol]}"
        for way in others:
            if way.protocol not in UNDER_CKKS and way.apart < CHEAPER * best.apart:
                words += f". {way.protocol} takes {duration(way.apart)}: {COST[way.protocol]}"
        return words

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        best = self.recommended
        return {
            "protocols": [way.to_dict() for way in self.ways],
            "recommended": best.protocol if best else None,
            "reason": self.reason,
        }


def line_of(config: SimulationConfig) -> Line:
    """The owner's."""
    return Line(bandwidth=config.bandwidth * 1e6, latency=config.latency / 1e3)


def compare(
    config: SimulationConfig, figures: PublicFigures, found: Calibration, find: Find
) -> Comparison | None:
    """Every protocol beside the one that was found; None where the model has no other.

    find: rehearsals.
    """
    if found.template.model != "logistic":
        return None
    line = line_of(config)
    ways = []
    for protocol in UPDATES:
        try:
            other = found
            if protocol != found.template.protocol:
                other = calibrate(figures, like(config, found, protocol))
            ways.append(_way(other, predict(other, find), line))
        except CohortError as error:
            ways.append(Way(protocol=protocol, out=str(error)))
    return Comparison(ways=tuple(ways), line=line)


def like(config: SimulationConfig, found: Calibration, protocol: str) -> Wanted:
    """The same with another protocol: update, iterations and promise stay.

    Raises:
        ParameterError: an option belongs to the protocol that was asked for alone.
    """
    update = found.wanted.update
    if protocol == SECURE_AGGREGATION and update == "barrier":
        # Sums need no barrier: what they disclose is noisy already.
        update = "gd"
    if update not in UPDATES[protocol]:
        raise ParameterError(f"update={update!r} does not run with protocol {protocol}")
    if protocol == SECURE_AGGREGATION and config.cover is not None:
        raise ParameterError(
            f"cover={config.cover}: nobody can stand in for an owner of {protocol}; leave it out"
        )
    free = {"profile", "ring_dim"} if protocol == SECURE_AGGREGATION else set[str]()
    free |= {"workers"}  # of encrypted rows alone
    usual = {each.name: each.default for each in fields(SimulationConfig) if each.name in free}
    rounds = found.template.rounds
    changed: dict[str, Any] = {"protocol": protocol, "update": update, "rounds": rounds, **usual}
    return replace(config, within=None, **changed).wanted()


def _way(found: Calibration, predicted: Predicted | None, line: Line) -> Way:
    """With the run that comes before."""
    plan = found.template
    named = Way(
        protocol=plan.protocol,
        update=str(kinds.figures(plan)["update"]),
        iterations=plan.rounds,
        line=line,
    )
    if predicted is None:
        return named
    seconds, trips = predicted.seconds, predicted.trips
    if predicted.before:
        first = predicted.before.seconds
        phases = {name: first.by_phase[name] + own for name, own in seconds.by_phase.items()}
        seconds = replace(seconds, by_phase=phases, beside=first.beside + seconds.beside)
        trips = trips[0], trips[1] + predicted.before.trips[1]
    return replace(
        named,
        seconds=seconds,
        num_bytes=predicted.costs[1],
        iteration_bytes=predicted.iteration_bytes,
        trips=trips,
        memory=predicted.memory["together"],
        party_memory=predicted.memory["party"],
    )


# -- for a person ---------------------------------------------------------------------------------


def table(found: Comparison) -> Any:
    """A column for each protocol."""
    from rich.table import Table
    from rich.text import Text

    line = f"{size(found.line.bandwidth / 8)}/s, {1000 * found.line.latency:g} ms a round trip"
    shown = Table(title=Text(f"Protocols; an owner's line: {line}"))
    shown.add_column("")
    for way in found.ways:
        style = "bold" if way is found.recommended else ""
        shown.add_column(way.protocol, justify="right", overflow="fold", style=style)

    def row(title: str, cell: Callable[[Way], str]) -> None:
        shown.add_row(title, *("" if way.out else cell(way) for way in found.ways))

    def timed(title: str, cell: Callable[[Way, Seconds], str]) -> None:
        row(title, lambda way: cell(way, way.seconds) if way.seconds else "")

    row("update, iterations", lambda way: f"{way.update}, {way.iterations}")
    timed("iteration, one process", lambda _, seconds: duration(seconds.everybody))
    timed("iteration, slowest path", lambda way, _: duration(way.path))
    timed("run, one process", lambda _, seconds: duration(seconds.total))
    timed("run, slowest path", lambda way, _: duration(way.apart))
    timed("sent and received", lambda way, _: size(way.num_bytes))
    timed("memory of a party", lambda way, _: size(way.party_memory))
    timed("memory, one process", lambda way, _: size(way.memory))
    row("revealed", lambda way: REVEALED[way.protocol])
    row("owners online for", lambda way: ONLINE[way.protocol])
    return shown


def lines(found: Comparison) -> list[str]:
    """What stands below the table."""
    outs = [f"{way.protocol}: {way.out}" for way in found.ways if way.out]
    return [*([found.reason] if found.reason else []), *outs]
