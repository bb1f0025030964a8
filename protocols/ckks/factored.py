"""Polynomials as products of real factors: the shape that costs the fewest levels.

r(u) = leading * prod (u - root) * prod ((u + shift)^2 + offset) over the reals. With u at level l,
a linear factor is ready at l and a quadratic one at l + 1; multiplying always the two operands that
are ready first gives the least depth. Powers of u would need one level more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.errors import ParameterError


@dataclass(frozen=True, slots=True)
class FactoredPolynomial:
    """A real polynomial by its real linear and quadratic factors.

    leading: leading coefficient; roots: of the linear factors (at most one, the remaining real
    roots are paired); quadratics: (shift, offset) of (u + shift)^2 + offset.
    """

    leading: float
    roots: tuple[float, ...]
    quadratics: tuple[tuple[float, float], ...]

    @classmethod
    def from_coefficients(cls, coefficients: Sequence[float]) -> FactoredPolynomial:
        """Factor sum_k coefficients[k] u^k.

        Raises:
            ParameterError: the leading coefficient is zero.
        """
        if not coefficients or coefficients[-1] == 0:
            raise ParameterError(f"leading coefficient of {tuple(coefficients)} is zero")
        roots = np.roots(np.asarray(coefficients[::-1], dtype=float))
        complex_roots = [r for r in roots if r.imag > 0]
        real = sorted(float(r.real) for r in roots if r.imag == 0)
        quadratics = [(-float(r.real), float(r.imag) ** 2) for r in complex_roots]
        single = real[: len(real) % 2]
        paired = real[len(single) :]
        for low, high in zip(paired[::2], paired[1::2], strict=True):
            quadratics.append((-(low + high) / 2, -(((high - low) / 2) ** 2)))
        return cls(float(coefficients[-1]), tuple(single), tuple(quadratics))

    def operands(self, u: Any) -> list[tuple[int, Any]]:
        """Factors as (level above u's, value); works on ciphertexts and on arrays."""
        linear = [(0, u + -root) for root in self.roots]
        moved = [(u + shift, offset) for shift, offset in self.quadratics]
        return linear + [(1, v * v + offset) for v, offset in moved]


@dataclass(frozen=True, slots=True)
class Link:
    """q = p - p(0) of a polynomial p in t = z / radius, by its factors.

    in_squares: p is 1/2 plus an odd polynomial, and the factors are of q(t) / t, in t^2.
    """

    factors: FactoredPolynomial
    in_squares: bool

    @classmethod
    def of(cls, coefficients: Sequence[float]) -> Link:
        """Of t^0, t^1, ….

        Raises:
            ParameterError: the degree is 0.
        """
        if coefficients[0] == 0.5 and not any(coefficients[2::2]):
            return cls(FactoredPolynomial.from_coefficients(coefficients[1::2]), True)
        own = (0.0, *coefficients[1:])
        return cls(FactoredPolynomial.from_coefficients(own), False)

    def quotient(self, z: Any) -> tuple[int, Any]:
        """q / A, and the levels that it takes; z: a ciphertext, an array, what has + and *."""
        if self.in_squares:
            moved = ((level + 1, v) for level, v in self.factors.operands(z * z))
            queue = [(0, z), *moved]
        else:
            queue = self.factors.operands(z)
        while len(queue) > 1:
            queue.sort(key=lambda item: item[0])
            (_, first), (level, second) = queue[:2]
            queue = [(level + 1, first * second), *queue[2:]]
        return queue[0]
