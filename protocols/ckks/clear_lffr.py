"""A party's LFFR gradient of an encrypted model: rows and targets in the clear, c outputs.

In the units of `lffr_circuit`, T = z' (z'^2 - root) and h = 1/2 - y, a row's slope over -2 A^3 is

    (T + h / A) (T^2 - 1 / (2 A)^2)

h / A is added to T as a plaintext, one for each output and group of rows: the targets take no
product, and no output but the products of its own score.

| level | 1 | 2 | 3 | 4 | 5 | 6 |
|---|---|---|---|---|---|---|
| ready | z' | z'^2 | T | T^2 | the slope | the sums |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from protocols.approximation import Polynomial
from protocols.ckks.circuit import REFRESH_LEVEL, RowUnits
from protocols.ckks.clear_rows import ClearRows
from protocols.ckks.lffr_circuit import LFFR_LEVELS, cubic
from protocols.ckks.periodic import Complexes
from protocols.updates.update import Update


def levels(rule: Update) -> int:
    """Between two refreshes."""
    return max(LFFR_LEVELS, REFRESH_LEVEL + rule.levels() + 1)


def slope(link: Polynomial, z: Any, with_label: Callable[[Any], Any]) -> Any:
    """What rows are multiplied by; with_label: T + h / A, of T."""
    leading, root = cubic(link)
    t = z * (z * z + -root)
    return with_label(t) * (t * t + -1 / (2 * leading) ** 2)


def steepest(units: RowUnits, z: Any) -> Any:
    """The slope of a row whose target is 0; that of 1 is the same at -z."""
    return slope(units.link, z, lambda t: t + 0.5 / cubic(units.link)[0])


class ClearLffr(ClearRows):
    """LFFR's rows, and the gradient that they make; targets: shape (N, c), on [0, 1]."""

    def _slopes(self, group: int, scores: Sequence[Any]) -> list[Any]:
        """Of each output: (T + h / A) (T^2 - 1 / (2 A)^2)."""
        return [
            slope(self._link, z, lambda t, k=k: t.plus(partial(self._label, group, k)))  # type: ignore[misc]
            for k, z in enumerate(scores)
        ]

    def _label(self, group: int, output: int, gain: float, level: int) -> Any:
        """h / A of one output, times a gain that is the same in every round."""
        slots = partial(self._labels, group, output, gain)
        return self._plaintext((group, output, 0, 3), level, slots)

    def _labels(self, group: int, output: int, gain: float) -> Complexes:
        assert self._targets is not None  # noqa: S101 (of the plan)
        own = np.asarray(self._targets).reshape(len(self._rows), -1)[:, output]
        return self._repeated(gain * (0.5 - own) / cubic(self._link)[0], group)
