"""A party of the protocol `encrypted-rows`: key share, contribution, shares that cover."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.schema import Schema, target_shape
from parties.data.shard import Shard
from parties.kernel.key_session import KeySession
from parties.party_protocol import PartyProtocol, Seal
from parties.sheets import keys_sheet
from protocols import commitments, second_moment
from protocols.circuit_plan import CircuitPlan, Packed
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import public_context
from protocols.commitments import Opening, Terms
from protocols.contribute import check_outputs
from protocols.errors import DataError, PolicyError
from protocols.messages import Body
from protocols.privacy.randomness import RandomSource

if TYPE_CHECKING:
    from parties.objectives import OpenContributor


class EncryptedRowsParty(PartyProtocol):
    """Plan and messages beside a session of the kernel: a `protocols.secret_half.CircuitHalf`.

    shard: encoded private rows; randomness: of the privacy noise; signing_key: this party's.
    """

    plan: CircuitPlan
    context: CkksContext
    keys: Opening
    rows: Opening

    def __init__(
        self,
        plan: CircuitPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        super().__init__(plan, name, signing_key)
        if not isinstance(shard.schema, Schema):
            raise PolicyError(f"kind={plan.kind!r} of the plan does not fit this party's rows")
        check_outputs(plan, target_shape(shard.schema.label))
        self._shard, self._randomness, self._signing_key = shard, randomness, signing_key
        self.seed = b""
        self.secret = KeySession(keys_sheet(plan), name, shard, signing_key)
        self.public_b: Residues = rns.zeros(plan.ckks.num_towers, plan.ckks.ring_dim)

    @classmethod
    def open(
        cls,
        plan: CircuitPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
        open_contributor: OpenContributor | None = None,
    ) -> EncryptedRowsParty:
        """Rows are encrypted as they are: nobody contributes to sums."""
        return cls(plan, name, shard, randomness, signing_key)

    def begin(self, seed: bytes) -> None:
        """Make the key share; seed: the joint one."""
        self.seed, self.context = seed, public_context(self.plan.ckks, self.plan.session)
        self.rounds.begin(seed)
        self.secret.begin(seed, self.context)
        self._open()

    def check_seal(self, plan: str, sealed: str | None) -> None:
        """Refuse the second moment of other rows; sealed: this party's seal under that plan.

        Raises:
            DataError: what is told to nobody else.
        """
        if sealed != second_moment.seal(self._signing_key, plan, self._shard.fingerprint()):
            raise DataError(
                "this party's rows have changed since their second moment was summed: begin again"
            )

    def packed(self) -> Packed:
        """What this party encrypts, fresh noise included."""
        plan, shard = self.plan, self._shard
        noise = plan.draw_noise(self._randomness)
        return plan.pack(self.name, shard.x, shard.y, noise, shard.weight)

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is covered for."""
        return self.secret.missing

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `protocols.cover`."""
        return self.secret.stand_in(request)

    def erase(self) -> None:
        """Erase the key share, and those of others."""
        self.secret.erase()

    def state(self, seal: Seal) -> Body:
        """Sealed secrets, what was published, and what is committed to; empty without a secret."""
        share, cover = self.secret.state(seal)
        if not share.blobs:
            return Body()
        parts = {
            "key_share": share,
            "keys": self.keys.state(),
            "public_key": Body(blobs=(self.public_b.tobytes(),)),
            "rows": self.rows.state(),
            "rounds": self.rounds.state(),
        }
        if self.plan.cover is not None:
            parts["cover"] = cover
        meta = {name: [len(part.blobs), dict(part.meta)] for name, part in parts.items()}
        return Body(meta, tuple(blob for part in parts.values() for blob in part.blobs))

    def restore(self, state: Body, unseal: Seal) -> None:
        """Inverse of `state`."""
        if not state.blobs:
            return
        blobs = iter(state.blobs)
        parts = {
            name: Body(meta, tuple(islice(blobs, count)))
            for name, (count, meta) in state.meta.items()
        }
        self.context = public_context(self.plan.ckks, self.plan.session)
        cover = parts.get("cover", Body())
        self.seed = self.secret.restore(self.context, parts["key_share"], cover, unseal)
        self._open()
        self.keys.restore(parts["keys"])
        self.rows.restore(parts["rows"])
        self.rounds.restore(parts["rounds"], self.seed)
        total = np.frombuffer(parts["public_key"].blobs[0], np.uint64)
        self.public_b = total.reshape(self.public_b.shape)

    def _open(self) -> None:
        plan, name, seed, key = self.plan, self.name, self.seed, self._signing_key
        self.keys = Opening(Terms.of(plan, commitments.KEYS, seed), name, key)
        self.rows = Opening(Terms.of(plan, commitments.ROWS, seed), name, key)
