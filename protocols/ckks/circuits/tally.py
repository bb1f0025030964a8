"""Which operations the circuit makes, by level: the circuit itself, run on counters.

`Evaluator`, `EncryptedGradient` and the update rules see OpenFHE through a handful of methods. A
`CountingContext` has the same methods, computes nothing, and counts. So the counts cannot drift
from the circuit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import (
    REFRESH_LEVEL,
    EncryptedGradient,
    Preconditioner,
    RowUnits,
    advance,
)
from protocols.numerics.approximation import Polynomial
from protocols.updates.update import Update

# Operation name -> what it is; "relinearise" and "rotate" are the key switches, and "raise" with
# "hoisted" makes one: several rotations of a ciphertext share what is raised.
OPERATIONS = (
    "rotate",
    "raise",  # the digits of a ciphertext that is rotated several times
    "hoisted",  # one of these rotations
    "turned",  # one more of rotations that are added up: it shares all but its key
    "gathered",  # one more of rotations of others that are added up: it shares the division
    "relinearise",
    "tensor",  # ciphertext times ciphertext, not relinearised
    "encode",  # a plaintext, counted at its level
    "plain",  # times a plaintext
    "scalar",  # times a public number
    "rescale",
    "add",  # of ciphertexts, or of a public number
)
# What counts one at the level of its first operand, which it leaves as it is.
_SINGLE = {
    "EvalAdd": "add",  # of ciphertexts, or of a public number
    "EvalSub": "add",
    "EvalAddInPlace": "add",
    "Relinearize": "relinearise",
    "EvalFastRotationPrecompute": "raise",
}
COUNTED = 4
"""Iterations that are counted: those between the second and the last are alike."""
Tally = Mapping[tuple[str, int], int]
"""(operation, level of its operand) -> how many. Dropped primes cost next to none."""


@dataclass(slots=True)
class Shadow:
    """Stands in for a ciphertext: its level only."""

    level: int

    def GetLevel(self) -> int:  # noqa: N802 (OpenFHE's name)
        """Levels consumed."""
        return self.level


class Plain:
    """Stands in for a plaintext."""


class CountingContext:
    """Stands in for `CkksContext` and for OpenFHE's context.

    params: parameters; counts: the tally so far.
    """

    def __init__(self, params: CkksParameters) -> None:
        self.params = params
        self.primes = (1 << params.scale_bits,) * params.num_towers
        self.counts: Counter[tuple[str, int]] = Counter()
        self.cc = self

    def encode(self, values: Any, level: int = 0) -> Plain:
        """A plaintext."""
        self.counts["encode", level] += 1
        return Plain()

    def rotated(self, ct: Shadow, index: int, digits: Shadow | None = None) -> Shadow:
        """A rotation, or a further one of the same ciphertext."""
        _ = index
        return self._count("rotate" if digits is None else "hoisted", ct)

    def gathered(self, first: Shadow, turned: Sequence[tuple[int, Shadow]]) -> Shadow:
        """Rotations that are added up; those of one ciphertext in turn share its digits."""
        for (_, before), (_, ct) in pairwise(turned):
            self._count("turned" if ct is before else "gathered", ct)
        return self._count("rotate", turned[0][1]) if turned else first

    def ciphertext(self, polynomials: Any) -> Shadow:
        """Of these residues; made once, where nothing is counted."""
        return Shadow(self.params.num_towers - len(polynomials[0]))

    def polynomials_of(self, ct: Shadow) -> list[Any]:
        """Nothing is counted."""
        return []

    def rescaling_gain(self, level: int) -> float:
        """Primes are as large as the scale here."""
        _ = level
        return 1.0

    def take(self) -> Tally:
        """The tally since the last call."""
        counts, self.counts = self.counts, Counter()
        return counts

    def _count(self, operation: str, ct: Shadow) -> Shadow:
        """A new one: what works in place must not reach the operand."""
        self.counts[operation, ct.level] += 1
        return Shadow(ct.level)

    # OpenFHE's names, as `Evaluator` calls them.

    def __getattr__(self, name: str) -> Callable[..., Shadow]:
        if name not in _SINGLE:
            raise AttributeError(f"{name} is not counted")
        return lambda ct, *rest: self._count(_SINGLE[name], ct)

    def EvalMult(self, left: Shadow, right: Any) -> Shadow:  # noqa: N802
        """Ciphertext, public number or plaintext."""
        if isinstance(right, float):
            return self._count("scalar", left)
        product = self.EvalMultNoRelin(left, right)
        return product if isinstance(right, Plain) else self._count("relinearise", product)

    def EvalMultNoRelin(self, left: Shadow, right: Any) -> Shadow:  # noqa: N802
        """Ciphertext, or plaintext as a ciphertext of one polynomial."""
        return self._count("plain" if isinstance(right, Plain) else "tensor", left)

    def EvalSquare(self, ct: Shadow) -> Shadow:  # noqa: N802
        """As a product."""
        return self.EvalMult(ct, ct)

    def Rescale(self, ct: Shadow) -> Shadow:  # noqa: N802
        """One level down."""
        return Shadow(self._count("rescale", ct).level + 1)

    def RescaleInPlace(self, ct: Shadow) -> None:  # noqa: N802
        """As `Rescale`."""
        ct.level = self.Rescale(ct).level

    def Compress(self, ct: Shadow, towers: int) -> Shadow:  # noqa: N802
        """Drop primes."""
        return Shadow(self.params.num_towers - towers)


@dataclass(frozen=True, slots=True)
class IterationTally:
    """One iteration: operations by level, and how many ciphertexts its refresh carries."""

    operations: Tally
    refreshed: int

    def total(self, *operations: str) -> int:
        """How many of these operations, at all levels."""
        return sum(n for (name, _), n in self.operations.items() if name in operations)


def tally_iterations(
    params: CkksParameters, layout: Layout, link: Polynomial, rule: Update
) -> tuple[IterationTally, ...]:
    """Every iteration of a run.

    Iterations 0, 1 and the last are counted; those between are as the third of a run of four.
    """
    return _iterations(params, layout, link, cast(Any, rule))


# A plan's cost asks for the same tally party by party. Rules are frozen, hence hashable.
@lru_cache(maxsize=32)
def _iterations(
    params: CkksParameters, layout: Layout, link: Polynomial, rule: Any
) -> tuple[IterationTally, ...]:
    counted = min(layout.rounds, COUNTED)
    short = replace(rule, rounds=counted)
    return whole(_tally(params, replace(layout, rounds=counted), link, short), layout.rounds)


def whole(tallies: list[IterationTally], rounds: int) -> tuple[IterationTally, ...]:
    """All iterations of a run, from those of one of at most COUNTED."""
    middle = tallies[-2:-1] * (rounds - len(tallies))
    return (*tallies[:-1], *middle, tallies[-1])


def _tally(
    params: CkksParameters, layout: Layout, link: Polynomial, rule: Update
) -> list[IterationTally]:
    context: Any = CountingContext(params)
    evaluator = Evaluator(context, layout)
    parts = layout.num_parts

    def shadow(level: int, parts: int = parts) -> EncryptedVector:
        return evaluator.wrap(*[Shadow(level)] * parts)

    rows = [shadow(0) for _ in range(layout.num_data_ciphertexts // parts)]
    side = [shadow(0, 1) for _ in range(layout.num_side_ciphertexts)]
    inverse = Preconditioner(shadow(REFRESH_LEVEL), 1.0) if layout.curvature else None
    units = RowUnits(link, 1.0, link.radius)
    gradient = EncryptedGradient(evaluator, units, rows, side, inverse)
    state = rule.start(shadow(REFRESH_LEVEL))
    tallies = []
    for t in range(layout.rounds):
        sums, kept = advance(evaluator, rule, t, state, gradient)
        refreshed = sum(len(vector.spread().cts) for vector in sums)
        tallies.append(IterationTally(context.take(), refreshed))
        state = (*(shadow(REFRESH_LEVEL) for _ in sums), *kept)
    return tallies
