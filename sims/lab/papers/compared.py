"""Tables 1 and 4 of the barrier paper: private models side by side, each fifth of rows held out.

The paper averages 100 runs over noise and splits. Here every fold is trained on with several draws
of noise; a standard error is that of the folds' means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from protocols.errors import PrivacyError
from sims.lab.papers.barrier import Floats, Rows, short_folds
from sims.lab.papers.data import Need
from sims.lab.papers.item import Row, Settings

Trainer = Callable[[Rows, int, int], tuple[Floats, str]]
"""(rows, N of the noise, runs) -> weights, shape (runs, m), and a remark."""
Figures = Mapping[str, Mapping[str, tuple[float, float]]]
"""The paper's accuracy and AUC, by model and table."""
CLIPPED, NO_CLIP, OUTPUT = "clipping", "no clipping", "output perturbation"


def compared(
    need: Need,
    settings: Settings,
    models: Mapping[str, tuple[str, Trainer]],
    paper: Figures,
    runs: int,
) -> tuple[list[Row], dict[str, Floats]]:
    """Rows of all models, and the accuracies of every run by words, shape (folds * runs,).

    models: the paper's model and how it is trained, by words; runs: of a fold.
    """
    found: dict[str, list[tuple[Floats, Floats]]] = {words: [] for words in models}
    seconds, remarks = dict.fromkeys(models, 0.0), dict.fromkeys(models, "")
    for rows in short_folds(need, settings):
        # quick: few rows, with the noise that all would have
        count = need.rows if settings.quick else len(rows.x)
        for words, (_, train) in models.items():
            began = time.perf_counter()
            try:
                weights, remarks[words] = train(rows, count, runs)
            except PrivacyError as error:
                remarks[words] = str(error)
                continue
            seconds[words] += time.perf_counter() - began
            found[words].append(rows.figures(weights))
    shown = []
    for words, (model, _) in models.items():
        if not found[words]:
            shown.append(Row(quantity=f"{need.name}, {words}", ours=None, note=remarks[words]))
            continue
        for k, name in enumerate(("accuracy", "AUC")):
            values = np.array([fold[k] for fold in found[words]])
            means = values.mean(axis=1)
            several = len(means) > 1
            shown.append(
                Row(
                    quantity=f"{need.name}, {words}: {name}",
                    ours=float(means.mean()),
                    paper=paper[model][need.name][k],
                    std_error=float(means.std(ddof=1) / len(means) ** 0.5) if several else None,
                    seconds=seconds[words],
                    note=f"{remarks[words]}; standard deviation of a run {values.std():.2g}",
                )
            )
    return shown, {w: np.concatenate([f[0] for f in folds]) for w, folds in found.items() if folds}
