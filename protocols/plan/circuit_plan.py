"""CircuitPlan: what runs under threshold CKKS have in common: keys, refreshes, one decryption."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.choice import smallest_room
from protocols.ckks.column_map import ColumnMap
from protocols.errors import ParameterError
from protocols.numerics.slot_bounds import LARGEST_SLOT
from protocols.numerics.whitening import Whitening
from protocols.plan.run_plan import Checks, PrivacyPlan, RunPlan
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.discrete import between
from protocols.privacy.laws.shares import NoiseSplit, gaussian_shares

Plan = TypeVar("Plan", bound="CircuitPlan")
# One for each ciphertext of a refresh, None for one that is only refreshed.
ColumnMaps = tuple[ColumnMap | None, ...]
# Meta data, and the slots of each ciphertext.
Packed = tuple[dict[str, Any], list[NDArray[np.float64]]]


KEYS_AT_ONCE = 100
"""Shares of rotation keys in the messages of all parties of a step, which one process may hold."""


def check_whitening(plan: CircuitPlan) -> None:
    """With the run before, and with what it promised."""
    whitening = plan.whitening
    if bool(plan.moment_plan) != (whitening is not None):
        raise ParameterError("whitening and moment_plan go together: give both or none")
    if not re.fullmatch("([0-9a-f]{64})?", plan.moment_plan):
        raise ParameterError(f"moment_plan={plan.moment_plan[:80]!r} is no digest of a plan")
    if whitening and whitening.features != plan.num_features:
        raise ParameterError(
            f"whitening is for {whitening.features} columns, the rows have {plan.num_features}"
        )
    if whitening and (plan.privacy is None) == (plan.moment_privacy is None):
        raise ParameterError(
            "whitening: its second moment was released for an epsilon; give privacy, or "
            "without privacy moment_privacy, or leave whitening out"
        )
    if plan.moment_privacy and not whitening:
        raise ParameterError("moment_privacy without whitening: give both or none")


def check_circuit(plan: CircuitPlan) -> None:
    """Keys, cover, slots."""
    if plan.keys_per_message < 1:
        raise ParameterError(f"keys_per_message={plan.keys_per_message} is below 1")
    if plan.cover is not None:
        _check_cover(plan.cover, len(plan.members), plan.privacy)
    if plan.slot_bound is not None and not 0 < plan.slot_bound <= LARGEST_SLOT:
        raise ParameterError(
            f"slot_bound={plan.slot_bound} is outside (0, {LARGEST_SLOT:g}]: nothing larger "
            "leaves room for masks"
        )
    carried = plan.coefficient_bound
    if carried is not None and carried > smallest_room(plan.ckks):
        raise ParameterError(
            f"slot_bound={plan.slot_bound:.4g} at scale_bits={plan.ckks.scale_bits} is beyond "
            "what a refresh carries: take larger primes, or smaller steps"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CircuitPlan(RunPlan):
    """A run in which the coordinator evaluates a circuit on ciphertexts.

    ckks: parameters; keys_per_message: rotation keys, or shares of the public key, in one message;
    cover: so many parties can stand in for others that vanish after they have contributed, None:
    nobody can (see `cover`); slot_bound: of every slot that a refresh or the decryption carries,
    None: nothing is proven (see `slot_bounds`); whitening: what owners make of their rows first,
    None: nothing; moment_plan: digest of the plan whose run summed its second moment;
    moment_privacy: what that run promised, where this one promises nothing.

    Raises:
        ParameterError: fields that do not go together (depth too small …).
    """

    masked: ClassVar[bool] = True
    opens_rounds: ClassVar[bool] = False
    on_grid: ClassVar[bool] = False
    """Whether what noise is added to is rounded to its grid."""
    # Every iteration is a refresh, and some rules count their rates in steps of rounds^2.
    max_rounds: ClassVar[int] = 10**4
    checks: ClassVar[Checks] = (*RunPlan.checks, check_whitening, check_circuit)
    later: ClassVar[tuple[str, ...]] = (
        *RunPlan.later,
        "moment_privacy",
        "whitening",
        "moment_plan",
    )

    ckks: CkksParameters
    keys_per_message: int = 4
    cover: int | None = None
    slot_bound: float | None = None
    whitening: Whitening | None = None
    moment_plan: str = ""
    moment_privacy: PrivacyPlan | None = None

    @property
    def whitens(self) -> bool:
        """By `whitening`."""
        return self.whitening is not None

    @property
    def moment_split(self) -> NoiseSplit:
        """How the noise of the second moment was divided."""
        promised = self.privacy or self.moment_privacy
        colluders = promised.colluders if promised else 0
        return NoiseSplit(parties=len(self.members), colluders=colluders)

    @property
    def decryptions(self) -> int:
        """Independent floodings of the model that a coordinator may see."""
        return 1 if self.cover is None else 2

    @property
    def key_colluders(self) -> int:
        """Colluding parties that the other parties' keys withstand."""
        return (len(self.members) if self.cover is None else self.cover) - 1

    @property
    def security_bits(self) -> int:
        """Of the ring."""
        return self.ckks.security_bits

    @property
    @abstractmethod
    def rotations(self) -> tuple[int, ...]:
        """Every rotation key of the run."""
        ...

    @property
    def rotation_chunks(self) -> list[tuple[int, ...]]:
        """Rotation indices, one tuple per message; every party keeps its last one for a resend."""
        indices, size = self.rotations, self.keys_per_message
        size = min(size, max(1, KEYS_AT_ONCE // len(self.members)))
        return [indices[k : k + size] for k in range(0, len(indices), size)]

    @property
    def member_chunks(self) -> list[tuple[str, ...]]:
        """Parties whose shares of the public key are handed out together."""
        names, size = self.names, self.keys_per_message
        return [names[k : k + size] for k in range(0, len(names), size)]

    @property
    @abstractmethod
    def refreshes(self) -> tuple[int, ...]:
        """Most ciphertexts that each refresh step carries, in order."""
        ...

    def column_maps(self, step: int) -> ColumnMaps:
        """What refresh `step` applies to each ciphertext on its way."""
        return (None,) * self.refreshes[step]

    @property
    def unproven(self) -> bool:
        """No bound is stated."""
        return self.slot_bound is None

    @property
    def coefficient_bound(self) -> float | None:
        """Of a refreshed or decrypted polynomial's coefficients; None: nothing is proven."""
        return None if self.slot_bound is None else self.slot_bound * 2.0**self.ckks.scale_bits

    @property
    def model_size(self) -> int:
        """Numbers that are released."""
        return self.num_features

    @property
    @abstractmethod
    def learning_rate_per_row(self) -> float:
        """What an iteration moves the weights by, over the sum of gradients: the least.

        inf where no sum is made under encryption before its noise is added.
        """
        ...

    @abstractmethod
    def row_bound(self, norm_bound: float) -> float:
        """Norm of one row's part of that sum, for rows of norm at most `norm_bound`; else 0."""
        ...

    def encoded_norm(self, norm_bound: float) -> float:
        """Bound on the norm of the rows that are encrypted, or summed, for those of an owner."""
        return norm_bound

    @property
    @abstractmethod
    def unit(self) -> float:
        """What the decrypted slots are multiplied by."""
        ...

    @property
    def target_unit(self) -> float:
        """What targets are divided by once they are encoded, so that they are on [-1, 1]."""
        return 1.0

    def decode(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the owners' rows, from those of what is encrypted, shape (d,) or (d, c)."""
        found = weights if self.whitening is None else self.whitening.decode(weights.T).T
        return found * self.target_unit

    @property
    def decoded_gain(self) -> float:
        """Std of a released weight's error over that of the decrypted ones: the longest row."""
        if self.whitening is None:
            return 1.0
        return float(np.linalg.norm(np.array(self.whitening.matrix), axis=1).max())

    @property
    @abstractmethod
    def shown(self) -> NDArray[np.bool_]:
        """Slots whose real parts are released, or coefficients: see `ckks.flooding`."""
        ...

    @property
    @abstractmethod
    def noise_shape(self) -> tuple[int, ...]:
        """Of a party's noise on all mean gradients, or mean sums."""
        ...

    def draw_noise(self, randomness: RandomSource) -> NDArray[np.float64]:
        """One party's privacy noise, of `noise_shape`; zeros without privacy.

        A party draws the same from the same source: points of the grid and, where what they are
        added to is on no grid, parts of its unit between them.
        """
        shape = self.noise_shape
        if self.privacy is None:
            return np.zeros(shape)
        sigma, count = self.privacy.sigma, math.prod(shape)
        grid = self.split.grid(sigma)
        noise = gaussian_shares(sigma, self.split, 1, count, randomness, grid).ravel()
        if not self.on_grid:
            noise += grid.unit * between(count, randomness)
        return noise.reshape(shape)

    @abstractmethod
    def place(self, party: str, *values: NDArray[np.float64]) -> Packed:
        """Slots in which the numbers of `kernel.packed.values` stand; nothing is computed."""
        ...

    def fit_messages(self: Plan, most: int) -> Plan:
        """As many rotation keys in a message as it holds: each step costs seconds."""
        ckks = self.ckks
        # One half of a key: digits x (towers and special towers, at most twice as many) x n words.
        size = ckks.num_digits * 2 * ckks.num_towers * ckks.ring_dim * 8
        return replace(self, keys_per_message=max(1, most // size))


def _check_cover(cover: int, parties: int, privacy: PrivacyPlan | None) -> None:
    if type(cover) is not int or not 2 <= cover < parties:
        raise ParameterError(
            f"cover={cover} is outside 2 … {parties - 1}: so many of {parties} parties stand in "
            "for those that vanish"
        )
    if privacy and cover - 1 < privacy.colluders:
        raise ParameterError(
            f"cover={cover} gives {cover} colluding parties every key, which is not above "
            f"colluders={privacy.colluders}: take cover={privacy.colluders + 1} or more"
        )


def check_depth(plan: CircuitPlan, needed: Mapping[str, int]) -> None:
    """Refuse a plan whose modulus chain is too short; needed: levels by what needs them.

    Raises:
        ParameterError: names the longest.
    """
    what, levels = max(needed.items(), key=lambda item: item[1])
    if plan.ckks.depth < levels:
        raise ParameterError(
            f"depth={plan.ckks.depth} levels is below the {levels} that {what} needs"
        )
