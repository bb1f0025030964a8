"""First-order methods with momentum: one step, driven by three public sequences.

    s = keep_t v - rate_t grad(v),   v+ = s - pull_t u

Nesterov's rules have the state (v, W), u = W, and W+ = s. A look-ahead v = (1 + m) w - m w_prev,
by momenta m_t, with steps eta_t and a ridge r that the rule itself adds, is
W_t = (1 + m_{t-1}) w_t and

    keep_t = (1 + m_t) (1 - eta_t r),   rate_t = (1 + m_t) eta_t,   pull_t = m_t / (1 + m_{t-1}),

so that the gradient is scaled once. Where m_t = 0, as in the last iteration, v = W = w: the state
is (w,). Where training starts at 0 there is nothing to pull back to in the first iteration, and
v = W whatever m_0 is. The heavy ball has the state (w, w_prev), u = w_prev.

A plan carries the hyper-parameters and not the sequences, since every certificate is a theorem
about them and each machine computes the same sequences; these are in `sequences`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from protocols.errors import ParameterError
from protocols.updates.update import Update, V, check_fraction, check_positive


class Sequences(NamedTuple):
    """What the plan's public numbers make of every iteration, an entry each."""

    keep: tuple[float, ...]
    rate: tuple[float, ...]
    pull: tuple[float, ...]


class Momentum(Update):
    """A rule that is linear in its gradients.

    ridge: r, coefficient of w that the rule adds to the gradient; carries_point: the state's second
    vector is the point before (heavy ball), not the sum (Nesterov); from_zero: whether training
    starts at 0 alone.
    """

    __slots__ = ()
    ridge: float = 0.0
    carries_point: ClassVar[bool] = False
    from_zero: ClassVar[bool] = False

    @property
    @abstractmethod
    def rates(self) -> tuple[float, ...]:
        """Steps eta_t."""

    @property
    def momenta(self) -> tuple[float, ...]:
        """m_t; the last is 0 unless the rule carries its point."""
        return (0.0,) * self.rounds

    @property
    def sequences(self) -> Sequences:
        """See the module's docstring."""
        return _sequences(self)

    def step(self, gradient: V, state: tuple[V, ...], t: int, unit: float = 1.0) -> tuple[V, ...]:
        """One iteration; linear, so that units do not matter."""
        keep, pull = self.sequences.keep[t], self.sequences.pull[t]
        point: Any = state[0]
        carried: Any = state[-1]
        total = (point * keep if keep != 1 else point) - gradient
        if not pull:
            return (total,)
        return (total - carried * pull, point if self.carries_point else total)

    def weights(self, state: tuple[V, ...], t: int | None = None) -> V:
        """w: the heavy ball's point, or W over its scale 1 + m_t."""
        if self.carries_point or t is None or not self.momenta[t]:
            return state[0]
        carried: Any = state[-1]
        weights: V = carried * (1 / (1 + self.momenta[t]))
        return weights

    def gradient_factor(self, t: int) -> float:
        """rate_t."""
        return self.sequences.rate[t]

    def sums(self, t: int) -> int:
        """v and W, where they differ."""
        return 2 if self.sequences.pull[t] and not self.carries_point else 1

    def levels(self) -> int:
        """The linear combinations cost one level, if there are any."""
        keep, _, pull = self.sequences
        return int(any(pull) or any(k != 1 for k in keep))

    def noise_gain(self) -> float:
        """Of a flat loss: with curvature up to the stable 2 / eta nothing responds more."""
        return self.response(0.0)

    def response(self, ridge: float) -> float:
        """Root of the summed squares of `responses`."""
        return math.sqrt(sum(r**2 for r in self.responses(ridge)))

    def responses(self, ridge: float) -> tuple[float, ...]:
        """What an error of step t, of w_{t+1}, adds to w_T, where all curvature is `ridge`.

        Backwards, with p_v, p_w the response to v_t and w_t:
        r_t = p_w + (1 + m_t) p_v,   p_v <- (1 - eta_t ridge) r_t,   p_w <- -m_t p_v.
        """
        p_v, p_w, found = 0.0, 1.0, []
        for rate, momentum in zip(reversed(self.rates), reversed(self.momenta), strict=True):
            response = p_w + (1 + momentum) * p_v
            p_v, p_w = (1 - rate * ridge) * response, -momentum * p_v
            found.append(response)
        return tuple(reversed(found))

    @property
    def largest_learning_rate(self) -> float:
        """Largest step eta_t."""
        return max(self.rates)

    @property
    def least_learning_rate(self) -> float:
        """Least step eta_t."""
        return min(self.rates)


