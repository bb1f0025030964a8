"""Residue arithmetic on several cores: NumPy lets go of Python's lock, OpenFHE does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def each(work: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """`map` of both, in as many threads as OpenFHE takes: $OMP_NUM_THREADS, or one per core."""
    count = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, *arguments))
