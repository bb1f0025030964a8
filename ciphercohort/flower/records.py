"""Flower's records as one vector of words, and a mean back as records.

What a reply holds is its layout (names, shapes, types: not secret) and numbers: arrays, as
differences from the arrays that the request brought where these have the same key and shape, and
metrics. Other content (texts, bytes) cannot be summed and does not leave the client.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from protocols.errors import DataError, MessageError
from protocols.exchange.serialise import parse

R = TypeVar("R", ArrayRecord, ConfigRecord, MetricRecord)
Values = NDArray[np.float64]
# Values handled at once: they stay in cache.
BLOCK = 1 << 17
_MOST_VALUES = 1 << 40
# Bounds on one client's metric and weight: their product is below that of `residues`.
LARGEST_METRIC = 2.0**40
LARGEST_WEIGHT = 2.0**32
_NPY: Any = np.lib.format
# Bytes of arrays that a process keeps beside their digests.
_MOST_KEPT = 1 << 26
# Of a layout, in characters; of an array's shape.
_LONGEST_LAYOUT, _MOST_AXES = 1 << 24, 32
EXTREMES = ("max", "min")
_KINDS = ("array", "count", "metric", "sum", *EXTREMES)
_NUMBERS = [np.dtype(code) for code in "efdgbBhHiIlLqQ"]
TYPES = {kind.str: kind for native in _NUMBERS for kind in (native, native.newbyteorder())}
TYPES |= {kind.name: kind for kind in _NUMBERS}
"""Types of arrays, by the names that NumPy and Flower write; no other text becomes one."""

# Of legacy replies (`flwr.client.NumPyClient`), after translation by Flower.
_LEGACY = {
    "fitres": ("fitres.num_examples", "num_examples"),
    "evaluateres": ("evaluateres.num_examples", "num_examples"),
}
_LEGACY_METRICS = {f"{legacy}.metrics" for legacy in _LEGACY}


@dataclass(frozen=True, slots=True)
class Place:
    """Where numbers stand in a reply.

    record, key; kind: "array", "count" (an array of one integer, summed exactly, as metrics are),
    "metric", or of a named statistic (see `named`) "sum", "max", "min"; type: of an array, or
    "number"; shape: of an array, [k] for a list of k metrics, [] for one; relative: to the
    request's array.
    """

    record: str
    key: str
    kind: str
    type: str
    shape: tuple[int, ...] = ()
    relative: bool = False

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that a reply sums: arrays, metrics, named statistics.

    weight: its record and key, or two empty texts if there is nothing to weigh.
    """

    arrays: tuple[Place, ...]
    metrics: tuple[Place, ...]
    weight: tuple[str, str]
    sums: tuple[Place, ...] = ()

    @property
    def length(self) -> int:
        """Values in arrays."""
        return sum(place.size for place in self.arrays)

    def to_json(self) -> str:
        """For the wire."""
        rows = [[p.record, p.key, p.kind, p.type, p.shape, p.relative] for p in self.places]
        return json.dumps([rows, self.weight])

    @property
    def places(self) -> tuple[Place, ...]:
        """All."""
        return self.arrays + self.metrics + self.sums

    def beside(self, other: Layout) -> str:
        """The first thing in which it differs from another one."""
        own = {(p.record, p.key): p for p in self.places}
        wanted = {(p.record, p.key): p for p in other.places}
        for name in sorted({*own, *wanted}):
            found, expected = own.get(name), wanted.get(name)
            if found != expected:
                words = [f"{p.type}{list(p.shape)}" if p else "nothing" for p in (found, expected)]
                return f"{name[1]!r} in {name[0]!r} is {words[0]}, not {words[1]}"
        return "its arrays are in another order, or weighed by another metric"

    @classmethod
    @lru_cache(maxsize=4)
    def of_json(cls, text: str) -> Layout:
        """Inverse of `to_json`. Raises MessageError: it is no layout."""
        try:
            rows, (record, key) = parse(text, "layout", most=_LONGEST_LAYOUT)
            places = [Place(r, k, kind, t, tuple(s), rel) for r, k, kind, t, s, rel in rows]
            texts = [record, key, *(t for p in places for t in (p.record, p.key, p.kind, p.type))]
            if not all(type(each) is str for each in texts):
                raise ValueError("names or types that are no texts")
            if not all(p.kind in _KINDS and type(p.relative) is bool for p in places):
                raise ValueError("a place of an unknown kind")
            if len({(p.record, p.key) for p in places}) < len(places):
                raise ValueError("two numbers in one place")
            for place in places:
                _check_shape(place.shape)
                if place.kind in ("array", "count") or place.type != "number":
                    type_of(place.type)
            arrays = tuple(p for p in places if p.kind == "array")
            sums = tuple(p for p in places if p.kind in ("sum", *EXTREMES))
            metrics = tuple(p for p in places if p not in arrays and p not in sums)
            return cls(arrays, metrics, (record, key), sums)
        except (ValueError, TypeError) as error:
            raise MessageError(f"a reply holds no layout: {error}") from None


