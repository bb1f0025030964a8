"""One owner's record of what has been spent on each data set, on disk; it refuses an overdraft.

A run is **reserved** before it starts, and from then on it counts. `commit` notes that it ended;
`rollback` takes it back, which is right only if nothing of it has been released. A run that
crashes in between has neither and stays spent: nobody knows what had left its owner.

The file has one JSON object per line. A line is appended under an exclusive lock and flushed to
disk before the call returns, and it carries the digest of the line before it, so that a lost or
edited line is noticed. Before that it is written to a file beside it (`path` + ".last"): so a
ledger that was cut, emptied, removed or set back to an older copy is refused, and a line of which a
crash left nothing or a part is there when the ledger is read next. (Whoever can write both files
can rewrite all of it: the ledger guards against accidents, not against its owner. A copy of both
from before is taken for the newest.)
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError, PrivacyError
from protocols.exchange.private_files import locked, private_opener, sync_folder, write_private
from protocols.privacy.loss import check_delta, check_epsilon
from protocols.privacy.loss.accounting import Event, GaussianEvent, LaplaceEvent, compose

EVENTS: Mapping[str, type[Event]] = {kind.kind: kind for kind in (GaussianEvent, LaplaceEvent)}
"""Of entries; runs of an earlier version may have had Laplace noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What one data set has cost so far.

    Attributes:
        epsilon: of all runs together, at the budget's delta; inf if delta alone is overdrawn.
        additive_delta: part of the budget's delta that the runs have used beside their events.
        runs: number of runs, open ones included.
    """

    epsilon: float
    additive_delta: float
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """A ledger file and the budget that its owner grants each data set.

    Attributes:
        path: the file; it, its last line (`path` + ".last") and its lock (`path` + ".lock") are
            created when needed.
        epsilon, delta: the budget for all runs on one data set together.
        budget: where its owner grants more, in words.

    Raises:
        ParameterError: epsilon or delta is out of range.
    """

    path: Path
    epsilon: float
    delta: float
    budget: str = ""

    def __post_init__(self) -> None:
        """Check the budget."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def reserve(
        self,
        dataset: str,
        events: Sequence[Event],
        *,
        additive_delta: float = 0.0,
        identifier: str = "",
    ) -> str:
        """Count a run, before it starts; once, however often it is asked before `spend`.

        Args:
            dataset: digest of the data set.
            events: what the run costs; their epsilon depends on the other runs.
            additive_delta: what it costs in delta beside them.
            identifier: unique name of the run; empty makes one.

        Returns:
            the run's identifier, for `commit` or `rollback`.

        Raises:
            PrivacyError: the budget would be overdrawn, the identifier names another run, or the
                file is damaged.
            ParameterError: additive_delta is negative.
        """
        return self.reserved(dataset, events, additive_delta=additive_delta, identifier=identifier)[
            0
        ]

    def reserved(
        self,
        dataset: str,
        events: Sequence[Event],
        *,
        additive_delta: float = 0.0,
        identifier: str = "",
    ) -> tuple[str, str]:
        """See `reserve`; and the run's `entry`, which tells it from a later one of the name."""
        if not additive_delta >= 0:
            raise ParameterError(f"additive_delta={additive_delta} is below 0")
        # Whoever drives a run hands them in: other lines could not be read again.
        given: Sequence[Any] = (identifier, *events)
        if not isinstance(given[0], str) or not all(type(e) in EVENTS.values() for e in given[1:]):
            raise ParameterError("a run has a name and events, and nothing else, in a ledger")
        with self._locked():
            lines = self._lines()
            name = identifier or uuid.uuid4().hex
            entry = {
                "kind": "reserve",
                "id": name,
                "dataset": dataset,
                "events": [_event_to_dict(event) for event in events],
                "additive_delta": additive_delta,
            }
            known = _runs(lines).get(name)
            if known is not None:
                _check_same(known, entry)
                return name, _entry(known)
            self._foreseen(lines, dataset, events, additive_delta)
            return name, _entry(self._append(lines, entry))

    def foresee(
        self,
        dataset: str,
        events: Sequence[Event],
        *,
        additive_delta: float = 0.0,
        identifier: str = "",
    ) -> tuple[Spent, Spent]:
        """What a data set has cost so far, and what it would with a run as of `reserve`.

        A run that counts already is left out of the first; nothing is written.

        Raises:
            PrivacyError: the budget would be overdrawn, or the file is damaged.
        """
        with self._locked():
            lines = [s for s in self._lines() if json.loads(s)["id"] != identifier]
            return self._foreseen(lines, dataset, events, additive_delta)

    def _foreseen(
        self, lines: Sequence[str], dataset: str, events: Sequence[Event], additive_delta: float
    ) -> tuple[Spent, Spent]:
        before = self._spent(lines, dataset, [], 0.0)
        after = self._spent(lines, dataset, list(events), additive_delta)
        if after.epsilon > self.epsilon * (1 + 1e-9):
            more = f"raise epsilon under {self.budget}, or " if self.budget else ""
            raise PrivacyError(
                f"epsilon={after.epsilon:.6g} after this run exceeds the budget "
                f"{self.epsilon:.6g} at delta={self.delta:.3g} for data set {dataset[:16]} (spent "
                f"so far: {before.epsilon:.6g} in {before.runs} session{'s' * (before.runs != 1)});"
                f" {more}use more noise, fewer rounds, or other data"
            )
        return before, after

    def spend(self, identifier: str, entry: str = "") -> None:
        """Note that something of a reserved run may leave from here on; once.

        entry: see `entry`; empty: whichever has the name.

        Raises:
            PrivacyError: no such open run, or it was noted before.
        """
        with self._locked():
            lines = self._lines()
            run = _runs(lines).get(identifier)
            if run is None or run["closed"] or run["spent"] or entry not in ("", _entry(run)):
                raise PrivacyError(f"spend: {identifier} is not an open, unspent run")
            self._append(lines, {"kind": "spend", "id": identifier})

    def commit(self, identifier: str, entry: str = "") -> None:
        """Note that a reserved run has ended; it stays spent.

        Raises:
            PrivacyError: no such open run, or the file is damaged.
        """
        self._close("commit", identifier, entry)

    def rollback(self, identifier: str, entry: str = "") -> None:
        """Take a reserved run back.

        Raises:
            PrivacyError: no such open run, it is spent, or the file is damaged.
        """
        self._close("rollback", identifier, entry)

    def is_open(self, identifier: str) -> bool:
        """Whether a run is reserved, and neither committed nor rolled back.

        Raises:
            PrivacyError: the file is damaged.
        """
        with self._locked():
            run = _runs(self._lines()).get(identifier)
            return run is not None and not run["closed"]

    def entry(self, identifier: str) -> str:
        """What tells an open run from every other, of the same name too; empty: it is not open.

        Raises:
            PrivacyError: the file is damaged.
        """
        with self._locked():
            run = _runs(self._lines()).get(identifier)
            return "" if run is None or run["closed"] else _entry(run)

    def has(self, dataset: str, identifier: str) -> bool:
        """Whether a run on a data set counts.

        Raises:
            PrivacyError: the file is damaged.
        """
        with self._locked():
            run = _runs(self._lines()).get(identifier)
            return run is not None and run["dataset"] == dataset

    def spent(self, dataset: str) -> Spent:
        """What a data set has cost so far, open (crashed) runs included.

        Raises:
            PrivacyError: the file is damaged.
        """
        with self._locked():
            return self._spent(self._lines(), dataset, [], 0.0)

    def _spent(
        self, lines: Sequence[str], dataset: str, more: list[Event], more_delta: float
    ) -> Spent:
        """The total, with a further run added."""
        runs = [run for run in _runs(lines).values() if run["dataset"] == dataset]
        events = [_event_from_dict(event) for run in runs for event in run["events"]] + more
        delta = sum(float(run["additive_delta"]) for run in runs) + more_delta
        if delta >= self.delta:
            return Spent(epsilon=float("inf"), additive_delta=delta, runs=len(runs))
        epsilon = compose(events, delta=self.delta - delta) if events else 0.0
        return Spent(epsilon=epsilon, additive_delta=delta, runs=len(runs))

    def _close(self, kind: str, identifier: str, entry: str) -> None:
        """Append a commit or a rollback."""
        with self._locked():
            lines = self._lines()
            run = _runs(lines).get(identifier)
            is_spent = run is not None and kind == "rollback" and run["spent"]
            if run is None or run["closed"] or is_spent or entry not in ("", _entry(run)):
                raise PrivacyError(f"{kind}: {identifier} is not an open run of this ledger")
            self._append(lines, {"kind": kind, "id": identifier})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the ledger's lock, against other processes and other threads."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(f"{self.path.name}.lock")):
            yield

    def _lines(self) -> list[str]:
        """All lines; repairs a torn end.

        Raises:
            PrivacyError: a line is not JSON or does not follow from the one before, or lines are
                missing at the end.
        """
        text = ""
        if self.path.exists():
            text = self.path.read_text(encoding="utf-8", errors="replace")
        *lines, torn = text.split("\n")
        previous = ""
        for number, line in enumerate(lines, start=1):
            try:
                chained = json.loads(line)["previous"]
            except (ValueError, KeyError, TypeError):
                chained = None
            if chained != _digest(previous):
                raise PrivacyError(f"{self.path}: line {number} is damaged; restore the ledger")
            previous = line
        if torn:
            write_private(self.path, "".join(f"{line}\n" for line in lines).encode())
        if self._last.exists():
            newest = self._last.read_text(encoding="utf-8", errors="replace")
            if newest != previous:
                self._restore(newest, previous)
                lines.append(newest)
        return lines

    @property
    def _last(self) -> Path:
        return self.path.with_name(f"{self.path.name}.last")

    def _restore(self, newest: str, before: str) -> None:
        """Append the line that was to be the newest, if it follows the last one that is there."""
        try:
            chained = json.loads(newest)["previous"]
        except (ValueError, KeyError, TypeError):
            chained = None
        if chained != _digest(before):
            raise PrivacyError(
                f"{self.path} does not end where {self._last.name} says: lines are missing, and "
                f"with them what was spent. Put back the {self.path.name} that ends there. If none "
                f"is left, remove {self._last}: what is missing is then never counted"
            )
        self._write(newest)

    def _append(self, lines: Sequence[str], entry: Mapping[str, Any]) -> dict[str, Any]:
        """Add a line and flush it to disk; what stands in it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        full = {**entry, "time": stamp, "previous": _digest(lines[-1] if lines else "")}
        line = json.dumps(full, allow_nan=False, sort_keys=True)
        write_private(self._last, line.encode())
        self._write(line)
        return full

    def _write(self, line: str) -> None:
        with open(self.path, "a", encoding="utf-8", opener=private_opener) as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _entry(run: Mapping[str, Any]) -> str:
    """The digest of the line before stands in no other line."""
    return f"{run['previous']}/{run['id']}"


def _check_same(run: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Refuse to reserve under the name of a run that is spent or over, or another one."""
    if run["spent"] or run["closed"] or any(run[key] != value for key, value in entry.items()):
        raise PrivacyError(f"{entry['id']} names another run of this ledger")


def _runs(lines: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Runs that count, by identifier; `closed` tells whether they were committed."""
    runs: dict[str, dict[str, Any]] = {}
    for line in lines:
        entry = json.loads(line)
        if entry["kind"] == "reserve":
            runs[entry["id"]] = {**entry, "spent": False, "closed": False}
        elif entry["kind"] in ("spend", "commit"):
            runs[entry["id"]]["spent"] = True
            runs[entry["id"]]["closed"] |= entry["kind"] == "commit"
        else:
            del runs[entry["id"]]
    return runs


def _event_to_dict(event: Event) -> dict[str, Any]:
    return {"kind": event.kind, **asdict(event)}


def _event_from_dict(data: Mapping[str, Any]) -> Event:
    if data["kind"] not in EVENTS:
        raise ParameterError(f"event {data['kind']!r} is not {' or '.join(EVENTS)}")
    return EVENTS[data["kind"]](noise_multiplier=data["noise_multiplier"], count=data["count"])
