"""Workers by Dask (the extra `workers`): local processes, or machines behind a scheduler.

A worker runs whatever the scheduler's port is sent, and so does who connects to it. So all of them
speak TLS and show the same certificate: of a local cluster one made for the run, else
FOLDER/workers/cert.pem with its key.pem. Workers are spawned, never forked: see `ckks.context`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from protocols.steps.workers import Engine, LostWorkerError, Start, WorkersError

POLL_SECONDS, ANSWER_SECONDS = 1.0, 60.0
PATIENCE_SECONDS = 600.0
"""For a worker to come, where all have died."""
CERTIFICATE, KEY = "cert.pem", "key.pem"


class DaskEngine:
    """An `Engine` over a Dask cluster; client: of it.

    What a worker holds is the result of a task that only this worker may run: it is forgotten with
    the last future that names it, also where the coordinator dies.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def workers(self) -> Sequence[str]:
        """Addresses; see `Engine`."""
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        except asyncio.TimeoutError:
            raise WorkersError(
                f"no worker came within {PATIENCE_SECONDS:g} s: start one, and go on with the "
                "session"
            ) from None
        return sorted(self._client.nthreads())

    def place(self, worker: str, make: Callable[[], Any]) -> Start:
        """See `Engine`."""
        held = self._client.submit(make, workers=[worker], pure=False)
        return partial(self._start, worker, held)

    def _start(self, worker: str, held: Any, method: str, *arguments: Any) -> Callable[[], Any]:
        try:
            # As data, straight to the worker: a task's own arguments pass through the scheduler.
            (sent,) = self._client.scatter(
                [arguments], workers=[worker], hash=False, timeout=POLL_SECONDS
            )
        except (OSError, asyncio.TimeoutError) as error:
            return partial(self._lost, worker, error)
        task = self._client.submit(_call, held, method, sent, workers=[worker], pure=False)
        return partial(self._wait, worker, task)

    def _wait(self, worker: str, task: Any) -> Any:
        from distributed import KilledWorker

        while True:
            try:
                return task.result(timeout=POLL_SECONDS)
            except asyncio.TimeoutError as error:
                # No other worker may run it: Dask would wait until this one is back.
                if worker not in self._client.nthreads():
                    self._lost(worker, error)
            except (CancelledError, KilledWorker, OSError) as error:
                self._lost(worker, error)

    def _lost(self, worker: str, error: Exception) -> Any:
        raise LostWorkerError(f"worker {worker} is lost: {error}") from error


def _call(held: Any, method: str, arguments: Sequence[Any]) -> Any:
    return getattr(held, method)(*arguments)


def dask_setup(_worker: Any) -> None:
    """What Dask calls in a local worker: an interrupt is the run's, which stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def workers_of(asked: int | str, folder: Path | None = None) -> AbstractContextManager[Any]:
    """An engine while it is open: so many local processes, or those of a scheduler.

    asked: a number, or tls://HOST:PORT; folder: holds what proves who belongs to the cluster,
    `workers/cert.pem` and `workers/key.pem`.

    Raises:
        ParameterError: the extra is not installed, or the address is not protected by TLS.
        WorkersError: on opening: the scheduler does not answer.
    """
    try:
        import distributed
    except ImportError:
        raise ParameterError(
            f"workers={asked!r} needs Dask, which is not installed here: "
            "pip install 'ciphercohort[workers]'"
        ) from None
    if isinstance(asked, int):
        return _local(distributed, asked)
    if folder is None or not asked.startswith("tls://"):
        raise ParameterError(
            f"workers={asked!r} is no number and no address tls://HOST:PORT: whoever reaches a "
            "scheduler without TLS runs what he likes on all workers"
        )
    return _remote(distributed, asked, folder / "workers")


@contextmanager
def _local(distributed: Any, count: int) -> Iterator[Engine]:
    import dask

    with (
        # Dask serves pages over HTTP, to whoever asks on this machine: none here.
        dask.config.set(
            {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")}
        ),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            host="127.0.0.1",
            security=True,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,  # OpenFHE's memory is none that Dask could spill
            preload=[__name__],
        ) as cluster,
        # Straight to workers, not through the scheduler.
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        yield DaskEngine(client)


@contextmanager
def _remote(distributed: Any, address: str, folder: Path) -> Iterator[Engine]:
    certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
    security = distributed.Security(
        require_encryption=True,
        tls_ca_file=certificate,
        tls_client_cert=certificate,
        tls_client_key=key,
    )
    try:
        client = distributed.Client(
            address, security=security, direct_to_workers=True, timeout=ANSWER_SECONDS
        )
    except OSError as error:
        raise WorkersError(f"workers={address!r} does not answer: {error}") from None
    with client:
        yield DaskEngine(client)
