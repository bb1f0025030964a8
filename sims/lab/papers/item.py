"""What one table or figure of a paper is here: its data, the paper's figures, and how it is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ciphercohort.job.config import PROFILES
from sims.lab.papers.data import FOLDER, Need

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PAPERS = {
    "000": "Chiang, Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant",
    "001": "Chiang, LFFR: Logistic Function For (multi-output) Regression",
    "002": "Kuru, Birbil, Gürbüzbalaban, Yıldırım, Differentially Private Accelerated "
    "Optimization Algorithms, arXiv:2008.01989",
    "003": "Zhou et al., Revisiting ML Training under Fully Homomorphic Encryption: Convergence "
    "Guarantees, Differential Privacy, and Efficient Algorithms, arXiv:2605.27782",
    "004": "Damaskinos et al., Differentially Private Stochastic Coordinate Descent",
}
REPRODUCED, CORRECTED, STAND_IN, MISSING = "reproduced", "corrected", "stand-in", "missing"
VERDICTS = (REPRODUCED, CORRECTED, STAND_IN, MISSING)
"""By the paper's own rule; with a slip of the paper mended; on other data or inputs; not built."""
ABSENT = "not run, no file: "
"""Begins a note on a table that the reader has not given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How an item is run.

    quick: in seconds, on few rows and seeds, to see that it runs; seeds: repetitions, None for the
    item's own number; profile: of encrypted runs, None for `secure` (quick: `fast-insecure`);
    data_folder: where the reader's files are.
    """

    quick: bool = False
    seeds: int | None = None
    profile: str | None = None
    data_folder: Path = FOLDER

    def repetitions(self, full: int, quick: int) -> int:
        """Seeds of a full or a quick run, unless the reader says."""
        return self.seeds or (quick if self.quick else full)

    def load(self, need: Need) -> pd.DataFrame:
        """A table; see `Need.load`."""
        return need.load(self.data_folder, self.quick)

    def present(self, needs: Iterable[Need]) -> tuple[list[Need], list[str]]:
        """Tables that are there, or made in the quick setting; and what is said of the others."""
        there, notes = [], []
        for need in needs:
            if self.quick or need.found(self.data_folder):
                there.append(need)
            else:
                notes.append(f"{ABSENT}{need.words}")
        return there, notes

    @property
    def encryption(self) -> str:
        """The profile's name."""
        return self.profile or (PROFILES[1] if self.quick else PROFILES[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure of the paper beside ours.

    quantity: what is measured, with its unit and data set, in parts between commas; paper: None
    where the paper prints no number (a curve without axes values); published: what we get by the
    paper's own rule or code, where ours is another; std_error: of ours; seconds: what ours took;
    note: one line, such as why the two differ.
    """

    quantity: str
    ours: float | None
    paper: float | None = None
    published: float | None = None
    std_error: float | None = None
    seconds: float | None = None
    note: str = ""


def timed(groups: Iterable[Sequence[Row]]) -> tuple[Row, ...]:
    """Rows of all groups, each with the seconds until its group came."""
    shown: list[Row] = []
    began = time.perf_counter()
    for group in groups:
        shown += [replace(row, seconds=time.perf_counter() - began) for row in group]
        began = time.perf_counter()
    return tuple(shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """rows: in the paper's order; notes: what was found, a sentence each; draw: the figure."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    draw: Callable[[], Figure] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What a module says of its table or figure.

    What a run finds, and on which table, stands in its notes: nothing here names either.

    title: what it shows; verdict: of VERDICTS; finding: one line on what was compared; data: tables
    it reads; unknown: inputs that the paper does not give, and what stands in; remarks: where the
    paper is wrong or unclear, one line each with the place of the derivation; seconds: of the full
    setting on two cores, measured.
    """

    title: str
    verdict: str
    finding: str
    seconds: float
    data: tuple[Need, ...] = ()
    unknown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A table or figure of a paper: "000", "figure-1", what it is about, and the experiment."""

    paper: str
    name: str
    about: About
    run: Callable[[Settings], Result] = field(repr=False)

    @property
    def stem(self) -> str:
        """Of its files, and its place on the page."""
        return f"{self.paper}-{self.name}"

    @property
    def command(self) -> str:
        """That runs it."""
        return f"cohort reproduce {self.paper} {self.name}"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a paper has and nothing here computes; reason: why."""

    paper: str
    what: str
    reason: str


NOT_HERE = (
    Missing(
        "000",
        "Figures 1 to 3 on the private financial data",
        "not published; credit stands in",
    ),
    Missing(
        "001",
        "Table 1: sets with categories or empty cells",
        "sf1, sf2, osales, scpf: how they are coded is not published",
    ),
    Missing(
        "003",
        "Tables 1 and 2: seconds on 10 to 50 threads",
        "such machines are not had: table-2 has seconds on two cores",
    ),
)
"""Of what a paper numbers or measures."""
