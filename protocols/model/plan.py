"""The encrypted-model protocol's plan: gradient training in which rows stay with their owners.

    commit-keys …     the joint key ceremony                                     `keygen`
    pad-keys …        keys of pads that cancel                                   `pads`
    evaluation-keys/k the joint evaluation keys                                  `gradient`
    gradient/t        the encrypted model down, encrypted gradients up           `gradient`
    refresh/t         what the update makes of their sum                         `refresh`
    decrypt           the final model, once                                      `decrypt`

Rule, polynomial, noise and certificate are those of encrypted rows: so is the twin.

No rule inverts an encrypted curvature here: two features share a slot, so that their two factors
would take a product with the gradient and one with its conjugate, a level more in every round. The
quadratic gradient takes its diagonal from a noisy second moment that is public, and owners rescale
their columns by it (`updates.rescaled`): rounds cost what those of gd and nag do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.periodic import PeriodicLayout, widest
from protocols.ckks.circuits.rows import RowUnits
from protocols.ckks.circuits.rows_at_home import levels
from protocols.ckks.subring import TraceMap
from protocols.errors import ParameterError
from protocols.model import minibatch
from protocols.models.model import TargetModel
from protocols.models.registry import model_of
from protocols.names import ENCRYPTED_MODEL, SECURE_AGGREGATION
from protocols.numerics.approximation import Polynomial
from protocols.plan.run_plan import Checks
from protocols.privacy.laws import RandomSource
from protocols.rows.plan import RowsPlan
from protocols.updates.momentum import Momentum
from protocols.updates.update import Update

Array = NDArray[np.float64]


def check_batches(plan: ModelPlan) -> None:
    """Before anything is packed."""
    if plan.batches < 1:
        raise ParameterError(f"batches={plan.batches} is below 1, which is all rows")
    if plan.batches == 1:
        return
    if plan.privacy is not None:
        raise ParameterError(
            f"batches={plan.batches} with epsilon={plan.privacy.epsilon:g}: whatever secret "
            "coins amplify, the noise would be larger than that of all rows; leave batches "
            "out, or add --no-privacy"
        )
    if not isinstance(plan.rule, Momentum):
        raise ParameterError(
            f"batches={plan.batches}: the theorem of update {plan.update['kind']!r} is about "
            "all rows; take --update gd or nag, or leave batches out"
        )


def check_model(plan: ModelPlan) -> None:
    """What is trained where rows stay home, and what is certified."""
    if plan.rule.curvature is not None:
        raise ParameterError(
            f"update={plan.update['kind']!r} with a curvature: its inverse is made of "
            "encrypted rows, and here are none; calibration makes a rule on rescaled columns "
            "of it, or take --protocol encrypted-rows"
        )
    if not (plan.targets >= 1 and (plan.targets == 1 or plan.fitted.numeric)):
        raise ParameterError(
            f"targets={plan.targets} of model {plan.model}: a label is one, and numeric "
            "targets are 1 or more"
        )
    if plan.targets > 1 and plan.privacy is not None and not plan.certifies_targets:
        raise ParameterError(
            f"targets={plan.targets} with privacy: no certificate is about several targets "
            "here; leave privacy out (--no-privacy), or take --protocol encrypted-rows"
        )
    if plan.cover is not None and plan.privacy is not None:
        raise ParameterError(
            f"cover={plan.cover} with epsilon={plan.privacy.epsilon:g}: a party adds its noise "
            "in every round here, so that a model without the missing ones' noise would break "
            "the promise; leave out cover, or take --protocol encrypted-rows, where noise is "
            "given before training"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlan(RowsPlan):
    """Gradient training of a generalised linear model; parties multiply it with their own rows.

    features_per_ciphertext: 2k, see `PeriodicLayout`; None: the least one with a single part;
    targets: c of a numeric model; batches: K, parties take about one row in K in a round, by coins
    of their own (`minibatch`); circuit: of `parties.kernel.model.clear_rows`, what a party
    evaluates; certifies_targets: whether a certificate is about several.

    Raises:
        ParameterError: see `RowsPlan`; or the update needs a preconditioner; or cover with privacy;
            or several targets of a model with another link.
    """

    kind: ClassVar[str] = "model"
    protocol: ClassVar[str] = ENCRYPTED_MODEL
    gathered: ClassVar[str] = "gradients"
    circuit: ClassVar[str] = "link"
    certifies_targets: ClassVar[bool] = False
    checks: ClassVar[Checks] = (check_batches, *RowsPlan.checks, check_model)

    targets: int = 1
    batches: int = 1

    @property
    def is_stochastic(self) -> bool:
        """Whether rounds take other rows."""
        return self.batches > 1

    def taken(self, rows: int) -> int:
        """Of a party's rows, how many it takes in a round."""
        # A width that no layout takes is refused there.
        block = max(1, 2 * self.ckks.num_slots // max(1, self._width))
        return minibatch.size(rows, self.batches, block)

    def weights_in(self, t: int, rows: int, randomness: RandomSource) -> Array | None:
        """Weights of a party's rows in round t, shape (rows,); None: all count once."""
        taken = self.taken(rows)
        if not t or taken == rows:
            return None
        return minibatch.weights(t, rows, taken, randomness)

    @property
    def column_weight(self) -> float:
        """Rows of a column, each times its weight."""
        layout = self.layout
        sizes = ((member.rows, self.taken(member.rows)) for member in self.members)
        groups = math.fsum(layout.groups_of(taken) * rows / taken for rows, taken in sizes)
        return groups * float(layout.rows_of_column)

    @property
    def outputs(self) -> int | None:
        """c of targets, None of a label; weights have shape (d, c) or (d,)."""
        return self.targets if self.fitted.numeric else None

    @property
    def model_size(self) -> int:
        """Features times targets."""
        return self.num_features * self.targets

    def drops(self, term: str) -> str:
        """Weights meet rows in the clear; offsets move scores, and no certificate knows of that."""
        if term == "weight":
            return ""
        if self.link.degree == 1:
            return "the fit is that of the target less the offset: subtract it there"
        if self.privacy is not None:
            return (
                f"no certificate of protocol {self.protocol} knows of them; take --protocol "
                f"{SECURE_AGGREGATION}, where gradients are clipped, or --no-privacy"
            )
        if not isinstance(self.rule, Momentum):
            return f"the theorem of update {self.update['kind']!r} knows of none: take --update nag"
        return ""

    @property
    def fitted_shape(self) -> tuple[int, ...]:
        """Of weights while they are trained: (d,), of several targets (d, c)."""
        return (self.num_features,) if self.targets == 1 else (self.num_features, self.targets)

    def encode_targets(self, targets: Array) -> Array:
        """In the unit; of several shape (rows, c)."""
        if self.fitted.numeric:
            targets = model_of(TargetModel, self.model).encode(targets) / self.target_unit
        return targets.reshape(-1, *self.fitted_shape[1:])

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of every iteration, whose gradient has that of the weights."""
        return (self.rounds, *self.fitted_shape)

    @property
    def target_unit(self) -> float:
        """What targets are divided by once they are encoded, so that they are on [-1, 1]."""
        return model_of(TargetModel, self.model).bound(1) if self.fitted.numeric else 1.0

    @staticmethod
    def levels_of(link: Polynomial, rule: Update) -> int:
        """Of a party's gradient, beside the rule's own path."""
        return levels(link, rule)

    @property
    def accounted_as(self) -> str:
        """What is released, and what bounds it, are the same as on encrypted rows."""
        return f"{RowsPlan.kind}/{self.update['kind']}"

    @property
    def layout(self) -> Any:
        """Packing of weights and rows."""
        return PeriodicLayout(
            num_slots=self.ckks.num_slots,
            num_features=self.num_features,
            rows_by_party=tuple(self.taken(m.rows) for m in self.members),
            features_per_ciphertext=self._width,
            outputs=self.outputs,
        )

    @property
    def _width(self) -> int:
        given = self.features_per_ciphertext
        return widest(self.num_features) if given is None else given

    @property
    def units(self) -> RowUnits:
        """What rows are multiplied by: the map of a refresh multiplies a mean of B columns."""
        return RowUnits.of(self.link, self.largest_gradient_factor)

    @property
    def largest_gradient_factor(self) -> float:
        """Largest step, over the sum of the means of B columns."""
        step = max(map(self.rule.gradient_factor, range(self.rule.rounds)))
        return float(step * self.layout.block_size / self.num_rows)

    @property
    def gradient_scale(self) -> float:
        """What makes of the parties' sums the gradient of w / R."""
        return self.units.side_scale / (self.num_rows * self.units.weight_unit)

    def column_maps(self, step: int) -> Any:
        """Sums over columns, times the step. Rules subtract gradients."""
        layout = self.layout
        value = -self.rule.gradient_factor(step) * self.gradient_scale
        return (TraceMap(layout.block_size, layout.period, value),) * self.refreshes[step]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """2k coefficients of each part: part p's are moved by p places."""
        layout = self.layout
        gap = self._n // layout.features_per_ciphertext
        found: NDArray[np.bool_] = np.arange(self._n) % gap < layout.num_parts
        return found

    @property
    def _n(self) -> int:
        return self.ckks.ring_dim
