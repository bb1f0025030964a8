"""The steps of the Gram iteration: which polynomial of the preconditioned matrix K is left over.

    V_{t+1} = (level I - gain K) V_t - pull V_{t-1} + targets_t g,   V_0 = 0,   W = V_T / last,

g = u o G / scale, K W* = g, 0 <= K <= 1. Whatever the numbers, W_T - W* = -p(K) W*, p of degree T
with p(0) = 1:

- plain: p(k) = (1 - k)^T, never negative. What K's small eigenvalues belong to is learnt last,
  which noise on the sums makes welcome.
- accelerated: p(k) = C_T((m - k) / h) / C_T(m / h), C_T Chebyshev's polynomial, m +- h the interval
  [a, 1] (Golub and Varga, Numer. Math. 3 (1961) 147). It is the least possible on [a, 1], and below
  1 on (0, a]. a = 1 / (10 T): on [a, 1] at most 1 / cosh(2 sqrt(T / 10)), 1 in 67 for T = 60, where
  plain steps leave 9 of 10 at a; both bounds tend to 0.

**How far W_t gets.** phi_t(k) = (1 - p_t(k)) / k is what makes W_t of g. With the roots r_i of p_t,
p_t = prod (1 - k / r_i), so that 1 - p_t <= min(1, k S), S = sum 1 / r_i, up to the least root r
(Weierstrass), and 1 - p_t <= 1 + e beyond, e the bound of |p_t| there. Plain: S = t, r = 1, e = 0.
Accelerated: r = m - h cos(pi / 2t), S = t tanh(t l) / (h sinh l), e = 1 / cosh(t l), l = arcosh(m /
h). `Pace.reach` has the largest of phi_t and of sqrt(k - k_min) phi_t(k), over t and k >= k_min.

With s_t = C_t(m / h) and r its growth, m / h + sqrt((m / h)^2 - 1), V_t is s_t r^-t W_t: the factor
is between 1/2 and 1, so that no number grows with T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.errors import ParameterError

LOWEST = 10.0
"""1 / (a T)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Public numbers of T iterations.

    level, gain, pull: see the module; targets: of each iteration, from V_0 on; sizes: V_t / W_t
    for t = 1 .. T, the last of which divides the result; lowest: a, 0 of plain steps.
    """

    level: float
    gain: float
    pull: float
    targets: tuple[float, ...]
    sizes: tuple[float, ...]
    lowest: float = 0.0

    @classmethod
    def of(cls, rounds: int, accelerated: bool, lowest: float | None = None) -> Pace:
        """Of T iterations; lowest: a, where the spectrum begins, None: 1 / (10 T).

        Raises:
            ParameterError: rounds is below 1.
        """
        if rounds < 1:
            raise ParameterError(f"rounds={rounds} must be at least 1")
        if not accelerated:
            ones = (1.0,) * rounds
            return cls(1.0, 1.0, 0.0, ones, ones)
        lowest = lowest or 1 / (LOWEST * rounds)
        middle, half = (1 + lowest) / 2, (1 - lowest) / 2
        start = middle / half
        growth = start + math.sqrt(start**2 - 1)
        # s_t = cosh(t ln r), hence s_t r^-t without ever being large.
        sizes = [(1 + growth ** (-2 * t)) / 2 for t in range(rounds + 1)]
        gain = 2 / (half * growth)
        # C_1(x) = x, without the 2 of the later ones.
        targets = (gain / 2, *(gain * size for size in sizes[1:rounds]))
        return cls(gain * middle, gain, growth**-2, targets, tuple(sizes[1:]), lowest)

    @property
    def last(self) -> float:
        """V_T / W_T."""
        return self.sizes[-1]

    def reach(self, flat: float) -> tuple[float, float]:
        """Bounds of sqrt(k - k_min) phi_t(k) and of phi_t, k_min = flat; see the module."""
        rounds = len(self.targets)
        t = np.arange(1, rounds + 1)
        slope: Any = t.astype(float)
        root: Any = np.ones(rounds)
        beyond: Any = np.zeros(rounds)
        if self.pull:
            middle, half = (1 + self.lowest) / 2, (1 - self.lowest) / 2
            angle = -math.log(self.pull) / 2
            slope = t * np.tanh(t * angle) / (half * math.sinh(angle))
            root = middle - half * np.cos(np.pi / (2 * t))
            beyond = 2 / (np.exp(t * angle) + np.exp(-t * angle))
        # sqrt(k - k_min) / k is largest at 2 k_min.
        near, far = np.maximum(1 / slope, 2 * flat), np.maximum(root, 2 * flat)
        length = np.maximum(np.sqrt(near - flat) / near, (1 + beyond) * np.sqrt(far - flat) / far)
        return float(length.max()), float(np.maximum(slope, (1 + beyond) / root).max())

    @property
    def responses(self) -> tuple[float, ...]:
        """Bound of what an error of V_t adds to W_T, over it, t = 1 .. T.

        Chebyshev polynomials of the second kind, largest at K = 0: the sum of pull^j, j <= T - t.
        """
        total, found = 0.0, []
        for j in range(len(self.targets)):
            total += self.pull**j
            found.append(total / self.last)
        return tuple(reversed(found))

    @property
    def travel(self) -> float:
        """Bound of what the same error in every step's matrix adds to W_T, over |W|."""
        return math.fsum(
            response * size
            for response, size in zip(self.responses[1:], self.sizes[:-1], strict=True)
        )
