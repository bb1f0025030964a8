"""The relinearisation flow of old gives every key away; that of today, nothing (tests only)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import residues as rns
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from tests.provenance import runs
from tests.provenance.attack import decrypted_slots, old_flow, recover_all
from tests.provenance.runs import Run, record
from tests.support import exact
from tests.support.helpers import party_names


def key_halves(run: Run) -> Mapping[str, list[Residues]]:
    """Halves of evaluation keys by party, from the recorded messages alone."""
    context, n = run.context, run.plan.ckks.ring_dim
    size, found = rns.packed_size(context.key_primes, n), dict[str, list[Residues]]()
    for _, name, _, reply in run.messages:
        halves = [rns.unpack(b, context.key_primes, n) for b in reply.blobs if len(b) == size]
        found.setdefault(name, []).extend(halves)
    return found


def test_a_whole_run_of_the_old_flow_is_read() -> None:
    """Every secret key, and with them every party's packed rows."""
    with old_flow():
        run = record(runs.rows_session())
    secrets = recover_all(run.context, key_halves(run))
    assert secrets.keys() == run.secrets.keys()
    for name, secret in secrets.items():
        assert (secret == run.secrets[name]).all()
    primes, n = run.context.primes, run.plan.ckks.ring_dim
    for step, name, _, reply in run.messages:
        if step == "contribute":
            pair = np.split(rns.unpack(reply.blobs[0], primes * 2, n), 2)
            read = decrypted_slots(run.context, pair, secrets)
            np.testing.assert_allclose(read, run.slots[name, "contribute/0"], atol=1e-12)
            assert np.abs(read).max() > 0.1


def test_the_same_attack_reads_nothing_today() -> None:
    run = record(runs.rows_session())
    halves = key_halves(run)
    # h0, h1, a half of each of two rotation keys, t.
    assert {len(sent) for sent in halves.values()} == {5}
    assert recover_all(run.context, halves) == {}


@pytest.mark.slow
@pytest.mark.secure
@pytest.mark.parametrize("flow", [old_flow, nullcontext])
def test_at_128_bits(flow: Any) -> None:
    """Ring 2^14, three parties, the ceremony alone: 3 of 3 keys, and none."""
    params = choose_parameters(1, ring_dim=1 << 14)
    assert params.security_bits == 128
    context, seed = CkksContext(params, f"attack-{flow.__name__}"), b"a" * 32
    primes = context.key_primes
    with flow():
        shares = {name: KeyShare(context, seed, 3) for name in party_names(3)}
        sent = {name: list(share.relinearisation_first()) for name, share in shares.items()}
        h0, h1 = (
            reduce(partial(rns.add, primes=primes), each)
            for each in zip(*sent.values(), strict=True)
        )
        for name, share in shares.items():
            sent[name].append(share.relinearisation_second(h0, h1))
    found = recover_all(context, sent)
    assert len(found) == (3 if flow is old_flow else 0)
    for name, secret in found.items():
        assert (secret == exact.secret(shares[name])).all()
