"""The encrypted LFFR gradient: c outputs in the same ciphertexts (multi-output LFFR, section 3.2).

A row is repeated for each output, so that all outputs cost the operations of one.

With weights w' = w / R, link p(z) = 1/2 + t, t = A z' (z'^2 - root) for z' = z / R = X w', and
h = 1/2 - y,

    grad(w) = 2/N X^T (p - y) p (1 - p)
            = -2 A^3 / N * sum x (T + h / A) (T^2 - 1 / (2A)^2),   T = t / A.

Parties encrypt LIFT x and LIFT x h / A. The last saves a product. Lifted, they have LIFT times less
encryption noise, which 1 / b makes large for a column near zero; where LIFT goes they are rounded.

All with c x instead of x, as in `circuit`: z' becomes c z', A becomes A / c^3, T becomes c^3 T, and
the sum c^10 times as large, which brings step 2 |A|^3 / (N R) to MASK_VALUE.

| level | what |
|---|---|
| 1 | the refresh |
| 2 | z' = sum over features of x w' |
| 3 | z'^2 |
| 4 | T = z' (z'^2 - root) |
| 5 | x T + x h / A; T^2 |
| 6 | their product, summed over ciphertexts; the sum over columns is the next refresh's |

A preconditioner B^-1 is multiplied into the lifted ciphertexts, once per run; see `circuit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.rows.curvature import LIFT
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.factors import degree
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import (
    MASK_VALUE,
    REFRESH_LEVEL,
    ColumnSum,
    Preconditioner,
    RowUnits,
    link_factors,
)
from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, is_symmetric

Array = NDArray[np.float64]
LFFR_LEVELS = 6
# Ciphertexts for one set of rows.
KINDS = 2
# The sum over rows grows as this power of c.
_POWER = 10
# Levels at which x B^-1, and x h / A, are multiplied and added.
_T_LEVEL, _TERM_LEVEL = 4, 5


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLayout(Layout):
    """Packing for c outputs, whose data ciphertexts come in pairs.

    x * LIFT at 2k, label terms * LIFT at 2k + 1.
    """

    kinds: ClassVar[int] = KINDS

    def pack_data(self, kinds: Sequence[Array], party: int) -> dict[int, Array]:
        """Slots by data ciphertext of LIFT x and of label terms, each of shape (rows, d, c)."""
        packed = [self.pack_rows(each, party) for each in kinds]
        return {KINDS * k + kind: packed[kind][k] for k in packed[0] for kind in range(KINDS)}


def cubic(link: Polynomial) -> tuple[float, float]:
    """(A, root) with link(z) = 1/2 + A s (s^2 - root), s = z / radius.

    Raises:
        ParameterError: the link is not 1/2 plus an odd polynomial of degree 3 around 0.
    """
    factors = link_factors(link)
    if not is_symmetric(link):
        raise ParameterError("the link must be 1/2 plus an odd polynomial")
    if degree(factors) != 1:
        raise ParameterError(f"degree={link.degree} of the link is not 3, which LFFR runs on")
    return factors.leading, factors.roots[0]


@dataclass(frozen=True, slots=True)
class LffrUnits(RowUnits):
    """In what units rows, label terms and noise are encrypted; see `RowUnits`."""

    @classmethod
    def of(cls, link: Polynomial, largest_step: float) -> LffrUnits:
        """For steps of at most `largest_step` times the sum over rows."""
        leading = abs(cubic(link)[0])
        scale = (2 * largest_step * leading**3 / (link.radius * MASK_VALUE)) ** (1 / _POWER)
        return cls.scaled(link, scale)

    @property
    def leading(self) -> float:
        """A of this link: label terms are c x (1/2 - y) / A."""
        return cubic(self.link)[0]

    @property
    def side_scale(self) -> float:
        """What side columns of noise are divided by: -2 A^3 / c, A of this link."""
        return -2 * self.leading**3 / self.row_scale


class LffrTerms:
    """(x T + x h / A) (T^2 - 1 / (2A)^2) of groups of rows, summed: a `Terms`; see the table.

    data: as in `OutputLayout`; diagonal: of a preconditioner, multiplies what is lifted.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        units: LffrUnits,
        data: Sequence[EncryptedVector],
        diagonal: EncryptedVector | None,
    ) -> None:
        leading, self._root = cubic(units.link)
        self._offset = -1 / (2 * leading) ** 2
        self._evaluator, self._diagonal = evaluator, diagonal
        # Refreshed weights are at this level: so are the rows that they multiply.
        self._rows = self._unlifted(data[0::KINDS], REFRESH_LEVEL)
        self._weighted = self._lowered(data[0::KINDS], _T_LEVEL)
        self._terms = self._lowered(data[1::KINDS], _TERM_LEVEL)

    def __call__(self, weights: EncryptedVector) -> EncryptedVector:
        """At replicated weights / R."""
        data = zip(self._rows, self._weighted, self._terms, strict=True)
        return self._evaluator.products(self._last_operands(*part, weights) for part in data)

    def _lowered(self, lifted: Sequence[EncryptedVector], level: int) -> list[EncryptedVector]:
        """Preconditioned, then without LIFT, at the level where it is used."""
        if self._diagonal is not None:
            lifted = [part * self._diagonal for part in lifted]
        return self._unlifted(lifted, level)

    def _unlifted(self, lifted: Sequence[EncryptedVector], level: int) -> list[EncryptedVector]:
        return [self._evaluator.drop_to(part * (1 / LIFT), level) for part in lifted]

    def _last_operands(
        self,
        rows: EncryptedVector,
        weighted: EncryptedVector,
        terms: EncryptedVector,
        weights: EncryptedVector,
    ) -> tuple[EncryptedVector, EncryptedVector]:
        z = rows @ weights
        t = z * (z * z + -self._root)
        return weighted * t + terms, t * t + self._offset


