"""The circuits of every protocol run on plain slots, and what each refresh carries.

The same code as under encryption: `Evaluator` and `train_…` see a context that holds numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count as steps_of
from typing import Any

import numpy as np

from parties.verifier.sheets import packed_slots
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.column_map import ColumnMap
from protocols.rows.protocol import circuit_of
from tests.support.helpers import Floats

Shards = Sequence[tuple[Floats, Floats]]


@dataclass(slots=True)
class Slots:
    """A ciphertext's stand-in: shape (num_slots,)."""

    values: Floats
    level: int = 0

    def GetLevel(self) -> int:  # noqa: N802
        """Levels consumed."""
        return self.level


class SlotContext:
    """`CkksContext` and OpenFHE's context, on numbers."""

    def __init__(self, params: CkksParameters) -> None:
        self.params, self.cc = params, self
        self.primes = (1 << params.scale_bits,) * params.num_towers

    def encode(self, values: Floats, level: int = 0) -> Floats:
        return values

    def rescaling_gain(self, level: int) -> float:
        return 1.0

    def rotated(self, ct: Slots, index: int) -> Slots:
        return Slots(np.roll(ct.values, -index), ct.level)

    def ciphertext(self, polynomials: Any) -> Slots:
        return Slots(np.zeros(self.params.num_slots), REFRESH_LEVEL)

    def EvalAdd(self, left: Slots, right: Any) -> Slots:  # noqa: N802
        return Slots(left.values + getattr(right, "values", right), left.level)

    def EvalSub(self, left: Slots, right: Any) -> Slots:  # noqa: N802
        return Slots(left.values - getattr(right, "values", right), left.level)

    def EvalMult(self, left: Slots, right: Any) -> Slots:  # noqa: N802
        return Slots(left.values * getattr(right, "values", right), left.level)

    EvalMultNoRelin = EvalMult

    def EvalSquare(self, ct: Slots) -> Slots:  # noqa: N802
        return self.EvalMult(ct, ct)

    def Relinearize(self, ct: Slots) -> Slots:  # noqa: N802
        return ct

    def EvalAddInPlace(self, total: Slots, other: Slots) -> None:  # noqa: N802
        total.values = total.values + other.values

    def Rescale(self, ct: Slots) -> Slots:  # noqa: N802
        return Slots(ct.values, ct.level + 1)

    def RescaleInPlace(self, ct: Slots) -> None:  # noqa: N802
        ct.level += 1

    def Compress(self, ct: Slots, towers: int) -> Slots:  # noqa: N802
        return Slots(ct.values, self.params.num_towers - towers)


@dataclass
class Seen:
    """Largest |slot| of each refresh, in order, and of the release; weights: as released."""

    refreshes: list[float] = field(default_factory=list)
    release: float = 0.0
    weights: Any = None


def seen_slots(plan: Any, shards: Shards, noises: Sequence[Floats]) -> Seen:
    """Everything that the coordinator would have refreshed and decrypted, in the clear.

    shards: rows, and labels or targets, of every party; noises: as its `draw_noise` would give.
    """
    evaluator, encrypted = packed(plan, shards, noises)
    seen = Seen()
    fresh = _fresh(evaluator, plan, seen)
    slots = _finish(circuit_of(plan).train(evaluator, encrypted, fresh, lambda t: None))
    seen.release = float(np.abs(slots).max())
    seen.weights = evaluator.layout.read_heads(slots) * plan.unit
    return seen


def _fresh(evaluator: Evaluator, plan: Any, seen: Seen) -> Any:
    """Refreshes by the plan's maps, one step after the other."""
    steps = steps_of()

    def fresh(vectors: Any) -> Generator[Any, Any, Any]:
        maps = plan.column_maps(next(steps))
        return _refreshed(evaluator, maps, vectors, seen)
        yield

    return fresh


def _finish(training: Generator[Any, Any, EncryptedVector]) -> Floats:
    try:
        next(training)
    except StopIteration as stop:
        return np.asarray(stop.value.ct.values)
    raise AssertionError("the slot machine asks nobody")


def packed(plan: Any, shards: Shards, noises: Sequence[Floats]) -> tuple[Evaluator, Any]:
    """Whom to evaluate it with, and what `Circuit.collect` would give."""
    circuit, layout = circuit_of(plan), None if plan.kind == "gram" else plan.layout
    evaluator = circuit.evaluator(SlotContext(plan.ckks))  # type: ignore[arg-type]
    parts = [
        packed_slots(plan, name, *shard, noise)
        for name, shard, noise in zip(plan.names, shards, noises, strict=True)
    ]

    def summed(vectors: Any) -> list[EncryptedVector]:
        columns = zip(*vectors, strict=True)
        return [evaluator.wrap(Slots(np.sum(each, axis=0))) for each in columns]

    if layout is None:
        return evaluator, summed(vectors for _, vectors in parts)
    data = np.zeros((len(parts), layout.num_data_ciphertexts, plan.ckks.num_slots))
    for k, (meta, vectors) in enumerate(parts):
        for index, slots in zip(meta["ciphertexts"], vectors, strict=False):
            data[k, index] = slots
    side = summed(vectors[len(meta["ciphertexts"]) :] for meta, vectors in parts)
    return evaluator, (evaluator.grouped(summed(data)), side)


def _refreshed(
    evaluator: Evaluator,
    maps: Sequence[ColumnMap | None],
    vectors: Sequence[EncryptedVector],
    seen: Seen,
) -> tuple[EncryptedVector, ...]:
    seen.refreshes.append(max(float(np.abs(ct.values).max()) for v in vectors for ct in v.cts))
    each, layout = iter(maps), evaluator.layout
    return tuple(
        evaluator.wrap(*(_mapped(ct, layout, next(each)) for ct in v.cts)) for v in vectors
    )


def _mapped(ct: Slots, layout: Layout, column_map: ColumnMap | None) -> Slots:
    if column_map is None:
        return Slots(ct.values, 0)
    grid = np.roll(ct.values, -layout.offset).reshape(layout.num_blocks, layout.block_size)
    column = column_map.column
    sums = column_map.value * (grid.sum(axis=1) if column is None else grid[:, column])
    if column_map.head is None:
        mapped = np.repeat(sums, layout.block_size)
    else:
        mapped = np.zeros(layout.num_slots)
        mapped[:: layout.block_size] = sums
        mapped = np.roll(mapped, column_map.head)
    return Slots(np.roll(mapped, layout.offset), REFRESH_LEVEL)
