"""LFFR on encrypted rows: its plan, and what a party encrypts.

    commit-keys ...     the joint key ceremony                                    `keygen`
    commit-rows ...     rows, label terms, and row sums or noise                  `contribute`
    refresh/k           those of the inverse, then after every iteration          `refresh`
    decrypt             the final weights, once                                   `decrypt`

Party p encrypts x_i, twice, and x_i (1/2 - y_io) / A into its own columns, in the units of
`ckks/lffr_circuit.py`, and

- without privacy, its `Curvature.share`: W <- W - B^-1 (grad(W) + 2 ridge W), the simplified fixed
  Hessian b_k = 2 ridge + offset + 0.155 / N sum_i |x_ik| sum_j |x_ij|, encrypted throughout;
- with privacy, its noise for every round: W <- W - eta (grad(W) + noise + 2 ridge W). The rate is
  public: b depends on rows, and would have to be noised for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.rows.curvature import LIFT
from protocols.ckks.circuits.errors import MARGIN, error_std, few_margin
from protocols.ckks.circuits.lffr import KINDS, LFFR_LEVELS, LffrUnits, OutputLayout, cubic
from protocols.ckks.circuits.rows import MASK_VALUE
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.errors import ParameterError
from protocols.lffr import slots as lffr_slots
from protocols.models.lffr import CURVATURE, Lffr
from protocols.numerics.approximation import Polynomial
from protocols.numerics.inverse import MAX_RATIO
from protocols.numerics.slot_bounds import SlotBounds
from protocols.plan.circuit_plan import CircuitPlan, ColumnMaps, Packed, check_depth
from protocols.privacy.certificates.lffr import LffrSetting, of_plan, row_bound
from protocols.privacy.laws.randomness import RandomSource
from protocols.privacy.laws.shares import gaussian_shares
from protocols.rows.curvature import Curvature
from protocols.steps.precondition import LEVELS, relative_error
from protocols.words import Fact, count, link_facts, number, target_facts

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

    outputs: int
    rounds: int = field()
    link: Polynomial
    curvature: Curvature | None
    learning_rate: float = 1.0
    ridge: float = 0.0
    model: str = Lffr.name

    def __post_init__(self) -> None:
        CircuitPlan.__post_init__(self)
        if self.model != Lffr.name:
            raise ParameterError(f"model={self.model!r} is not {Lffr.name!r}")
        if self.whitening is not None:
            raise ParameterError(f"whitening of model {self.model}: its slots have no proof then")
        cubic(self.link)
        check_depth(self, {"one iteration": LFFR_LEVELS + REFRESH_TOWERS - 1})
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not 0 < self.learning_rate < math.inf or not 0 <= self.ridge < math.inf:
            raise ParameterError(
                f"learning_rate={self.learning_rate}, ridge={self.ridge}: the rate must be "
                "positive, the ridge 0 or more"
            )
        if self.privacy and self.curvature:
            raise ParameterError(
                "privacy with a preconditioner: it depends on rows and is not noised; "
                "set curvature=None and a public learning_rate"
            )
        if 2 * self.ridge * self.largest_step >= 1 + 1e-3:
            raise ParameterError(
                f"ridge={self.ridge} overshoots at step {self.largest_step:g}: lower the "
                "learning_rate, or add 2 ridge to the curvature's offset"
            )
        _ = self.layout

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
    def model_size(self) -> int:
        """Features times outputs."""
        return self.num_features * self.outputs

    @property
    def learning_rate_per_row(self) -> float:
        """With a public rate, which privacy asks for."""
        return self.learning_rate / self.num_rows

    def row_bound(self, norm_bound: float) -> float:
        """Of x g^T, see `lffr_certificate`."""
        return row_bound(self.link, norm_bound, self.outputs)

    @property
    def unit(self) -> float:
        """Weights are encrypted as W / R, R the link's radius."""
        return self.link.radius

    def slot_bounds(self, norm_bound: float) -> SlotBounds:
        """See `lffr_slots`."""
        return lffr_slots.bounds(self, norm_bound)

    def model_error_std(self) -> float:
        """Bound on the noise of the encrypted model before its decryption, per coefficient.

        As in `rows`, but the last refresh, which adds one rounding, keeps one of B columns of what
        was there before: k of S slots. An iteration rounds once in the refresh, and in each column
        the product, the noise and the ridge's share, MASK_VALUE sqrt(B) each in the sum.
        Where b_k >= low + 0.155 t, t the mean |x_k|:

        - 1 / b_k errs by a few roundings relative to itself (`precondition`), |grad_k| <= 8/27 t,
          so that a step errs by at most 2 of them;
        - noise in c x moves z by |w| / c <= R / c of it, a slope by 0.2 of that, and a step by at
          most sqrt(t) / b_k <= 1 / (2 sqrt(0.155 low)) of its mean over rows;
        - noise in the lifted c x moves a step by at most (1/2) / low / LIFT / c of its mean, and in
          the lifted label terms by |A| / c as much, A that of `units`, empty columns included;
        - noise in a side column moves a step by MASK_VALUE of it.
        """
        return self._error_std(1 / math.sqrt(self.layout.block_size))

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Slots of the weights."""
        return self.layout.heads(1.0) > 0

    def shown_error_std(self) -> float:
        """All that a head has, of which there are few."""
        return self._error_std(1.0, few_margin(self.model_size))

    def _error_std(self, kept: float, margin: float = MARGIN) -> float:
        """kept: of what was there before the last refresh."""
        size, units, rows = self.layout.block_size, self.units, self.num_rows
        path, root = self.learning_rate * self.rounds, math.sqrt(self.rounds)
        rounding = root * math.hypot(1.0, 2 * MASK_VALUE * math.sqrt(size))
        weight, side = 1.0, MASK_VALUE * root
        if self.curvature:
            relative = relative_error(self.curvature, self.ckks, len(self.members))
            rounding += 2 * path * relative / self.unit
            weight, side = 1 / (2 * math.sqrt(CURVATURE * self.curvature.offset)), 0.0
        lifted = self.largest_step / (2 * LIFT * self.unit * self.learning_rate)
        columns = size * (self.layout.num_data_ciphertexts // KINDS)
        terms = lifted * units.leading * math.sqrt(columns) / rows
        moved = (
            path / units.row_scale * math.hypot((0.2 * weight + lifted) / math.sqrt(rows), terms)
        )
        return error_std(
            self.ckks,
            len(self.members),
            rounding_gain=math.hypot(1.0, rounding * kept),
            row_gain=math.hypot(moved, side) * kept,
            margin=margin,
        )

    def iterate_error_std(self) -> float:
        """Of which the last refresh keeps one of B columns."""
        return math.sqrt(self.layout.block_size) * self.model_error_std()

    def privacy_setting(self, norm_bound: float) -> LffrSetting:
        """What `lffr_certificate` judges, for rows of this norm.

        Raises:
            ParameterError: the plan has no privacy, or a figure is out of range.
        """
        return of_plan(self, self.outputs, norm_bound)

    def draw_noise(self, randomness: RandomSource) -> Array:
        """One party's noise on the mean gradient, shape (rounds, d, c); zeros without privacy."""
        sigma = self.privacy.sigma if self.privacy else 0.0
        shape = (self.rounds, self.num_features, self.outputs)
        size = self.num_features * self.outputs
        return gaussian_shares(sigma, self.split, self.rounds, size, randomness).reshape(shape)

    def place(self, party: str, *values: Array) -> Packed:
        """Rows, the same lifted, label terms; side columns."""
        *rows, side = values
        data = self.layout.pack_data(rows, self.party_index(party))
        return {"ciphertexts": list(data)}, [*data.values(), *self.layout.pack_side(side)]

    def figures(self) -> dict[str, Any]:
        """The iteration, then the encryption."""
        return {
            "update": "fixed-hessian" if self.curvature else "gd",
            "degree": self.link.degree,
            "outputs": self.outputs,
            "ridge": self.ridge,
            **CircuitPlan.figures(self),
        }

    def training_facts(self) -> Iterator[Fact]:
        """The iteration and what it fits."""
        kind, rate = "gd", f"learning rate {number(self.learning_rate)}"
        if self.curvature:
            kind = "fixed Hessian"
            rate = "each coefficient at the rate that a bound on its curvature allows"
        update = f"{kind}, {count(self.rounds, 'iteration')}"
        yield "Update", update, f"gradient descent on encrypted rows; {rate}"
        yield from target_facts(self.ridge, self.outputs)
        yield from link_facts(self.link, self.fitted.link_error(self.link), *self.fitted.stand_in)
