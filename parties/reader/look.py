"""What a data manager should look at before a run: one table, and in a simulation all of them.

Privacy: counts are as private as the rows. A deployed party looks at its own table only, on its own
machine; comparisons between parties are for simulations, where one process has all rows anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.reader.cells import missing_cells
from parties.reader.schema import FloatArray, Schema, Targets
from parties.reader.shard import ClampCounts, Shard, check_columns
from protocols.exchange.documents import shown
from protocols.words import count

RARE = 5
"""A feature of zeros and ones with fewer rows than this on one side says next to nothing."""
MANY_PARTIES = 20
MANY_CLIPPED = 0.1
"""Share of the rows that a reader is told of."""
SHORTENED = "rows are shortened"
"""Begins what is said of them; not of a model whose rows are not."""
LITTLE_USED = 0.25
"""Mean weight over its bound, below which a reader is told."""
SHIFT, SURE = 1.0, 5.0
"""A party's mean is off by so many standard deviations, and by so many standard errors."""


def missing_counts(table: pd.DataFrame, schema: Schema) -> NDArray[np.int64]:
    """Missing cells of each column and of the label, shape (columns + labels,).

    Raises:
        SchemaError, DataError: a column is missing, or there are no rows.
    """
    names = [*(column.name for column in schema.columns), *schema.label.names]
    check_columns(table, names)
    return np.array([int(missing_cells(table[name]).sum()) for name in names], dtype=np.int64)


def told(counts: Mapping[str, int], rows: int, least: int) -> dict[str, int | None]:
    """Counts of rows; None where so few have, or lack, what is counted that they could be found."""
    return {
        name: None if 0 < count < least or 0 < rows - count < least else count
        for name, count in counts.items()
    }


def filled_totals(shards: Mapping[str, Shard], least: int) -> dict[str, int | None]:
    """Cells that the schema fills in, by column, over all parties of a simulation; see `told`."""
    found: Counter[str] = Counter()
    for shard in shards.values():
        found.update(shard.counts.filled)
    return told(found, sum(shard.rows for shard in shards.values()), least)


def filled_words(totals: Mapping[str, int | None], rows: int, least: int) -> str:
    """A sentence of `told` counts; empty where no cell was empty."""
    few = f"fewer than {least}, or all but fewer than {least}"
    some = [
        f"{shown(name)} in {few if count is None else f'{count:,}'}"
        for name, count in totals.items()
        if count != 0
    ]
    return f"missing cells, of {rows:,} rows of all parties: {'; '.join(some)}" if some else ""


def party_warnings(shard: Shard) -> list[str]:
    """Sentences about one party's encoded rows; none where nothing stands out."""
    words = []
    if shard.rows < shard.num_features:
        words.append(
            f"{shard.rows} rows are fewer than the {shard.num_features} columns (categories and "
            "bias counted): coefficients will mostly repeat noise; leave columns out"
        )
    if _has_one_class(shard):
        words.append(
            f"all rows have one value of label {shown(shard.schema.label.name)}: they teach the "
            "model little but how often it occurs"
        )
    return [*words, *_rare(shard.x, shard.schema)]


def _rare(x: FloatArray, schema: Schema) -> list[str]:
    """Zero-one features that nearly all rows share; shape of x: (rows, features)."""
    names, start = [], 0
    for column in schema.columns if schema.projection is None else ():
        for k, feature in enumerate(column.features):
            is_flag = k > 0 or not hasattr(column, "low")
            if is_flag and 0 < np.count_nonzero(x[:, start + k]) < RARE <= len(x):
                names.append(shown(feature))
        start += len(column.features)
    if not names:
        return []
    return [f"fewer than {RARE} rows have {_some(names)}: merge rare categories"]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def cohort_warnings(shards: Mapping[str, Shard], split: str) -> list[str]:
    """Sentences about the parties of a simulation, which sees all of them."""
    words = []
    sizes = [shard.rows for shard in shards.values()]
    if split.startswith("by:") and len(shards) > MANY_PARTIES:
        words.append(
            f"split {shown(split)} makes {len(shards)} parties, the smallest of {min(sizes)} "
            "rows: is that column one of sites?"
        )
    alone = {
        "rows of one class only": [name for name, s in shards.items() if _has_one_class(s)],
        "fewer rows than columns": [n for n, s in shards.items() if s.rows < s.num_features],
    }
    words += [
        f"{what} at {_some([*map(shown, names)])}: deployed, only these parties would know"
        for what, names in alone.items()
        if names
    ]
    schema = next(iter(shards.values())).schema
    pooled = np.concatenate([shard.x for shard in shards.values()])
    return [*words, *_rare(pooled, schema), *_shifts(shards)]


