"""The data sets of the table: real files where they are, else random rows of the same shape."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS, UNDER_CKKS

Array = NDArray[np.float64]
UPDATES = ("barrier", "quadratic-nag")
# Iterations of a measured run: the first also reads the contributions, the last releases heads.
ROUNDS = 4
DATA_FOLDER = Path(
    os.environ.get("COHORT_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One measured run.

    name: data set; rows: training rows of all parties; features: columns without the bias; update:
    see UPDATES; protocol: one of UNDER_CKKS; degree: of the sigmoid polynomial; secure: 128 bits,
    or an INSECURE toy ring; rounds: iterations, of which the inner ones are measured.

    Raises:
        ParameterError: a field is out of range.
    """

    name: str
    rows: int
    features: int
    update: str = "barrier"
    protocol: str = ENCRYPTED_ROWS
    parties: int = 3
    degree: int = 7
    rounds: int = ROUNDS
    secure: bool = True

    def __post_init__(self) -> None:
        if self.update not in UPDATES:
            raise ParameterError(f"update={self.update!r} is not one of {', '.join(UPDATES)}")
        if self.protocol not in UNDER_CKKS:
            raise ParameterError(f"protocol={self.protocol!r} is not of {', '.join(UNDER_CKKS)}")
        if self.rounds < 3:
            raise ParameterError(f"rounds={self.rounds} is below 3: no iteration is inner")
        if self.rows < self.parties:
            raise ParameterError(f"rows={self.rows} is below parties={self.parties}")

    @property
    def measured(self) -> slice:
        """The inner iterations."""
        return slice(1, self.rounds - 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def data(self) -> tuple[Array, Array]:
        """Rows, shape (rows, features + 1), norm at most 1, the bias last; labels in {0, 1}."""
        _, label = _FILES.get(self.name, ((), ""))
        path = DATA_FOLDER / f"{self.name}.csv"
        if label and path.exists():
            x, y = _read(path, label)
            if len(x) >= self.rows and x.shape[1] == self.features:
                return _scaled(x[: self.rows]), y[: self.rows]
        return synthetic(self.rows, self.features)


# File -> (columns that are no features, label).
_FILES: dict[str, tuple[tuple[str, ...], str]] = {"edin": ((), "y"), "credit": (("ID",), "class")}

FULL = (
    Case(name="edin", rows=1253, features=9),
    Case(name="edin-80", rows=1002, features=9),
    Case(name="credit", rows=27_000, features=23),
    Case(name="synthetic-50", rows=12_000, features=50),
    Case(name="synthetic-20", rows=100_000, features=20),
)
QUICK = (Case(name="toy", rows=300, features=5, parties=2, secure=False),)


def synthetic(rows: int, features: int) -> tuple[Array, Array]:
    """Uniform rows and labels of a random logistic model, seeded."""
    rng = np.random.default_rng(rows + features)
    x = rng.uniform(-1, 1, (rows, features))
    truth = rng.normal(0, 3, features)
    y = (x @ truth + rng.logistic(size=rows) > 0).astype(float)
    return _scaled(x), y


def _read(path: Path, label: str) -> tuple[Array, Array]:
    import pandas as pd

    frame = pd.read_csv(path).drop(columns=list(_FILES[path.stem][0]))
    return frame.drop(columns=label).to_numpy(float), frame[label].to_numpy(float)


def _scaled(x: Array) -> Array:
    low, high = x.min(axis=0), x.max(axis=0)
    unit = 2 * (x - low) / np.where(high > low, high - low, 1.0) - 1
    full = np.column_stack([unit, np.ones(len(x))])
    return np.asarray(full / np.sqrt(full.shape[1]))
