"""Joint keys that many cases share, and circuits run over them, step by step without transport.

INSECURE: toy rings, key shares that answer labels again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from parties.kernel.keys.key_share import KeyShare
from parties.kernel.keys.session import refresh_reply, reply_of
from parties.verifier.sheets import packed_slots
from protocols.ckks import DECRYPTION_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import Evaluator
from protocols.ckks.context import CONJUGATION
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import Flooding
from protocols.ckks.residues import Residues
from protocols.exchange import PUBLIC_KEY, commit_of
from protocols.exchange.messages import (
    Body,
    Exchange,
    Fold,
    public_bytes,
    to_everyone,
)
from protocols.exchange.wire import RunningSums
from protocols.rows.protocol import circuit_of
from protocols.steps import contribute, decrypt, endorsed, keygen, refresh
from protocols.steps.confirmed import View
from protocols.steps.endorsed import Opening
from protocols.steps.samples import SampleLedger
from protocols.steps.survivors import Survivors
from tests.support.exact import product, secret_rows
from tests.support.helpers import Floats, drive, identity, party_names
from tests.support.masked import contribution, refresh_shares


@dataclass(frozen=True)
class JointKeys:
    """Key shares of P parties and what their ceremony made, for every layout of one ring.

    secrets: residues of each s_p, shape (towers, n), which nobody else can get at.
    """

    context: CkksContext
    shares: dict[str, KeyShare]
    seed: bytes
    public_b: NDArray[np.uint64]
    public_key: Any
    secrets: dict[str, NDArray[np.uint64]]

    @property
    def public(self) -> tuple[Residues, Residues]:
        """(b, a), as a key share takes it."""
        return self.public_b, self.context.uniform_polynomial(self.seed, PUBLIC_KEY)

    def forget(self) -> None:
        """INSECURE, for tests alone: answer the labels of an earlier case again."""
        for share in self.shares.values():
            share._ledger = SampleLedger()


@dataclass(frozen=True)
class Flooded:
    """A key share that floods as a session does."""

    share: KeyShare
    flooding: Flooding

    def decryption_share(self, c1: NDArray[np.uint64], label: str) -> NDArray[np.uint64]:
        """See `KeySession`."""
        return self.share.decryption_share(c1, label, self.flooding)


@cache
def joint_keys(parties: int, depth: int, ring_dim: int) -> JointKeys:
    """One ceremony with the automorphism keys of every layout: 2^k left, spreads, conjugation."""
    tag, slots = f"joint-{parties}-{depth}-{ring_dim}", ring_dim // 2
    context = CkksContext(CkksParameters(ring_dim=ring_dim, depth=depth, security_bits=0), tag)
    seed = tag.encode().ljust(32, b".")
    powers = [1 << k for k in range(slots.bit_length() - 1)]
    rotations = sorted({CONJUGATION, *powers, *(slots + 1 - 2 * power for power in powers)})
    return run_ceremony(context, seed, parties, tuple(rotations))


@cache
def keys_of(parties: int, ckks: CkksParameters, rotations: tuple[int, ...]) -> JointKeys:
    """One ceremony."""
    tag = f"keys-{parties}-{ckks.ring_dim}-{ckks.depth}-{hash(rotations)}"
    context, seed = CkksContext(ckks, tag), tag.encode()[:32].ljust(32, b".")
    return run_ceremony(context, seed, parties, rotations)


def run_ceremony(
    context: CkksContext, seed: bytes, parties: int, rotations: tuple[int, ...]
) -> JointKeys:
    """Key shares of so many parties, and their joint keys."""
    shares = {name: KeyShare(context, seed, parties) for name in party_names(parties)}
    roster = {name: public_bytes(identity(name)) for name in shares}
    plan: Any = SimpleNamespace(
        names=tuple(shares), roster=roster, rotation_chunks=[rotations], member_chunks=[]
    )
    terms = endorsed.KEYS.terms(seed, plan.roster)
    openings = {name: Opening(terms, name, identity(name)) for name in shares}
    view = View(b"")
    of_sums = endorsed.of_round(roster, keygen.RELINEARISE, seed, (), view.digest)

    def answer(name: str, step: str, body: Body) -> Body:
        if step == endorsed.KEYS.commit:
            return openings[name].commit(keygen.answer_keys(context, shares[name]))
        if step == endorsed.KEYS.open:
            return openings[name].open(body)
        if step == commit_of(keygen.RELINEARISE):
            second = shares[name].relinearisation_second
            openings[name] = Opening(of_sums, name, identity(name))
            return openings[name].commit(reply_of(context, second, 2, context.key_primes, body))
        if step == keygen.RELINEARISE:
            return openings[name].open(body)
        return keygen.answer_rotations(context, shares[name], body.meta["indices"])

    public_b = drive(keygen.ceremony(context, plan, seed, {}, view), answer).public_b
    public_key = keygen.public_key(context, seed, public_b)
    secrets = {name: secret_rows(share) for name, share in shares.items()}
    return JointKeys(context, shares, seed, public_b, public_key, secrets)


def uncommitted(names: Sequence[str]) -> contribute.Opened:
    """Contributions that nobody commits to, for `collect`."""

    def opened(fold: Fold) -> Exchange[None]:
        replies = yield to_everyone("contribute", tuple(names), Body())
        for name, reply in replies.items():
            fold(name, reply)

    return opened


class Uncommitted(Survivors):
    """INSECURE, for tests alone: steps whose replies nobody commits to."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan, b"", View(b""))

    def ask(
        self, step: str, request: Body, primes: Any, ring_dim: int, *_: Any
    ) -> Exchange[tuple[str, list[rns.Residues]]]:
        """Asked of everyone, and added up."""
        sums = RunningSums(self.present, primes, ring_dim)
        return step, sums.of((yield to_everyone(step, self.present, request, sums.fold)))


