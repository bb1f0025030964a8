"""Encrypted sums beside plain summation and Flower's SecAgg+: seconds and bytes per round.

Question: what does it cost that only the sum of the parties' vectors opens?

    python -m sims.lab.studies.aggregation --parties 100 --features 200 --out DIR [--sweep]

All arms sum the same vectors in one process, the coordinator's and every party's work one after
the other, and take turns round by round, so that load hits all alike. Messages are bytes in both
directions. Counted: signed frames (encrypted and plain), the content of Flower's messages
(SecAgg+), without TLS and Flower's envelope, which all would have. No arm adds privacy noise: it
would be the same in each. --sweep adds smaller numbers of parties, and the figure.
Writes rounds.csv, aggregation.json, table.txt; with --sweep aggregation.svg and aggregation.png.

The encrypted and the plain arm exchange the product's signed frames. The encrypted one is a whole
run of the secure-aggregation protocol by its real roles; each sum is read off the points that the
parties receive: gradient descent with step 1 has w_t - w_(t + 1) = sum_p v_p.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from ciphercohort.cli.console import refusals, stdout
from coordinator.coordinator import AskParties, Coordinator, Observer
from parties.kernel.integers.exact import Exact
from parties.kernel.sums.row_function import Contributor
from parties.policy import Policy
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.party import Party
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import (
    Body,
    Envelope,
    decode,
    digest,
    encode,
    new_signing_key,
    public_bytes,
)
from protocols.exchange.serialise import to_plain
from protocols.exchange.transcript import Transcript
from protocols.names import COORDINATOR
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.laws import SystemRandomness
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent
from sims.lab.studies.scaffold import progress, save_figure, write_rows
from sims.lab.studies.summed import BOUND, Array, Case, Lap, Meter

if TYPE_CHECKING:
    from sims.lab.studies.flower_secagg import SecAggSettings

# Values are within [-BOUND, BOUND].
SIZES = (2, 5, 10, 20, 50)
SWEEP_ROUNDS = 5
# Messages that one party answers: in the set-up and at the end, and in one round of all arms.
_OTHER_MESSAGES, _ROUND_MESSAGES = 6, 1 + 1 + 4
# Okabe and Ito's, as in `ciphercohort.report.plots`, with a marker each.
_LOOKS = (("#0072B2", "o"), ("#009E73", "s"), ("#D55E00", "^"))
_WIDTH = 110


# -- sums through the product's own messages: encrypted, and in the clear --------------------------


def _asker(handlers: Mapping[str, Callable[[bytes], bytes]], meter: Meter) -> AskParties:
    """Delivers bytes in memory, one party after the other."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for name, data in outgoing.items():
            since = time.perf_counter()
            replies[name] = handlers[name](data)
            own = time.perf_counter() - since
            meter.add(name, down=len(data), up=len(replies[name]), seconds=own)
        return replies

    return ask


@dataclass(frozen=True)
class _Replay(Contributor):
    """Contributes given vectors, shape (rounds, features); keeps the points it was sent."""

    vectors: Array
    points: list[Array] = field(default_factory=list)

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """The vector of round t."""
        self.points.append(point)
        return Exact.of(self.vectors[t])


