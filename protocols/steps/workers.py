"""Groups of encrypted rows over workers: where a coordinator outgrows one machine.

What of a gradient grows with the rows is a sum over groups of rows (`Evaluator.over_groups`). Its
terms are residues before the one relinearisation and the one rescaling, and these add up exactly
modulo each prime, in any order. So a run's bits are the same whoever computes which group, on how
many workers and threads, and however often one dies.

| what a worker is sent | when | bytes, n the ring dimension |
|---|---|---|
| `begin`: parameters, b of each evaluation key, preconditioner | once | 8 n digits towers a key |
| `take`: a group's ciphertexts | once a group | 16 n towers a ciphertext |
| `total`: the weights | every iteration | 16 n towers a part |
| its reply: three polynomials a part, at the level of the last product | the same | 24 n towers |

The groups stay in a file of the coordinator: those of a worker that dies go to the others.

Security: a worker sees what the coordinator sees, ciphertexts and public keys, and holds no secret.
A worker that computes something else makes a coordinator that deviates: no more is opened, and a
re-execution shows it (`coordinator.replay`). Only residues travel, below their primes where they
arrive: no byte of another machine reaches OpenFHE's deserialiser.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator, MakeTerms, Terms
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import chunk_of, loaded_context
from protocols.steps.keygen import JointKeys, load_keys

KINDS = ("rows", "lffr")
"""Kinds of plans whose rows are encrypted in groups."""
MOST_LOST = 20
"""Deaths of workers that a run survives; one that kills each worker (memory) is given up."""
# The polynomials of each part of a vector.
Polynomials = list[list[Residues]]


class WorkersError(OSError):
    """Workers are missing. No fault of the run's: its session is not aborted, and can go on."""


class LostWorkerError(WorkersError):
    """A worker died, or has forgotten what it held."""


# Calls a method of what a worker holds; returns at once. What it returns waits for the result.
Start = Callable[..., Callable[[], Any]]


class Engine(Protocol):
    """Who has workers: an adapter is one file and one line of `coordinator.workers`."""

    def workers(self) -> Sequence[str]:
        """Names of those that are there, at least one.

        Raises:
            WorkersError: none came in time.
        """
        ...

    def place(self, worker: str, make: Callable[[], Any]) -> Start:
        """Have a worker make an object, and keep it while the result of this is referred to.

        Waiting raises LostWorkerError where the worker has died, and what its method raises.
        """
        ...


# -- worker's half --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What all groups of a run have in common.

    seed: the joint seed; relinearisation, rotations: as in `JointKeys`; terms, units: see
    `Evaluator.over_groups`; diagonal: polynomials of the preconditioner.
    """

    session: str
    params: CkksParameters
    layout: Layout
    seed: bytes
    relinearisation: tuple[Residues, Residues]
    rotations: dict[int, Residues]
    terms: MakeTerms
    units: Any
    diagonal: Polynomials | None


class Share:
    """Some groups of a run's rows, in a worker. Its evaluation keys are unloaded with it."""

    def __init__(self) -> None:
        self._evaluator: Any = None
        self._make: Callable[[Any], Terms]
        self._terms: dict[int, Terms] = {}

    def begin(self, job: Job) -> None:
        """Load the keys."""
        halves = [*job.relinearisation, *job.rotations.values()]

        def make() -> CkksContext:
            found = CkksContext(job.params, job.session)
            load_keys(found, job.seed, job.relinearisation, job.rotations)
            return found

        context = loaded_context(job.session, [chunk_of(halves)], make)
        self._evaluator = Evaluator(context, job.layout)
        diagonal = None if job.diagonal is None else _vector(self._evaluator, job.diagonal)
        self._make = lambda rows: job.terms(self._evaluator, job.units, rows, diagonal)

    def take(self, group: int, data: Sequence[Residues]) -> None:
        """One more group; data: each ciphertext's polynomials in a row."""
        self._terms[group] = self._make(self._evaluator.hold(dict(enumerate(data))))

    def total(self, groups: Sequence[int], weights: Polynomials) -> Polynomials:
        """Sum of the groups' terms.

        Raises:
            LostWorkerError: one is not here.
        """
        if any(group not in self._terms for group in groups):
            raise LostWorkerError("this worker was started again, and holds other groups")
        evaluator, point = self._evaluator, _vector(self._evaluator, weights)
        return _parts(evaluator.added(self._terms[group](point) for group in groups))


def _parts(vector: EncryptedVector) -> Polynomials:
    return [vector.evaluator.context.polynomials_of(ct) for ct in vector.cts]


def _vector(evaluator: Evaluator, parts: Polynomials) -> EncryptedVector:
    return evaluator.wrap(*map(evaluator.context.ciphertext, parts))


# -- coordinator's half ---------------------------------------------------------------------------


