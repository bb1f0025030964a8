"""From the opened table to figures: how good a model is, in the words of its measures.

Of counts p_b, n_b of positive and negative rows in the bins, P and N in all:

- Area under the ROC curve: sum_b p_b (N_<b + n_b / 2) / (P N), pairs within a bin counting half. It
  is off by at most half of such pairs, sum_b p_b n_b / (2 P N): `auc_error_bound`.
- With noise of std s on every count, independent: the area moves by sum_b dp_b (F_b - A) / P +
  dn_b (G_b - A) / N to first order, F_b and G_b the shares of negatives below and of positives
  above bin b: `auc_noise_std`.
- Calibration: a, b of P(y = 1) = sigmoid(a z + b), every row at the middle of its bin.

Without privacy log loss, Brier score and deciles are sums of their own, exact; with it they are
those of the middles of the bins. The threshold moves the confusion matrix and the accuracy alone:
all else is of whole bins, see `objective`. A cell of fewer than `least` rows is not shown.

With noise a figure that is a sum of counts with weights v, over N rows, moves by std s |v| / N: its
`_noise_std`. One that noise has put out of its possible range is shown as the end that is nearer;
`out_of_range` names it. A bin that the threshold cuts has two counts, and sqrt(2) times the noise;
no cell of the confusion matrix has more noise than `confusion_noise_std`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

from parties.kernel.sums.tables import DECILES, tallied
from protocols.models.model import TargetModel
from protocols.models.registry import model_of
from protocols.statistics.evaluation.objective import EvaluationObjective

Array = NDArray[np.float64]
LEAST = 10
"""Rows of a cell that is shown."""
STEPS = 100


def figures(
    task: EvaluationObjective,
    table: Array,
    *,
    rows: int,
    noise_std: float = 0.0,
    least: int = LEAST,
) -> dict[str, Any]:
    """Of one table of a label.

    table: sums over rows, shape (task.block,); rows: their number, public; noise_std: of
    each of its values, of all parties.
    """
    size, called = task.of_scores.size, task.below
    counts: Array = table[: 2 * size].reshape(-1, 2)
    rest = table[2 * size :]
    counts = np.rint(counts) if task.exact else counts
    cells = {
        "true_negative": counts[:called, 0].sum(),
        "false_negative": counts[:called, 1].sum(),
        "false_positive": counts[called:, 0].sum(),
        "true_positive": counts[called:, 1].sum(),
    }
    negative, positive = task.whole(counts).T
    middles, noisy = task.middles, np.sqrt(task.whole(np.ones(size)))
    ones = float(positive.sum())
    auc, bound, moved = area(positive, negative, noise_std, noisy)
    p = expit(middles)
    losses = np.logaddexp(0.0, np.stack([middles, -middles]))
    squares = np.stack([p**2, (1 - p) ** 2])
    if task.exact:
        decile: Array = rest[: 3 * DECILES].reshape(3, DECILES)
        decile[:2] = np.rint(decile[:2])
        log_loss, brier = rest[3 * DECILES :] / rows
    else:
        decile = _deciles(p, positive, negative)
        log_loss = (negative @ losses[0] + positive @ losses[1]) / rows
        brier = (negative @ squares[0] + positive @ squares[1]) / rows
    slope, intercept = calibration(middles, positive, negative)
    # Half of the counts are called right, and half are positive.
    few = math.sqrt(size)
    worst = math.inf if task.exact else float(losses.max())
    held = Held(noise_std / rows)
    right = (cells["true_negative"] + cells["true_positive"]) / rows
    base = held("base_rate", ones / rows, few)
    return {
        "rows": float(rows),
        "positives": min(max(ones, 0.0), float(rows)),
        "auc": held("auc", auc, None),
        "auc_error_bound": bound,
        "auc_noise_std": moved,
        "accuracy": held("accuracy", right, few),
        "log_loss": held("log_loss", log_loss, float(np.linalg.norm(losses * noisy)), worst),
        "base_rate": base,
        "base_rate_log_loss": float(entr(base) + entr(1 - base)),
        "brier": held("brier", brier, float(np.linalg.norm(squares * noisy))),
        **held.stds,
        "out_of_range": held.out,
        "calibration_slope": slope,
        "calibration_intercept": intercept,
        "threshold": task.threshold,
        "confusion": {name: shown(value, least) for name, value in cells.items()},
        "confusion_noise_std": noise_std * math.sqrt(max(called, size - called)),
        "calibration": _curve(decile, least),
        "roc": _roc(task.of_scores.edges, positive, negative, least),
    }


class Held:
    """Keeps figures within their range; std: of the noise of a count, over the number of rows."""

    def __init__(self, std: float) -> None:
        self._std, self.out, self.stds = std, list[str](), dict[str, float]()

    def __call__(self, name: str, value: float, length: float | None, most: float = 1.0) -> float:
        """From 0 to `most`; length: of the weights that counts have in it; None: no std is noted.

        A value that is not a number stays one: noise has left no row of a label.
        """
        if length is not None:
            self.stds[f"{name}_noise_std"] = self._std * length
        if math.isnan(value):
            return value
        if self._std and not 0 <= value <= most:
            self.out.append(name)
        return float(min(max(value, 0.0), most))


def shown(count: float, least: int) -> float | None:
    """A count, None where it is too small to be shown; a zero tells of no row."""
    return None if 0 < count < least else float(count) + 0.0  # never -0


class Told:
    """Counts of the same rows that a document tells, so that their differences are told, too."""

    def __init__(self, least: int, *counts: float) -> None:
        """Counts: that are known anyway, of which some are perhaps not told."""
        self.least, self.counts = least, [*counts]

    def shown(self, count: float) -> float | None:
        """None where it is too small, or as few more or less than one before."""
        if any(0 < abs(count - each) < self.least for each in self.counts):
            return None
        self.counts.append(count)
        return shown(count, self.least)


def area(
    positive: Array, negative: Array, noise_std: float, noisy: Array | float = 1.0
) -> tuple[float, float, float]:
    """Area, its bound by binning, its std by noise; see the module.

    noisy: of each bin, how many times noise_std its counts have, shape (bins,).
    """
    ones, others = positive.sum(), negative.sum()
    if not (ones > 0 and others > 0):
        return math.nan, math.nan, math.nan
    below = (np.cumsum(negative) - negative / 2) / others
    above = (ones - np.cumsum(positive) + positive / 2) / ones
    found = float(positive @ below / ones)
    bound = float(np.abs(positive * negative).sum() / (2 * ones * others))
    slopes = np.stack([(below - found) / ones, (above - found) / others])
    return found, bound, float(noise_std * np.linalg.norm(slopes * noisy))


def calibration(z: Array, positive: Array, negative: Array) -> tuple[float, float]:
    """a, b of the most likely sigmoid(a z + b) of counted rows; NaN where there is none."""
    rows = np.column_stack([z, np.ones_like(z)])
    total, found = positive + negative, np.array([1.0, 0.0])
    for _ in range(STEPS):
        p = expit(rows @ found)
        gradient = rows.T @ (total * p - positive)
        try:
            step = np.linalg.solve((rows.T * (total * p * (1 - p))) @ rows, gradient)
        except np.linalg.LinAlgError:
            break
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        found = found - step
        if not np.isfinite(found).all() or np.abs(found).max() > 1e4:
            break
        if float(np.abs(step).max()) < 1e-10:
            return float(found[0]), float(found[1])
    return math.nan, math.nan


def _deciles(p: Array, positive: Array, negative: Array) -> Array:
    """Rows, positives and sum of probabilities by decile of the probability, shape (3, 10)."""
    index = np.minimum((p * DECILES).astype(np.intp), DECILES - 1)
    total = positive + negative
    return np.stack(
        [np.bincount(index, weights=w, minlength=DECILES) for w in (total, positive, total * p)]
    )


def _curve(decile: Array, least: int) -> list[dict[str, Any]]:
    """Mean probability and share of positives by decile; None where a decile is too small."""
    points = []
    for k, (rows, ones, p) in enumerate(decile.T):
        kept = rows >= least
        points.append(
            {
                "from": k / DECILES,
                "to": (k + 1) / DECILES,
                "rows": float(rows) if kept else shown(max(rows, 0.0), least),
                "predicted": float(p / rows) if kept else None,
                "observed": float(ones / rows) if kept else None,
            }
        )
    return points


def _roc(edges: Array, positive: Array, negative: Array, least: int) -> list[dict[str, float]]:
    """From (0, 0) to (1, 1), a step of at least `least` rows and a 200th of all each."""
    ones, others = positive.sum(), negative.sum()
    if not (ones > 0 and others > 0):
        return []
    smallest = max(float(least), (ones + others) / 200)
    points, hits, alarms, waiting = [{"false": 0.0, "true": 0.0}], 0.0, 0.0, 0.0
    for k in range(len(positive) - 1, -1, -1):
        hits, alarms = hits + positive[k], alarms + negative[k]
        waiting += positive[k] + negative[k]
        if waiting >= smallest and ones + others - hits - alarms >= least:
            points.append(
                {
                    "false": float(min(max(alarms / others, 0.0), 1.0)),
                    "true": float(min(max(hits / ones, 0.0), 1.0)),
                    "above": float(expit(edges[k])),
                }
            )
            waiting = 0.0
    return [*points, {"false": 1.0, "true": 1.0, "above": 0.0}]


def target_figures(
    table: Array,
    *,
    rows: int,
    low: Array,
    width: Array,
    noise_std: float = 0.0,
    model: str = "linear",
) -> dict[str, Any]:
    """Of one table of targets of a model.

    mean, mean_prediction, mse and mae [target's units], relative_mse, r2; slope and intercept of
    target = a prediction + b; the model's own measures. rows: of all parties, public; low, width:
    of the targets' ranges, shape (c,); noise_std: of each value of the table. See the module for
    `_noise_std` and `out_of_range`; with noise predictions are on [0, 1], so that no error of a row
    exceeds the target's range.
    """
    names = tallied(model)
    mean = dict(zip(names, table.reshape(-1, len(names)).T / rows, strict=True))
    std, most = noise_std / rows, 1.0 if noise_std else math.inf
    raw = {"mse": mean["yy"] - 2 * mean["yp"] + mean["pp"], "mae": mean["absolute"]}
    out = [n for n, values in raw.items() if std and not ((values >= 0) & (values <= most)).all()]
    error, absolute = (np.clip(values, 0.0, most) for values in raw.values())
    spread, variance = mean["yy"] - mean["y"] ** 2, mean["pp"] - mean["p"] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = mean["yp"] - mean["y"] * mean["p"]
        slope = np.where(variance > 0, joint / variance, np.nan)
        r2 = np.where(spread > 0, 1 - error / spread, np.nan)
        # d(1 - e / s) by yp, pp, yy and y; e = yy - 2 yp + pp, s = yy - y^2.
        part = error / spread
        moved = np.stack([2 + 0 * part, 1 + 0 * part, 1 - part, 2 * mean["y"] * part]) / spread
        r2_std = np.where(spread > 0, std * np.linalg.norm(moved, axis=0), np.nan)
    constant = low + width * (mean["y"] - slope * mean["p"]) - slope * low
    return {
        "rows": float(rows),
        "mean": (low + width * mean["y"]).tolist(),
        "mean_prediction": (low + width * mean["p"]).tolist(),
        "mse": (error * width**2).tolist(),
        "mae": (absolute * width).tolist(),
        "relative_mse": error.tolist(),
        # 1, -2 and 1 times independent sums.
        "mse_noise_std": (math.sqrt(6) * std * width**2).tolist(),
        "mae_noise_std": (std * width).tolist(),
        "relative_mse_noise_std": [math.sqrt(6) * std] * len(error),
        "out_of_range": out,
        "r2": r2.tolist(),
        "r2_noise_std": r2_std.tolist(),
        "calibration_slope": slope.tolist(),
        "calibration_intercept": constant.tolist(),
        **model_of(TargetModel, model).of_tallies(mean, width),
    }
