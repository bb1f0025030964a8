"""From the opened table of a model of K classes to figures; formulas as in `figures`.

Area under ROC: of each class against the rest, by its probability, and the mean of the classes that
occur, `auc`. Each class's noise is its own, so that the mean's std is sqrt(sum of squares) / K.

With privacy log loss and Brier score are those of the middles of the bins: a row's log loss follows
from the bin of its own class, -ln sigmoid(z), its Brier score from its bins of all classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import entr, expit

from protocols.statistics.evaluation.figures import LEAST, Array, Held, area, calibration, shown
from protocols.statistics.evaluation.objective import EvaluationObjective


def class_figures(
    task: EvaluationObjective,
    table: Array,
    *,
    rows: int,
    names: Sequence[str],
    noise_std: float = 0.0,
    least: int = LEAST,
) -> dict[str, Any]:
    """Of one table; arguments as of `figures`; names: of the classes, K.

    by_class: of each class against the rest; confusion: by class, then by the class that is called.
    """
    k, middles = len(names), task.middles
    counts: Array = table[: 2 * task.bins * k].reshape(k, task.bins, 2)
    rest = table[2 * task.bins * k :]
    cells: Array = rest[: k * k].reshape(k, k)
    if task.exact:
        counts, cells = np.rint(counts), np.rint(cells)
    negative, positive = counts[..., 0], counts[..., 1]
    ones = positive.sum(axis=1)
    p = expit(middles)
    losses = np.logaddexp(0.0, -middles)
    squares = np.stack([p**2, (1 - p) ** 2])
    if task.exact:
        log_loss, brier = rest[k * k :] / rows
    else:
        log_loss = float((positive @ losses).sum()) / rows
        brier = float((negative @ squares[0] + positive @ squares[1]).sum()) / rows
    found = [area(positive[i], negative[i], noise_std) for i in range(k)]
    areas, bounds, moved = (np.array(each) for each in zip(*found, strict=True))
    known = ~np.isnan(areas)
    several = math.sqrt(k)
    worst = math.inf if task.exact else float(losses.max())
    held = Held(noise_std / rows)
    shares = np.maximum(ones, 0.0) / max(float(np.maximum(ones, 0.0).sum()), 1.0)
    return {
        "rows": float(rows),
        "auc": held("auc", float(areas[known].mean()) if known.any() else math.nan, None),
        "auc_error_bound": float(bounds[known].mean()) if known.any() else math.nan,
        "auc_noise_std": float(np.linalg.norm(moved[known])) / max(int(known.sum()), 1),
        "accuracy": held("accuracy", float(np.trace(cells)) / rows, several),
        "log_loss": held(
            "log_loss", float(log_loss), several * float(np.linalg.norm(losses)), worst
        ),
        "base_rate_log_loss": float(entr(shares).sum()),
        "brier": held("brier", float(brier), several * float(np.linalg.norm(squares)), 2.0),
        **held.stds,
        "out_of_range": held.out,
        "confusion": {
            own: {called: shown(cells[i, j], least) for j, called in enumerate(names)}
            for i, own in enumerate(names)
        },
        "confusion_noise_std": noise_std,
        "by_class": {
            name: {
                "rows": shown(float(min(max(ones[i], 0.0), rows)), least),
                "auc": float(np.clip(areas[i], 0.0, 1.0)),
                "auc_error_bound": float(bounds[i]),
                "auc_noise_std": float(moved[i]),
                **dict(
                    zip(
                        ("calibration_slope", "calibration_intercept"),
                        calibration(middles, positive[i], negative[i]),
                        strict=True,
                    )
                ),
            }
            for i, name in enumerate(names)
        },
    }