def _has_one_class(shard: Shard) -> bool:
    label = shard.schema.label
    return not isinstance(label, Targets) and len(np.unique(shard.y, axis=0)) == 1


def _shifts(shards: Mapping[str, Shard]) -> list[str]:
    """Features whose mean at one party is far from that of the others.

    |m_p - m_rest| > SHIFT s  and  > SURE s sqrt(1 / n_p + 1 / n_rest), s over all rows.
    """
    schema = next(iter(shards.values())).schema
    pooled = np.concatenate([shard.x[:, :-1] for shard in shards.values()])
    total, spread, rows = pooled.sum(axis=0), pooled.std(axis=0), len(pooled)
    found = []
    for name, shard in shards.items():
        rest = rows - shard.rows
        if rest < 1:
            continue
        own = shard.x[:, :-1].sum(axis=0)
        gap = np.abs(own / shard.rows - (total - own) / rest)
        sure = SURE * np.sqrt(1 / shard.rows + 1 / rest)
        far = np.flatnonzero((gap > SHIFT * spread) & (gap > sure * spread))
        if far.size:
            features = [shown(schema.feature_names[k]) for k in far]
            found.append(f"{shown(name)}: {_some(features)}")
    if not found:
        return []
    more = f"; and {len(found) - 5} more parties" if len(found) > 5 else ""
    return [
        f"means differ by more than a standard deviation from those of the other parties at "
        f"{'; '.join(found[:5])}{more}: look for another unit or another coding"
    ]


def undeclared(shards: Iterable[Shard]) -> list[str]:
    """Notes where cells are of no value that the schema declares."""
    unknown, between = Counter[str](), Counter[str]()
    for shard in shards:
        unknown.update(shard.counts.unknown)
        between.update(shard.counts.between)
    return ClampCounts(rows=0, unknown=unknown, between=between).doubts()


def bounds_notes(shards: Iterable[Shard], schema: Schema) -> list[str]:
    """Notes where the schema's bounds change many rows, or leave weights little room."""
    parts = list(shards)
    rows = sum(shard.rows for shard in parts)
    clipped = sum(shard.counts.norm_clipped for shard in parts) / rows
    used = sum(float(shard.weight.sum()) for shard in parts) / rows
    notes = undeclared(parts)
    if clipped > MANY_CLIPPED:
        notes.append(
            f"{SHORTENED}: {clipped:.0%} of those trained on are longer than row_norm="
            f"{schema.row_norm:g}: at a small epsilon a thousand rows lose nothing "
            "by it, for noise is as large as the longest row; without privacy take a larger "
            "row_norm, or null"
        )
    if used < LITTLE_USED:
        notes.append(
            f"weights use {used:.0%} of their bound on average: steps are as short, and privacy "
            "noise is as much larger; cap large weights, and lower the bound in the schema"
        )
    return notes


def clamped_targets(tested: Shard, schema: Schema) -> list[str]:
    """A note where test targets lie outside their public range."""
    outside = tested.counts.outside
    moved = {name: outside[name] for name in schema.label.names if name in outside}
    if not moved:
        return []
    return [
        f"outside the public range: {count(sum(moved.values()), 'test value')} of "
        f"{', '.join(moved)}, which count as its ends"
    ]
