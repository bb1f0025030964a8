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
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import MASK_VALUE, RowUnits, iteration_levels
from protocols.ckks.column_map import ColumnMap
from protocols.errors import ParameterError
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.numerics.approximation import Polynomial, is_symmetric
from protocols.plan.circuit_plan import CircuitPlan, ColumnMaps, Packed, check_depth
from protocols.plan.run_plan import Checks
from protocols.privacy.laws import RandomSource
from protocols.rows.curvature import Curvature
from protocols.steps.precondition import LEVELS
from protocols.updates.registry import rounds_of, rule_from_dict
from protocols.updates.update import Update


def check_rows(plan: RowsPlan) -> None:
    """Levels, packing, and what is certified."""
    if plan.privacy and plan.curvature is not None:
        raise ParameterError(
            f"privacy with update={plan.update['kind']!r}: its preconditioner depends on rows "
            "and is not noised; take update gd or nag on whitened rows, which --update "
            "quadratic-gd with an epsilon makes a plan of, or leave privacy out (--no-privacy)"
        )
    check_depth(plan, {"one iteration": plan.levels_of(plan.link, plan.rule) + REFRESH_TOWERS - 1})
    _ = plan.layout
    if plan.privacy and plan.fitted.numeric and not is_symmetric(plan.link):
        raise ParameterError(
            f"privacy with model={plan.model!r}: certificates are about labels, or links p "
            "with p(z) + p(-z) = 1, and these are neither; leave privacy out (--no-privacy), "
            "or take --model linear --protocol encrypted-rows"
        )


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
    checks: ClassVar[Checks] = (*CircuitPlan.checks, check_rows)
    # Plans on encrypted rows stated that rows are not whitened.
    later: ClassVar[tuple[str, ...]] = ("held_out", "moment_privacy")

    link: Polynomial
    update: Mapping[str, Any]
    features_per_ciphertext: int | None = None

    @staticmethod
    def levels_of(link: Polynomial, rule: Update) -> int:
        """Levels between two refreshes."""
        return iteration_levels(link, rule)

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

    def drops(self, term: str) -> str:
        """Rows meet the weights in two products: sqrt(u) x would bend the link's polynomial."""
        others = " or ".join(name for name in self.fitted.protocols if name != self.protocol)
        return (
            f"protocol {self.protocol} encrypts rows once, and the {term} would be one more "
            f"ciphertext of all rows; take --protocol {others}, or leave {term} out of the schema"
        )

    @property
    def accounted_as(self) -> str:
        """The update decides what bounds its iterates."""
        return f"{self.kind}/{self.update['kind']}"

    def slope(self, z: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a row's gradient is, over the row: of scores and encoded targets, entry by entry."""
        return self.link(z) - targets

    @property
    def is_stochastic(self) -> bool:
        """Whether rounds take other rows."""
        return False

    def weights_in(self, t: int, rows: int, randomness: RandomSource) -> NDArray[np.float64] | None:
        """Weights of a party's rows in round t; None: all count once."""
        _ = t, rows, randomness
        return None

    @property
    def column_weight(self) -> float:
        """Rows in a column of all ciphertexts together, at most."""
        return self.layout.groups

    @property
    def outputs(self) -> int | None:
        """1 target, None of a label; weights have shape (d, 1) or (d,)."""
        return 1 if self.fitted.numeric else None

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of every iteration, whose gradient has that of the weights."""
        return (self.rounds, self.num_features)

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
        rule, parts = self.rule, self.layout.num_parts
        vectors = (*self._inversion, *map(rule.sums, range(rule.rounds)))
        return tuple(parts * count for count in vectors)

    @property
    def _inversion(self) -> tuple[int, ...]:
        if self.curvature is None:
            return ()
        return self.curvature.inverse.refreshes(self.ckks.num_towers - REFRESH_TOWERS, *LEVELS)

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
    def learning_rate_per_row(self) -> float:
        """The rule's least rate over the rows."""
        return self.rule.least_learning_rate / self.num_rows

    @property
    def signed(self) -> bool:
        """Whether rows of label 0 are negated and labelled 1, as certificates of other links take.

        p(<w, x>) - y and x are then p(-z) - 1 and -x in the place of p(z) and x: the same gradient
        where p(z) + p(-z) = 1.
        """
        return self.privacy is not None and not is_symmetric(self.link)

    def encode_targets(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """What owners encrypt of targets, shape (rows,)."""
        return targets

    def encode(
        self, rows: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What owners encrypt of their rows, shape (rows, d), and targets, shape (rows,)."""
        rows, y = rows if self.whitening is None else self.whitening.encode(rows), targets.ravel()
        if self.signed:
            rows, y = rows * (2 * y - 1)[:, None], np.ones_like(y)
        return rows, self.encode_targets(y)

    def encoded_norm(self, norm_bound: float) -> float:
        """Bound on the norm of what owners encrypt."""
        return norm_bound if self.whitening is None else 1.0

    def row_bound(self, norm_bound: float) -> float:
        """The slope of the loss is at most 1."""
        return self.encoded_norm(norm_bound)

    @property
    def unit(self) -> float:
        """Weights are encrypted as w / R, R the link's radius."""
        return self.link.radius

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Slots of the weights."""
        return self.layout.heads(1.0) > 0

    def place(self, party: str, *values: NDArray[np.float64]) -> Packed:
        """Rows, row i into column i; side columns."""
        (rows, side), layout = values, self.layout
        data = layout.pack_rows(rows.reshape(-1, *layout.shape), self.party_index(party))
        slots = layout.pack_side(side.reshape(-1, *layout.shape))
        return {"ciphertexts": list(data)}, [*data.values(), *slots]


def _largest_factor(rule: Update) -> float:
    return max(map(rule.gradient_factor, range(rule.rounds)))
