"""The reciprocal by sums and products alone, with a certified error on a whole public range.

Goldschmidt's iteration with interval shrinking. With beta = b / high in [low / high, 1], u = beta,
y = 1, repeat

    w = 2^k (s - u),   y <- y w,   u <- u w.

Then y = u / beta throughout. For u in [l, h] and s = l + h the image of u 2^k (s - u) is
[2^k l h, 2^k s^2 / 4]: its condition is (l + h)^2 / (4 l h), about a quarter of h / l, and once
that is near 1 its distance from 1 squares. After the last step 1 / b is y * factor to
(h - l) / (h + l). The 2^k keep h in (1/2, 1]; they are doublings, hence cost no level: one step,
one level. The last step takes u = beta y afresh, for one level more: what errors have made of
y = u / beta until then is corrected, as in Newton's iteration.

Certificate: intervals are propagated in exact rationals, widened by WOBBLE in every step. So the
error holds for every b of the range, in float64 and for encryption errors below WOBBLE.
Goldschmidt: IBM J. Res. Dev. 11 (1967) 34, there without s and k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from protocols.errors import ParameterError

# Error of one product, absolute, that the certificate covers. Rescaling leaves 2^-46 at ring 2^15
# and scale 2^59, a refresh 2^-49.
WOBBLE = 2.0**-40
# y and the result reach high / low. A refresh hides values up to v behind some 175 bits: at
# scale 2^59 a coefficient is within 2^-115 v of uniform.
MAX_RATIO = 2.0**12
MAX_STEPS = 20


@dataclass(frozen=True, slots=True)
class InverseStep:
    """shift: s; doublings: k."""

    shift: float
    doublings: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InversePlan:
    """What is public about one inversion; made by `plan_inverse`.

    low, high: range of b; factor: 1 / b is about y * factor after the last step; relative_error:
    bound of |b y factor - 1| on the whole range.
    """

    low: float
    high: float
    steps: tuple[InverseStep, ...]
    factor: float
    relative_error: float

    def multiplier(self, k: int, negative: Any, lift: float = 1.0) -> Any:
        """w of step k from -u, both times `lift`: an array or an encrypted vector.

        u is kept negative, so that s - u is a sum.
        """
        w = negative + lift * self.steps[k].shift
        for _ in range(self.steps[k].doublings):
            w = w + w
        return w

    def advance(self, k: int, y: Any, negative: Any) -> tuple[Any, Any]:
        """(y, -u) after step k, any but the last; y is None before the first."""
        w = self.multiplier(k, negative)
        return (w if y is None else y * w), negative * w

    def finish(self, y: Any, negative_beta: Any) -> Any:
        """y after the last step."""
        if y is None:
            return self.multiplier(-1, negative_beta)
        return y * self.multiplier(-1, negative_beta * y)

    def invert(self, b: Any) -> Any:
        """1 / b to `relative_error`, for b in [low, high], by +, - and * alone."""
        negative_beta = b * (-1.0 / self.high)
        y, negative = None, negative_beta
        for k in range(len(self.steps) - 1):
            y, negative = self.advance(k, y, negative)
        return self.finish(y, negative_beta) * self.factor

    @property
    def largest(self) -> float:
        """No result exceeds this, whatever b of the range."""
        return (1 + self.relative_error) / self.low

    def refreshes(self, budget: int, first: int = 1, end: int = 2) -> tuple[int, ...]:
        """Ciphertexts that each refresh carries, see `pauses`; the last one copies the result."""
        last = len(self.steps) - 1
        return (*(2 if k < last else 1 for k in self.pauses(budget, first, end)), 1)

    def pauses(self, budget: int, first: int = 1, end: int = 2) -> tuple[int, ...]:
        """Steps before which levels have run out: y and u are refreshed, y alone for the last.

        budget: deepest level from which a refresh is possible, at least 4; first: levels before the
        first step, that of the mask that isolates b; end: of the last step. All others take one.
        """
        if budget < 4:
            raise ParameterError(f"levels={budget} between refreshes are below 4: take more depth")
        level, found, last = first, [], len(self.steps) - 1
        for k in range(last):
            if level == budget:
                found.append(k)
                level = 0
            level += 1
        return (*found, last) if last and level + end > budget else tuple(found)


@lru_cache(maxsize=256)
def plan_inverse(low: float, high: float, error: float) -> InversePlan:
    """The fewest steps whose certified relative error is at most `error` on [low, high].

    Raises:
        ParameterError: the range is empty or too wide, or the error is out of reach.
    """
    if not (0 < low < high < math.inf and high <= MAX_RATIO * low):
        raise ParameterError(
            f"low={low}, high={high}: need 0 < low < high <= {MAX_RATIO:g} low; take a larger "
            "offset or tighter column bounds"
        )
    if not 0 < error < 1:
        raise ParameterError(f"error={error} is outside (0, 1)")
    beta = Fraction(low) / Fraction(high)
    interval = _widened((beta, Fraction(1)), Fraction(WOBBLE))
    steps: list[InverseStep] = []
    wobble = Fraction(0)
    for _ in range(MAX_STEPS):
        # If this step is the last one, u is beta y, which differs from u by the factor 1 + wobble.
        last = _widened(interval, Fraction(WOBBLE) + 2 * wobble)
        end = _image(_step(last), last)
        certified = _certified(end, beta)
        if certified <= error:
            factor = 2 / (high * float(end[0] + end[1]))
            return InversePlan(
                low=low,
                high=high,
                steps=(*steps, _step(last)),
                factor=factor,
                relative_error=certified,
            )
        steps.append(_step(interval))
        interval = _image(steps[-1], interval)
        if interval[0] <= 0:
            break
        # Relative errors of y and u, both at least u, in this step; sums up to 1/2 count double.
        wobble += 2 * Fraction(WOBBLE) / interval[0]
    raise ParameterError(
        f"error={error} is out of reach on [{low}, {high}]: allow more, or take a larger offset"
    )


Interval = tuple[Fraction, Fraction]


def _step(interval: Interval) -> InverseStep:
    """The middle, and doublings that leave the largest u in (1/2, 1]."""
    shift = float(interval[0] + interval[1])
    return InverseStep(shift, max(0, math.floor(-2 * math.log2(shift / 2))))


def _image(step: InverseStep, interval: Interval) -> Interval:
    """Of u 2^k (s - u), a parabola: the ends give the least value, s / 2 or an end the largest."""
    shift, scale = Fraction(step.shift), 2**step.doublings
    ends = [scale * u * (shift - u) for u in interval]
    inside = interval[0] <= shift / 2 <= interval[1]
    top = scale * shift**2 / 4 if inside else max(ends)
    return _widened((min(ends), top), Fraction(WOBBLE))


def _widened(interval: Interval, margin: Fraction) -> Interval:
    """By the margin, and outward to floats: exact numerators would double in length each step."""
    bottom, top = float(interval[0] - margin), float(interval[1] + margin)
    return Fraction(math.nextafter(bottom, -1.0)), Fraction(math.nextafter(top, 4.0))


def _certified(interval: Interval, beta: Fraction) -> float:
    """|b y factor - 1|: half width of u; WOBBLE of the least beta and of the last product.

    Relative errors of sum x <= 1/2 multiply to at most 1 + 2 x; the last WOBBLE rounds up.
    """
    low, high = interval
    if low <= 0:
        return math.inf
    wobble = Fraction(WOBBLE) * (1 / beta + 1 / low)
    return float((1 + (high - low) / (high + low)) * (1 + 2 * wobble) - 1) + WOBBLE
