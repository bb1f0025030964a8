"""Table 1's widest sets have some 400 columns: 411 columns, 6 outputs, by all three models.

atp1d where its file is given, or else a made table of its shape (337 rows), columns in [-1, 1] and
few of them relevant. Three parties at 128 bits: seconds, memory, the distance from the plaintext
twin beside the largest weight and beside the noise that opening the model adds, of which it comes,
and what it does to predictions.
The matrix of 412 x 412 stands in 16 ciphertexts (`protocols/ckks/circuits/gram_blocks.py`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.kinds import only
from protocols.steps.decrypt import release_error_std
from sims.lab.papers.data import ATP1D
from sims.lab.papers.item import STAND_IN, About, Result, Row, Settings
from sims.lab.papers.p001.table_1 import PARTIES, trained

CLOSE = 1e-2
"""Of the largest weight; a greater distance is said."""
# Iterations by model, full and quick.
ROUNDS = {"linear": (12, 3), "improved-lffr": (12, 3), "lffr": (3, 1)}


def made(rows: int, columns: int, outputs: int) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """A linear law of ten columns for each output, and noise; the names of the outputs."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (rows, columns))
    law = np.zeros((columns, outputs))
    for k in range(outputs):
        law[rng.choice(columns, min(10, columns), replace=False), k] = rng.normal(size=10)[:columns]
    y = x @ law + 0.1 * rng.normal(size=(rows, outputs))
    names = tuple(f"y{k + 1}" for k in range(outputs))
    frame = pd.DataFrame(x, columns=[f"x{k + 1}" for k in range(columns)])
    return pd.concat([frame, pd.DataFrame(y, columns=list(names))], axis=1), names


def run(settings: Settings) -> Result:
    """One encrypted run of each model; the parties and the coordinator share this process."""
    there, notes = ([], []) if settings.quick else settings.present((ATP1D,))
    shape = (60, 39, 2) if settings.quick else (337, 411, 6)
    frame, names = made(*shape)
    for need in there:
        frame, names = settings.load(need), need.labels
    rows, moved = list[Row](), list[str]()
    for model, rounds in ROUNDS.items():
        result = trained(frame, names, model, rounds[settings.quick], settings)
        size = f"{model}, {shape[1]} columns, {shape[2]} outputs"
        rows += [
            Row(
                quantity=f"{size}: largest weight difference to the twin",
                ours=result.max_abs_diff_to_twin,
                seconds=result.total_seconds,
                note=f"{result.plan.security_bits} bits, {PARTIES} parties, "
                f"{result.plan.rounds} iterations",
            ),
            Row(
                quantity=f"{size}: noise of opening, by the plan",
                ours=release_error_std(only(CircuitPlan, result.plan)),
                note="standard deviation",
            ),
            Row(
                quantity=f"{size}: MSE / range² of test rows, encrypted",
                ours=result.scores["mean_relative_mse"],
            ),
            Row(
                quantity=f"{size}: of the twin",
                ours=result.twin["mean_relative_mse"],
            ),
            Row(
                quantity=f"{size}: seconds of an iteration, coordinator",
                ours=float(np.median(result.costs.iteration_seconds)),
            ),
            Row(
                quantity=f"{size}: peak memory of all together [GB]",
                ours=result.peak_memory_mb / 1e3,
                note="of this process so far",
            ),
        ]
        far = result.max_abs_diff_to_twin / float(np.abs(result.twin_weights).max())
        if far > CLOSE:
            moved.append(f"{far:.0%} ({model})")
    if moved:
        notes.append(f"encryption moves weights by up to {', '.join(moved)} of the largest")
    return Result(rows=tuple(rows), notes=tuple(notes))


ABOUT = About(
    title="411 columns and 6 outputs by all three models, encrypted",
    verdict=STAND_IN,
    finding="the widest set, or one of its shape",
    data=(ATP1D,),
    unknown=("every result: the section is empty",),
    seconds=500,
)
