"""LFFR's gradient of an encrypted model, of rows in the clear."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from parties.kernel.model import Array, Complexes
from parties.kernel.model.clear_rows import ClearRows, Gained
from protocols.ckks.lffr import lffr_slope


class ClearLffr(ClearRows):
    """LFFR's rows, and the gradient that they make; targets: shape (N, c), on [0, 1].

    In the units of `LffrUnits`, T = z' (z'^2 - root) and h = 1/2 - y, a row's slope over -2 A^3
    is (T + h / A) (T^2 - 1 / (2 A)^2). h / A is added to T as a plaintext, one for each output and
    group of rows: the targets take no product, and no output but the products of its own score.
    z'^2 is ready at level 2, T at 3, T^2 at 4, the slope at 5.
    """

    def _slopes(self, group: int, scores: Sequence[Gained]) -> list[Gained]:
        """Of each output."""
        return [
            lffr_slope(self._link, z, partial(self._labelled, group, k))
            for k, z in enumerate(scores)
        ]

    @staticmethod
    def known(link: Sequence[float], radius: float, t: int, targets: Array, offset: Array) -> Array:
        """See `ClearRows.known`; every slope needs weights but at t = 0."""
        start = link[0]
        return np.zeros_like(targets) if t else 2 * (start - targets) * start * (1 - start)

    @staticmethod
    def side(leading: float) -> float:
        """-2 A^3."""
        return -2 * leading**3

    def _labelled(self, group: int, output: int, t: Gained) -> Gained:
        label = self._label(group, output, t.gain, t.level)
        return Gained(t.context, t.context.cc.EvalAdd(t.ct, label), t.gain)

    def _label(self, group: int, output: int, gain: float, level: int) -> Any:
        """h / A of one output, times a gain that is the same in every round."""
        slots = partial(self._labels, group, output, gain)
        return self._plaintext((group, output, 0, 3), level, slots)

    def _labels(self, group: int, output: int, gain: float) -> Complexes:
        assert self._targets is not None  # noqa: S101 (of the plan)
        own = np.asarray(self._targets).reshape(len(self._rows), -1)[:, output]
        return self._repeated(gain * (0.5 - own) / self._link.factors.leading, group)
