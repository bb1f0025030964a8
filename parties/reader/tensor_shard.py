"""One party's private rows for a torch module: rows of any shape, integer labels."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import canonical_digest


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSchema:
    """What all parties agree on beforehand, public.

    shape: of one row, () for a number; classes: labels are 0 .. classes - 1; integers: rows hold
    integers (such as tokens), otherwise float32.

    Raises:
        ParameterError: a size is below 1.
    """

    shape: tuple[int, ...]
    classes: int
    integers: bool = False

    def __post_init__(self) -> None:
        if self.classes < 1 or any(size < 1 for size in self.shape):
            raise ParameterError(f"shape={self.shape}, classes={self.classes}: need sizes >= 1")

    @property
    def num_features(self) -> int:
        """Values of a row."""
        return math.prod(self.shape)

    @property
    def norm_bound(self) -> float:
        """None is needed: gradients are clipped, rows are not."""
        return math.inf

    @property
    def row_terms(self) -> dict[str, float]:
        """Rows have neither weights nor offsets."""
        return {}

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        return canonical_digest({"kind": "tensor", **asdict(self)})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorShard:
    """The rows of one party.

    inputs: float32 or int64 array, shape (rows, *schema.shape), read-only. labels: int64 array,
    shape (rows,), read-only.

    Raises:
        DataError: wrong shapes, no rows, a value that is not finite or no integer where one is
            due, a label outside 0 .. classes - 1. No message quotes a value.
    """

    inputs: NDArray[Any] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    schema: TensorSchema

    def __post_init__(self) -> None:
        """Check, then freeze private copies."""
        given, labels = np.asarray(self.inputs), np.asarray(self.labels)
        inputs = np.array(given, dtype=np.int64 if self.schema.integers else np.float32, order="C")
        if inputs.ndim < 1 or inputs.shape[1:] != self.schema.shape or not inputs.shape[0]:
            due = ("rows", *self.schema.shape)
            raise DataError(f"inputs have shape {inputs.shape} where {due} is due, rows >= 1")
        if self.schema.integers and not (given == inputs).all():
            raise DataError("inputs hold values that are no integers; the schema asks for integers")
        if not np.isfinite(inputs).all():
            raise DataError("inputs hold values that are not finite in float32: replace them")
        if labels.shape != inputs.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
            raise DataError(
                f"labels have shape {labels.shape} and type {labels.dtype} where one integer per "
                "row is due"
            )
        if labels.min() < 0 or labels.max() >= self.schema.classes:
            raise DataError(f"labels exceed 0 .. {self.schema.classes - 1}, the schema's classes")
        for name, array in (("inputs", inputs), ("labels", labels.astype(np.int64))):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def in_order(self, order: NDArray[np.intp]) -> TensorShard:
        """All rows, otherwise ordered."""
        return replace(self, inputs=self.inputs[order], labels=self.labels[order])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.inputs.shape[0])

    @property
    def num_features(self) -> int:
        """Values of a row."""
        return self.schema.num_features
