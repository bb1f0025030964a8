"""The encrypted gradient of a generalised linear model with an odd polynomial link.

grad(w) = X^T (p(Xw) - y) / N with p(z) = 1/2 + q(z), q(z) = z r(z^2) odd:
X^T q(Xw) / N is evaluated; X^T (1/2 - y) / N + noise arrives summed in the side columns.

Weights are kept as w' = w / R, R the radius of q's interval, so that z' = X w' lies in [-1, 1] and
x q(z) = A * x z' * prod factors(z'^2), A the leading coefficient of r in the scaled variable.
(Dividing the rows instead would multiply their encryption noise by R.)

| level | degree 3 | degree 5, 7 | degree 9-15 |
|---|---|---|---|
| 1 | z' = sum x w' | = | = |
| 2 | u = z'^2; x z' | = | = |
| 3 | (x z') (u - r) | factors, first product | = |
| 4 | mask | last product, sums | second product |
| 5 |  | mask | last product, sums |
| 6 |  |  | mask |

A preconditioner B^-1 is multiplied into the rows that enter x z', once per run, and into the side
column just above the mask: B^-1 grad(w) costs the levels and, but for one product, the time of
grad(w), and a second copy of the data ciphertexts. (Multiplied into the sum instead, its rounding
error would grow with N, not with 1 / sqrt(N).)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocols.approximation import Polynomial
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.factored import FactoredPolynomial
from protocols.errors import ParameterError


def link_factors(link: Polynomial) -> FactoredPolynomial:
    """r(u) with link(z) = 1/2 + t r(t^2), t = z / radius.

    Raises:
        ParameterError: the link is not 1/2 plus an odd polynomial of degree >= 3 around 0.
    """
    odd, even = link.coefficients[1::2], link.coefficients[0::2]
    if link.center != 0 or even[0] != 0.5 or any(even[1:]) or len(odd) < 2:
        raise ParameterError("the link must be 1/2 plus an odd polynomial of degree at least 3")
    return FactoredPolynomial.from_coefficients(odd)


def gradient_levels(link: Polynomial) -> int:
    """Levels of one gradient: 4, 5, 5 for degree 3, 5, 7; 6 for degree 9 to 15."""
    # inner product, square beside x z', the factors, the mask.
    return 2 + link_factors(link).depth() + 1


def side_scale(link: Polynomial) -> float:
    """What side columns are divided by before encryption: A (the mask multiplies it back)."""
    return link_factors(link).leading


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """A diagonal B^-1. vector: diagonal / unit, replicated, at level 0; unit: public."""

    vector: EncryptedVector
    unit: float


class EncryptedGradient:
    """Evaluates step * grad(w) / R for round t on the summed ciphertexts of all parties.

    rows: groups of rows; side: side ciphertexts, the vector of round t (after the row sums, if the
    layout has them) the sum over parties of (X^T (1/2 - y) + N noise_t) / side_scale;
    preconditioner: multiplies the gradient and its noise.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        link: Polynomial,
        rows: Sequence[EncryptedVector],
        side: Sequence[EncryptedVector],
        preconditioner: Preconditioner | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._factors = link_factors(link)
        self._rows, self._weighted = rows, rows
        self._scale = side_scale(link) / (evaluator.layout.num_rows * link.radius)
        # Side columns are added just above the mask: rotate them there, where primes are few.
        side_level = gradient_levels(link) - 1
        self._diagonal: EncryptedVector | None = None
        if preconditioner:
            self._weighted = [part * preconditioner.vector for part in rows]
            self._scale *= preconditioner.unit
            side_level -= 1
            self._diagonal = evaluator.drop_to(preconditioner.vector, side_level)
        self._side = [evaluator.drop_to(part, side_level) for part in side]
        # Row sums stand in the first columns.
        self._column = 0
        if evaluator.layout.curvature:
            self._next_side()

    def __call__(self, weights: EncryptedVector, step: float) -> EncryptedVector:
        """step * gradient / R at replicated weights / R, replicated; consumes this round's noise.

        After the last round only column 0 is filled: it alone is decrypted.
        """
        evaluator = self._evaluator
        data = zip(self._rows, self._weighted, strict=True)
        pairs = (self._last_product(rows, weighted, weights) for rows, weighted in data)
        total = evaluator.sum_columns(evaluator.sum_of_products(pairs))
        side = self._next_side()
        total = total + (side if self._diagonal is None else side * self._diagonal)
        last = self._column == evaluator.layout.side_columns
        finish = evaluator.mask_heads if last else evaluator.mask_and_replicate
        return finish(total, step * self._scale)

    def _last_product(
        self, rows: EncryptedVector, weighted: EncryptedVector, weights: EncryptedVector
    ) -> tuple[EncryptedVector, EncryptedVector]:
        z = rows @ weights
        left, right = self._factors.last_operands(z * z, weighted * z)
        return left, right

    def _next_side(self) -> EncryptedVector:
        """The next side vector, one column for each part."""
        evaluator = self._evaluator
        return evaluator.join(self._next_column() for _ in range(evaluator.layout.num_parts))

    def _next_column(self) -> EncryptedVector:
        index, column = divmod(self._column, self._evaluator.layout.block_size)
        if column:
            self._side[index] = self._evaluator.rotate(self._side[index], 1)
        self._column += 1
        return self._side[index]
