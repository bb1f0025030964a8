"""What runs under threshold CKKS, by kind of plan: what parties encrypt, and what is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.circuit_plan import CircuitPlan
from protocols.ckks.context import CkksContext
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.contribute import Opened, Packed
from protocols.gram_training import GramCircuit
from protocols.lffr_training import LffrCircuit
from protocols.messages import Exchange
from protocols.refresh import Refresh
from protocols.train import RowsCircuit

Array = NDArray[np.float64]


class Circuit(Protocol):
    """Of one plan."""

    def evaluator(self, context: CkksContext) -> Evaluator:
        """Evaluates it; the evaluation keys are loaded."""
        ...

    def check_targets(self, targets: Array) -> None:
        """Refuse targets of another shape than the model's, before any key is made."""
        ...

    def pack(
        self, party: str, rows: Array, targets: Array, noise: Array, weight: Array | float = 1.0
    ) -> Packed:
        """What a party encrypts; rows: shape (rows, d), bias last; noise: the plan's.

        weight: of rows over their bound, where the plan takes weights (`RunPlan.drops`).
        """
        ...

    def collect(self, evaluator: Evaluator, contributions: Opened) -> Exchange[Any]:
        """The parties' ciphertexts, summed, for `train`."""
        ...

    def train(
        self,
        evaluator: Evaluator,
        encrypted: Any,
        refresh: Refresh,
        on_iteration: Callable[[int], None],
    ) -> Exchange[EncryptedVector]:
        """Encrypted weights over the plan's unit, zero in all slots but theirs."""
        ...


CIRCUITS: Mapping[str, Callable[[Any], Circuit]] = {
    "rows": RowsCircuit,
    "model": RowsCircuit,
    "model-lffr": RowsCircuit,
    "gram": GramCircuit,
    "lffr": LffrCircuit,
}


def circuit_of(plan: CircuitPlan) -> Circuit:
    """The circuit of a plan."""
    return CIRCUITS[plan.kind](plan)
