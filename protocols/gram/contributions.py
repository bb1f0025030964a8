"""Contributions of the Gram protocol: what a linear model needs of the rows, encrypted once.

    contribute  <- matrix, targets twice, row sums twice     (committed to before, see `contribute`)

For least squares the rows matter only through sums, additive over parties:

    H_p = 2 X_p^T X_p / N,   G_p = 2 X_p^T Y_p / N,   b_p,k = 2 sum_i |x_ik| sum_j |x_ij| / N.

b bounds the curvature (Gershgorin: sum_j |H_kj| <= b_k), so W <- W - (H W + 2 ridge W - G) / b
converges at rate 1 (simplified fixed Hessian, multi-output LFFR, section 3.1), and K = (H + 2 ridge
I) / b has no eigenvalue above 1, which is all that faster steps need to know: see `gram.pace`. G
and b travel in both orientations of the layout. Everything is divided by the public `scale` and
multiplied by GAIN, which makes encryption noise small beside that of a rescaling.

Privacy: noise goes onto X^T X / N and X^T Y / N before encryption; all that follows is
post-processing. b is not released: its sensitivity is sqrt(d) times that of X^T X, and a noisy
divisor may be 0. With noise the curvature is the public constant `curvature_bound` instead.
Circuit and loop: `ckks/circuits/gram.py`, `training.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.kernel.gram.sums import GramSums, scaled_sums
from parties.kernel.rows import curvature
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.gram import GramLayout
from protocols.ckks.circuits.gram_blocks import BlockLayout
from protocols.errors import ParameterError
from protocols.exchange.messages import Exchange
from protocols.exchange.wire import RunningSums
from protocols.gram.pace import Pace
from protocols.numerics.inverse import InversePlan, plan_inverse
from protocols.steps.contribute import Opened

Array = NDArray[np.float64]
GAIN = 2.0**16
# Of blocks, whose own rounding is as small as the noise of their encryption times u then.
BLOCK_GAIN = 2.0**22
# Weights are encrypted as W / UNIT. A refresh's masks of some 175 bits hide 59 + 12 + log2 |W|, to
# 100 statistical bits where |W| = 4.
UNIT = 2.0**-12
# M is encrypted as LIFT M, `outer` weights as W / (LIFT UNIT): noise of M counts by 1 / LIFT, but
# what encoding leaves of the mask by LIFT^2.
LIFT = 4.0
# Blocks of a wide matrix are encrypted as BLOCK_LIFT K, which their rounding counts over, down to
# what the parties' noise leaves of them.
BLOCK_LIFT = 512.0
# The inverse only sets the pace of the iterations, see `gram.training`.
INVERSE_ERROR = 2.0**-10
# Of blocks u is encrypted as INVERSE_LIFT u: what multiplies a matrix has a rounding of its own in
# every slot, and what differs between entries of a row changes more than the pace. Errors of what
# the last step corrects count by the root of its own: a step more.
INVERSE_LIFT = 2.0**12
BLOCK_INVERSE_ERROR = 2.0**-20


@dataclass(frozen=True, kw_only=True, slots=True)
class GramTask:
    """Everything public about one regression on sums.

    names: parties in order; num_rows: N, of all parties; num_features: d, bias included; outputs:
    c; rounds: T, the first of which only sets W = G / b; ridge: weight of |W|^2 beside the mean
    squared error; curvature_bound: on b without ridge (see `row_sum_bound`), or with
    `row_sums=False` the constant that replaces it; row_sums: precondition by the parties' row sums;
    floor: added to b, as part of its bound, so that a zero column has an inverse; accelerated: by
    Chebyshev's polynomials, see `gram.pace`; lowest: of the spectrum, over the curvature's bound,
    None: not known; ckks: parameters.

    Raises:
        ParameterError: a field is out of range.
    """

    names: tuple[str, ...]
    num_rows: int
    num_features: int
    outputs: int
    rounds: int
    curvature_bound: float
    ckks: CkksParameters
    ridge: float = 0.0
    row_sums: bool = True
    floor: float = 1 / 64
    accelerated: bool = True
    lowest: float | None = None

    def __post_init__(self) -> None:
        if self.lowest is not None and not 0 < self.lowest < 1:
            raise ParameterError(f"lowest={self.lowest} is outside (0, 1)")
        if self.num_rows < 1 or self.rounds < 1:
            raise ParameterError(f"num_rows={self.num_rows}, rounds={self.rounds}: need >= 1")
        if not 0 < self.curvature_bound < math.inf:
            raise ParameterError(f"curvature_bound={self.curvature_bound} must be positive")
        if not 0 <= self.ridge < math.inf:
            raise ParameterError(f"ridge={self.ridge} must be 0 or more")
        if not 2.0**-12 <= self.floor <= 0.5:
            raise ParameterError(f"floor={self.floor} is outside 2^-12 .. 1/2")
        _ = self.layout

    @property
    def layout(self) -> GramLayout | BlockLayout:
        """Packing: the whole matrix for all outputs in a ciphertext, or blocks of it."""
        return layout_for(self.ckks.num_slots, self.num_features, self.outputs)

    @property
    def in_blocks(self) -> bool:
        """Whether the matrix takes more than one ciphertext."""
        return isinstance(self.layout, BlockLayout)

    @property
    def scale(self) -> float:
        """What all sums are divided by: bound on b with ridge and floor."""
        largest = self.curvature_bound + 2 * self.ridge
        return largest * (1 + self.floor) if self.row_sums else largest

    @property
    def shift(self) -> float:
        """2 ridge / scale: what the ridge adds to the diagonal of H / scale."""
        return 2 * self.ridge / self.scale

    @property
    def inverse(self) -> InversePlan:
        """Of b / scale, which lies between floor plus ridge and 1."""
        low = self.shift + self.floor / (1 + self.floor)
        error = BLOCK_INVERSE_ERROR if self.in_blocks else INVERSE_ERROR
        return plan_inverse(min(low, 1 - INVERSE_ERROR), 1.0, error)

    @property
    def pace(self) -> Pace:
        """Steps on K / `slack`."""
        return Pace.of(self.rounds, self.accelerated, self.lowest)

    @property
    def slack(self) -> float:
        """Bound on K: the inverse of b may be too large by its error."""
        return 1 + INVERSE_ERROR if self.row_sums else 1.0

    @property
    def num_ciphertexts(self) -> int:
        """Of one party."""
        matrices, targets, row_sums = self.layout.counts
        return matrices + targets + row_sums * self.row_sums

    @property
    def lift(self) -> float:
        """Of the parties' sums."""
        return BLOCK_GAIN if self.in_blocks else GAIN

    @property
    def inverse_lift(self) -> float:
        """Of u."""
        return INVERSE_LIFT if self.in_blocks else 1.0

    @property
    def unit(self) -> float:
        """What sums are multiplied by."""
        return self.lift / (self.num_rows * self.scale)

    def place(self, gram: Array, cross: Array, row_sums: Array | None = None) -> list[Array]:
        """Slots of matrix, or its blocks; of targets; of row sums, where they are encrypted."""
        slots = [*self.layout.matrices(gram), *self.layout.targets(cross)]
        return slots if row_sums is None else [*slots, *self.layout.row_sums(row_sums)]

    @property
    def noise_size(self) -> int:
        """Coordinates of the noise: upper triangle of X^T X, then X^T Y."""
        d = self.num_features
        return d * (d + 1) // 2 + d * self.outputs


