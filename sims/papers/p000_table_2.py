r"""Table II (and its rows of iDASH, Table I): 5-fold cross-validation, encrypted.

Enhanced Nesterov, 4 iterations, degree 5 on [-8, 8], N_t = 1 + 0.9^t; three parties at 128 bits, a
whole session per fold. Beside it the same rule in float64 over many shuffles: the scatter of one
shuffle's mean is what an honest comparison with the paper's one shuffle allows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from sims.papers.chiang import left_out
from sims.papers.data import EDIN, LBW, NHANES3, PCS, UIS, Need
from sims.papers.folds import PARTIES, Array, Table, configuration, encrypted_folds, plain_folds
from sims.papers.item import Item, Result, Row, Settings

# Accuracy [%], AUC, minutes of learning; Table II, "Ours".
PAPER = {
    EDIN: (89.52, 0.943, 0.6),
    LBW: (71.35, 0.667, 0.6),
    NHANES3: (79.23, 0.637, 4.5),
    PCS: (63.20, 0.733, 0.6),
    UIS: (74.43, 0.597, 0.6),
}
FOLDS, SHUFFLES, ENCRYPTED = 5, 100, 3


def run(settings: Settings) -> Result:
    """Every set that is there; nhanes3 is left out where it is missing."""
    rows: list[Row] = []
    notes: list[str] = []
    for need, paper in PAPER.items():
        if need is NHANES3 and need.missing(settings.data_folder, settings.quick):
            notes.append(left_out(need))
            continue
        if settings.quick and need is not LBW:
            continue
        frame = need.load(settings.data_folder, settings.quick)
        rows += _rows(need, frame, paper, settings)
    return Result(rows=tuple(rows), notes=tuple(notes))


def _rows(
    need: Need, frame: pd.DataFrame, paper: tuple[float, float, float], settings: Settings
) -> list[Row]:
    table = Table.of(need.name, frame, need.labels[0])
    folds = 2 if settings.quick else FOLDS
    shuffles = settings.repetitions(SHUFFLES, 3)
    plain = np.array([plain_folds(table, folds, 1 + k) for k in range(shuffles)])
    found = [
        fold
        for k in range(1 if settings.quick else ENCRYPTED)
        for fold in encrypted_folds(table, folds, configuration(settings.encryption, 1 + k))
    ]
    sessions = f"{len(found)} sessions"
    seconds = sum(fold.seconds for fold in found)
    gap = max(fold.weight_gap for fold in found)
    rows = []
    for k, (name, unit) in enumerate((("accuracy", " [%]"), ("AUC", ""))):
        scale = 100.0 if k == 0 else 1.0
        column = plain[:, k] * scale
        own, twin = (
            scale * float(np.mean([getattr(fold, f"{who}{name.lower()}") for fold in found]))
            for who in ("", "twin_")
        )
        scatter = float(column.std(ddof=1))
        rows += [
            Row(
                quantity=f"{need.name}: {name}{unit}, encrypted",
                paper=paper[k],
                ours=own,
                std_error=scatter,
                seconds=seconds,
                note=f"{found[0].security_bits:g} bits, {PARTIES} parties, {sessions}; "
                f"twin {twin:.4f}, largest weight gap {gap:.1e}",
            ),
            Row(
                quantity=f"{need.name}: {name}{unit}, float64, mean of {shuffles} shuffles",
                paper=paper[k],
                ours=float(column.mean()),
                std_error=scatter,
                note=_distance(own, column),
            ),
        ]
    rows.append(
        Row(
            quantity=f"{need.name}: seconds of an iteration, coordinator",
            paper=60 * paper[2] / 4,
            ours=float(np.median([fold.iteration_seconds for fold in found])),
            note="the paper's at 80 bits on 32 virtual cores, a quarter of its learning time",
        )
    )
    return rows


def _distance(own: float, column: Array) -> str:
    scatter = float(column.std(ddof=1))
    if scatter < 1e-9:
        return "every shuffle gives the same: all rows get one label"
    away = (own - column.mean()) / scatter
    return f"encrypted is {away:+.2f} standard errors of one shuffle away"


ITEM = Item(
    paper="000",
    name="table-2",
    title="5-fold cross-validation of enhanced Nesterov, encrypted, 4 iterations",
    data=tuple(PAPER),
    unknown=(
        "the shuffle; the standard error beside ours is the scatter of one shuffle's mean",
        "whether V or W is scored: W, the last step before extrapolation, here and in the "
        "published code; the printed algorithm returns V, which gives 0.02 to 0.2 % more accuracy",
        "how ties count in the AUC: half here; as 1, edin's is 0.942, the others' stay",
    ),
    remarks=(
        "Algorithm 1 multiplies by B without inverting it, a slip: B-bar = 1 / B "
        "(protocols/updates/quadratic.py)",
        "pcs: the paper's accuracy is 2.5 standard errors of a shuffle below ours, and its AUC "
        "agrees: neither V, nor ties, nor another shuffle of a hundred explains it on average",
        "Table I's iDASH data were given to the competition's entrants only: left out",
    ),
    seconds=520,
    run=run,
)
