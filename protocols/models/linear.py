"""Linear regression on targets scaled to [0, 1] (multi-output LFFR, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Linear:
    """Targets as they are: x w stands for the target on [0, 1] itself."""

    name: ClassVar[str] = "linear"

    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets in [0, 1], shape (rows, c)."""
        return targets

    def decode(self, scores: Array) -> Array:
        """Targets from X W, shape (rows, c); values outside [0, 1] are possible."""
        return scores

    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""
        return math.sqrt(outputs)
