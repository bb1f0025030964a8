"""Files of the study of sums: CSV of all rounds, JSON, the table, the figure, and its progress."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from protocols.serialise import to_plain
from sims.console import say
from sims.plots import STYLE
from sims.studies.aggregation import Result
from sims.studies.aggregation_case import Case
from sims.studies.flower_secagg import SecAggSettings

# Okabe and Ito's, as in `sims.plots`, with a marker each.
_LOOKS = (("#0072B2", "o"), ("#009E73", "s"), ("#D55E00", "^"))
_WIDTH = 110


@contextmanager
def counting(
    console: Console, total: int
) -> Iterator[tuple[Callable[[Case], None], Callable[[], None]]]:
    """(on_case, on_message): a bar that moves with every message; plain lines elsewhere."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=total)

        def on_case(case: Case) -> None:
            words = f"{case.parties} parties, {case.rounds} rounds"
            bars.update(task, description=words)
            if not console.is_terminal:
                say(console, words)

        yield on_case, lambda: bars.advance(task)


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
    sizes = sorted({result.case.parties for result in results})
    _write_rounds(out / "rounds.csv", results)
    _write_json(out / "aggregation.json", results, settings)
    text = Console(file=io.StringIO(), width=_WIDTH)
    with text.capture() as captured:
        for size in sizes:
            text.print(table([r for r in results if r.case.parties == size], settings))
    (out / "table.txt").write_text(captured.get())
    if len(sizes) > 1:
        with mpl.rc_context(STYLE):
            figure = cost_figure(results)
            figure.savefig(out / "aggregation.svg", metadata={"Date": None})
            figure.savefig(out / "aggregation.png", dpi=150)


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


def _write_rounds(path: Path, results: Sequence[Result]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = tuple(asdict(results[0].set_up))
        writer.writerow(("arm", "parties", "features", "round", *names))
        for result in results:
            head = (result.arm, result.case.parties, result.case.features)
            for t, lap in enumerate(result.laps):
                writer.writerow((*head, t, *(f"{x:.6g}" for x in asdict(lap).values())))


def _write_json(path: Path, results: Sequence[Result], settings: SecAggSettings) -> None:
    ciphers = {str(r.case.parties): to_plain(r.case.cipher) for r in results}
    content = {
        "results": [result.to_dict() for result in results],
        "ciphers_by_parties": ciphers,
        "secagg": asdict(settings),
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
