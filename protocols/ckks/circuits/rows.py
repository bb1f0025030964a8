"""The encrypted gradient of a generalised linear model with a polynomial link.

grad(w) = X^T (p(Xw) - y) / N with p(z) = p(0) + q(z):
X^T q(Xw) / N is evaluated; X^T (p(0) - y) / N + noise arrives summed in the side columns.

Weights are kept as w' = w / R, R the radius of q's interval, so that z' = X w' lies in [-1, 1].
(Dividing the rows instead would multiply their encryption noise by R.) Of 1/2 plus an odd
polynomial, q(z) = z r(z^2), is x q(z) = A * x z' * prod factors(z'^2), A the leading coefficient in
the scaled variable; of any other x q(z) = A * x * prod factors(z'), z' one of them. That takes the
same levels, with twice as many factors; they are ready at level 2, or 3 if quadratic.

| level | degree 3 | degree 5, 7 | degree 9-15 |
|---|---|---|---|
| 1 | the refresh | = | = |
| 2 | z' = sum x w' | = | = |
| 3 | u = z'^2; x z' | = | = |
| 4 | (x z') (u - r) | factors, first product | = |
| 5 |  | last product | second product |
| 6 |  |  | last product |

The sum over columns is left to the next refresh (`ColumnSum`, `column_map`), which multiplies it by
a public number as well. That number, the mask's value, must be neither small, or the mask's last
digit counts, nor large, or the columns' noise does: it is MASK_VALUE at most. So parties encode
c x instead of x, which the polynomial's coefficients make up for; c^(degree + 1) is what brings
step A / (N R) to MASK_VALUE.

A preconditioner B^-1 is multiplied into the rows that enter x z', once per run, and into the side
column: B^-1 grad(w) costs the levels and, but for one product, the time of grad(w), and a second
copy of the data ciphertexts. (Multiplied into the sum instead, its rounding error would grow with
N, not with 1 / sqrt(N).)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.factors import depth, last_operands
from protocols.ckks.factored import FactoredPolynomial, Link
from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, is_symmetric
from protocols.updates.update import Update, V

V_contra = TypeVar("V_contra", contravariant=True)

# Largest value of the refresh's mask. Below, its rounding to 2^-scale_bits counts for more; above,
# the noise in all columns does: both are under one rescaling's at 2^-6 and up to 4096 columns.
MASK_VALUE = 2.0**-6
# Of what comes out of a refresh through a map.
REFRESH_LEVEL = 1


def link_factors(link: Polynomial) -> FactoredPolynomial:
    """r(u) with link(z) = 1/2 + t r(t^2), t = z / radius; of other links link(z) - link(0), in t.

    Raises:
        ParameterError: the link is not a polynomial of degree >= 1 around 0.
    """
    if link.center != 0 or link.degree < 1:
        raise ParameterError("the link must be a polynomial of degree at least 1 around 0")
    return Link.of(link.coefficients).factors


def gradient_levels(link: Polynomial) -> int:
    """Levels of one gradient, the refresh's included: 4 for degree 3; 5 to 7; 6 to 15."""
    # the refresh, inner product, if symmetric the square beside x z', the factors.
    return (3 if is_symmetric(link) else 2) + depth(link_factors(link))


def iteration_levels(link: Polynomial, rule: Update) -> int:
    """Levels between two refreshes."""
    # The rule's own path is multiplied by a public number on its way into the refresh.
    return max(gradient_levels(link), 1 + rule.levels() + 1)


Units = TypeVar("Units", bound="RowUnits")


@dataclass(frozen=True, slots=True)
class RowUnits:
    """In what units rows and side columns are encrypted.

    link: p in t = c z' (the polynomial of radius R / c); row_scale: c; weight_unit: R.
    """

    link: Polynomial
    row_scale: float
    weight_unit: float

    @classmethod
    def of(cls, link: Polynomial, largest_step: float) -> RowUnits:
        """For steps of at most `largest_step` times the sum over rows."""
        leading = abs(link_factors(link).leading)
        power = largest_step * leading / (link.radius * MASK_VALUE)
        scale = power ** (1 / (link.degree + 1))
        return cls.scaled(link, scale)

    @classmethod
    def scaled(cls: type[Units], link: Polynomial, scale: float) -> Units:
        """For rows times `scale`."""
        coefficients = tuple(c * scale**-k for k, c in enumerate(link.coefficients))
        inner = replace(link, coefficients=coefficients, radius=link.radius / scale)
        return cls(inner, scale, link.radius)

    @property
    def side_scale(self) -> float:
        """What side columns are divided by before encryption: A of this link over c."""
        return link_factors(self.link).leading / self.row_scale


