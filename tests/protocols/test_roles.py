"""Processes: what a coordinator loads, forked and spawned children (toy rings, INSECURE)."""

from __future__ import annotations

import ast
import multiprocessing
import subprocess
import sys
import textwrap
from typing import Any

import openfhe

from coordinator.coordinator import Coordinator
from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import CkksParameters
from protocols.ckks.evaluation import CkksContext
from tests.house.test_imports import ARITHMETIC
from tests.support.scripts import ROOT
from tests.support.sessions import N, small

# -- processes -------------------------------------------------------------------------------------


def python(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter of this project."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_coordinator_loads_no_party() -> None:
    """At run time as by the import rules: of `parties`, what holds nothing comes with it."""
    done = python(
        """
        import sys
        import coordinator.coordinator, coordinator.flower_app, protocols.rows.protocol
        assert "protocols.ckks.context" in sys.modules
        print([name for name in sys.modules if name.split(".")[0] in ("parties", "sims")])
        """
    )
    assert done.returncode == 0, done.stderr
    assert {*ast.literal_eval(done.stdout)} <= ARITHMETIC


def test_a_coordinator_holds_no_secret() -> None:
    """Nothing reachable from a coordinator after a run is a key share or a private key."""
    session = small()
    session.run()
    seen: set[int] = set()

    def walk(value: Any, depth: int = 0) -> None:
        if id(value) in seen or depth > 6:
            return
        seen.add(id(value))
        assert not isinstance(value, (KeyShare, openfhe.PrivateKey))
        if isinstance(value, dict):
            children = list(value.values())
        elif isinstance(value, (list, tuple, set)):
            children = list(value)
        else:
            children = list(getattr(value, "__dict__", {}).values())
        for child in children:
            walk(child, depth + 1)

    walk(session.coordinator)
    assert isinstance(session.coordinator, Coordinator) and len(seen) > 20


def test_a_forked_child_refuses() -> None:
    """It would repeat its parent's keys: contexts, shares and encryptions are refused."""
    done = python(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import numpy as np
        from parties.kernel.keys.key_share import KeyShare
        from protocols.ckks.evaluation import CkksContext
        from protocols.ckks.flooding import Flooding
        from protocols.ckks import CkksParameters, objects
        from protocols.errors import PlatformError
        from tests.support.masked import refresh_shares
        params = CkksParameters(ring_dim=512, depth=3, security_bits=0)
        context = CkksContext(params, "fork")
        share = KeyShare(context, b"f" * 32, 2)
        key = context.cc.KeyGen().publicKey
        c1 = context.uniform_polynomial(b"f" * 32, "c1")
        actions = [
            lambda: CkksContext(params, "child"),
            lambda: KeyShare(context, b"f" * 32, 2),
            lambda: share.rotation_share(1),
            lambda: refresh_shares(share, [(c1[:3], "refresh", None)]),
            lambda: share.decryption_share(c1[:2], "decrypt", Flooding.even(512, 1.0)),
            lambda: objects.encrypt(context, key, np.zeros(4)),
        ]
        child = os.fork()
        if child == 0:
            refused = 0
            for action in actions:
                try:
                    action()
                except PlatformError as error:
                    refused += "spawn" in str(error)
            os._exit(refused)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(actions))
        for action in actions:
            action()
        """
    )
    assert (done.returncode, done.stdout.split()) == (0, ["6", "6"]), done.stderr


def spawned_share(seed: bytes, queue: Any) -> None:
    """In a child: a key share's public half."""
    context = CkksContext(CkksParameters(ring_dim=N, depth=3, security_bits=0), "spawn")
    queue.put(KeyShare(context, seed, 2).public_share().tobytes())


def test_a_spawned_child_draws_its_own_keys() -> None:
    """A child and its parent, with the same seed: different shares."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=spawned_share, args=(b"s" * 32, queue))
    child.start()
    other = queue.get(timeout=300)
    child.join(timeout=60)
    spawned_share(b"s" * 32, queue)
    assert queue.get(timeout=300) != other and child.exitcode == 0
