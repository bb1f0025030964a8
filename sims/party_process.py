"""Simulated parties, in this process or spawned: isolated OpenFHE statics, honest memory figures.

A spawned one loads what is imported here, and needs no Flower.
"""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coordinator.errors import LostError
from parties.coins import Coins
from parties.kernel.private import closed
from parties.policy import Policy
from parties.reader.shard import Shard
from parties.verifier.party import Party
from protocols.errors import MessageError
from protocols.exchange.messages import public_bytes
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class PartySpec:
    """What makes a simulated party; noise_seed: of its noise source, known to the twin.

    ledger, dataset, coins: as in `Party`.
    """

    name: str
    shard: Shard
    signing_key: bytes
    coordinator_key: str
    policy: Policy
    noise_seed: int
    ledger: Ledger | None = None
    dataset: str = ""
    coins: Coins | None = None

    @property
    def verify_key(self) -> str:
        """Of its signatures."""
        return public_bytes(Ed25519PrivateKey.from_private_bytes(self.signing_key))

    def noise_source(self) -> SeededRandomness:
        """The party's noise stream; a second call starts it again, for the twin."""
        return SeededRandomness(self.noise_seed, self.name)

    def build(self) -> Party:
        """The party."""
        return Party.of(
            name=self.name,
            shard=closed(self.shard),
            signing_key=Ed25519PrivateKey.from_private_bytes(self.signing_key),
            coordinator_key=self.coordinator_key,
            policy=self.policy,
            randomness=self.noise_source(),
            ledger=self.ledger,
            dataset=self.dataset,
            coins=self.coins,
        )


class PartyProcess:
    """Same `handle` as a party, answered by a spawned child.

    Spawned, never forked: a forked child would repeat OpenFHE's randomness.
    """

    def __init__(self, spec: PartySpec) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = spec.name
        self.peak_memory_mb = 0.0
        self._pipe, remote = context.Pipe()
        self._process = context.Process(target=_serve, args=(spec, remote), daemon=True)
        self._process.start()
        remote.close()

    def handle(self, data: bytes) -> bytes:
        """Answer one message.

        Raises:
            LostError: the process died. MessageError: the message was not authentic.
        """
        try:
            self._pipe.send_bytes(data)
            kind, reply, self.peak_memory_mb = self._pipe.recv()
        except (EOFError, OSError):
            raise LostError(f"the process of party {self.name!r} died", (self.name,)) from None
        if kind == "error":
            raise MessageError(str(reply))
        answer: bytes = reply
        return answer

    def close(self) -> None:
        """End the process; its key share goes with it."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(spec: PartySpec, pipe: Connection) -> None:
    party = spec.build()
    try:
        while True:
            answer: tuple[str, Any]
            try:
                answer = ("reply", party.handle(pipe.recv_bytes()))
            except MessageError as error:
                answer = ("error", str(error))
            pipe.send((*answer, peak_memory_mb()))
    except (EOFError, OSError, KeyboardInterrupt):
        pass
    finally:
        party.close()


def peak_memory_mb() -> float:
    """Largest resident set of this process so far [MB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
