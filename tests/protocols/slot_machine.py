"""The circuits of every protocol run on plain slots, and what each refresh carries.

The same code as under encryption: `Evaluator` and `train_…` see a context that holds numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count as steps_of
from typing import Any

import numpy as np

from protocols.ckks.circuit import REFRESH_LEVEL
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import CkksParameters
from protocols.gram import pack
from protocols.gram_plan import GramPlan
from protocols.gram_training import gram_evaluator, train_gram
from protocols.lffr import LffrPlan
from protocols.lffr_training import LffrCircuit, train_lffr
from protocols.rows import RowsPlan
from protocols.train import RowsCircuit, train_encrypted
from tests.helpers import Floats

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
    if isinstance(plan, GramPlan):
        return _gram(plan, shards, noises)
    return (
        _lffr(plan, shards, noises) if isinstance(plan, LffrPlan) else _rows(plan, shards, noises)
    )


def _fresh(evaluator: Evaluator, layout: Any, plan: Any, seen: Seen) -> Any:
    """Refreshes by the plan's maps, one step after the other."""
    steps = steps_of()

    def fresh(vectors: Any) -> Generator[Any, Any, Any]:
        maps = plan.column_maps(next(steps))
        return _refreshed(evaluator, layout, maps, vectors, seen)
        yield

    return fresh


def _finish(training: Generator[Any, Any, EncryptedVector]) -> Floats:
    try:
        next(training)
    except StopIteration as stop:
        return np.asarray(stop.value.ct.values)
    raise AssertionError("the slot machine asks nobody")


def packed_rows(
    plan: RowsPlan, shards: Shards, noises: Sequence[Floats]
) -> tuple[Evaluator, list[EncryptedVector], list[EncryptedVector]]:
    """What `contribute.collect` would give, and whom to evaluate it with."""
    layout = plan.layout
    evaluator = Evaluator(SlotContext(plan.ckks), layout)  # type: ignore[arg-type]
    data = [np.zeros(plan.ckks.num_slots) for _ in range(layout.num_data_ciphertexts)]
    side = [np.zeros(plan.ckks.num_slots) for _ in range(layout.num_side_ciphertexts)]
    for name, (x, y), noise in zip(plan.names, shards, noises, strict=True):
        meta, vectors = RowsCircuit(plan).pack(name, x, y, noise)
        count = len(meta["ciphertexts"])
        for index, slots in zip(meta["ciphertexts"], vectors, strict=False):
            data[index] = data[index] + slots
        side = [old + new for old, new in zip(side, vectors[count:], strict=True)]
    rows = evaluator.grouped([evaluator.wrap(Slots(part)) for part in data])
    return evaluator, rows, [evaluator.wrap(Slots(part)) for part in side]


def _rows(plan: RowsPlan, shards: Shards, noises: Sequence[Floats]) -> Seen:
    layout, seen = plan.layout, Seen()
    evaluator, rows, side = packed_rows(plan, shards, noises)

    fresh = _fresh(evaluator, layout, plan, seen)
    released = _finish(train_encrypted(evaluator, plan, rows, side, fresh))
    return _released(seen, released, layout.read_heads(released) * plan.unit)


def _lffr(plan: LffrPlan, shards: Shards, noises: Sequence[Floats]) -> Seen:
    layout, seen = plan.layout, Seen()
    evaluator = Evaluator(SlotContext(plan.ckks), layout)  # type: ignore[arg-type]
    data = [np.zeros(plan.ckks.num_slots) for _ in range(layout.num_data_ciphertexts)]
    side = [np.zeros(plan.ckks.num_slots) for _ in range(layout.num_side_ciphertexts)]
    for name, (x, y), noise in zip(plan.names, shards, noises, strict=True):
        meta, vectors = LffrCircuit(plan).pack(name, x, y, noise)
        count = len(meta["ciphertexts"])
        for index, slots in zip(meta["ciphertexts"], vectors, strict=False):
            data[index] = data[index] + slots
        side = [old + new for old, new in zip(side, vectors[count:], strict=True)]

    wrapped = [[evaluator.wrap(Slots(part)) for part in parts] for parts in (data, side)]
    released = _finish(train_lffr(evaluator, plan, *wrapped, _fresh(evaluator, layout, plan, seen)))
    return _released(seen, released, layout.read_heads(released) * plan.unit)


def _gram(plan: GramPlan, shards: Shards, noises: Sequence[Floats]) -> Seen:
    task, seen = plan.task, Seen()
    evaluator = gram_evaluator(SlotContext(plan.ckks), task)  # type: ignore[arg-type]
    parts = [
        pack(task, plan.contribution(x, y, noise))
        for (x, y), noise in zip(shards, noises, strict=True)
    ]
    sums = [evaluator.wrap(Slots(np.sum(each, axis=0))) for each in zip(*parts, strict=True)]

    released = _finish(train_gram(evaluator, task, sums, _fresh(evaluator, None, plan, seen)))
    return _released(seen, released, task.layout.read_heads(released) * plan.unit)


def _released(seen: Seen, slots: Floats, weights: Floats) -> Seen:
    seen.release, seen.weights = float(np.abs(slots).max()), weights
    return seen


def _refreshed(
    evaluator: Evaluator,
    layout: Layout | None,
    maps: Sequence[ColumnMap | None],
    vectors: Sequence[EncryptedVector],
    seen: Seen,
) -> tuple[EncryptedVector, ...]:
    seen.refreshes.append(max(float(np.abs(ct.values).max()) for v in vectors for ct in v.cts))
    each = iter(maps)
    return tuple(
        evaluator.wrap(*(_mapped(ct, layout, next(each)) for ct in v.cts)) for v in vectors
    )


def _mapped(ct: Slots, layout: Layout | None, column_map: ColumnMap | None) -> Slots:
    if column_map is None or layout is None:
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
