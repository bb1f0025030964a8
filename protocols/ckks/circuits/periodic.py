"""Packing for an encrypted model that meets rows in the clear: pairs of features, repeated.

A ciphertext of S complex slots holds B = S / k columns of k slots, and a slot two features:
w_f - i w_g for weights. Pair j of column c stands in slot c k + j; d features fill m ciphertexts,
the parts of an output. Weights repeat every k slots, so that they are elements of the subring
(`subring`). Every party packs its own rows. Outputs stand in parts of their own, one after the
other, and share the rows.

Inner products. x_f w_f + x_g w_g is the real part of (x_f + i x_g)(w_f - i w_g): one conjugation
for a group of rows. A slot of a row is to hold the sum over all pairs, hence z of the row. Either

- every slot of every column belongs to one row. Slot j of a column sees pair j + s of the weights
  in rot_s(w), so that with x^(s) its row's pair j + s

      z = sum_s x^(s) rot_s(w) = sum_a rot_ab(sum_(t < b) rot_-ab(x^(ab + t)) rot_t(w)),

  s = ab + t, 0 <= t < b: b - 1 baby steps (`turns`) on each part of w, once a round, k / b - 1
  giant steps (`steps`) on each group, that share one division, k plaintexts of each part;
- or products are turned: sum_s rot_s(x w), where column c + 1 holds the row of column c once more,
  so that the k slots that begin at c k + j are all pairs of the row, whatever j is. A plaintext of
  each part, and log4 k sums of rotations of a group, but only B / 2 rows to a group. What comes out
  in column c + 1 belongs to no row, and is multiplied by zero.

The second is for few rows. At k = 1 there is nothing to turn.

Gradients. (x_f - i x_g) q(z) sums up to g_f - i g_g, as weights are packed. Of r rows in a column,
r a power of two, row i has the slots j = i mod r. It meets all its pairs in r products, s < r, with
pair j - s in slot j. Of each of them the sum over columns is the gradient turned by s places:

    g = sum_s rot_s(sum over groups of conj(x)^(-s) q(z)),

r - 1 rotations of each part where primes are few, whatever the rows, in two steps again, whose keys
are the same. So r B rows are one group, for whose z all that costs most is done once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.context import CONJUGATION
from protocols.errors import ParameterError

Array = NDArray[np.float64]
Complexes = NDArray[np.complex128]


@dataclass(frozen=True, kw_only=True, slots=True)
class PeriodicLayout:
    """Packing of one run.

    num_slots: S, a power of two; num_features: d, bias included; rows_by_party: of a round, in the
    order of the plan; features_per_ciphertext: 2k, a power of two of 2 or more, at most `widest`;
    outputs: c where a vector has shape (d, c), None: (d,).

    Raises:
        ParameterError: no rows, no such k, or more parts than one decryption opens.
    """

    is_complex: ClassVar[bool] = True
    curvature: ClassVar[bool] = False
    num_slots: int
    num_features: int
    rows_by_party: tuple[int, ...]
    features_per_ciphertext: int
    outputs: int | None = None

    def __post_init__(self) -> None:
        held, most = self.features_per_ciphertext, widest(self.num_features)
        if not 2 <= held <= min(most, self.num_slots) or held & (held - 1):
            raise ParameterError(
                f"features_per_ciphertext={held} is not a power of two in 2..{most} at "
                f"{self.num_features} features and {self.num_slots} slots"
            )
        if not self.rows_by_party or min(self.rows_by_party) < 1:
            raise ParameterError("every party needs at least one row")
        if self.num_parts * held > 2 * self.num_slots:
            raise ParameterError(
                f"outputs={self.outputs} of {self.num_features} features: a ring of "
                f"{self.num_slots} slots opens {2 * self.num_slots} numbers at once; take fewer "
                "targets, or a larger ring"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a vector."""
        return (self.num_features,) + (() if self.outputs is None else (self.outputs,))

    @property
    def period(self) -> int:
        """k."""
        return self.features_per_ciphertext // 2

    @property
    def num_blocks(self) -> int:
        """Features per ciphertext, as of `Layout`."""
        return self.features_per_ciphertext

    @property
    def num_outputs(self) -> int:
        """c, or 1."""
        return self.outputs or 1

    @property
    def output_parts(self) -> int:
        """m."""
        return -(-self.num_features // self.features_per_ciphertext)

    @property
    def num_parts(self) -> int:
        """Of all outputs."""
        return self.num_outputs * self.output_parts

    @property
    def block_size(self) -> int:
        """B."""
        return self.num_slots // self.period

    @property
    def num_rows(self) -> int:
        """Rows of all parties."""
        return sum(self.rows_by_party)

    @property
    def groups(self) -> int:
        """Groups of rows of all parties."""
        return sum(map(self.groups_of, self.rows_by_party))

    def groups_of(self, rows: int) -> int:
        """Groups of so many rows of one party."""
        return -(-rows // self.rows_per_group)

    @property
    def rows_per_group(self) -> int:
        """r B, or half of B."""
        return self.block_size * self.rows_of_column // self.columns_of_row

    @property
    def columns_of_row(self) -> int:
        """2 where products are turned."""
        return self._way.columns

    @property
    def rows_of_column(self) -> int:
        """r."""
        return self._way.rows

    @property
    def turns(self) -> int:
        """b: rotations of a part of the weights that are multiplied with rows."""
        return self._way.turns

    @property
    def steps(self) -> tuple[int, ...]:
        """Left rotations b, 2b, ... of sums of a group's products."""
        return () if self.columns_of_row == 2 else tuple(range(self.turns, self.period, self.turns))

    @property
    def sums(self) -> tuple[tuple[int, ...], ...]:
        """Left rotations that sum k slots of turned products, see `_sums`."""
        return _sums(self.period) if self.columns_of_row == 2 else ()

    @property
    def _way(self) -> Way:
        """What costs the party with most rows least."""
        return _cheapest(self.block_size, self.period, self.output_parts, max(self.rows_by_party))

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every key of an automorphism that a run needs."""
        return (CONJUGATION, *range(1, self.turns), *self.steps, *chain.from_iterable(self.sums))

    @property
    def feature_sums(self) -> tuple[tuple[int, ...], ...]:
        """`sums`, of any vector that repeats every k slots: by the keys that are here."""
        return self.sums or tuple(filter(None, (tuple(range(1, self.turns)), self.steps)))

    # -- slots ------------------------------------------------------------------------------------

    def of_parts(self, parts: Complexes) -> Array:
        """Vectors, from the slots (parts, k) of their parts: see `parties.kernel.model`."""
        found: Array = np.ascontiguousarray(parts).reshape(self.num_outputs, -1).view(np.float64)
        return found[:, : self.num_features].T.reshape(self.shape).copy()


class Way(NamedTuple):
    """How rows and weights meet.

    columns: of a row, 2 where products are turned; rows: of a column; turns: of the weights.
    """

    columns: int
    rows: int
    turns: int


@lru_cache(maxsize=1024)
def _cheapest(size: int, period: int, parts: int, rows: int) -> Way:
    """What costs least for so many rows of a party; size: B; parts: of an output."""
    powers = [1 << i for i in range(period.bit_length())]
    ways = [Way(1, r, b) for r in powers for b in powers]
    if period > 1 and size > 1:
        ways.append(Way(2, 1, 1))

    def cost(way: Way) -> float:
        # In rotations at level 0: digits are .4 of one, a key .2, and so is .4 the division by P.
        columns, dense, turns = way
        groups = -(-rows * columns // (size * dense))
        more = period // turns - 1
        if columns == 2:
            more, turned = 0, sum(1 + 0.2 * (len(steps) - 1) for steps in _sums(period))
        else:
            turned = 0.6 * more + 0.4 * (more > 0)
        weights = parts * (0.6 * (turns - 1) + 0.4 * (turns > 1))
        # Where primes are few, all of it is a third, but for the transforms of one prime.
        divided = 0 if dense == 1 else 1 if turns == 1 else dense / turns + (dense > turns)
        back = parts * (0.2 * (dense - 1) + 0.15 * divided)
        # Keys are made once, and kept.
        keys = 0.1 * (turns + period // turns)
        return weights + groups * (_GROUP + turned) + back + keys

    return min(ways, key=cost)


_GROUP = 6
"""Of a group of rows whatever is turned: a conjugation, a link's products [rotations]."""


def _sums(period: int) -> tuple[tuple[int, ...], ...]:
    """Left rotations that sum k slots: v + sum_s rot_s(v), one tuple after the other."""
    found, step = [], 1
    while step < period:
        radix = min(4, period // step)
        found.append(tuple(step * i for i in range(1, radix)))
        step *= radix
    return tuple(found)


def widest(features: int) -> int:
    """Most features per ciphertext that are worth it: all in a single part."""
    return max(2, next_power_of_two(features))