class RowTerms:
    """x q(z) of groups of rows, summed, before the last relinearisation: a `Terms`.

    What of a gradient grows with the rows; diagonal: of a preconditioner, multiplies x.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        units: RowUnits,
        rows: Sequence[EncryptedVector],
        diagonal: EncryptedVector | None,
    ) -> None:
        self._evaluator = evaluator
        self._factors, self._in_squares = link_factors(units.link), is_symmetric(units.link)
        # Refreshed weights are at this level: so are the rows that they multiply.
        rows = [evaluator.drop_to(part, REFRESH_LEVEL) for part in rows]
        self._rows = rows
        self._weighted = rows if diagonal is None else [part * diagonal for part in rows]

    def __call__(self, weights: EncryptedVector) -> EncryptedVector:
        """At replicated weights / R."""
        data = zip(self._rows, self._weighted, strict=True)
        return self._evaluator.products(
            self._last_product(rows, weighted, weights) for rows, weighted in data
        )

    def _last_product(
        self, rows: EncryptedVector, weighted: EncryptedVector, weights: EncryptedVector
    ) -> tuple[EncryptedVector, EncryptedVector]:
        z = rows @ weights
        pair = (z * z, weighted * z) if self._in_squares else (z, weighted)
        left, right = last_operands(self._factors, *pair)
        return left, right


class ColumnSum:
    """factor * (sum over the columns of `terms`) + rest, not summed: the next refresh does that.

    terms: any values in the columns, a vector or (`side_by_side`) residues; factor: public; rest:
    replicated, None for zero. Adds to replicated vectors, as any vector does; nothing else is
    possible before the refresh.
    """

    __slots__ = ("factor", "rest", "terms")

    def __init__(self, terms: Any, factor: float, rest: EncryptedVector | None = None) -> None:
        self.terms, self.factor, self.rest = terms, factor, rest

    def __add__(self, other: EncryptedVector) -> ColumnSum:
        if isinstance(other, ColumnSum):
            return NotImplemented
        return ColumnSum(self.terms, self.factor, other if self.rest is None else self.rest + other)

    __radd__ = __add__

    def __sub__(self, other: EncryptedVector) -> ColumnSum:
        if isinstance(other, ColumnSum):
            return NotImplemented
        rest = other * -1.0 if self.rest is None else self.rest - other
        return ColumnSum(self.terms, self.factor, rest)

    def __rsub__(self, other: EncryptedVector) -> ColumnSum:
        rest = other if self.rest is None else other - self.rest
        return ColumnSum(self.terms, -self.factor, rest)

    def spread(self) -> EncryptedVector:
        """Values whose columns sum up to this over `factor`; one level above rest."""
        terms: EncryptedVector = self.terms
        if self.rest is None:
            return terms
        evaluator = terms.evaluator
        share = 1 / (self.factor * evaluator.layout.block_size)
        return terms + evaluator.times(self.rest, share)


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """A diagonal B^-1. vector: diagonal / unit, replicated, at level 0 or 1; unit: public."""

    vector: EncryptedVector
    unit: float


class EncryptedGradient:
    """Evaluates step * grad(w) / R for round t on the summed ciphertexts of all parties.

    units: of everything encrypted; rows: groups of rows, as `Evaluator.hold` has them; side: side
    ciphertexts, the vector of round t (after the row sums, if the layout has them) the sum over
    parties of (X^T (p(0) - y) + N noise_t) / side_scale; preconditioner: multiplies gradient and
    noise.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        units: RowUnits,
        rows: Sequence[EncryptedVector],
        side: Sequence[EncryptedVector],
        preconditioner: Preconditioner | None = None,
    ) -> None:
        self._evaluator = evaluator
        self.weight_unit = units.weight_unit
        diagonal = preconditioner.vector if preconditioner else None
        self._terms = evaluator.over_groups(RowTerms, units, rows, diagonal)
        self._scale = units.side_scale / (evaluator.layout.num_rows * units.weight_unit)
        # Side columns are masked where primes are few.
        side_level = gradient_levels(units.link) - 1
        self._diagonal: EncryptedVector | None = None
        if preconditioner:
            self._scale *= preconditioner.unit
            side_level -= 1
            self._diagonal = evaluator.drop_to(preconditioner.vector, side_level + 1)
        self._side = [evaluator.drop_to(part, side_level) for part in side]
        # Row sums stand in the first columns.
        self._column = evaluator.layout.num_parts if evaluator.layout.curvature else 0

    def __call__(self, point: EncryptedVector, step: float) -> ColumnSum:
        """step * gradient / R at replicated weights / R; consumes this round's noise."""
        evaluator = self._evaluator
        total = evaluator.finished(self._terms(point))
        side = self._next_side()
        total = total + (side if self._diagonal is None else side * self._diagonal)
        return ColumnSum(total, step * self._scale)

    def _next_side(self) -> EncryptedVector:
        """The next side vector, one column for each part."""
        evaluator = self._evaluator
        return evaluator.join(self._next_column() for _ in range(evaluator.layout.num_parts))

    def _next_column(self) -> EncryptedVector:
        index, column = divmod(self._column, self._evaluator.layout.block_size)
        self._column += 1
        return self._evaluator.column(self._side[index], column)


class StepGradient(Protocol[V_contra]):
    """step * gradient / R at a vector of a rule's state, as the next refresh sums it up.

    weight_unit: R.
    """

    weight_unit: float

    def __call__(self, point: V_contra, step: float) -> ColumnSum:
        """At a point."""
        ...


def advance(
    evaluator: Evaluator,
    rule: Update,
    t: int,
    state: tuple[V, ...],
    gradient: StepGradient[V],
) -> tuple[tuple[ColumnSum, ...], tuple[V, ...]]:
    """The state after round t: sums for a refresh to make, and vectors kept as they are.

    The rule's own path is as deep as it fits: there key switches cost least.
    """
    deepest = evaluator.context.params.num_towers - REFRESH_TOWERS
    level = max(REFRESH_LEVEL, deepest - 1 - rule.levels())
    low: Any = evaluator.lowered(state, level)
    scaled: Any = gradient(rule.point(state), rule.gradient_factor(t))
    after = rule.step(scaled, low, t, gradient.weight_unit)
    count = rule.sums(t)
    return after[:count], state[: len(after) - count]
