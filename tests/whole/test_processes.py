"""Processes: memory stays flat over many sessions, and hostile bytes never kill one.

That forked children are refused and spawned ones draw their own keys is in
`tests/protocols/test_roles.py`.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import CkksParameters, objects
from protocols.ckks.evaluation import CkksContext, unload
from protocols.ckks.shared_keys import release
from protocols.errors import CohortError
from tests.fuzz.worker import HEADROOM_BYTES, spawn

WARM_UP, CONTEXTS = 10, 100


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def one_session(k: int, drop: bool) -> None:
    """Context, key share, evaluation keys, a product; then everything is dropped."""
    seed = k.to_bytes(32, "little")
    # Four parameter sets in turn, where the context itself is dropped as well.
    params = CkksParameters(ring_dim=512, depth=3 + (k % 4 if drop else 0), security_bits=0)
    context = CkksContext(params, f"session-{k}")
    share = KeyShare(context, seed, 2)
    a = context.uniform_key_half(seed, "relinearisation")
    rotation = context.rotation_key_map(1, a, share.rotation_share(1))
    context.load_evaluation_keys(
        context.evaluation_key(a, share.relinearisation_first()[0]), [rotation]
    )
    public = context.uniform_polynomial(seed, "public-key")
    ciphertext = objects.encrypt(
        context, objects.public_key(context, share.public_share(), public), np.ones(8)
    )
    context.cc.EvalMult(ciphertext, ciphertext)
    share.erase()
    unload(context.tag)
    if drop:
        release()


def many_sessions(drop: bool, pipe: Connection) -> None:
    """In a child: memory after each session from the warm-up on."""
    sizes = []
    for k in range(WARM_UP + CONTEXTS):
        one_session(k, drop)
        sizes.append(resident())
    pipe.send(sizes[WARM_UP - 1 :])


def in_child(work: Callable[[Any, Connection], None], argument: Any) -> Any:
    """What `work` sends from a spawned process that then ends well."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(argument, theirs))
    child.start()
    theirs.close()
    sent = mine.recv()
    child.join(timeout=60)
    assert child.exitcode == 0
    return sent


@pytest.mark.parametrize("drop", [False, True], ids=["keys dropped", "contexts dropped"])
def test_memory_is_flat_over_a_hundred_contexts(drop: bool) -> None:
    """In one spawned process, each of the 100 sizes after the warm-up is within 10 % of it."""
    warm, *sizes = in_child(many_sessions, drop)
    assert len(sizes) == CONTEXTS
    ratios = np.array(sizes) / warm
    assert ratios.min() >= 0.9 and ratios.max() <= 1.1, (ratios.min(), ratios.max())


def hostile_parameters(count: int, pipe: Connection) -> None:
    """In a child: parameter sets from all over the allowed range, up to a party's keys."""
    rng, outcomes = np.random.default_rng(1), []
    for k in range(count):
        depth, scale = int(rng.integers(1, 40)), int(rng.integers(20, 60))
        params = CkksParameters(
            ring_dim=512,
            depth=depth,
            scale_bits=scale,
            first_mod_bits=int(rng.integers(scale + 1, 61)),
            num_digits=int(rng.integers(1, depth + 2)),
            security_bits=0,
        )
        try:
            share = KeyShare(CkksContext(params, f"session-{k}"), bytes(32), 2)
            share.relinearisation_first(), share.rotation_share(1)
            outcomes.append("keys")
        except CohortError as error:
            outcomes.append(type(error).__name__)
        release()
    pipe.send(outcomes)


def test_hostile_parameters_end_in_keys_or_a_refusal() -> None:
    """What a plan may ask OpenFHE for never kills the process."""
    outcomes = in_child(hostile_parameters, 30)
    assert len(outcomes) == 30 and set(outcomes) == {"keys", "ParameterError"}


@pytest.mark.slow
def test_a_share_of_the_fuzz() -> None:
    """10,000 hostile inputs in one process; `python -m tests.fuzz` runs a million."""
    report, codes = spawn(10_000, seed=2, workers=1)
    assert (report.findings, codes) == ([], [0])
    assert report.inputs >= 10_000
    assert report.peak - report.warm < HEADROOM_BYTES / 4
    # The inputs get far enough: every role accepts some, and refuses for every kind of reason.
    for outcome in [
        ("party", "answered"),
        ("party", "refused: MessageError"),
        ("party", "refused: ParameterError"),
        ("party", "refused: PolicyError"),
        ("party", "refused: ProtocolError"),
        ("party", "MessageError"),
        ("coordinator", "ProtocolError"),
        ("coordinator", "accepted"),
        ("decode", "read"),
        ("plan", "read"),
        ("plan", "ParameterError"),
    ]:
        assert report.outcomes[outcome] >= 10, outcome