class Spool(MutableMapping[int, Residues]):
    """Residues of one shape in a file that has no name, and is gone with its owner."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 (open as long as this is)
        weakref.finalize(self, self._file.close)
        self._places: dict[int, int] = {}
        self._shape: tuple[int, ...] = ()

    def __setitem__(self, index: int, residues: Residues) -> None:
        self._shape = residues.shape
        place = self._places.setdefault(index, len(self._places))
        self._file.seek(place * residues.nbytes)
        self._file.write(np.ascontiguousarray(residues).data)

    def __getitem__(self, index: int) -> Residues:
        size = int(np.prod(self._shape)) * np.uint64().nbytes
        self._file.seek(self._places[index] * size)
        return np.frombuffer(self._file.read(size), np.uint64).reshape(self._shape)

    def __delitem__(self, index: int) -> None:
        raise TypeError("contributions are never taken back")

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class SpreadEvaluator(Evaluator):
    """An evaluator whose groups of rows are with workers.

    keys: the run's evaluation keys, which are loaded in this process, too.
    """

    def __init__(self, inner: Evaluator, engine: Engine, seed: bytes, keys: JointKeys) -> None:
        super().__init__(inner.context, inner.layout)
        self._engine, self._seed, self._keys = engine, seed, keys

    def store(self) -> MutableMapping[int, Residues]:
        """A file: no group of rows stays in this process."""
        return Spool()

    def hold(self, data: MutableMapping[int, Residues]) -> Any:
        """As they are."""
        return data

    def over_groups(
        self, terms: MakeTerms, units: Any, rows: Any, diagonal: EncryptedVector | None
    ) -> Terms:
        """Workers'."""
        context, keys = self.context, self._keys
        job = Job(
            context.tag,
            context.params,
            self.layout,
            self._seed,
            keys.relinearisation,
            dict(keys.rotations),
            terms,
            units,
            None if diagonal is None else _parts(diagonal),
        )
        return _SpreadTerms(self, self._engine, job, rows)


class _SpreadTerms:
    """A `Terms` of all groups: every worker adds up its own, the coordinator theirs."""

    def __init__(
        self, evaluator: Evaluator, engine: Engine, job: Job, data: MutableMapping[int, Residues]
    ) -> None:
        self._evaluator, self._engine, self._job, self._data = evaluator, engine, job, data
        self._each = job.layout.kinds * job.layout.num_parts
        self._indices = sorted(data)
        self._groups = range(len(data) // self._each)
        self._starts: dict[str, Start] = {}
        self._holder: dict[int, str] = {}
        self._lost = 0
        self._place()

    def __call__(self, weights: EncryptedVector) -> EncryptedVector:
        """At replicated weights / R."""
        due, total, sent = set(self._groups), list[list[Residues]](), _parts(weights)
        while due:
            self._place()
            asked = {
                worker: sorted(group for group in due if self._holder[group] == worker)
                for worker in self._starts
            }
            calls = {w: ("total", groups, sent) for w, groups in asked.items() if groups}
            for worker, parts in self._ask(calls):
                total = self._added(total, parts)
                due -= set(asked[worker])
        return self._evaluator.wrap(*self._evaluator.context.products(total))

    def _added(self, total: Polynomials, parts: Polynomials) -> Polynomials:
        context = self._evaluator.context
        for part in parts:
            for polynomial in part:
                rns.check(polynomial, context.primes[: len(polynomial)], context.params.ring_dim)
        if not total:
            return parts
        return [
            [rns.add(a, b, context.primes[: len(a)]) for a, b in zip(left, right, strict=True)]
            for left, right in zip(total, parts, strict=True)
        ]

    def _place(self) -> None:
        """See that a worker holds each group: those that hold fewest take one after the other."""
        while homeless := [group for group in self._groups if group not in self._holder]:
            held = Counter(self._holder.values())
            load = {worker: held[worker] for worker in self._engine.workers()}
            idle = [worker for worker, count in load.items() if count == min(load.values())]
            going = dict(zip(idle, homeless, strict=False))
            fresh = [worker for worker in going if worker not in self._starts]
            for worker in fresh:
                self._starts[worker] = self._engine.place(worker, Share)
            list(self._ask(dict.fromkeys(fresh, ("begin", self._job))))
            calls = {
                worker: ("take", group, self._of(group))
                for worker, group in going.items()
                if worker in self._starts
            }
            taken = {going[worker]: worker for worker, _ in self._ask(calls)}
            self._holder |= taken

    def _of(self, group: int) -> list[Residues]:
        indices = self._indices[group * self._each : (group + 1) * self._each]
        return [self._data[index] for index in indices]

    def _ask(self, calls: dict[str, tuple[Any, ...]]) -> Iterator[tuple[str, Any]]:
        """All at once; (worker, result) of those that have not died."""
        waiting = {worker: self._starts[worker](*call) for worker, call in calls.items()}
        for worker, wait in waiting.items():
            try:
                yield worker, wait()
            except LostWorkerError as error:
                self._forget(worker, error)

    def _forget(self, worker: str, error: LostWorkerError) -> None:
        self._lost += 1
        if self._lost > MOST_LOST:
            raise WorkersError(
                f"{self._lost} workers died in this run, the last one: {error}; see whether they "
                "have memory for their groups, and go on with the session"
            ) from error
        del self._starts[worker]
        self._holder = {g: holder for g, holder in self._holder.items() if holder != worker}
