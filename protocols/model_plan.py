"""The encrypted-model protocol's plan: gradient training in which rows stay with their owners.

    commit-keys …     the joint key ceremony                                     `keygen`
    pad-keys …        keys of pads that cancel                                   `pads`
    evaluation-keys/k the joint evaluation keys                                  `model_gradient`
    gradient/t        the encrypted model down, encrypted gradients up           `model_gradient`
    refresh/t         what the update makes of their sum                         `model_refresh`
    decrypt           the final model, once                                      `decrypt`

Rule, polynomial, noise and certificate are those of encrypted rows: so is the twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.approximation import Polynomial
from protocols.ckks.circuit import RowUnits
from protocols.ckks.clear_rows import levels, rounding_gain
from protocols.ckks.flooding import (
    FRESH_ERROR_STD,
    MARGIN,
    fresh_std,
    rounding_std,
    scatter,
)
from protocols.ckks.periodic import PeriodicLayout, widest
from protocols.ckks.trace_map import TraceMap
from protocols.decrypt import flooding_of
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_MODEL, SECURE_AGGREGATION
from protocols.privacy.randomness import RandomSource
from protocols.rows import RowsPlan
from protocols.slot_bounds import SlotBounds
from protocols.updates.momentum import Momentum
from protocols.updates.update import Update

Array = NDArray[np.float64]
LARGEST_ENTRY = 2.0
"""Of an encoded row, whatever the schema's scaling."""
OWN_PATH = 2.0
"""Margin for the rule's own path, which counts as a rounding a round: momentum, and a barrier's
products, came up to 1.2 times what is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlan(RowsPlan):
    """Gradient training of a generalised linear model; parties multiply it with their own rows.

    features_per_ciphertext: 2k, see `PeriodicLayout`; None: the least one with a single part;
    targets: c of a numeric model.

    Raises:
        ParameterError: see `RowsPlan`; or the update needs a preconditioner; or cover with privacy;
            or several targets of a model with another link.
    """

    kind: ClassVar[str] = "model"
    protocol: ClassVar[str] = ENCRYPTED_MODEL
    gathered: ClassVar[str] = "gradients"

    targets: int = 1

    def __post_init__(self) -> None:
        RowsPlan.__post_init__(self)
        if self.rule.curvature is not None:
            raise ParameterError(
                f"update={self.update['kind']!r} multiplies by an inverse that it makes of "
                "encrypted rows, and here are none: take gd, nag or barrier, an epsilon (which "
                "whitens the rows instead), or --protocol encrypted-rows"
            )
        if not (self.targets >= 1 and (self.targets == 1 or self.fitted.numeric)):
            raise ParameterError(
                f"targets={self.targets} of model {self.model}: a label is one, and numeric "
                "targets are 1 or more"
            )
        if self.targets > 1 and self.privacy is not None:
            raise ParameterError(
                f"targets={self.targets} with privacy: no certificate is about several targets "
                "here; leave privacy out (--no-privacy), or take --protocol encrypted-rows"
            )
        if self.cover is not None and self.privacy is not None:
            raise ParameterError(
                f"cover={self.cover} with epsilon={self.privacy.epsilon:g}: a party adds its noise "
                "in every round here, so that a model without the missing ones' noise would break "
                "the promise; leave out cover, or take --protocol encrypted-rows, where noise is "
                "given before training"
            )

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
        if self.fitted.name == "linear":
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

    def encode(self, rows: Array, targets: Array) -> tuple[Array, Array]:
        """As `RowsPlan`; of several targets shape (rows, c)."""
        rows, y = RowsPlan.encode(self, rows, targets)
        return rows, y.reshape(-1, *self.fitted_shape[1:])

    def draw_noise(self, randomness: RandomSource) -> Array:
        """As `RowsPlan`, shape (rounds, *fitted_shape)."""
        return RowsPlan.draw_noise(self, randomness).reshape(self.rounds, *self.fitted_shape)

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
        k = self.features_per_ciphertext
        return PeriodicLayout(
            num_slots=self.ckks.num_slots,
            num_features=self.num_features,
            rows_by_party=tuple(m.rows for m in self.members),
            features_per_ciphertext=widest(self.num_features) if k is None else k,
            outputs=self.outputs,
        )

    @property
    def units(self) -> RowUnits:
        """What rows are multiplied by: the map of a refresh multiplies a mean of B columns."""
        step = max(map(self.rule.gradient_factor, range(self.rule.rounds)))
        return RowUnits.of(self.link, step * self.layout.block_size / self.num_rows)

    @property
    def gradient_scale(self) -> float:
        """What makes of the parties' sums the gradient of w / R."""
        return self.units.side_scale / (self.num_rows * self.units.weight_unit)

    def column_maps(self, step: int) -> Any:
        """Sums over columns, times the step. Rules subtract gradients."""
        layout = self.layout
        value = -self.rule.gradient_factor(step) * self.gradient_scale
        return (TraceMap(layout.block_size, layout.period, value),) * self.refreshes[step]

    def slot_bounds(self, norm_bound: float) -> SlotBounds:
        """See `row_slots`; two features share a slot."""
        found = RowsPlan.slot_bounds(self, norm_bound)
        return replace(found, refreshes=tuple(2 * bound for bound in found.refreshes))

    def iterate_error_std(self) -> float:
        """All n coefficients hold a refresh's errors, 2k of them what was there before."""
        refresh, rounds = self._errors
        return MARGIN * math.hypot(refresh, rounds * math.sqrt(2 * self.layout.period / self._n))

    def model_error_std(self) -> float:
        """Bound on the noise of an encrypted w / R, in each coefficient that is released.

        Few coefficients scatter about their deviation, beyond OWN_PATH's margin.
        """
        opened = self.layout.num_parts * self.layout.features_per_ciphertext
        return max(OWN_PATH, scatter(opened)) * math.hypot(*self._errors)

    @property
    def _n(self) -> int:
        return self.ckks.ring_dim

    @property
    def _errors(self) -> tuple[float, float]:
        """Of an encrypted w / R: of the last refresh, and of all before [integer units].

        A refresh leaves P fresh errors and roundings. Before it, coefficients hold: P times P fresh
        errors of the replies, std sigma P sqrt(4 n / 3); and of every group c x o q(z') / A, whose
        noise is that of q times |c x|: groups are independent (`clear_rows`), a slot has two
        features, and columns without a row have none, so that all groups together count as N / B.
        One round moves w / R by B eta A / (c N R) of that; the rule adds rounds up (`noise_gain`),
        with a rounding in each, and the noise of a key switch where w is rotated.
        """
        params, parties, rule, layout = self.ckks, len(self.members), self.rule, self.layout
        refresh = math.sqrt(parties * FRESH_ERROR_STD**2 + (parties + 1) / 12)
        rounding = rounding_std(params, parties)
        largest = LARGEST_ENTRY * self.units.row_scale
        row = largest * math.sqrt(2 * self.num_rows / layout.block_size)
        reply = math.hypot(
            fresh_std(params, parties), row * rounding_gain(self.units) * rounding, rounding
        )
        switches = params.num_special_towers if layout.baby_steps > 1 else 0
        # `noise_gain` is about errors of w, one a round.
        moved = layout.block_size * abs(self.gradient_scale) * rule.largest_rate * reply
        return refresh, rule.noise_gain() * math.hypot(moved, rounding * math.sqrt(1 + switches))

    @property
    def release_error_std(self) -> float:
        """Std of the error of each released weight: 2k coefficients of it, by cosines."""
        flooded = math.sqrt(len(self.members) * self.layout.period) * flooding_of(self)
        return self.decoded_gain * self.unit * flooded / 2.0**self.ckks.scale_bits
