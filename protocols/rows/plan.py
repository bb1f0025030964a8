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

from protocols.ckks.circuits.errors import MARGIN, error_std, few_margin, scatter
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import MASK_VALUE, RowUnits, iteration_levels
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.errors import ParameterError
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.numerics.approximation import Polynomial, is_symmetric, link_error, range_bound
from protocols.numerics.slot_bounds import SlotBounds
from protocols.plan.circuit_plan import CircuitPlan, ColumnMaps, Packed, check_depth
from protocols.privacy.laws.randomness import RandomSource
from protocols.privacy.laws.shares import gaussian_shares
from protocols.rows import slots as row_slots
from protocols.rows.curvature import Curvature
from protocols.steps.precondition import LEVELS, relative_error
from protocols.updates.registry import rounds_of, rule_from_dict
from protocols.updates.update import Update
from protocols.words import Fact, link_facts, number


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
    states_whitening: ClassVar[bool] = True

    link: Polynomial
    update: Mapping[str, Any]
    features_per_ciphertext: int | None = None

    def __post_init__(self) -> None:
        CircuitPlan.__post_init__(self)
        if self.privacy and self.curvature is not None:
            raise ParameterError(
                f"privacy with update={self.update['kind']!r}: its preconditioner depends on rows "
                "and is not noised; take update gd or nag on whitened rows, which --update "
                "quadratic-gd with an epsilon makes a plan of, or leave privacy out (--no-privacy)"
            )
        check_depth(
            self, {"one iteration": self.levels_of(self.link, self.rule) + REFRESH_TOWERS - 1}
        )
        _ = self.layout
        if self.privacy and self.fitted.numeric and not is_symmetric(self.link):
            raise ParameterError(
                f"privacy with model={self.model!r}: certificates are about labels, or links p "
                "with p(z) + p(-z) = 1, and these are neither; leave privacy out (--no-privacy), "
                "or take --model linear --protocol encrypted-rows"
            )

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

    def encode(
        self, rows: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What owners encrypt of their rows, shape (rows, d), and targets, shape (rows,)."""
        rows, y = rows if self.whitening is None else self.whitening.encode(rows), targets.ravel()
        return (rows * (2 * y - 1)[:, None], np.ones_like(y)) if self.signed else (rows, y)

    def decode(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the owners' rows, from those of what is encrypted, shape (d,) or (d, c)."""
        return weights if self.whitening is None else self.whitening.decode(weights.T).T

    @property
    def decoded_gain(self) -> float:
        """The longest row of the whitening's matrix."""
        if self.whitening is None:
            return 1.0
        return float(np.linalg.norm(np.array(self.whitening.matrix), axis=1).max())

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

    def slot_bounds(self, norm_bound: float) -> SlotBounds:
        """See `row_slots`."""
        return row_slots.bounds(self, self.encoded_norm(norm_bound))

    def iterate_error_std(self) -> float:
        """All slots of an iterate hold weights."""
        return self._error_std(1.0, 1.0, 0.0)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Slots of the weights."""
        return self.layout.heads(1.0) > 0

    def shown_error_std(self) -> float:
        """All that a head has, and the last refresh's roundings; see `model_error_std`."""
        return self._error_std(1.0, 1.0, self._last(1.0), few_margin(self.num_features))

    def model_error_std(self) -> float:
        """Bound on the noise of the encrypted model before its decryption, per coefficient.

        The last refresh adds one rounding for each part, and leaves of what was there before the
        heads, S / B slots of S for each part; what the inverse's error makes is where a feature
        is. Few slots, of two numbers each, scatter about their average, of which `error_std` has
        MARGIN.
        """
        layout, count = self.layout, self.num_features
        few = max(1.0, scatter(2 * count) / MARGIN)
        heads = few * math.sqrt(layout.num_parts / layout.block_size)
        features = few * math.sqrt(count / layout.num_slots)
        return self._error_std(heads, features, self._last(few))

    def _last(self, few: float) -> float:
        # Columns hold noise as well, which the refresh sums up.
        return math.sqrt(self.layout.num_parts) * (1 + MASK_VALUE * few)

    def _error_std(self, rest: float, inverse: float, last: float, margin: float = MARGIN) -> float:
        """last: roundings beside; rest, inverse: parts of what the inverse makes, and of all else.

        Noise in a row moves its gradient by |q(z)| + |x| |q'(z)| |w| of it: `_row_gain`. One round
        moves w / R by eta / (R N) times the sum over rows, in which it adds as sqrt(N). Noise in a
        side column passes the refresh's mask, once.
        """
        rule = self.rule
        moved = self.link.radius * math.sqrt(self.num_rows) * self.units.row_scale
        side = MASK_VALUE * rule.noise_gain()
        gain = rest * rule.noise_gain()
        if self.curvature is not None:
            relative = relative_error(self.curvature, self.ckks, len(self.members))
            gain += inverse * rule.inverse_gain * relative / self.link.radius
        return error_std(
            self.ckks,
            len(self.members),
            rounding_gain=math.hypot(gain, last),
            row_gain=rest * math.hypot(self._row_gain * rule.row_path / moved, side),
            margin=margin,
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

        The twin of a simulation draws the same from the same source.
        """
        sigma = self.privacy.sigma if self.privacy else 0.0
        return gaussian_shares(sigma, self.split, self.rounds, self.model_size, randomness)

    def place(self, party: str, *values: NDArray[np.float64]) -> Packed:
        """Rows, row i into column i; side columns."""
        (rows, side), layout = values, self.layout
        data = layout.pack_rows(rows.reshape(-1, *layout.shape), self.party_index(party))
        slots = layout.pack_side(side.reshape(-1, *layout.shape))
        return {"ciphertexts": list(data)}, [*data.values(), *slots]

    def figures(self) -> dict[str, Any]:
        """Rule and polynomial, then the encryption."""
        own = {"update": self.update["kind"], "degree": self.link.degree}
        return {**own, **CircuitPlan.figures(self)}

    def training_facts(self) -> Iterator[Fact]:
        """Rule and polynomial."""
        yield from self.whitening_facts()
        yield from self.rule.facts()
        yield from self.fitted.facts()
        if self.signed:
            yield (
                "Saturation",
                number(1 - self.link.coefficients[0]),
                "about the most that the label of one row says, however wrong the model is about "
                "it: less noise hides less",
            )
            error = link_error(self.link, self.link.radius)
            yield from link_facts(self.link, error, "sigmoid above 0 and 1/2 below", "probability")
            return
        if self.link.degree > 1:
            error = self.fitted.link_error(self.link)
            yield from link_facts(self.link, error, *self.fitted.stand_in)


def _largest_factor(rule: Update) -> float:
    return max(map(rule.gradient_factor, range(rule.rounds)))
