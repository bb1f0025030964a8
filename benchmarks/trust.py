"""Rows that stay home: rounds of encrypted-model, encrypted rows beside them, and peers by trust.

Question: what does an iteration cost everybody in one process, and what the slowest party plus the
coordinator, who work at the same time in a deployment? Refreshes are in both.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cell, peer_venv, session
from benchmarks.cases import Case
from benchmarks.table import as_seconds, machine, shown
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS

SPU = ("spu==0.9.5",)
ROUNDS = 6
"""Iterations: at home, the second encodes the rows, and their median should be without that."""
MOST_ROWS = 100_000
"""Of encrypted rows: beyond, their ciphertexts are gigabytes."""

CASES = (
    Case(name="edin", rows=1253, features=9),
    Case(name="synthetic-50", rows=12_000, features=50),
    Case(name="credit", rows=27_000, features=23),
    Case(name="synthetic-20", rows=100_000, features=20),
    # Of three inner iterations the first encodes all rows, once: the median is one of the others.
    Case(name="million", rows=1_000_000, features=20, parties=10, rounds=5),
    Case(name="parties-200", rows=20_000, features=20, parties=200, rounds=10),
)
QUICK = (Case(name="toy", rows=300, features=5, parties=2, secure=False),)

COLUMNS = (
    "data",
    "parties",
    "protocol",
    "slowest party + coordinator",
    "everybody",
    "coordinator",
    "refresh share",
    "MB per party",
    "in all",
    "peak memory",
    "to the twin",
)
PUBLISHED = Path(__file__).with_name("published.json")
"""Figures of peers that are not measured here: {trust: [{system, data, seconds …}]}."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """One run.

    path, everybody, own: seconds an iteration, median of the inner ones, as in `RunResult.summary`;
    share: a party's seconds for each refreshed ciphertext; ciphertexts: refreshed in an iteration;
    megabytes: of the busiest party, by phase; keys, total: seconds of the ceremony and of the run;
    memory: peak of the process [bytes]; difference: of a weight to the twin; load: see `cell`.
    """

    case: dict[str, Any]
    path: float
    everybody: float
    own: float
    share: float
    ciphertexts: int
    megabytes: dict[str, float]
    keys: float
    total: float
    memory: int
    difference: float
    load: tuple[float, float]


def run(case: Case) -> Rounds:
    """Measure one case here and now."""
    load = cell.load()
    found = session.run(case)
    costs, inner = found.costs, case.measured
    return Rounds(
        case=case.to_dict(),
        path=statistics.median(costs.path_seconds[inner]),
        everybody=statistics.median(costs.whole_seconds[inner]),
        own=statistics.median(costs.iteration_seconds[inner]),
        share=found.share_seconds,
        ciphertexts=found.plan.refreshes[-1],
        megabytes={phase: size / 1e6 for phase, size in costs.bytes_per_party.items()},
        keys=costs.seconds["keys"],
        total=sum(costs.seconds.values()),
        memory=cell.peak(),
        difference=float(np.abs(found.weights - found.twin).max()),
        load=(load, cell.load()),
    )


def measure(cases: Sequence[Case], python: Path | None, say: Say) -> dict[str, Any]:
    """Every case by both protocols, each in a process of its own; python: one that has SPU."""
    rows = []
    for case in cases:
        for protocol in (ENCRYPTED_MODEL, ENCRYPTED_ROWS):
            if protocol == ENCRYPTED_ROWS and (case.rows > MOST_ROWS or case.parties > 10):
                continue
            say(f"{case.name}, {protocol}")
            long = replace(case, protocol=protocol, rounds=max(case.rounds, ROUNDS))
            rows.append(cell.fresh("rounds", long))
        if python is not None and case.parties == 3:  # a dealer's protocol for few parties
            say(f"{case.name}, SPU")
            rows.append({"case": case.to_dict(), "spu": spu(case, python)})
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return {"machine": machine(), "rows": rows, "published": published}


def spu(case: Case, python: Path) -> dict[str, Any]:
    """Seconds an iteration on secret shares that one party deals."""
    link = session.plan_of(case).link
    return peer_venv.measure(
        python,
        "spu_training.py",
        rows=case.rows,
        features=case.features + 1,
        parties=case.parties,
        coefficients=list(link.coefficients),
    )


# -- for a person ---------------------------------------------------------------------------------


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    case = row["case"]
    head = [f"{case['name']} {case['rows']:,} x {case['features']}", str(case["parties"])]
    if "spu" in row:
        found = row["spu"]
        each = as_seconds(found["iteration"])
        blank = [""] * 6
        name = f"SPU {found['version']} SEMI2K, a dealer"
        return [*head, name, "", each, *blank[:5], f"{found['difference']:.1g}"]
    mark = "" if cell.quiet(max(row["load"])) else " (busy)"
    return [
        *head,
        case["protocol"],
        f"{as_seconds(row['path'])}{mark}",
        f"{as_seconds(row['everybody'])}{mark}",
        as_seconds(row["own"]),
        f"{1e3 * row['share']:.0f} ms x {row['ciphertexts']}",
        f"{sum(row['megabytes'].values()):,.1f}",
        f"{row['total']:,.0f} s, keys {row['keys']:,.0f} s",
        f"{row['memory'] / 1e9:.1f} GB",
        f"{row['difference']:.1g}",
    ]


def markdown(result: dict[str, Any]) -> str:
    """Ours and what was measured beside it, then what others published, by trust."""
    lines = [*shown(COLUMNS, map(cells, result["rows"])), "", "Not measured here:", ""]
    head = ("trust", "system", "data", "s / iteration", "MB", "rounds")
    cited = (
        [trust, each["system"], each["data"], *(str(each.get(n, "")) for n in _CITED)]
        for trust, listed in result["published"].items()
        for each in listed
    )
    return "\n".join([*lines, *shown(head, cited)]) + "\n"


_CITED = ("seconds", "megabytes", "rounds")


def save(result: dict[str, Any], folder: Path) -> None:
    """trust.json and trust.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trust.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    (folder / "trust.md").write_text(markdown(result), encoding="utf-8")


def to_dict(found: Rounds) -> dict[str, Any]:
    """Plain JSON types."""
    return {**asdict(found), "load": list(found.load)}
