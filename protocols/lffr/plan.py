"""LFFR on encrypted rows: its plan, and what a party encrypts.

    commit-keys ...     the joint key ceremony                                    `keygen`
    commit-rows ...     rows, label terms, and row sums or noise                  `contribute`
    refresh/k           those of the inverse, then after every iteration          `refresh`
    decrypt             the final weights, once                                   `decrypt`

Party p encrypts x_i and x_i (1/2 - y_io) / A into its own columns, in the units of
`ckks/circuits/lffr.py`, and

- without privacy, its `Curvature.share`: W <- W - B^-1 (grad(W) + 2 ridge W), the simplified fixed
  Hessian b_k = 2 ridge + offset + 0.155 / N sum_i |x_ik| sum_j |x_ij|, encrypted throughout;
- with privacy, its noise for every round: W <- W - eta (grad(W) + noise + 2 ridge W). The rate is
  public: b depends on rows, and would have to be noised for itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits.lffr import LFFR_LEVELS, LffrUnits, OutputLayout, cubic
from protocols.ckks.circuits.rows import MASK_VALUE
from protocols.ckks.column_map import ColumnMap
from protocols.errors import ParameterError
from protocols.models.lffr import CURVATURE, Lffr
from protocols.numerics.approximation import Polynomial
from protocols.numerics.inverse import MAX_RATIO
from protocols.plan.circuit_plan import CircuitPlan, ColumnMaps, Packed, check_depth
from protocols.plan.run_plan import Checks
from protocols.privacy.certificates.lffr import LffrSetting, of_plan, row_bound
from protocols.rows.curvature import Curvature
from protocols.steps.precondition import LEVELS

Array = NDArray[np.float64]
# Of the widest range that is inverted: its end is the offset and what rows add.
SPARE = 1.01


def fixed_hessian_of(largest: float, *, ridge: float = 0.0, offset: float = 0.01) -> Curvature:
    """Public numbers of b; largest: from `curvature.largest_row_sum`.

    offset: beside the ridge, the least one: for wide tables it is what the range of `plan_inverse`
    asks for.
    """
    least = SPARE * CURVATURE * largest / MAX_RATIO
    return Curvature.for_rows(largest, offset=max(offset + 2 * ridge, least), constant=CURVATURE)


def check_lffr(plan: LffrPlan) -> None:
    """Model, levels, rate, ridge, packing."""
    if plan.model != Lffr.name:
        raise ParameterError(f"model={plan.model!r} is not {Lffr.name!r}")
    if plan.whitening is not None:
        raise ParameterError(f"whitening of model {plan.model}: its slots have no proof then")
    cubic(plan.link)
    check_depth(plan, {"one iteration": LFFR_LEVELS + REFRESH_TOWERS - 1})
    if plan.rounds < 1:
        raise ParameterError(f"rounds={plan.rounds} must be at least 1")
    if not 0 < plan.learning_rate < math.inf or not 0 <= plan.ridge < math.inf:
        raise ParameterError(
            f"learning_rate={plan.learning_rate}, ridge={plan.ridge}: the rate must be "
            "positive, the ridge 0 or more"
        )
    if plan.privacy and plan.curvature:
        raise ParameterError(
            "privacy with a preconditioner: it depends on rows and is not noised; "
            "set curvature=None and a public learning_rate"
        )
    if 2 * plan.ridge * plan.largest_step >= 1 + 1e-3:
        raise ParameterError(
            f"ridge={plan.ridge} overshoots at step {plan.largest_step:g}: lower the "
            "learning_rate, or add 2 ridge to the curvature's offset"
        )
    _ = plan.layout


@dataclass(frozen=True, kw_only=True, slots=True)
class LffrPlan(CircuitPlan):
    """LFFR for several outputs.

    outputs: c; rounds: iterations T; link: 1/2 plus an odd polynomial of degree 3; curvature: of
    the encrypted preconditioner, its offset with 2 ridge in it, or None for the public rate alone
    (always with privacy); learning_rate: eta, 1 beside a preconditioner; ridge: weight of |W|^2
    beside the mean squared error.

    Raises:
        ParameterError: fields that do not go together.
    """

    kind: ClassVar[str] = "lffr"
    gathered: ClassVar[str] = "copies"
    checks: ClassVar[Checks] = (*CircuitPlan.checks, check_lffr)

    outputs: int
    rounds: int = field()
    link: Polynomial
    curvature: Curvature | None
    learning_rate: float = 1.0
    ridge: float = 0.0
    model: str = Lffr.name

    @property
    def fitted(self) -> Lffr:
        """What predictions are decoded by."""
        return Lffr()

    @property
    def largest_step(self) -> float:
        """Largest factor of a gradient entry."""
        return self.learning_rate * (self.curvature.inverse.largest if self.curvature else 1.0)

    @property
    def layout(self) -> OutputLayout:
        """Packing of data and side columns."""
        return OutputLayout(
            num_slots=self.ckks.num_slots,
            num_features=self.num_features,
            outputs=self.outputs,
            rows_by_party=tuple(m.rows for m in self.members),
            rounds=1 if self.curvature else self.rounds,
        )

    @property
    def units(self) -> LffrUnits:
        """Of encrypted rows, label terms and noise."""
        step = self.learning_rate / self.num_rows
        return LffrUnits.of(self.link, step / self.curvature.high if self.curvature else step)

    @property
    def rotations(self) -> tuple[int, ...]:
        """The layout's."""
        return self.layout.rotations

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Those of the inversion, then W after every iteration."""
        return (*self._inversion, *(1,) * self.rounds)

    @property
    def _inversion(self) -> tuple[int, ...]:
        if self.curvature is None:
            return ()
        budget = self.ckks.num_towers - REFRESH_TOWERS
        return self.curvature.inverse.refreshes(budget, *LEVELS)

    def column_maps(self, step: int) -> ColumnMaps:
        """The inverse's copies; sums over columns; after the last iteration, the weights' heads."""
        layout, before = self.layout, len(self._inversion)
        if self.curvature is not None and step == before - 1:
            inverse = self.curvature.inverse
            return (ColumnMap.of(layout, inverse.factor * inverse.high, column=0),)
        if step < before:
            return (None,) * self.refreshes[step]
        # W - step * gradient, where the gradient has -2 A^3.
        value = math.copysign(MASK_VALUE, cubic(self.link)[0])
        last = step - before == self.rounds - 1
        return (ColumnMap.of(layout, value, head=0 if last else None),)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of every iteration."""
        return (self.rounds, self.num_features, self.outputs)

    @property
    def model_size(self) -> int:
        """Features times outputs."""
        return self.num_features * self.outputs

    @property
    def learning_rate_per_row(self) -> float:
        """With a public rate, which privacy asks for."""
        return self.learning_rate / self.num_rows

    def row_bound(self, norm_bound: float) -> float:
        """Of x g^T, see `certificates.lffr`."""
        return row_bound(self.link, norm_bound, self.outputs)

    @property
    def unit(self) -> float:
        """Weights are encrypted as W / R, R the link's radius."""
        return self.link.radius

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Slots of the weights."""
        return self.layout.heads(1.0) > 0

    def privacy_setting(self, norm_bound: float) -> LffrSetting:
        """What `certificates.lffr` judges, for rows of this norm.

        Raises:
            ParameterError: the plan has no privacy, or a figure is out of range.
        """
        return of_plan(self, self.outputs, norm_bound)

    def place(self, party: str, *values: Array) -> Packed:
        """Rows and label terms, lifted; side columns."""
        *rows, side = values
        data = self.layout.pack_data(rows, self.party_index(party))
        return {"ciphertexts": list(data)}, [*data.values(), *self.layout.pack_side(side)]