def layout_for(num_slots: int, num_features: int, outputs: int) -> GramLayout | BlockLayout:
    """The layout of a matrix in ciphertexts of so many slots.

    Raises:
        ParameterError: it fits in neither way.
    """
    shape = {"num_features": num_features, "outputs": outputs}
    try:
        return GramLayout(num_slots=num_slots, **shape)
    except ParameterError:
        return BlockLayout(num_slots=num_slots, **shape)


def row_sum_bound(norm_bound: float, num_features: int, entry_bound: float) -> float:
    """Bound on 2 |x_k| sum_j |x_j|: see `kernel.rows.curvature.row_sum_bound`."""
    return 2 * curvature.row_sum_bound(norm_bound, num_features, entry_bound)


# -- party half -----------------------------------------------------------------------------------


def pack(task: GramTask, sums: GramSums) -> list[Array]:
    """Slots of one party's ciphertexts: matrix, or its blocks; targets; row sums.

    Raises:
        ParameterError: the sums have another shape than the task says.
    """
    d = task.num_features
    if sums.gram.shape != (d, d) or sums.cross.shape != (d, task.outputs):
        raise ParameterError(
            f"sums have shapes {sums.gram.shape} and {sums.cross.shape}, the task says "
            f"{(d, d)} and {(d, task.outputs)}"
        )
    return task.place(*scaled_sums(sums, task.unit, task.row_sums))


# -- coordinator half -----------------------------------------------------------------------------


def collect(
    evaluator: Evaluator, task: GramTask, contributions: Opened
) -> Exchange[Sequence[EncryptedVector]]:
    """The parties' ciphertexts, summed, in the order of `pack`.

    Raises:
        ProtocolError: a party sent too few or too many; `culprit` names it.
    """
    context, both = evaluator.context, evaluator.context.primes * 2
    sums = RunningSums(task.names, [both] * task.num_ciphertexts, context.params.ring_dim)
    yield from contributions(sums.fold)
    return [evaluator.wrap(context.ciphertext(np.split(part, 2))) for part in sums.of({})]
