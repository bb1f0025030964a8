"""Encrypted sums beside plain summation and Flower's SecAgg+: seconds and bytes per round.

Question: what does it cost that only the sum of the parties' vectors opens?

    python -m sims.studies.aggregation --parties 100 --features 200 --rounds 50 --out DIR [--sweep]

All arms sum the same vectors in one process, the coordinator's and every party's work one after
the other, and take turns round by round, so that load hits all alike. Messages are bytes in both
directions. Counted: signed frames (encrypted and plain), the content of Flower's messages
(SecAgg+), without TLS and Flower's envelope, which all would have. No arm adds privacy noise: it
would be the same in each. --sweep adds smaller numbers of parties, and the figure.
Writes rounds.csv, aggregation.json, table.txt; with --sweep aggregation.svg and aggregation.png.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sims.console import refusals, stdout

if TYPE_CHECKING:
    from sims.studies.aggregation_case import Array, Case, Lap
    from sims.studies.flower_secagg import SecAggSettings

SIZES = (2, 5, 10, 20, 50)
SWEEP_ROUNDS = 5
# Messages that one party answers: in the set-up and at the end, and in one round of all arms.
_OTHER_MESSAGES, _ROUND_MESSAGES = 6, 1 + 1 + 4


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What an arm gives: who learns what, and which parties may be missing in a round."""

    coordinator_learns: str
    dropouts: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """One arm over one case; error: largest |sum - exact|; set_up: before the first round."""

    arm: str
    case: Case
    promise: Promise
    set_up: Lap
    laps: tuple[Lap, ...]
    error: float

    def middle(self, name: str) -> float:
        """Median over the rounds of a field of `Lap`."""
        return float(median(getattr(lap, name) for lap in self.laps))

    def to_dict(self) -> dict[str, Any]:
        """Summary in plain JSON types."""
        names = ("seconds", "cpu_seconds", "coordinator_seconds", "party_seconds")
        sizes = ("bytes_down", "bytes_up", "num_bytes")
        return {
            "arm": self.arm,
            "parties": self.case.parties,
            "features": self.case.features,
            "rounds": len(self.laps),
            **{f"{name}_per_round": self.middle(name) for name in names},
            **{f"{name}_per_party_and_round": self.middle(name) for name in sizes},
            "set_up_seconds": self.set_up.seconds,
            "set_up_cpu_seconds": self.set_up.cpu_seconds,
            "set_up_bytes_per_party": self.set_up.num_bytes,
            "largest_error": self.error,
            "coordinator_learns": self.promise.coordinator_learns,
            "dropouts": self.promise.dropouts,
        }


def compare(
    case: Case, settings: SecAggSettings, on_message: Callable[[], None] = lambda: None
) -> tuple[Result, ...]:
    """All arms over one case: encrypted, plain, SecAgg+.

    on_message: called after every reply of a party.
    """
    import numpy as np

    from sims.studies.aggregation_arms import EncryptedArm, PlainArm
    from sims.studies.aggregation_case import Lap
    from sims.studies.flower_secagg import SecAggArm

    others: dict[str, PlainArm | SecAggArm] = {
        "plain sum": PlainArm(case, on_message),
        "Flower SecAgg+": SecAggArm(case, settings, on_message),
    }
    found: dict[str, list[tuple[Array, Lap]]] = {name: [] for name in others}

    def take_turns(t: int) -> None:
        for name, arm in others.items():
            found[name].append(arm.round(t))

    encrypted = EncryptedArm(case, on_message)
    opened = encrypted.run(take_turns)
    promises = promises_of(settings.of(case.parties), case.parties)
    results = [("encrypted sum", opened, encrypted.set_up, encrypted.laps)]
    for name, rounds in found.items():
        sums = np.array([total for total, _ in rounds])
        results.append((name, sums, Lap(), [lap for _, lap in rounds]))
    return tuple(
        Result(
            arm=name,
            case=case,
            promise=promises[name],
            set_up=set_up,
            laps=tuple(laps),
            error=float(np.abs(sums - case.sums).max()),
        )
        for name, sums, set_up, laps in results
    )


def promises_of(sharing: tuple[int, int], parties: int) -> dict[str, Promise]:
    """By arm; sharing: SecAgg+'s shares k and threshold t."""
    k, t = sharing
    return {
        "encrypted sum": Promise(
            coordinator_learns=(
                f"the sum only, also together with {parties - 2} parties; frames and keys are "
                "signed"
            ),
            dropouts="none: every party answers every round",
        ),
        "plain sum": Promise(
            coordinator_learns="every party's vector",
            dropouts="any: the sum is over those that answer",
        ),
        "Flower SecAgg+": Promise(
            coordinator_learns=(
                f"the quantised sum only, while fewer than {t} of a party's {k} share holders "
                "collude; keys are unsigned (an honest server is assumed), masks come from "
                "32-bit seeds"
            ),
            dropouts=f"up to {k - t} of every {k} share holders" if k > t else "none",
        ),
    }


def num_messages(cases: Sequence[Case]) -> int:
    """Replies of all parties in `compare` over these cases."""
    return sum(c.parties * (_OTHER_MESSAGES + _ROUND_MESSAGES * c.rounds) for c in cases)


def main(
    out: Annotated[Path, typer.Option(help="Folder for the table, its numbers and the figure.")],
    parties: Annotated[int, typer.Option(min=2, help="How many parties.")] = 100,
    features: Annotated[int, typer.Option(min=2, help="Values in every vector.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Sums one after the other.")] = 50,
    precision: Annotated[float, typer.Option(help="Error bound of an encrypted sum.")] = 1e-6,
    shares: Annotated[int, typer.Option(help="SecAgg+: shares of every key, odd.")] = 11,
    threshold: Annotated[int, typer.Option(help="SecAgg+: shares that reveal a key.")] = 7,
    seed: Annotated[int, typer.Option(min=0, help="Of the vectors.")] = 0,
    sweep: Annotated[bool, typer.Option(help="Also fewer parties, and the figure.")] = False,
) -> None:
    """Seconds and bytes per round of three ways to sum vectors."""
    with refusals() as console:
        from sims.studies.aggregation_case import Case
        from sims.studies.aggregation_output import counting, table, write_all
        from sims.studies.flower_secagg import SecAggSettings

        settings = SecAggSettings(shares=shares, threshold=threshold)
        sizes = [*(s for s in SIZES if sweep and s < parties), parties]
        cases = [
            Case(
                parties=size,
                features=features,
                rounds=rounds if size == parties else min(rounds, SWEEP_ROUNDS),
                precision=precision,
                seed=seed,
            )
            for size in sizes
        ]
        settings.workflow(parties)
        results: list[Result] = []
        with counting(console, num_messages(cases)) as (on_case, on_message):
            for case in cases:
                on_case(case)
                results += compare(case, settings, on_message)
        write_all(out, results, settings)
        stdout().print(table([r for r in results if r.case.parties == parties], settings))


if __name__ == "__main__":
    typer.run(main)