def type_of(text: str) -> np.dtype[Any]:
    """Of an array of numbers. Raises ValueError: it is none of TYPES."""
    if text not in TYPES:
        raise ValueError("arrays of no numbers")
    return TYPES[text]


def _check_shape(shape: tuple[Any, ...]) -> None:
    if len(shape) > _MOST_AXES or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("a size that is no whole number from 0 on, or too many of them")
    # Of an empty array the others count, too: NumPy multiplies them.
    if math.prod(size or 1 for size in shape) > _MOST_VALUES:
        raise ValueError("too many values")


class Bases:
    """The arrays of a request, by key: what differences are taken from.

    Raises:
        MessageError: a key stands in two records.
    """

    def __init__(self, request: RecordDict) -> None:
        self._arrays: dict[str, Array] = {}
        self._records: dict[str, str] = {}
        for name, record in records_of(request, ArrayRecord):
            for key, array in record.items():
                if key in self._arrays:
                    raise MessageError(f"two ArrayRecords of the request hold an array {key!r}")
                self._arrays[key], self._records[key] = array, name

    def has(self, key: str, shape: tuple[int, ...]) -> bool:
        """Whether a reply's array is a change of one of these."""
        return key in self._arrays and tuple(self._arrays[key].shape) == shape

    def place(self, record: str, key: str, value: NDArray[Any], *, exact: bool) -> Place:
        """Of a reply's array: of this one's type if it is a change of it."""
        relative = self.has(key, value.shape)
        kind = type_of(self._arrays[key].dtype) if relative else value.dtype
        if exact and value.size == 1 and value.dtype.kind in "iu":
            return Place(record, key, "count", value.dtype.str, value.shape)
        return Place(record, key, "array", kind.str, value.shape, relative)

    def places(self) -> Iterator[Place]:
        """Of changes of all of them, in a reply that names its records as the request does."""
        for key, array in self._arrays.items():
            record = self._records[key].replace("fitins.", "fitres.")
            yield Place(record, key, "array", type_of(array.dtype).str, tuple(array.shape), True)

    def in_order(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """By key: as here, then the others as they are."""
        known = {key: named[key] for key in self._arrays if key in named}
        return {**known, **named}

    def fit(self, layout: Layout) -> bool:
        """Whether a layout takes differences where these arrays allow it, and only there."""
        return all(p.relative == self.has(p.key, p.shape) for p in layout.arrays)

    def __getitem__(self, key: str) -> NDArray[Any]:
        return numbers_of(self._arrays[key]).ravel()


def records_of(content: RecordDict, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Those of one type, by name: Flower's own views check all of them anew."""
    for name, record in content.items():
        if isinstance(record, kind):
            yield name, record


def numbers_of(array: Array) -> NDArray[Any]:
    """As `Array.numpy`, without a copy where Flower's usual format allows it; not to be changed."""
    usual = _NPY.magic(1, 0)
    if array.stype == "numpy.ndarray" and array.data.startswith(usual):
        start = len(usual) + 2 + int.from_bytes(array.data[len(usual) : len(usual) + 2], "little")
        shape, fortran, kind = _header(array.data[len(usual) : start])
        if not fortran and not kind.hasobject:
            return np.frombuffer(array.data, kind, math.prod(shape), start).reshape(shape)
    return array.numpy()


@lru_cache(maxsize=256)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = _NPY.read_array_header_1_0(
        io.BytesIO(data)
    )
    return found


def digests(request: RecordDict, without: str) -> tuple[bytes, bytes]:
    """SHA-256 of all that a request holds, in its order, but for one record; and of arrays alone.

    Of every record its type, name and number of entries; of every entry key, type and value, of an
    array's value its SHA-256.
    """
    whole, arrays = hashlib.sha256(), hashlib.sha256()
    for name, record in request.items():
        if name == without:
            continue
        said: list[Any] = [type(record).__name__, name, len(record)]
        for key, value in record.items():
            if isinstance(value, Array):
                said.append([key, value.dtype, value.shape, value.stype, _digest(key, value.data)])
            else:
                said.append([key, type(value).__name__, value])
        text = json.dumps(said, default=lambda blob: {"bytes": blob.hex()}).encode()
        for each in (whole, arrays) if isinstance(record, ArrayRecord) else (whole,):
            each.update(b"%d\0" % len(text) + text)
    return whole.digest(), arrays.digest()


# By key, the last array and its digest.
_KEPT: dict[str, tuple[bytes, str]] = {}


def _digest(key: str, data: bytes) -> str:
    """SHA-256 of an array.

    Clients of one process, and its server, hash the same model one after the other: bytes are
    compared 20 times as fast.
    """
    known, digest = _KEPT.get(key, (b"", ""))
    if digest and known == data:
        return digest
    _KEPT.pop(key, None)
    digest = hashlib.sha256(data).hexdigest()
    if sum(len(kept) for kept, _ in _KEPT.values()) + len(data) > _MOST_KEPT:
        _KEPT.clear()
    if len(data) <= _MOST_KEPT:
        _KEPT[key] = data, digest
    return digest


# -- client ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client's function returned, as numbers.

    Arrays are in the request's order and all else by name, so that replies that differ in nothing
    else can be added. metrics: and other exact numbers; sums: numbers of named statistics, by
    place; weight: 0 where the reply's own is no number from 0 to LARGEST_WEIGHT.
    """

    layout: Layout
    arrays: tuple[NDArray[Any], ...]
    metrics: tuple[float, ...]
    weight: float = 1.0
    weight_fits: bool = True
    sums: tuple[list[Any], ...] = ()

    @classmethod
    def of(
        cls,
        content: RecordDict,
        bases: Bases,
        weighted_by: str,
        *,
        weigh: bool = True,
        named: Callable[[str, str], str] = lambda record, key: "",
    ) -> Reply:
        """Sort a reply's content; weigh: or leave the weight at 1 and count nothing exactly.

        named: kind of the named statistic in a record, under a key; "" for none.

        Raises:
            DataError: it has no weight, or nothing that can be summed. Never for a value: the
                server would learn of this client alone.
        """
        arrays, values, metrics, sums = [], [], [], []
        for legacy in _LEGACY:
            status = content.get(f"{legacy}.status")
            if isinstance(status, ConfigRecord) and status["code"] != 0:
                raise DataError("the client reports that its own function failed")
        for name, record in records_of(content, ArrayRecord):
            for key, array in bases.in_order(record).items():
                value = numbers_of(array)
                if value.dtype.kind not in "fiu":
                    raise DataError(f"array {key!r} is of type {value.dtype}: not numbers")
                if named(name, key):
                    kind = {"f": "<f8", "i": "<i8", "u": "<i8"}[value.dtype.kind]
                    sums.append(
                        (Place(name, key, "sum", kind, value.shape), value.ravel().tolist())
                    )
                    continue
                place = bases.place(name, key, value, exact=weigh)
                if place.kind == "count":
                    metrics.append((place, [float(value.item())]))
                else:
                    arrays.append(place)
                    values.append(value.ravel())
        for place, numbers in _metrics(content):
            if kind := named(place.record, place.key):
                sums.append((replace(place, kind=kind), numbers))
            else:
                metrics.append((place, [number_of(v) for v in numbers]))
        if not (arrays or metrics or sums):
            raise DataError("the reply has no numbers: put them in an ArrayRecord or MetricRecord")
        weight_at = _weight_place(content, weighted_by) if arrays or metrics else ("", "")
        metrics = [m for m in metrics if (m[0].record, m[0].key) != weight_at]
        for found in (metrics, sums):
            found.sort(key=lambda each: (each[0].record, each[0].key))
        weight = _weight(content, weight_at) if weigh and any(weight_at) else 1.0
        fits = 0 <= weight <= LARGEST_WEIGHT
        return cls(
            Layout(
                tuple(arrays),
                tuple(place for place, _ in metrics),
                weight_at,
                tuple(place for place, _ in sums),
            ),
            tuple(values),
            tuple(number for _, numbers in metrics for number in numbers),
            weight if fits else 0.0,
            fits,
            tuple(numbers for _, numbers in sums),
        )

    @classmethod
    def of_nothing(cls, bases: Bases, weighted_by: str, layout: Layout | None) -> Reply:
        """A reply that changes no value, of weight 1; layout: of an earlier one."""
        layout = layout or _unchanged(bases, weighted_by)
        arrays = tuple(
            bases[place.key] if place.relative else np.zeros(place.size, type_of(place.type))
            for place in layout.arrays
        )
        return cls(layout, arrays, ())


def _unchanged(bases: Bases, weighted_by: str) -> Layout:
    """Of a reply with all arrays of the request, and one metric in the record "metrics"."""
    legacy = any(place.record.startswith("fitres.") for place in bases.places())
    weight = _LEGACY["fitres"] if legacy else ("metrics", weighted_by)
    return Layout(tuple(bases.places()), (), weight)


def differences(
    reply: Reply, bases: Bases, least: type[np.floating[Any]] = np.float64
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Blocks of all arrays, one after the other, with the place where each begins.

    least: precision of what is yielded, or that of the arrays if it is higher.
    """
    start = 0
    for place, value in zip(reply.layout.arrays, reply.arrays, strict=True):
        base = bases[place.key] if place.relative else _nothing(value)
        kind = np.result_type(value, base, least)
        for first in range(0, value.size, BLOCK):
            block = slice(first, first + BLOCK)
            yield start + first, np.subtract(value[block], base[block], dtype=kind)
        start += value.size


def _nothing(value: NDArray[Any]) -> NDArray[Any]:
    return np.broadcast_to(value.dtype.type(0), value.shape)


def _weight_place(content: RecordDict, weighted_by: str) -> tuple[str, str]:
    for legacy, key in _LEGACY.values():
        if legacy in content:
            return legacy, key
    for name, record in records_of(content, MetricRecord):
        if weighted_by in record:
            return name, weighted_by
    raise DataError(
        f"the reply has no metric {weighted_by!r}, which weighs it: put it in a MetricRecord"
    )


def _weight(content: RecordDict, at: tuple[str, str]) -> float:
    value = dict(records_of(content, MetricRecord))[at[0]][at[1]]
    if isinstance(value, list):
        raise DataError(f"{at[1]!r} is a list, not one number")
    return number_of(value)


def number_of(value: float) -> float:
    """Also of an integer that may be beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _metrics(content: RecordDict) -> Iterator[tuple[Place, list[float]]]:
    records: dict[str, Mapping[str, Any]] = dict(records_of(content, MetricRecord))
    records |= {n: r for n, r in records_of(content, ConfigRecord) if n in _LEGACY_METRICS}
    for name, record in records.items():
        for key, value in record.items():
            numbers = value if isinstance(value, list) else [value]
            if numbers and all(isinstance(v, (int, float)) for v in numbers):
                shape = (len(numbers),) if isinstance(value, list) else ()
                yield Place(name, key, "metric", "number", shape), numbers


# -- server ---------------------------------------------------------------------------------------


def build(
    layout: Layout,
    bases: Bases,
    sums: NDArray[np.signedinteger[Any]],
    unit: float,
    metrics: list[float],
    weight: float,
    statistics: Iterable[list[float]] = (),
) -> RecordDict:
    """The reply of one client that has the mean of everything, and all weight.

    sums: of differences, shape (length,); unit: what 1 in them is of a mean; metrics: means of what
    is exact; weight: the sum; statistics: named ones, by place.
    """
    content = RecordDict()
    start = 0
    records: dict[str, dict[str, Array]] = {}
    for place in layout.arrays:
        # As Flower's own mean: integers become float64.
        own_type = type_of(place.type)
        kept = own_type if own_type.kind == "f" else np.dtype(np.float64)
        typed = np.empty(place.shape, kept)
        flat, base = typed.reshape(-1), bases[place.key] if place.relative else None
        for first in range(0, place.size, BLOCK):
            block = slice(first, first + BLOCK)
            mean = sums[start : start + place.size][block] * unit
            flat[block] = mean if base is None else mean + base[block]
        start += place.size
        records.setdefault(place.record, {})[place.key] = Array(typed)
    found: dict[str, dict[str, Any]] = {}
    rest = iter(metrics)
    for place in layout.metrics:
        numbers = [next(rest) for _ in range(place.size)]
        if place.kind == "count":
            exact = Array(np.array(numbers, np.float64).reshape(place.shape))
            records.setdefault(place.record, {})[place.key] = exact
            continue
        found.setdefault(place.record, {})[place.key] = numbers if place.shape else numbers[0]
    for place, numbers in zip(layout.sums, statistics, strict=True):
        if place.type == "number":
            found.setdefault(place.record, {})[place.key] = numbers if place.shape else numbers[0]
            continue
        whole = all(isinstance(v, int) and abs(v) < 1 << 63 for v in numbers)
        typed = np.array(numbers, np.int64 if whole and place.type != "<f8" else np.float64)
        records.setdefault(place.record, {})[place.key] = Array(typed.reshape(place.shape))
    for name, arrays in records.items():
        content[name] = ArrayRecord(bases.in_order(arrays))
    record, key = layout.weight
    if record:
        rounded = round(weight)
        found.setdefault(record, {})[key] = rounded if rounded == weight else weight
    for name, values in found.items():
        legacy = name in _LEGACY_METRICS
        content[name] = ConfigRecord(values) if legacy else MetricRecord(values)
    for legacy_of, (name, _) in _LEGACY.items():
        if name == record:
            content[f"{legacy_of}.status"] = ConfigRecord({"code": 0, "message": ""})
            if f"{legacy_of}.metrics" not in content:
                content[f"{legacy_of}.metrics"] = ConfigRecord({})
    return content
