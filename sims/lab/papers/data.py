"""Tables of the papers: files in a folder that the reader names, and what is said without them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from protocols.errors import DataError, ParameterError

Rows = NDArray[np.intp]

FOLDER = Path("data")
"""Where tables are looked for, unless the reader names another folder."""
QUICK_ROWS = 400
KIM = "kimandrik/IDASH2017 on GitHub (Kim et al., 2018)"
HOSMER = f"Hosmer and Lemeshow, Applied Logistic Regression; {KIM}"
UCI = "UCI"
MULAN = "Mulan multi-target regression data sets (Spyromitros-Xioufis et al., 2016)"


@dataclass(frozen=True, slots=True)
class Need:
    """A table that does not ship with this package.

    file: its name in the folder; rows: as published; features: columns but those of `labels`;
    labels: names of the columns to predict; source: where a reader finds it; header: names of all
    columns, of a file without them; train: first rows that are published as those to train on, 0:
    none are.
    """

    file: str
    rows: int
    features: int
    labels: tuple[str, ...]
    source: str
    header: tuple[str, ...] = ()
    train: int = 0

    @property
    def name(self) -> str:
        """Of the data set."""
        return Path(self.file).stem

    @property
    def shape(self) -> str:
        """Rows, columns and labels."""
        few = len(self.labels) == 1
        labels = ", ".join(self.labels) if few else f"{len(self.labels)} outputs"
        return f"{self.rows:,} rows, {self.features} columns, {labels}"

    @property
    def words(self) -> str:
        """What, shape and source."""
        return f"{self.file} ({self.shape}; {self.source})"

    def found(self, folder: Path) -> Path | None:
        """The file, if it is there."""
        path = folder / self.file
        return path if path.is_file() else None

    def load(self, folder: Path, quick: bool = False) -> pd.DataFrame:
        """The table, less an ID; quick: its first rows, or a made one where it is missing.

        Raises:
            DataError: it is missing, or has not the columns.
        """
        path = self.found(folder)
        if path is None:
            if quick:
                return self.made(min(self.rows, QUICK_ROWS))
            raise DataError(missing_words(folder, self))
        names = {"names": list(self.header)} if self.header else {}
        frame = pd.read_csv(path, **names).drop(columns="ID", errors="ignore")
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


def missing_words(folder: Path, *needs: Need) -> str:
    """Of tables without which nothing can be run, and what to do."""
    wanted = "; ".join(need.words for need in needs)
    return f"{folder} has no {wanted}: put it there, or name another folder by --data-folder"


def fold_numbers(rows: int, count: int, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows]]:
    """Numbers of (training rows, test rows), fold by fold of one size, after one shuffle.

    Raises:
        ParameterError: fewer rows than folds.
    """
    if not 2 <= count <= rows:
        raise ParameterError(f"folds={count} is outside 2 .. {rows}, the rows")
    order, size = rng.permutation(rows), rows // count
    for k in range(count):
        test = order[k * size : (k + 1) * size]
        yield np.setdiff1d(order, test, assume_unique=True), test


EDIN = Need(
    "edin.csv",
    1253,
    9,
    ("y",),
    f"Kennedy et al., Eur. Heart J. 17 (1996) 1181; {KIM}",
)
IDASH = Need("idash.csv", 1579, 18, ("y",), f"iDASH competition of 2017, track 3; {KIM}")
LBW = Need("lbw.csv", 189, 9, ("y",), HOSMER)
PCS = Need("pcs.csv", 379, 9, ("y",), HOSMER)
UIS = Need("uis.csv", 575, 8, ("y",), HOSMER)
NHANES3 = Need("nhanes3.csv", 15649, 15, ("y",), HOSMER)
ADULT = Need("adult.csv", 32561, 14, ("income",), f"{UCI}, Adult")
ADULT_TEST = Need("adult_test.csv", 16281, 14, ("income",), f"{UCI}, Adult")
CREDIT = Need("credit.csv", 30000, 24, ("class",), f"{UCI}, Default of Credit Card Clients")
COMPAS = Need(
    "compas.csv",
    7214,
    9,
    ("two_year_recid",),
    "ProPublica, compas-analysis on GitHub, file compas-scores-two-years: sex, age, age_cat, race, "
    "juv_fel_count, juv_misd_count, juv_other_count, priors_count, c_charge_degree",
)
MNIST = Need(
    "mnist_3v8.csv",
    13966,
    196,
    ("y",),
    "MNIST, digits 3 and 8, averaged to 14×14 points; LeCun et al., Proc. IEEE 86 (1998)",
)
ENB = Need("enb.csv", 768, 8, ("Y1", "Y2"), MULAN)
SLUMP = Need("slump.csv", 103, 7, ("SLUMP_cm", "FLOW_cm", "Compressive_Strength_Mpa"), MULAN)
EDM = Need("edm.csv", 154, 16, ("DFlow", "DGap"), MULAN)
JURA = Need("jura.csv", 359, 15, ("Cd", "Co", "Cu"), MULAN)
ANDRO = Need("andro.csv", 49, 30, ("Target", *(f"Target_{k}" for k in range(2, 7))), MULAN)
TAXA = "25400 29600 30400 33400 17300 19400 34500 38100 49700 50390 55800 57500 59300 37880"
WQ = Need("wq.csv", 1060, 16, tuple(TAXA.split()), MULAN)
FLIGHTS = "ALLminpA ALLminp0 aDLminpA aCOminpA aFLminpA aUAminpA"
ATP1D = Need("atp1d.csv", 337, 411, tuple(f"LBL+{f}+fut_001" for f in FLIGHTS.split()), MULAN)
PHISHING = Need("phishing.csv", 11055, 30, ("y",), f"{UCI}, Phishing Websites")
YEARS = Need(
    "YearPredictionMSD.txt",
    515345,
    90,
    ("year",),
    f"{UCI}, YearPredictionMSD",
    header=("year", *(f"timbre_{k}" for k in range(1, 91))),
    train=463715,
)
