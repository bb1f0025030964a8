"""Dask's processes as workers: one is killed, others are kept out. INSECURE toy rings."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.dask_workers import CERTIFICATE, KEY, DaskEngine
from coordinator.workers import workers_of
from protocols.errors import ParameterError
from protocols.steps.workers import WorkersError
from tests.coordinator.test_workers import CASES, again


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskEngine]:
    """Two processes."""
    pytest.importorskip("distributed", reason="the extra `workers` is not installed")
    with workers_of(2) as engine:
        yield engine


def test_a_process_is_killed(cluster: DaskEngine) -> None:
    """In the middle of a run: the same bits. Nobody listens in clear, or beyond this machine."""
    session = CASES["rows"]()
    session.run()
    addresses = cluster.workers()
    assert len(addresses) == 2
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    victim = addresses[0]
    pids = dict(cluster._client.run(os.getpid))
    # Ctrl-C at a terminal reaches them, too: the run says that it ends, and they nothing.
    held = cluster._client.run(signal.getsignal, signal.SIGINT)
    assert set(held.values()) == {signal.SIG_IGN}
    seen = list[Any]()

    def kill(refresh: int) -> None:
        seen.append(set(cluster.workers()))
        if refresh == 0:
            os.kill(pids[victim], signal.SIGKILL)

    again(session, cluster, kill)
    assert len(seen) == session.plan.rounds and victim in seen[0]
    assert victim not in cluster.workers()


def test_a_scheduler_elsewhere(
    cluster: DaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the cluster's certificate is let in; who has another one is not."""
    from distributed import Security

    folder, address = tmp_path / "workers", cluster._client.scheduler.address
    folder.mkdir()

    def show(security: Any) -> None:
        (folder / CERTIFICATE).write_text(security.tls_client_cert)
        (folder / KEY).write_text(security.tls_client_key)

    show(cluster._client.security)
    with workers_of(address, tmp_path) as engine:
        assert engine.workers() == cluster.workers()
    show(Security.temporary())
    monkeypatch.setattr("coordinator.dask_workers.ANSWER_SECONDS", 0.5)
    with pytest.raises(WorkersError, match="does not answer"), workers_of(address, tmp_path):
        pass


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address in clear; a machine without Dask."""
    for address in ("10.0.0.5:8786", "tcp://127.0.0.1:8786"):
        with pytest.raises(ParameterError, match="no address tls://"):
            workers_of(address, tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ParameterError, match=r"workers=2 needs Dask.*ciphercohort\[workers\]"):
        workers_of(2)
