"""GramPlan: the frozen, hashed description of one regression on Gram sums.

commit-keys ...     the joint key ceremony                                    `keygen`
commit-rows ...     encrypted sums, noise included                            `gram`
refresh/k           when levels run out                                       `refresh`
decrypt             the final model, once                                     `decrypt`
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.gram.sums import GramSums, gram_sums
from protocols.errors import ParameterError
from protocols.gram.contributions import UNIT, GramTask
from protocols.gram.training import refresh_schedule
from protocols.models.gram_models import GramModel, gram_model
from protocols.numerics import arithmetic
from protocols.plan.circuit_plan import CircuitPlan, Packed
from protocols.plan.run_plan import Checks
from protocols.privacy.certificates.gram import GramRelease
from protocols.privacy.loss.budget import Budget


def check_gram(plan: GramPlan) -> None:
    """Whitening, iterations, and what the circuit can do."""
    if plan.whitening is not None and (plan.privacy or plan.ridge):
        raise ParameterError(
            "whitening of sums with privacy or a ridge: their noise and their ridge are those "
            "of rows as they are; leave whitening out"
        )
    gram_model(plan.model)
    if plan.rounds < 1:
        raise ParameterError(f"rounds={plan.rounds} must be at least 1")
    # Refuses what the circuit cannot do: too many features, too few levels.
    _ = plan.refreshes


@dataclass(frozen=True, kw_only=True, slots=True)
class GramPlan(CircuitPlan):
    """Least squares on Gram sums; `model` is "linear" or "improved-lffr".

    outputs: targets c; rounds: iterations T; ridge, curvature_bound, floor, accelerated, lowest:
    see `GramTask`. With privacy the curvature is the constant `curvature_bound` instead of the
    parties' row sums.

    Raises:
        ParameterError: fields that do not go together.
    """

    kind: ClassVar[str] = "gram"
    gathered: ClassVar[str] = "sums"
    on_grid: ClassVar[bool] = True
    checks: ClassVar[Checks] = (*CircuitPlan.checks, check_gram)
    later: ClassVar[tuple[str, ...]] = (*CircuitPlan.later, "lowest")

    outputs: int
    rounds: int = field()
    curvature_bound: float
    ridge: float = 0.0
    floor: float = 1 / 64
    accelerated: bool = True
    lowest: float | None = None

    @property
    def task(self) -> GramTask:
        """What circuit and parties need to know."""
        return GramTask(
            names=self.names,
            num_rows=self.num_rows,
            num_features=self.num_features,
            outputs=self.outputs,
            rounds=self.rounds,
            ridge=self.ridge,
            curvature_bound=self.curvature_bound,
            floor=self.floor,
            row_sums=self.privacy is None,
            accelerated=self.accelerated,
            lowest=self.lowest,
            ckks=self.ckks,
        )

    @property
    def fitted(self) -> GramModel:
        """What targets are encoded by, and predictions decoded."""
        return gram_model(self.model)

    def drops(self, term: str) -> str:
        """Weighted sums are those of rows times sqrt(u)."""
        if term == "weight":
            return ""
        return "the fit is that of the target less the offset: subtract it there"

    @property
    def rotations(self) -> tuple[int, ...]:
        """The layout's."""
        return self.task.layout.rotations

    @property
    def refreshes(self) -> tuple[int, ...]:
        """The training's, counted by running it on counters."""
        return refresh_schedule(self.task)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of the sums."""
        return (self.task.noise_size,)

    @property
    def model_size(self) -> int:
        """Features times outputs."""
        return self.num_features * self.outputs

    @property
    def learning_rate_per_row(self) -> float:
        """Noise comes before encryption."""
        return math.inf

    def row_bound(self, norm_bound: float) -> float:
        """Noise comes before encryption."""
        return 0.0

    @property
    def unit(self) -> float:
        """Weights are encrypted as W / UNIT."""
        return UNIT

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Slots of the weights."""
        found: NDArray[np.bool_] = self.task.layout.released() > 0
        return found

    def place(self, party: str, *values: NDArray[np.float64]) -> Packed:
        """See `GramTask.place`."""
        return {}, self.task.place(*values)

    def encoded_norm(self, norm_bound: float) -> float:
        """Bound on the norm of the rows that are summed."""
        if self.whitening is None:
            return norm_bound
        return float(np.linalg.norm(np.array(self.whitening.matrix), 2)) * norm_bound

    def decode(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the owners' rows."""
        if self.whitening is None:
            return weights
        return np.asarray(np.array(self.whitening.matrix) @ weights)

    def contribution(
        self,
        rows: NDArray[np.float64],
        targets: NDArray[np.float64],
        noise: NDArray[np.float64],
        weight: NDArray[np.float64] | float = 1.0,
    ) -> GramSums:
        """One party's sums as the twin adds them, of targets on [0, 1]: see `gram_sums`."""
        bounds, bits = None, 0
        if self.privacy is not None:
            # Encoded columns are on [-1, 1], whatever norm rows are clipped to.
            bounds = math.sqrt(self.num_features), self.fitted.bound(self.outputs)
            bits = self.split.grid(self.privacy.sigma).granularity_bits
        encoded = self.fitted.encode(targets)
        if self.whitening is not None:
            rows = rows @ np.array(self.whitening.matrix)
        return gram_sums(rows, encoded, noise, weight, bounds, self.num_rows, bits)

    def privacy_setting(self, norm_bound: float) -> GramRelease:
        """What decides about privacy, for rows of norm at most `norm_bound`.

        Raises:
            ParameterError: no privacy, or a field is out of range.
        """
        privacy = self.privacy
        if privacy is None:
            raise ParameterError("privacy=None: the plan promises none")
        return GramRelease(
            budget=Budget.of(privacy, self.split, **arithmetic.beside()),
            norm_bound=norm_bound,
            target_bound=self.fitted.bound(self.outputs),
            rows=self.num_rows,
            features=self.num_features,
            outputs=self.outputs,
            ridge=self.ridge,
            sigma=privacy.sigma,
        )