class EncryptedArm:
    """One run of the secure-aggregation protocol; set-up and every round are a lap each."""

    def __init__(self, case: Case, on_message: Callable[[], None]) -> None:
        self._case, self._meter = case, Meter(on_message)
        self._replays = {name: _Replay(case.vectors[:, k]) for k, name in enumerate(case.names)}
        self._session, key = uuid.uuid4().hex, new_signing_key()
        shard = _one_row(case.features)
        schema = shard.schema
        self._schema = {"digest": schema.digest(), "features": list(schema.feature_names)}
        signing = {name: new_signing_key() for name in case.names}
        self._parties = {
            name: Party.of(
                name=name,
                shard=shard,
                signing_key=signing[name],
                coordinator_key=public_bytes(key),
                policy=Policy(exact_sums=True),
                randomness=SystemRandomness(),
                open_contributor=lambda plan, name, shard, randomness: self._replays[name],
            )
            for name in case.names
        }
        self.set_up = Lap()
        self.laps: list[Lap] = []
        self._on_round: Callable[[int], None] = lambda t: None
        self._coordinator = Coordinator(
            session=self._session,
            signing_key=key,
            party_keys={name: public_bytes(k) for name, k in signing.items()},
            make_plan=self._plan,
            transcript=Transcript(),
            observer=Observer(on_phase=self._on_phase, on_progress=self._on_progress),
        )

    def run(self, on_round: Callable[[int], None]) -> Array:
        """The opened sums, shape (rounds, features); on_round(t): between rounds, not charged."""
        self._on_round = on_round
        handlers = {name: party.handle for name, party in self._parties.items()}
        self._meter.start()
        outcome = self._coordinator.run(_asker(handlers, self._meter))
        points = self._replays[self._case.names[0]].points
        return -np.diff(np.array([*points, outcome.weights]), axis=0)

    def _on_phase(self, phase: str) -> None:
        if phase == "train":
            self.set_up = self._meter.stop()
            self._meter.start()

    def _on_progress(self, phase: str, done: int, total: int) -> None:
        self.laps.append(self._meter.stop())
        self._on_round(done - 1)
        self._meter.start()

    def _plan(self, members: tuple[Member, ...]) -> RunPlan:
        case = self._case
        return GradientPlan(
            session=self._session,
            members=members,
            schema=self._schema,
            num_features=case.features,
            privacy=None,
            cipher=case.cipher,
            # The contributions are the case's, so the clip binds nothing.
            objective=RowObjective(kind="torch", clip=BOUND).to_dict(),
            update=GradientDescent(rounds=case.rounds, learning_rate=1.0).to_dict(),
            length=case.features,
        )


def _one_row(features: int) -> Shard:
    columns = tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(features - 1))
    label = Label(name="y", positive="1", negative="0")
    schema = Schema(columns=columns, label=label, scaling="range")
    counts = ClampCounts(rows=1)
    return Shard(x=np.zeros((1, features)), y=np.zeros(1), counts=counts, schema=schema)


class PlainArm:
    """Every vector in the clear, in the same signed frames; the blobs are float64 values."""

    def __init__(self, case: Case, on_message: Callable[[], None]) -> None:
        self._case, self._meter, self._session = case, Meter(on_message), uuid.uuid4().hex
        self._key, self._keys = new_signing_key(), {name: new_signing_key() for name in case.names}
        handlers = {name: partial(self._answer, k, name) for k, name in enumerate(case.names)}
        self._ask = _asker(handlers, self._meter)
        self._point: Array = np.zeros(case.features)

    def round(self, t: int) -> tuple[Array, Lap]:
        """The sum of round t, shape (features,), and its costs."""
        self._meter.start()
        step, body = f"round/{t}", Body(blobs=(self._point.astype("<f8").tobytes(),))
        frames = {
            name: encode(Envelope(self._session, step, COORDINATOR, name, body), self._key)
            for name in self._case.names
        }
        total = np.zeros(self._case.features)
        for name, data in dict(self._ask(step, frames)).items():
            reply = decode(data, public_bytes(self._keys[name]))
            if reply.answers != digest(frames[name]):
                raise ProtocolError(f"party {name!r} answers another request", culprit=name)
            total += np.frombuffer(reply.body.blobs[0], "<f8")
        self._point = self._point - total
        return total, self._meter.stop()

    def _answer(self, k: int, name: str, data: bytes) -> bytes:
        request = decode(data, public_bytes(self._key))
        values = self._case.vectors[int(request.step.partition("/")[2]), k]
        if len(request.body.blobs[0]) != values.nbytes:
            raise ParameterError("a round carries one point")
        body = Body(blobs=(values.astype("<f8").tobytes(),))
        address, asked = (request.session, request.step, name, COORDINATOR), digest(data)
        # As long as a party's head.
        return encode(Envelope(*address, body, answers=asked, seen=asked), self._keys[name])


# -- the comparison -------------------------------------------------------------------------------


class Promise(NamedTuple):
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
            **self.promise._asdict(),
        }


def compare(
    case: Case, settings: SecAggSettings, on_message: Callable[[], None] = lambda: None
) -> tuple[Result, ...]:
    """All arms over one case: encrypted, plain, SecAgg+.

    on_message: called after every reply of a party.
    """
    from sims.lab.studies.flower_secagg import SecAggArm  # Flower after `refusals` has quieted it

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


