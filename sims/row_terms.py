"""Weights and offsets of owners' rows, as columns beside their features; weights of classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from parties.reader.schema import Schema, Weight
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.exchange.documents import shown
from sims.owners import Rows, free_name, naming

Array = NDArray[np.float64]
BALANCED = "balanced"


def attached(
    owners: Mapping[str, Rows], given: Schema | None, term: str, values: Any
) -> tuple[dict[str, Rows], str | None]:
    """Owners with a column of weights or offsets, and its name; None: they have none.

    given: schema, None: to be inferred; term: "weight" or "offset"; values: of all rows, or of each
    owner, in a list or a dict as the shards are. None: what is in the frames already.

    Raises:
        DataError: values that do not go with the rows. SchemaError: the schema has no such column.
    """
    declared = None if given is None else getattr(given, term)
    if values is None:
        return dict(owners), None if declared is None else declared.name
    if given is not None and declared is None:
        raise SchemaError(
            f"the schema has no {term}, and {term}s are given: declare its column and its bounds "
            f"(cohort schema init --{term})"
        )
    first = next(iter(owners.values())).frame
    name = free_name(first, term) if declared is None else declared.name
    found = {}
    for owner, each in _by_owner(owners, term, values).items():
        with naming(owner):
            found[owner] = with_column(owners[owner], name, _checked(each, term, owners[owner]))
    return found, name


def _by_owner(owners: Mapping[str, Rows], term: str, values: Any) -> dict[str, Any]:
    if set(owners) == {""}:
        return {"": values}
    if isinstance(values, Mapping) and {str(name) for name in values} == set(owners):
        return {str(name): each for name, each in values.items()}
    if isinstance(values, (list, tuple)) and len(values) == len(owners):
        return dict(zip(owners, values, strict=True))
    raise DataError(f"{term}s are not one array per shard: give them as the shards are given")


def _checked(values: Any, term: str, rows: Rows) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{term}s hold texts or objects where numbers are due") from None
    if term == "weight" and array.ndim == 0:
        array = np.full(len(rows.frame), float(array))
    if array.shape != (len(rows.frame),):
        what = "Sample weights must be 1D array or scalar: " if term == "weight" else ""
        raise DataError(f"{what}{term}s have shape {array.shape} for {len(rows.frame)} rows")
    return array


def with_column(rows: Rows, name: str, values: Array) -> Rows:
    """Rows with one more column."""
    return replace(rows, frame=rows.frame.assign(**{name: values}))


def class_factors(
    owners: Mapping[str, Rows], class_weight: Any, name: str | None, *, private: bool
) -> dict[Any, float]:
    """Factor of each label's rows; "balanced": N / (K N_c), N, N_c sums of weights, of K classes.

    name: of the column of weights, None: there is none.

    Raises:
        ParameterError: "balanced" with privacy, labels that are none, or a weight below 0.
    """
    labels = np.concatenate([owner.labels for owner in owners.values()])
    classes, codes = np.unique(labels, return_inverse=True)
    if isinstance(class_weight, str) and class_weight == BALANCED:
        if private:
            raise ParameterError(
                "class_weight='balanced' counts labels, which are private, and epsilon pays for no "
                "count; give weights from public figures, such as {0: 1, 1: 5}, or epsilon=None"
            )
        frames = [owner.frame for owner in owners.values()]
        own = [f[name].to_numpy(float) if name in f else np.ones(len(f)) for f in frames]
        counts = np.bincount(codes, weights=np.concatenate(own))
        if not (counts > 0).all():
            raise DataError("class_weight='balanced': a class has no row of weight above 0")
        shares = counts.sum() / (classes.size * counts)
        return dict(zip(classes.tolist(), shares.tolist(), strict=True))
    if not isinstance(class_weight, Mapping):
        raise ParameterError(f"class_weight={shown(class_weight)} is not a dict or 'balanced'")
    strange = [label for label in class_weight if label not in classes]
    if strange:
        raise ParameterError(f"class_weight has {shown(strange[0])}, which is no label of the rows")
    found = {label: float(class_weight.get(label, 1.0)) for label in classes.tolist()}
    if not (min(found.values()) >= 0 and 0 < max(found.values()) < np.inf):
        raise ParameterError("class_weight has a weight below 0, or none above: give 0 or more")
    return found


def class_weighted(
    owners: Mapping[str, Rows], given: Schema | None, name: str | None, factors: Mapping[Any, float]
) -> tuple[dict[str, Rows], Schema | None, str]:
    """Weights times those of the rows' classes; the schema's bound is as many times its own.

    name: of the column of weights, None: there is none yet.
    """
    first = next(iter(owners.values())).frame
    column = name or free_name(first, "weight")
    found = {}
    for owner, rows in owners.items():
        own = np.array([factors[label] for label in rows.labels.tolist()])
        if column in rows.frame:
            own = own * rows.frame[column].to_numpy(dtype=np.float64)
        found[owner] = with_column(rows, column, own)
    if given is None:
        return found, None, column
    largest = max(factors.values())
    before = given.weight or Weight(name=column, bound=1.0)
    weight = msgspec.structs.replace(before, bound=before.bound * largest)
    return found, replace(given, weight=weight), column