# Rules are frozen, hence hashable.
@lru_cache(maxsize=256)
def _sequences(rule: Any) -> Sequences:
    rates, momenta, ridge = rule.rates, rule.momenta, rule.ridge
    pairs = tuple(zip(rates, momenta, strict=True))
    if rule.carries_point:
        return Sequences(tuple(1 + m - eta * ridge for eta, m in pairs), rates, momenta)
    before = (0.0, *momenta[:-1])
    return Sequences(
        keep=tuple((1 + m) * (1 - eta * ridge) for eta, m in pairs),
        rate=tuple((1 + m) * eta for eta, m in pairs),
        pull=tuple(
            m / (1 + b) if t or not rule.from_zero else 0.0
            for t, (m, b) in enumerate(zip(momenta, before, strict=True))
        ),
    )


@lru_cache(maxsize=256)
def accelerated(rounds: int, first: float = 1.0) -> tuple[float, ...]:
    """m_t = (a_t - 1) / a_{t+1}, a_{t+1} = (1 + sqrt(1 + 4 a_t^2)) / 2, a_0 = first; at last 0.

    FISTA's momenta (Beck and Teboulle 2009) for first = 1.
    """
    found, a = [], first
    for _ in range(rounds - 1):
        following = (1 + math.sqrt(1 + 4 * a * a)) / 2
        found.append((a - 1) / following)
        a = following
    return (*found, 0.0)


class _Constant(Momentum):
    """Rules of one step for all iterations."""

    __slots__ = ()
    learning_rate: float

    def __post_init__(self) -> None:
        Update.__post_init__(self)
        check_positive(self, "learning_rate")
        if not 0 <= self.ridge * self.learning_rate < 1:
            raise ParameterError(
                f"ridge={self.ridge} times learning_rate={self.learning_rate} is outside [0, 1)"
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate."""
        return (self.learning_rate,) * self.rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientDescent(_Constant):
    """Full-batch gradient descent: w <- (1 - eta r) w - eta (grad(w) + noise).

    rounds: iterations; learning_rate: eta > 0; ridge: r >= 0 (0: none).
    """

    kind: ClassVar[str] = "gd"
    words: ClassVar[str] = "plain gradient descent"
    rounds: int
    learning_rate: float
    ridge: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Nesterov(_Constant):
    """Accelerated full-batch gradient descent with the momenta of FISTA.

    rounds: iterations; learning_rate: eta > 0.
    """

    kind: ClassVar[str] = "nag"
    words: ClassVar[str] = "Nesterov's accelerated gradient descent"
    default_rounds: ClassVar[int] = 10
    rounds: int
    learning_rate: float

    @property
    def momenta(self) -> tuple[float, ...]:
        """FISTA's."""
        return accelerated(self.rounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeavyBall(_Constant):
    """Polyak's heavy ball (arXiv:2008.01989, equation (9)).

        w+ = w - alpha (grad(w) + ridge w + noise) + beta (w - w_prev)

    Equivalently a step along the geometrically weighted mean of all noisy gradients so far
    (equations (14), (15)).

    rounds: iterations; learning_rate: alpha > 0; momentum: beta in [0, 1), 0 is gradient descent;
    ridge: r >= 0 (0: none). On a quadratic with curvatures up to L it is stable exactly for
    alpha L < 2 (1 + beta).
    """

    kind: ClassVar[str] = "hb"
    words: ClassVar[str] = "gradient descent with momentum (heavy ball)"
    carries_point: ClassVar[bool] = True
    rounds: int
    learning_rate: float
    momentum: float
    ridge: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        _Constant.__post_init__(self)
        check_fraction(self, "momentum")

    @property
    def momenta(self) -> tuple[float, ...]:
        """beta."""
        return (self.momentum,) * self.rounds

    def noise_gain(self) -> float:
        """Root of the summed squared responses (1 - beta^k) / (1 - beta), k = 1 .. rounds.

        That is the response of a flat objective. With curvature the roots z, z' of the recursion
        satisfy |z z'| <= beta and |z|, |z'| <= 1, hence the response, sum_j z^j z'^(k-1-j), is at
        most that of the roots 1, beta.
        """
        beta = self.momentum
        responses = ((1 - beta**k) / (1 - beta) for k in range(1, self.rounds + 1))
        return math.sqrt(sum(r * r for r in responses))
