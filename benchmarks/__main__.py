"""Command line: the table, the comparison of two revisions, scaling plots, keys, replicas."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=False, invoke_without_command=True)
Quick = Annotated[bool, typer.Option("--quick", help="An INSECURE toy ring: tests the machinery.")]
Cpu = Annotated[
    bool, typer.Option("--cpu", help="Count CPU seconds of one thread: for a busy machine.")
]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]
DEFAULT_OUT = Path("runs/benchmarks")


@app.callback()
def table(
    context: typer.Context,
    quick: Quick = False,
    cpu: Cpu = False,
    out: Out = DEFAULT_OUT,
    only: Annotated[list[str] | None, typer.Option(help="Data sets to take.")] = None,
    rounds: Annotated[int, typer.Option(help="Iterations; the inner ones are measured.")] = 4,
    tenseal: Annotated[
        bool, typer.Option(help="Compare with TenSEAL, from a venv of its own.")
    ] = True,
    wait: Annotated[float, typer.Option(help="Wait at most so long for a quiet machine [s].")] = 0,
) -> None:
    """Measure an iteration on every data set, beside its prediction and the alternatives."""
    if context.invoked_subcommand:
        return
    _count(cpu)
    from benchmarks import cases, peer_venv
    from benchmarks import cell as cells
    from benchmarks import table as tables

    every = cases.QUICK if quick else cases.FULL
    wanted = [replace(c, rounds=rounds) for c in every if not only or c.name in only]
    if not wanted:
        raise typer.BadParameter(f"only={only}: choose from {[c.name for c in every]}")
    cells.settle(wait)
    source = peer_venv.interpreter("tenseal", "numpy") if tenseal and not quick else nullcontext()
    with source as python:
        result = tables.measure(wanted, python, _say)
    tables.save(result, out)
    tables.show(result)


@app.command(hidden=True)
def cell(case: str) -> None:
    """One cell, as JSON."""
    from benchmarks import cell as cells
    from benchmarks.cases import Case

    cells.follow_clock()
    sys.stdout.write(json.dumps(cells.run(Case(**json.loads(case))).to_dict()) + "\n")


@app.command()
def trust(
    quick: Quick = False,
    out: Out = DEFAULT_OUT,
    only: Annotated[list[str] | None, typer.Option(help="Data sets to take.")] = None,
    spu: Annotated[bool, typer.Option(help="Compare with SPU, from a venv of its own.")] = True,
    wait: Annotated[float, typer.Option(help="Wait at most so long for a quiet machine [s].")] = 0,
) -> None:
    """Rounds of encrypted-model, encrypted rows and secret sharing beside them, by trust."""
    from benchmarks import cell as cells
    from benchmarks import peer_venv
    from benchmarks import trust as tables

    every = tables.QUICK if quick else tables.CASES
    wanted = [c for c in every if not only or c.name in only]
    if not wanted:
        raise typer.BadParameter(f"only={only}: choose from {[c.name for c in every]}")
    cells.settle(wait)
    with peer_venv.interpreter(*tables.SPU) if spu and not quick else nullcontext() as python:
        result = tables.measure(wanted, python, _say)
    tables.save(result, out)
    sys.stdout.write(tables.markdown(result))


@app.command(hidden=True)
def rounds(case: str) -> None:
    """One run of `trust`, as JSON."""
    from benchmarks import trust as tables
    from benchmarks.cases import Case

    found = tables.run(Case(**json.loads(case)))
    sys.stdout.write(json.dumps(tables.to_dict(found)) + "\n")


@app.command()
def compare(
    rev_a: str,
    rev_b: str,
    turns: Annotated[int, typer.Option(help="Pairs of runs.")] = 7,
    quick: Quick = False,
    cpu: Cpu = False,
) -> None:
    """Ratio of the seconds of REV_B to those of REV_A; "." is the checkout as it stands."""
    _count(cpu)
    from benchmarks.compare import CONFIDENCE
    from benchmarks.compare import compare as run

    found = run(rev_a, rev_b, turns=turns, ring_dim=1024 if quick else 1 << 15)
    sys.stdout.write(json.dumps(found.to_dict()) + "\n")
    _say(
        f"{rev_b} takes {found.mean:.3f} of the time of {rev_a}: {found.verdict} "
        f"({CONFIDENCE:.0%} interval {found.low:.3f} to {found.high:.3f}, {found.turns} turns)"
    )


@app.command()
def scaling(
    quick: Quick = False,
    cpu: Cpu = False,
    out: Out = DEFAULT_OUT,
    axis: Annotated[list[str] | None, typer.Option(help="rows, features or parties.")] = None,
) -> None:
    """Cost against rows, features and parties, with plots."""
    _count(cpu)
    from benchmarks import scaling as axes

    every = axes.QUICK_AXES if quick else axes.AXES
    wanted = {name: points for name, points in every.items() if not axis or name in axis}
    axes.save(axes.measure(wanted, _say), out)


@app.command()
def ceremony(quick: Quick = False, parties: int = 3, keys_per_message: int = 4) -> None:
    """The joint keys: bytes and seconds of one party, peak memory of the coordinator."""
    from benchmarks.ceremony import measure

    found = measure(parties, secure=not quick, keys_per_message=keys_per_message)
    sys.stdout.write(json.dumps(found) + "\n")


@app.command()
def replicas(
    quick: Quick = False,
    cpu: Cpu = False,
    parties: int = 3,
    protocol: str = "encrypted-rows",
    rounds: int = 4,
) -> None:
    """Owners that compute what the coordinator does: seconds, bytes, memory."""
    _count(cpu)
    from benchmarks.replicas import measure

    found = measure(parties, protocol, rounds, secure=not quick)
    sys.stdout.write(json.dumps(found) + "\n")


def _count(cpu: bool) -> None:
    if cpu:
        # Before anything loads OpenFHE: it reads the number of threads once.
        os.environ |= {"COHORT_BENCHMARK_CPU": "1", "OMP_NUM_THREADS": "1"}
        from benchmarks.cell import follow_clock

        follow_clock()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    app()
