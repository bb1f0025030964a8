"""Sums of which noise may have left anything, and what no output of them says."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ciphercohort.after.sums import SumSeries, noise_std, sums_wanted
from parties.reader.schema import Schema
from parties.reader.shard import Shard, encode_shard
from protocols.sums.plan import GradientPlan

Array = NDArray[np.float64]
Make = Callable[[Array, float], Array]
"""What opens, of the rows' own sum and the noise's standard deviation."""
NO_WORDS = re.compile(r"\b(?:nan|NaN|None|inf|infinity)\b|\\infty")


def unsaid(text: str) -> str:
    """What no person should read in it, with what stands around; empty: nothing."""
    text = re.sub(r"base64,[^\"']*|<svg.*?</svg>", "", text, flags=re.DOTALL)
    found = NO_WORDS.search(text)
    return text[max(found.start() - 60, 0) : found.end() + 20] if found else ""


@dataclass(frozen=True, kw_only=True)
class Alone(SumSeries):
    """Opens what `make` says, without a cipher."""

    shards: dict[str, Shard] = field(default_factory=dict)
    make: Make

    @classmethod
    def of(cls, frame: pd.DataFrame, own: Schema, make: Make, epsilon: float) -> Alone:
        """Of rows by their column "site"."""
        shards = {name: encode_shard(each, own) for name, each in frame.groupby("site")}
        sizes = {name: each.rows for name, each in shards.items()}
        wanted = sums_wanted(epsilon, 1e-5, 0)
        return cls(schema=own, sizes=sizes, wanted=wanted, shards=shards, make=make)

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        task = template.task
        parts = [task.of_rows(each.x, each.y, name) for name, each in self.shards.items()]  # type: ignore[attr-defined]
        return template, self.make(np.sum(parts, axis=0) / self.rows, noise_std(template)), ""


def opened(draws: int) -> Iterator[Make]:
    """Every value alike, a single one, and noise of every size on rows or on nothing."""
    for alike in (0.0, 1.0, -1.0):
        yield lambda own, _, alike=alike: np.full_like(own, alike)
    for k in range(draws):
        yield lambda own, _, k=k: (-1) ** k * np.eye(len(own))[(7 * k) % len(own)]
    for share in (0.0, 1.0):
        for power in (-9, -2, -1, 0, 1, 4):
            for k in range(draws):
                rng = np.random.default_rng([k, power + 9])
                yield lambda own, std, share=share, size=10.0**power, rng=rng: np.asarray(
                    share * own + rng.normal(0, size * std, len(own))
                )


def strictly(make: Callable[[], str]) -> str:
    """What it says, where a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()