class LffrGradient:
    """Evaluates step * (grad(w) + noise_t + 2 ridge w) / R on the summed ciphertexts.

    units: of everything encrypted; data: as in `OutputLayout`; noise: side ciphertexts, column t
    the sum over parties of N noise_t / side_scale; preconditioner: multiplies gradient and ridge
    term (no noise then).
    """

    def __init__(
        self,
        evaluator: Evaluator,
        units: LffrUnits,
        data: Sequence[EncryptedVector],
        noise: Sequence[EncryptedVector] = (),
        preconditioner: Preconditioner | None = None,
        ridge: float = 0.0,
    ) -> None:
        self._evaluator, self._ridge, self._inverse = evaluator, ridge, preconditioner
        self._scale = units.side_scale / (evaluator.layout.num_rows * units.weight_unit)
        if preconditioner:
            self._scale *= preconditioner.unit
        diagonal = preconditioner.vector if preconditioner else None
        self._terms = evaluator.over_groups(LffrTerms, units, data, diagonal)
        # Side columns are masked where primes are few.
        self._noise = [evaluator.drop_to(part, LFFR_LEVELS - 1) for part in noise]
        self._round = 0

    def __call__(self, weights: EncryptedVector, step: float) -> ColumnSum:
        """At replicated weights / R; consumes this round's noise."""
        evaluator = self._evaluator
        total = evaluator.finished(self._terms(weights))
        if self._noise:
            total = total + self._next_noise()
        gradient = ColumnSum(total, step * self._scale)
        if not self._ridge:
            return gradient
        pull, inverse = 2 * self._ridge * step, self._inverse
        if inverse is None:
            return gradient + weights * pull
        return gradient + (inverse.vector * weights) * (pull * inverse.unit)

    def _next_noise(self) -> EncryptedVector:
        index, column = divmod(self._round, self._evaluator.layout.block_size)
        self._round += 1
        return self._evaluator.column(self._noise[index], column)
