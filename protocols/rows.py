"""The encrypted-rows protocol on rows: every party encrypts its rows once.

    commit-keys ...     the joint key ceremony                        `keygen`
    commit-rows ...     encrypted rows, label term and noise          `contribute`
    refresh/k           when levels run out                           `refresh`
    decrypt             the final model, once                         `decrypt`

Between `confirm` and `decrypt` the coordinator evaluates gradient and update: `train`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols import row_slots
from protocols.approximation import Polynomial, is_symmetric, range_bound
from protocols.circuit_plan import CircuitPlan, ColumnMaps, check_depth
from protocols.ckks.circuit import MASK_VALUE, RowUnits, iteration_levels
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.flooding import error_std
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.curvature import Curvature
from protocols.errors import ParameterError
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.privacy.randomness import RandomSource
from protocols.privacy.shares import gaussian_shares
from protocols.slot_bounds import SlotBounds
from protocols.updates.catalogue import rounds_of, rule_from_dict
from protocols.updates.update import Update
from protocols.words import Fact, link_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsPlan(CircuitPlan):
    """Gradient training of a generalised linear model on encrypted rows.

    link: polynomial stand-in for the mean of a target on [0, 1], given its score; update: fields of
    the update rule; features_per_ciphertext: see `Layout`.

    Raises:
        ParameterError: fields that do not go together (depth too small, too many features …).
    """

    kind: ClassVar[str] = "rows"
    gathered: ClassVar[str] = "copies"

    link: Polynomial
    update: Mapping[str, Any]
    features_per_ciphertext: int | None = None

    def __post_init__(self) -> None:
        CircuitPlan.__post_init__(self)
        iteration = iteration_levels(self.link, self.rule)
        check_depth(self, {"one iteration": iteration + REFRESH_TOWERS - 1})
        _ = self.layout
        if self.privacy and not is_symmetric(self.link):
            raise ParameterError(
                f"privacy with model={self.model!r}: certificates are about links p with p(z) + "
                "p(-z) = 1 alone, and this one is not; leave privacy out (--no-privacy), or take "
                "--model linear"
            )

    @property
    def fitted(self) -> Model:
        """What predictions are decoded by."""
        return model_named(self.model)

    @property
    def rule(self) -> Update:
        """The update rule."""
        return rule_from_dict(self.update)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return rounds_of(self.update)

    @property
    def accounted_as(self) -> str:
        """The update decides what bounds its iterates."""
        return f"{self.kind}/{self.update['kind']}"

    @property
    def outputs(self) -> int | None:
        """1 target, None of a label; weights have shape (d, 1) or (d,)."""
        return 1 if self.fitted.numeric else None

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
            outputs=self.outputs,
        )

    @property
    def curvature(self) -> Curvature | None:
        """Public numbers of the preconditioner; None without."""
        return self.rule.curvature

    @property
    def units(self) -> RowUnits:
        """Of encrypted rows and side columns."""
        curvature = self.curvature
        scale = 1 / self.num_rows if curvature is None else 1 / (self.num_rows * curvature.high)
        return RowUnits.of(self.link, _largest_factor(self.rule) * scale)

    @property
    def rotations(self) -> tuple[int, ...]:
        """The layout's."""
        return self.layout.rotations

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Those of the inversion, then the rule's new vectors after every iteration."""
        rule = self.rule
        vectors = (*self._inversion, *map(rule.sums, range(rule.rounds)))
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
        rule, t = self.rule, step - before
        # By operations that give every machine the same last digit: all must have the same masks.
        largest = math.copysign(_largest_factor(rule), self.units.side_scale)
        value = -MASK_VALUE * rule.gradient_factor(t) / largest  # rules subtract gradients
        heads = [part - layout.num_parts + 1 if t == rule.rounds - 1 else None for part in parts]
        return tuple(ColumnMap.of(layout, value, head=head) for head in heads) * rule.sums(t)

    @property
    def step_per_row(self) -> float:
        """The rule's least rate over the rows."""
        return self.rule.least_rate / self.num_rows

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
        rule = self.rule
        # Noise in a row moves its gradient by |q(z)| + |x| |q'(z)| |w| of it: `_row_gain`. One
        # round moves w / R by eta / (R N) times the sum over rows, in which it adds as sqrt(N).
        # Noise in a side column passes the refresh's mask, once.
        moved = self.link.radius * math.sqrt(self.num_rows) * self.units.row_scale
        per_round = self._row_gain * rule.largest_rate / moved
        return error_std(
            self.ckks,
            len(self.members),
            rounding_gain=rule.noise_gain() + rule.inverse_gain / self.link.radius,
            row_gain=math.hypot(self.rounds * per_round, MASK_VALUE * rule.noise_gain()),
        )

    @property
    def _row_gain(self) -> float:
        """Bound on |q| + |q'| R, for a sigmoid's polynomial 1/2 and about as much again."""
        p, radius = self.link, self.link.radius
        if is_symmetric(p):
            return 1.0
        values = (abs(end - p.coefficients[0]) for end in range_bound(p, -radius, radius))
        slopes = map(abs, range_bound(p.derivative(), -radius, radius))
        return max(values) + radius * max(slopes)

    def draw_noise(self, randomness: RandomSource) -> NDArray[np.float64]:
        """One party's noise on the mean gradient, shape (rounds, num_features).

        Where the curvature has noise, one more row comes first, its noise on b: see `divide_noise`.
        The twin of a simulation draws the same from the same source.
        """
        sigma, split = self.privacy.sigma if self.privacy else 0.0, self.split
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

    def figures(self) -> dict[str, Any]:
        """Rule and polynomial, then the encryption."""
        own = {"update": self.update["kind"], "degree": self.link.degree}
        return {**own, **CircuitPlan.figures(self)}

    def training_facts(self) -> Iterator[Fact]:
        """Rule and polynomial."""
        yield from self.rule.facts()
        yield from self.fitted.facts()
        yield from link_facts(self.link, self.fitted.link_error(self.link), *self.fitted.stand_in)


def _largest_factor(rule: Update) -> float:
    return max(map(rule.gradient_factor, range(rule.rounds)))