def table(results: Sequence[Result], settings: SecAggSettings) -> Table:
    """One column per arm."""
    case = results[0].case
    k, t = settings.of(case.parties)
    cipher = case.cipher
    made = Table(
        title=f"{case.parties} parties, {case.features} values, {case.rounds} rounds",
        caption=(
            f"encrypted: ring {cipher.ring_dim}, {sum(cipher.widths)} bits a value, "
            f"error bound {cipher.error_bound:.2g}; SecAgg+: {k} shares, threshold {t}, clipping "
            f"range {settings.clipping_range:g}, {settings.quantization_bits} quantization bits, "
            f"modulus of {settings.modulus_bits} bits, weights 1. Medians over the rounds."
        ),
    )
    made.add_column("")
    for result in results:
        made.add_column(result.arm, overflow="fold")
    for name, cell in _ROWS:
        made.add_row(name, *(cell(result) for result in results))
    return made


_ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("seconds per round, all in one process", lambda r: f"{r.middle('seconds'):.3g}"),
    ("CPU seconds per round", lambda r: f"{r.middle('cpu_seconds'):.3g}"),
    ("  the coordinator's own seconds", lambda r: f"{r.middle('coordinator_seconds'):.3g}"),
    ("  the slowest party's own seconds", lambda r: f"{r.middle('party_seconds'):.3g}"),
    ("bytes per party and round", lambda r: f"{r.middle('num_bytes'):,.0f}"),
    ("  to the party", lambda r: f"{r.middle('bytes_down'):,.0f}"),
    ("  from the party", lambda r: f"{r.middle('bytes_up'):,.0f}"),
    ("set-up, seconds", lambda r: f"{r.set_up.seconds:.3g}"),
    ("set-up, bytes per party", lambda r: f"{r.set_up.num_bytes:,}"),
    ("largest error of a sum", lambda r: f"{r.error:.2g}"),
    ("coordinator learns", lambda r: r.promise.coordinator_learns),
    ("parties that may be missing", lambda r: r.promise.dropouts),
)


def write_all(out: Path, results: Sequence[Result], settings: SecAggSettings) -> None:
    """rounds.csv, aggregation.json, table.txt and, for several sizes, the figure."""
    out.mkdir(parents=True, exist_ok=True)
    rounds = (
        {"arm": r.arm, "parties": r.case.parties, "features": r.case.features, "round": t}
        | asdict(lap)
        for r in results
        for t, lap in enumerate(r.laps)
    )
    write_rows(out / "rounds.csv", rounds, float_format="%.6g")
    content = {
        "results": [result.to_dict() for result in results],
        "ciphers_by_parties": {str(r.case.parties): to_plain(r.case.cipher) for r in results},
        "secagg": asdict(settings),
    }
    (out / "aggregation.json").write_text(json.dumps(content, indent=2) + "\n")
    sizes = sorted({result.case.parties for result in results})
    text = Console(file=io.StringIO(), width=_WIDTH)
    with text.capture() as captured:
        for size in sizes:
            text.print(table([r for r in results if r.case.parties == size], settings))
    (out / "table.txt").write_text(captured.get())
    if len(sizes) > 1:
        save_figure(out / "aggregation", cost_figure, results)


def cost_figure(results: Sequence[Result]) -> Figure:
    """Seconds per round, and bytes per party and round, against the number of parties."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    arms = list(dict.fromkeys(result.arm for result in results))
    for arm, (colour, marker) in zip(arms, _LOOKS, strict=True):
        mine = sorted((r for r in results if r.arm == arm), key=lambda r: r.case.parties)
        sizes = [r.case.parties for r in mine]
        for axes, name in ((left, "cpu_seconds"), (right, "num_bytes")):
            costs = [r.middle(name) for r in mine]
            axes.loglog(sizes, costs, color=colour, marker=marker, label=arm)
    ticks = sorted({r.case.parties for r in results})
    for axes in (left, right):
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
    left.set_ylabel("CPU seconds per round, everyone")
    right.set_ylabel("bytes per party and round")
    left.legend()
    figure.supxlabel("parties", fontsize=10.5)
    return figure


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
        from sims.lab.studies.flower_secagg import SecAggSettings

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
        with progress(console, num_messages(cases)) as (describe, on_message):
            for case in cases:
                describe(f"{case.parties} parties, {case.rounds} rounds")
                results += compare(case, settings, on_message)
        write_all(out, results, settings)
        stdout().print(table([r for r in results if r.case.parties == parties], settings))


if __name__ == "__main__":
    # By its name: Flower's arm imports this module too, and there is one of each class.
    from sims.lab.studies.aggregation import main

    typer.run(main)
