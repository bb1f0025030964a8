"""How much noise will move what an evaluation opens, from public figures, before it is paid for.

A figure says nothing where a 95 % interval, four standard deviations, is as wide as all that useful
models have: an area under the ROC curve from 1/2 to 1, a squared error over range^2 from 0 to 1/4,
the largest variance of a target on [0, 1].

The std of an area depends on counts that nobody knows yet (`figures`): it is that of classes of the
same size whose scores, without skill, are spread evenly over the middle half of the bins. F_b - A
and G_b - A are then +-1/2 in one half of the bins and even on [-1/2, 1/2] in the other: 1/6 in the
mean square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.statistics.evaluation.objective import EvaluationObjective


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Of a figure: the std of its noise, and the largest that says anything."""

    figure: str
    std: float
    largest: float

    @property
    def excess(self) -> float:
        """Above 1 it says nothing. It falls as 1 / rows, and as 1 / mu."""
        return self.std / self.largest


def foreseen(task: EvaluationObjective, rows: int, noise_std: float) -> Foreseen:
    """rows: that a table is of; noise_std: of each of its sums."""
    if task.numeric:
        # 1, -2 and 1 times independent sums.
        std = math.sqrt(6) * noise_std / rows
        return Foreseen("the squared error over range²", std, 1 / 4 / 4)
    classes = max(len(task.weights), 2)
    of_class = math.hypot(classes, classes / (classes - 1)) * math.sqrt(task.bins / 6)
    # The mean of independent areas; of two classes there is one.
    of_mean = of_class / math.sqrt(len(task.weights))
    return Foreseen("the area under ROC", of_mean * noise_std / rows, 1 / 2 / 4)
