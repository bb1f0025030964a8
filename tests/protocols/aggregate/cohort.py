"""A cohort of parties with seeded secrets and errors, its set-up run through the real messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.sums.aggregate_share import AggregateShare
from protocols.aggregate import AggregateParameters, setup, wire
from protocols.aggregate.cipher import session_digest
from protocols.aggregate.coordinator_cipher import CoordinatorCipher
from protocols.aggregate.ntt import Residues
from protocols.exchange.messages import Ask, Body, new_signing_key, public_bytes
from protocols.privacy.laws.seeded import SeededRandomness

SEED = bytes(range(32))
SESSION = "run-1"
Tamper = Callable[[str, str, Body], Body]


def untouched(step: str, name: str, body: Body) -> Body:
    return body


@dataclass
class Cohort:
    params: AggregateParameters
    signing_keys: dict[str, Ed25519PrivateKey]
    roster: dict[str, str]
    shares: dict[str, AggregateShare]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.roster)

    @property
    def digest(self) -> bytes:
        return session_digest(self.params, SESSION, SEED)

    def opening_key(
        self, on_request: Tamper = untouched, on_reply: Tamper = untouched
    ) -> NDArray[np.int64]:
        """The set-up; the two functions are a man in the middle."""
        exchange = setup.opening_key(self.params, self.digest, self.roster, {})
        ask: Ask = next(exchange)
        while True:
            replies = {}
            for name, body in ask.bodies.items():
                request = on_request(ask.step, name, body)
                replies[name] = on_reply(ask.step, name, self.answer(ask.step, name, request))
            try:
                ask = exchange.send(replies)
            except StopIteration as stop:
                return np.asarray(stop.value)

    def answer(self, step: str, name: str, request: Body) -> Body:
        if step == setup.MASK_KEYS:
            return setup.answer_mask_keys(self.shares[name])
        return setup.answer_opening_key(self.shares[name], request)

    def opener(
        self, opening_key: NDArray[np.int64], session: str = SESSION, seed: bytes = SEED
    ) -> CoordinatorCipher:
        return CoordinatorCipher(self.params, session, seed, opening_key)

    def encrypt(self, t: int, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Body]:
        return {
            name: Body(blobs=(wire.pack(self.params, self.shares[name].encrypt(t, v)),))
            for name, v in values.items()
        }

    def sum(self, replies: Mapping[str, Body], length: int) -> Residues:
        return wire.sum_messages(self.params, replies, self.names, length)


def make_cohort(params: AggregateParameters, seed: int = 1) -> Cohort:
    keys = {f"party-{p}": new_signing_key() for p in range(params.parties)}
    roster = {name: public_bytes(key) for name, key in keys.items()}
    shares = {
        name: AggregateShare(
            params,
            name=name,
            roster=roster,
            session=SESSION,
            seed=SEED,
            signing_key=key,
            randomness=SeededRandomness(seed, name),
        )
        for name, key in keys.items()
    }
    return Cohort(params, keys, roster, shares)
