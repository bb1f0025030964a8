"""Tables of the papers: files in a folder that the reader names, and what is said without them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from protocols.errors import DataError

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Looked into where the reader names no folder: `../shared/data` beside the checkout."""
QUICK_ROWS = 400
HOSMER = "Hosmer and Lemeshow, Applied Logistic Regression; file of Kim et al., BMC Med. Genomics "
HOSMER += "11:83 (2018), repository kimandrik/IDASH2017 on GitHub"
UCI = "UCI Machine Learning Repository"
MULAN = "Mulan multi-target regression data sets (Spyromitros-Xioufis et al., 2016)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """A table that does not ship with this package.

    file: its name in the folder; rows: as published; features: columns but those of `labels`;
    labels: names of the columns to predict; source: where a reader finds it.
    """

    file: str
    rows: int
    features: int
    labels: tuple[str, ...]
    source: str

    @property
    def name(self) -> str:
        """Of the data set."""
        return Path(self.file).stem

    @property
    def words(self) -> str:
        """What, shape and source."""
        what = ", ".join(self.labels)
        return (
            f"{self.file} ({self.rows:,} rows, {self.features} columns and {what}; {self.source})"
        )

    def found(self, folder: Path | None) -> Path | None:
        """The file, if it is there."""
        path = (folder or BESIDE) / self.file
        return path if path.is_file() else None

    def missing(self, folder: Path | None, quick: bool) -> bool:
        """Whether `load` would refuse."""
        return not quick and self.found(folder) is None

    def load(self, folder: Path | None, quick: bool = False) -> pd.DataFrame:
        """The table; quick: its first rows, or a made table of its columns where it is missing.

        Raises:
            DataError: it is missing, or has not the columns.
        """
        path = self.found(folder)
        if path is None:
            if quick:
                return self.made(min(self.rows, QUICK_ROWS))
            raise DataError(
                f"data set {self.name} is not in {folder or BESIDE}: put {self.words} there, or "
                "name another folder by --data-folder"
            )
        frame = pd.read_csv(path)
        missing = [label for label in self.labels if label not in frame]
        if missing:
            raise DataError(f"{path.name} has no column {missing[0]!r}: {self.words}")
        return frame.head(QUICK_ROWS) if quick else frame

    def made(self, rows: int) -> pd.DataFrame:
        """Numbers in [0, 1], labels 0 and 1 by a logistic law, or several targets by a linear one.

        The same on every machine.
        """
        rng = np.random.default_rng(zlib.crc32(self.file.encode()))
        x = rng.uniform(size=(rows, self.features))
        scores = (x - 0.5) @ rng.normal(size=(self.features, len(self.labels))) * 3
        frame = pd.DataFrame(x, columns=[f"x{k + 1}" for k in range(self.features)])
        for k, label in enumerate(self.labels):
            frame[label] = scores[:, k] + 0.1 * rng.normal(size=rows)
        if len(self.labels) == 1:
            frame[self.labels[0]] = (rng.uniform(size=rows) < expit(scores[:, 0])).astype(int)
        return frame


EDIN = Need(
    file="edin.csv",
    rows=1253,
    features=9,
    labels=("y",),
    source="Kennedy et al., Eur. Heart J. 17 (1996) 1181; file of Kim et al., repository "
    "kimandrik/IDASH2017 on GitHub",
)
LBW = Need(file="lbw.csv", rows=189, features=9, labels=("y",), source=HOSMER)
PCS = Need(file="pcs.csv", rows=379, features=9, labels=("y",), source=HOSMER)
UIS = Need(file="uis.csv", rows=575, features=8, labels=("y",), source=HOSMER)
NHANES3 = Need(file="nhanes3.csv", rows=15649, features=15, labels=("y",), source=HOSMER)
ADULT = Need(file="adult.csv", rows=32561, features=14, labels=("income",), source=f"{UCI}, Adult")
ADULT_TEST = Need(
    file="adult_test.csv", rows=16281, features=14, labels=("income",), source=f"{UCI}, Adult"
)
CREDIT = Need(
    file="credit.csv",
    rows=30000,
    features=24,
    labels=("class",),
    source=f"{UCI}, Default of Credit Card Clients",
)
COMPAS = Need(
    file="compas.csv",
    rows=5049,
    features=9,
    labels=("two_year_recid",),
    source="ProPublica, compas-analysis on GitHub",
)
MNIST = Need(
    file="mnist_3v8.csv",
    rows=13966,
    features=196,
    labels=("y",),
    source="MNIST, digits 3 and 8, averaged to 14 x 14 points; LeCun et al., Proc. IEEE 86 (1998)",
)
ENB = Need(file="enb.csv", rows=768, features=8, labels=("Y1", "Y2"), source=MULAN)
SLUMP = Need(
    file="slump.csv",
    rows=103,
    features=7,
    labels=("SLUMP_cm", "FLOW_cm", "Compressive_Strength_Mpa"),
    source=MULAN,
)
EDM = Need(file="edm.csv", rows=154, features=16, labels=("DFlow", "DGap"), source=MULAN)
JURA = Need(file="jura.csv", rows=359, features=15, labels=("Cd", "Co", "Cu"), source=MULAN)
