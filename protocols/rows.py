"""The encrypted-rows protocol on rows: every party encrypts its rows once.

    commit-keys ...     the joint key ceremony                        `keygen`
    commit-rows ...     encrypted rows, label term and noise          `contribute`
    refresh/k           when levels run out                           `refresh`
    decrypt             the final model, once                         `decrypt`

Between `confirm` and `decrypt` the coordinator evaluates gradient and update: `train`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from protocols import row_slots
from protocols.approximation import Polynomial
from protocols.circuit_plan import CircuitPlan, ColumnMaps, check_depth
from protocols.ckks.circuit import MASK_VALUE, RowUnits, iteration_levels
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.flooding import error_std
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.curvature import Curvature
from protocols.privacy.randomness import RandomSource
from protocols.privacy.shares import NoiseSplit, gaussian_shares
from protocols.serialise import to_plain
from protocols.slot_bounds import SlotBounds
from protocols.updates.catalogue import rounds_of, rule_from_dict
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.rule import UpdateRule, gradient_factors


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsPlan(CircuitPlan):
    """Gradient training of a generalised linear model on encrypted rows.

    link: polynomial stand-in for the sigmoid; update: fields of the update rule;
    features_per_ciphertext: see `Layout`.

    Raises:
        ParameterError: fields that do not go together (depth too small, too many features …).
    """

    protocol: ClassVar[str] = "rows"

    link: Polynomial
    update: Mapping[str, Any]
    features_per_ciphertext: int | None = None

    def __post_init__(self) -> None:
        CircuitPlan.__post_init__(self)
        iteration = iteration_levels(self.link, self.rule)
        check_depth(self, {"one iteration": iteration + REFRESH_TOWERS - 1})
        _ = self.layout

    @property
    def rule(self) -> UpdateRule:
        """The update rule."""
        return rule_from_dict(self.update)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return rounds_of(self.update)

    @property
    def layout(self) -> Layout:
        """Packing of the rows and side columns."""
        return Layout(
            num_slots=self.ckks.num_slots,
            num_features=self.num_features,
            rows_by_party=tuple(m.rows for m in self.members),
            rounds=self.rounds,
            curvature=self.curvature is not None,
            features_per_ciphertext=self.features_per_ciphertext,
        )

    @property
    def curvature(self) -> Curvature | None:
        """Public numbers of the preconditioner; None without."""
        rule = self.rule
        return rule.curvature if isinstance(rule, QuadraticNesterov) else None

    @property
    def units(self) -> RowUnits:
        """Of encrypted rows and side columns."""
        curvature = self.curvature
        scale = 1 / self.num_rows if curvature is None else 1 / (self.num_rows * curvature.high)
        return RowUnits.of(self.link, _largest(_factors(self.rule)) * scale)

    @property
    def rotations(self) -> tuple[int, ...]:
        """The layout's."""
        return self.layout.rotations

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Those of the inversion, then the rule's new vectors after every iteration."""
        factors = _factors(self.rule)
        vectors = (*self._inversion, *(sum(f is not None for f in each) for each in factors))
        return tuple(self.layout.num_parts * count for count in vectors)

    @property
    def _inversion(self) -> tuple[int, ...]:
        if self.curvature is None:
            return ()
        return self.curvature.inverse.refreshes(self.ckks.num_towers - REFRESH_TOWERS)

    def column_maps(self, step: int) -> ColumnMaps:
        """The inverse's copies; sums over columns; after the last iteration, the weights' heads."""
        layout, before = self.layout, len(self._inversion)
        parts = range(layout.num_parts)
        if self.curvature is not None and step == before - 1:
            inverse = self.curvature.inverse
            value = inverse.factor * inverse.high
            return tuple(ColumnMap.of(layout, value, column=part) for part in parts)
        if step < before:
            return (None,) * self.refreshes[step]
        every = _factors(self.rule)
        factors = [factor for factor in every[step - before] if factor is not None]
        # By operations that give every machine the same last digit: all must have the same masks.
        largest = math.copysign(_largest(every), self.units.side_scale)
        values = [MASK_VALUE * factor / largest for factor in factors]
        last = step - before == self.rounds - 1
        heads = [part - layout.num_parts + 1 if last else None for part in parts]
        return tuple(ColumnMap.of(layout, v, head=head) for v in values for head in heads)

    @property
    def step_per_row(self) -> float:
        """A preconditioner is at least 1 / high, and its rates at least 1."""
        curvature = self.curvature
        rate = 1 / curvature.high if curvature else float(self.update["learning_rate"])
        return rate / self.num_rows

    def row_bound(self, norm_bound: float) -> float:
        """The slope of the loss is at most 1."""
        return norm_bound

    @property
    def unit(self) -> float:
        """Weights are encrypted as w / R, R the link's radius."""
        return self.link.radius

    def slot_bounds(self, norm_bound: float) -> SlotBounds:
        """See `row_slots`."""
        return row_slots.bounds(self, norm_bound)

    def model_error_std(self) -> float:
        """Bound on the noise of the encrypted model before its decryption, per coefficient."""
        rule, inverse = self.rule, 0.0
        if isinstance(rule, QuadraticNesterov):
            rate, inverse = rule.learning_rate, rule.inverse_gain / self.link.radius
        else:
            rate = float(self.update["learning_rate"])
        # Noise in a row moves its gradient by |q(z)| + |x| |q'(z)| |w| of it: 1/2 and about as
        # much again. One round moves w / R by eta / (R N) times the sum over rows, in which it
        # adds as sqrt(N). Noise in a side column passes the refresh's mask, once.
        per_round = rate / (self.link.radius * math.sqrt(self.num_rows) * self.units.row_scale)
        return error_std(
            self.ckks,
            len(self.members),
            rounding_gain=rule.noise_gain() + inverse,
            row_gain=math.hypot(self.rounds * per_round, MASK_VALUE * rule.noise_gain()),
        )

    def draw_noise(self, randomness: RandomSource) -> NDArray[np.float64]:
        """One party's noise on the mean gradient, shape (rounds, num_features).

        Where the curvature has noise, one more row comes first, its noise on b: see `divide_noise`.
        The twin of a simulation draws the same from the same source.
        """
        sigma, colluders = (
            (self.privacy.sigma, self.privacy.colluders) if self.privacy else (0.0, 0)
        )
        split = NoiseSplit(parties=len(self.members), colluders=colluders)
        noise = gaussian_shares(sigma, split, self.rounds, self.num_features, randomness)
        if self.curvature is None or not self.curvature.sigma:
            return noise
        first = gaussian_shares(self.curvature.sigma, split, 1, self.num_features, randomness)
        return np.concatenate([first, noise])

    def divide_noise(
        self, noise: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What `draw_noise` gave: on b, shape (num_features,), and on the gradients."""
        if len(noise) == self.rounds:
            return np.zeros(self.num_features), noise
        return noise[0], noise[1:]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        own = {
            "link": to_plain(self.link),
            "update": dict(self.update),
            "features_per_ciphertext": self.features_per_ciphertext,
        }
        return {**CircuitPlan.to_dict(self), **own}


# Rules are frozen, hence hashable.
@lru_cache(maxsize=32)
def _traced(rule: Any) -> tuple[tuple[float | None, ...], ...]:
    return gradient_factors(rule)


def _factors(rule: UpdateRule) -> tuple[tuple[float | None, ...], ...]:
    """Of every iteration's gradient in the next state."""
    return _traced(cast(Any, rule))


def _largest(factors: tuple[tuple[float | None, ...], ...]) -> float:
    return max(abs(factor) for each in factors for factor in each if factor is not None)
