"""A finished run without cryptography: a valid plan, a model, and a transcript that fits it.

The ring is the profile fast-insecure's: INSECURE, for tests only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ciphercohort.job.layout import HALVES, STATUS
from ciphercohort.report.run_folder import RunFolder, file_digest
from ciphercohort.results.documents import to_json
from ciphercohort.results.predict import raw_rows
from ciphercohort.results.result import RunResult
from coordinator.costs import Costs
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from protocols.ckks.circuits.choice import choose_parameters
from protocols.exchange.serialise import to_plain
from protocols.exchange.transcript import Transcript
from protocols.numerics.approximation import reciprocal_approximation, sigmoid_approximation
from protocols.plan.protocol import PHASES, phase_of, sequence
from protocols.plan.run_plan import Member, PrivacyPlan
from protocols.rows.plan import RowsPlan
from protocols.updates.registry import RULES
from sims.twin import fit_optimum, fit_unclipped, run_twin, score

NASTY = "<script>alert('x')</script> & $a$ [red]"
SCHEMA = Schema(
    columns=(
        NumericColumn(name="age", low=0.0, high=100.0, typical=60.0, spread=10.0),
        NumericColumn(name=NASTY, low=-1.0, high=1.0, typical=0.0, spread=0.5),
        CategoricalColumn(name="ward", categories=("A", "B", "C")),
    ),
    label=Label(name="died", positive="yes", negative="no"),
    row_norm=2.0,
)
ROUNDS = 4


def make_frame(rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 12, rows).round(1),
            NASTY: rng.normal(0, 0.5, rows),
            "ward": rng.choice(["A", "B", "C"], rows),
        }
    )
    odds = (frame["age"] - 60) / 8 - frame[NASTY] + (frame["ward"] == "C")
    frame["died"] = np.where(odds + rng.logistic(size=rows) > 0, "yes", "no")
    return frame


BARRIER = {
    "kind": "barrier",
    "rounds": ROUNDS,
    "learning_rate": 3.0,
    "theta": 25.0,
    "weight": 0.01,
    "reciprocal": to_plain(reciprocal_approximation(2, 5.0, 25.0).polynomial),
}
RULE = BARRIER if "barrier" in RULES else {"kind": "gd", "rounds": ROUNDS, "learning_rate": 3.0}


def make_plan(
    rows: dict[str, int], schema: Schema = SCHEMA, privacy: bool = False, secure: bool = False
) -> RowsPlan:
    promise = PrivacyPlan(
        epsilon=1.0, delta=1e-5, colluders=1, sigma=0.02, share_std=0.014, sensitivity=2.0
    )
    return RowsPlan(
        session="00ff00ff00ff",
        members=tuple(
            Member(name=name, rows=count, verify_key="ab" * 32, commitment="cd" * 32)
            for name, count in rows.items()
        ),
        schema={"digest": schema.digest(), "features": list(schema.feature_names)},
        num_features=schema.num_features,
        link=sigmoid_approximation(7, 8.0).polynomial,
        update=RULE,
        ckks=choose_parameters(5, secure=secure),
        privacy=promise if privacy else None,
        profile="secure" if secure else "fast-insecure",
    )


def fake_transcript(plan: RowsPlan, path: Path | None = None) -> tuple[Transcript, Costs]:
    """Two messages per step and party, and the costs that they make."""
    rng = np.random.default_rng(5)
    transcript, costs = Transcript(path), Costs()
    for step in sequence(plan):
        phase = phase_of(step)
        pairs = [("coordinator", name) for name in plan.names]
        pairs += [(name, "coordinator") for name in plan.names]
        for sender, recipient in pairs:
            party = recipient if sender == "coordinator" else sender
            num_bytes = int(rng.integers(300, 3_000_000))
            message = hashlib.sha256(rng.bytes(8)).hexdigest()
            transcript.add(
                step=step, sender=sender, recipient=recipient, size=num_bytes, message=message
            )
            costs.count(phase, party, num_bytes)
    transcript.close()
    costs.seconds.update(zip(PHASES, [0.02, 2.5, 0.7, 3.9, 0.4, 0.1], strict=True))
    costs.iteration_seconds[:] = [1.2, 1.1, 1.15, 1.3][: plan.rounds]
    costs.whole_seconds[:] = [1.8, 1.7, 1.75, 1.9][: plan.rounds]
    costs.path_seconds[:] = [1.4, 1.3, 1.35, 1.5][: plan.rounds]
    return transcript, costs


def make_result(folder: RunFolder | None = None, **changes: Any) -> RunResult:
    """A run of three parties; privacy, secure: of the plan; other changes: fields of the result."""
    rows = {"hospital-1": 120, "<b>north</b>": 80, "hospital-3": 100}
    options = {name: bool(changes.pop(name, False)) for name in ("privacy", "secure")}
    plan = make_plan(rows, **options)
    train = encode_shard(make_frame(300), SCHEMA)
    test = encode_shard(make_frame(200, seed=2), SCHEMA)
    noise = np.zeros((plan.rounds, plan.num_features))
    twin, iterations = run_twin(plan, train.x, train.y, noise, test.x, test.y)
    weights = twin + np.linspace(-3e-7, 2e-7, twin.size)
    clipped = fit_optimum(train.x, train.y)
    raw, test_raw = raw_rows(make_frame(300), SCHEMA), raw_rows(make_frame(200, seed=2), SCHEMA)
    optimum = fit_unclipped(fit_optimum, raw, train.y)
    transcript, costs = fake_transcript(plan, folder.transcript_path if folder else None)
    result = RunResult(
        exact_sums=plan.opens_exact_sums,
        plan=plan,
        schema=SCHEMA,
        schema_from="given",
        released=weights,
        scaling=None,
        weights=weights,
        twin_weights=twin,
        optimum_weights=optimum,
        scores=score(weights, test.x, test.y),
        twin=score(twin, test.x, test.y),
        optimum=score(optimum, test_raw, test.y),
        clipped_optimum_weights=clipped,
        clipped_optimum=score(clipped, test.x, test.y),
        iterations=iterations,
        costs=costs,
        rows_by_party=rows,
        test_x=test.x,
        test_raw=test_raw,
        test_y=test.y,
        clamped={"hospital-1": {"notes": ["values clamped: 3 in age"]}, "hospital-3": {}},
        warnings=("a warning with <i>markup</i>",),
        noise="system" if options["privacy"] else "none",
        peak_memory_mb=612.3,
        total_seconds=9.1,
        transcript_head=transcript.head,
    )
    return replace(result, **changes)


def place(run: Path, name: str) -> Path:
    """Where a file of a run folder is; a report that can be mailed, of the two."""
    halves = [half for half in HALVES if name in (*HALVES[half], STATUS)]
    return run / halves[0] / name


def reseal(run: Path) -> None:
    """Repair the digests, as a forger would."""
    for half in HALVES:
        status = json.loads((run / half / STATUS).read_text())
        status["files"] = {name: file_digest(run / half / name) for name in status["files"]}
        (run / half / STATUS).write_text(to_json(status))


def finished_run(path: Path, **changes: Any) -> RunResult:
    """A finished run folder at `path`."""
    folder = RunFolder.create(path, rounds=ROUNDS)
    result = make_result(folder, **changes)
    folder.write(result)
    return result


CERTIFICATE: dict[str, Any] = {
    "method": "barrier",
    "satisfied": True,
    "setting": {},
    "figures": {"R": 5.1},
    "conditions": [
        {
            "name": "eta_barrier",
            "left": 3.0,
            "relation": "<=",
            "right": 3.5,
            "satisfied": True,
            "meaning": "(1), first part: eta <= kappa Theta / lambda",
        },
        {
            "name": "alpha",
            "left": 0.2,
            "relation": "<",
            "right": 1.0,
            "satisfied": True,
            "meaning": "alpha = 2 eta lambda m_P < 1",
        },
    ],
    "binding": "eta_barrier",
    "epsilon": [0.9, 1.0],
    "assumptions": ["every row's norm, bias column included, is at most norm_bound"],
}
