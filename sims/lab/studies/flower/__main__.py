"""Secure sums in Flower beside plain FedAvg and Flower's SecAgg+: seconds and bytes per round.

Question: what does a Flower user pay for a server that sees means only?

    python -m sims.lab.studies.flower --values 1000000 --clients 10 [--simulation] --out DIR
    python -m sims.lab.studies.flower --train APP [--option "batch-size=16"] … --out DIR

Clients only move a vector of --values, so that what is measured is Flower and the encryption. With
--train they do what an app does: its folder, see `workloads.App`, with changed options. All arms
run one after the other, --passes times, each in the same way: by default in this process, without
Ray, every message through bytes; with --simulation by Flower's own simulation engine (`pip install
"flwr[simulation]"`). Seconds are those of the fastest round after the first, because other load on
the machine can only add to them; the first one has the keys and stands beside it. In brackets are
processor seconds of this process; with --simulation clients are in others. Of several passes the
median is told, and how often plain's each pass took. Clients do not evaluate. Bytes are those of
arrays, texts and byte strings, per client and round. The difference is the model's largest one to
that of plain, after all rounds. Secure sums stand there twice: as they are by default, and with
lost=0, where a round is one message. --no-secagg leaves Flower's SecAgg+ out, which takes minutes
from 10^6 values and 100 clients on. Writes flower.json.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ciphercohort.cli.console import refusals
from ciphercohort.flower.in_process import InProcessGrid
from protocols.errors import ParameterError
from sims.lab.studies.flower.arms import (
    ALL_STAY,
    PLAIN,
    SECAGG,
    SECURE,
    Case,
    Lap,
    client_app,
    serve,
)
from sims.lab.studies.flower.workloads import App, Moved


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of one arm; seconds: of the fastest round after the first; down, up: bytes, see above.

    first_processor, processor: seconds of this process, of the same rounds.
    """

    arm: str
    first_seconds: float
    seconds: float
    first_processor: float
    processor: float
    down: int
    up: int
    difference: float


def measured(case: Case, arm: str, lap: Lap, plain: list[NDArray[Any]] | None) -> Measured:
    """After the last round; plain: the model to compare with, this arm's own if None.

    Raises:
        ParameterError: the arm gave no model.
    """
    if lap.model is None:
        raise ParameterError(f"{arm} gave no model: see Flower's log")
    seconds, processor = np.diff(lap.starts), np.diff(lap.processor)
    rounds, reference = len(seconds), lap.model if plain is None else plain
    return Measured(
        arm=arm,
        first_seconds=float(seconds[0]),
        seconds=float(min(seconds[1:])),
        first_processor=float(processor[0]),
        processor=float(min(processor[1:])),
        down=lap.down // (case.clients * rounds),
        up=lap.up // (case.clients * rounds),
        difference=max(
            float(np.abs(one - other).max())
            for one, other in zip(lap.model, reference, strict=True)
        ),
    )


def in_process(case: Case, arm: str, lap: Lap) -> None:
    """Without Ray."""
    nodes: Mapping[int, Mapping[str, Any]] = {
        1000 + k: {"partition-id": k, "num-partitions": case.clients} for k in range(case.clients)
    }
    serve(case, arm, InProcessGrid(client_app(case.workload, arm), nodes), None, lap)


def in_simulation(case: Case, arm: str, lap: Lap) -> None:
    """By Flower's simulation engine."""
    from flwr.simulation import run_simulation

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(case, arm, grid, context, lap)

    run_simulation(
        server_app=app,
        client_app=client_app(case.workload, arm),
        num_supernodes=case.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


def measure(
    case: Case, arms: Iterable[str], run: Callable[[Case, str, Lap], None]
) -> list[Measured]:
    """All arms; the first one is the reference of the others."""
    found: list[Measured] = []
    reference = None
    for arm in arms:
        lap = Lap()
        run(case, arm, lap)
        found.append(measured(case, arm, lap, reference))
        reference = lap.model if reference is None else reference
    return found


_TIMES = ("first_seconds", "seconds", "first_processor", "processor")


def medians(passes: list[list[Measured]]) -> list[Measured]:
    """Of each arm's times over passes; all else as in the last one."""
    return [
        replace(
            every[-1], **{name: float(median(getattr(m, name) for m in every)) for name in _TIMES}
        )
        for every in zip(*passes, strict=True)
    ]


def main(
    out: Annotated[Path, typer.Option(help="Folder for flower.json.")],
    values: Annotated[int, typer.Option(help="Values that clients move.")] = 100_000,
    train: Annotated[Path | None, typer.Option(help="Folder of an app to train instead.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Of that app: name=value.")] = None,
    clients: Annotated[int, typer.Option(help="Clients, all asked in each round.")] = 10,
    rounds: Annotated[int, typer.Option(help="Timed rounds.")] = 3,
    simulation: Annotated[bool, typer.Option(help="By Flower's simulation engine.")] = False,
    secagg: Annotated[bool, typer.Option(help="Flower's SecAgg+ as well.")] = True,
    shares: Annotated[int, typer.Option(help="Of each secret in SecAgg+.")] = 11,
    passes: Annotated[int, typer.Option(help="Times that all arms run.")] = 1,
) -> None:
    """Measure all arms."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with refusals():
        workload = Moved(values) if train is None else App(train, tuple(option or ()))
        case = Case(workload=workload, clients=clients, rounds=rounds, shares=shares)
        arms = [PLAIN, SECURE, ALL_STAY, *([SECAGG] if secagg else [])]
        run = in_simulation if simulation else in_process
        every = [measure(case, arms, run) for _ in range(passes)]
    found = medians(every)
    out.mkdir(parents=True, exist_ok=True)
    engine = "simulation" if simulation else "one process"
    size = sum(each.size for each in workload.start().to_numpy_ndarrays())
    name = "moved" if train is None else train.resolve().name
    report: dict[str, Any] = {
        "engine": engine,
        "workload": name,
        "options": list(option or ()),
        "values": size,
        "clients": clients,
        "rounds": rounds,
        "load": os.getloadavg()[0],
        "arms": [asdict(m) for m in found],
        "passes": [[asdict(m) for m in one] for one in every],
    }
    (out / "flower.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    title = f"{name}, {size:,} values, {clients} clients, {engine}; in brackets processor seconds"
    table = Table(title=f"{title}; load {report['load']:.1f}")
    columns = ("arm", "first round [s]", "round [s]", "x plain", "down [B]", "up [B]", "difference")
    for name in columns:
        table.add_column(name, justify="right")
    clock = "seconds" if simulation else "processor"
    for k, m in enumerate(found):
        ratios = [getattr(one[k], clock) / getattr(one[0], clock) for one in every]
        table.add_row(
            m.arm,
            *(f"{wall:.3f} ({'-' if simulation else f'{processor:.3f}'})"
              for wall, processor in ((m.first_seconds, m.first_processor),
                                      (m.seconds, m.processor))),
            f"{median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})",
            f"{m.down:,}",
            f"{m.up:,} ({(m.up + m.down) / (found[0].up + found[0].down):.2f} x)",
            f"{m.difference:.1e}",
        )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