def refreshing(evaluator: Evaluator, plan: Any, keys: JointKeys) -> refresh.Refresh:
    """Refreshes of a training, one step after the other."""
    steps = count()

    def fresh(vectors: Any) -> Exchange[Any]:
        step, key = next(steps), keys.public_key
        return refresh.refresh(evaluator, plan, keys.seed, step, key, vectors, Uncommitted(plan))

    return fresh


@dataclass(frozen=True)
class Released:
    """weights: as a run releases them; exact: by decryption shares without noise; slots: all that
    these give, without the unit; message: their polynomial, residues at the decryption's towers;
    refreshed: ciphertexts, by refresh step.
    """

    weights: Floats
    exact: Floats
    slots: Floats
    message: NDArray[np.uint64]
    refreshed: tuple[int, ...]


def encrypted_weights(
    plan: Any, shards: Sequence[tuple[Floats, ...]], noises: Sequence[Floats]
) -> Released:
    """Contribute, train, refresh and decrypt over shared joint keys; noises: one per party."""
    keys = joint_keys(len(plan.members), plan.ckks.depth, plan.ckks.ring_dim)
    keys.forget()
    context, circuit = keys.context, circuit_of(plan)
    evaluator, refreshed = circuit.evaluator(context), list[int]()

    def answer(name: str, step: str, body: Body) -> Body:
        kind, _, index = step.partition("/")
        if kind == "refresh":
            if name == plan.names[0]:
                refreshed.append(len(body.blobs))
            maps = plan.column_maps(int(index))
            return refresh_reply(
                context, partial(refresh_shares, keys.shares[name]), maps, step, body
            )
        if kind == "decrypt":
            flooded = Flooded(keys.shares[name], decrypt.flooding_of(plan))
            share = partial(flooded.decryption_share, label="decrypt")
            return reply_of(context, share, 1, context.primes[:DECRYPTION_TOWERS], body)
        k = plan.party_index(name)
        rows, targets = shards[k]
        packed = packed_slots(plan, name, rows, targets, noises[k])
        return contribution(context, keys.shares[name], keys.public, packed)

    summed = drive(circuit.collect(evaluator, uncommitted(plan.names)), answer)
    fresh = refreshing(evaluator, plan, keys)
    encrypted = drive(circuit.train(evaluator, summed, fresh, lambda t: None), answer)
    weights = drive(decrypt.release(evaluator, plan, encrypted, Uncommitted(plan)), answer)

    low = context.primes[:DECRYPTION_TOWERS]
    fused: list[tuple[Floats, NDArray[np.uint64]]] = []

    def answer_exactly(name: str, step: str, body: Body) -> Body:
        c1 = rns.unpack(body.blobs[0], low, plan.ckks.ring_dim)
        share = product(c1, keys.secrets[name][: len(low)], low)
        return Body(blobs=(rns.pack(share, low),))

    fuse = decrypt.fuse

    def noting(context: CkksContext, message: NDArray[np.uint64]) -> Any:
        fused.append((fuse(context, message), message))
        return fused[-1][0]

    with patch.object(decrypt, "fuse", noting):
        exact = drive(
            decrypt.release(evaluator, plan, encrypted, Uncommitted(plan)), answer_exactly
        )
    return Released(weights, exact, *fused[0], tuple(refreshed))
