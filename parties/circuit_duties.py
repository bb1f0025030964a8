"""A party's duties under threshold CKKS: key shares, one contribution, refreshes, decryption."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.cover_share import CoverShare
from parties.data.shard import Shard
from parties.key_share import KeyShare
from protocols import agree, commitments, contribute, cover, decrypt, gram, keygen, lffr, refresh
from protocols.circuit_plan import CircuitPlan
from protocols.ckks.context import CkksContext
from protocols.ckks.residues import Residues
from protocols.commitments import Opening, Terms
from protocols.errors import MessageError, PolicyError
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.messages import Body
from protocols.privacy.randomness import RandomSource
from protocols.rows import RowsPlan


class CircuitDuties:
    """Holds the key share from `commit-keys` to `decrypt`, and what covers for others."""

    def __init__(
        self,
        plan: CircuitPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        outputs = (plan.outputs,) if isinstance(plan, (GramPlan, LffrPlan)) else ()
        if shard.y.shape[1:] != outputs:
            raise PolicyError(
                f"model={plan.model!r} of the plan does not predict this party's "
                f"{shard.schema.label.name!r}"
            )
        self._plan = plan
        self._name = name
        self._shard = shard
        self._randomness = randomness
        self._signing_key = signing_key
        self._seed = b""
        self._context: CkksContext | None = None
        self._secret: KeyShare | None = None
        self._cover: CoverShare | None = None
        self._keys: Opening | None = None
        self._rows: Opening | None = None
        # Sum of the public key's shares so far.
        self._public_b: Residues = np.zeros((plan.ckks.num_towers, plan.ckks.ring_dim), np.uint64)

    def answer(self, kind: str, index: int, request: Body) -> Body:
        """Reply to one step."""
        if kind == commitments.KEYS.commit:
            return self._commit_keys(request)
        if not (self._context and self._secret and self._keys and self._rows):
            raise PolicyError("no keys are made yet")
        plan, context, secret = self._plan, self._context, self._secret
        if kind == commitments.KEYS.open:
            return self._keys.open(request)
        if kind == keygen.PUBLIC_SHARES:
            names, total = plan.member_chunks[index], self._public_b
            self._public_b = keygen.add_public_shares(context, total, self._keys, names, request)
            return Body()
        if kind == "rotations":
            # From the plan, never from the request.
            return keygen.answer_rotations(context, secret, plan.rotation_chunks[index])
        if kind == keygen.RELINEARISE:
            return keygen.answer_relinearise(context, secret, request)
        if kind == commitments.ROWS.commit:
            self._keys.confirm(request)
            key = keygen.public_key(context, self._seed, self._public_b)
            return self._rows.commit(self._contribution(context, secret, key))
        if kind == commitments.ROWS.open:
            return self._rows.open(request)
        if kind == commitments.CONFIRM:
            self._rows.confirm(request)
            return Body()
        if self._cover is not None and kind not in cover.REPEATED:
            if kind == cover.KEYS:
                return cover.answer_keys(self._cover)
            if kind == cover.DEAL:
                return cover.answer_deal(self._cover, request)
            if kind == cover.HOLD:
                return cover.answer_hold(self._cover, request)
            self._cover.stand_in(request)
        if cover.repeated(kind) == commitments.CONFIRM:
            return Body()
        if cover.repeated(kind) == refresh.STEP:
            maps = plan.column_maps(index)
            return refresh.answer_refresh(context, secret, maps, index, request, kind)
        return decrypt.answer_decrypt(context, plan, secret, request, kind)

    def erase(self) -> None:
        """Erase the key share, and those of others."""
        if self._secret:
            self._secret.erase()
        if self._cover:
            self._cover.erase()

    def state(self, seal: Callable[[bytes], bytes]) -> Body:
        """Sealed secrets, what was published, and what is committed to; empty without a secret."""
        held = self._secret.sealed(seal) if self._secret else Body()
        if not held.blobs or not (self._keys and self._rows):
            return Body()
        parts = {
            "key_share": held,
            "keys": self._keys.state(),
            "public_key": Body(blobs=(self._public_b.tobytes(),)),
            "rows": self._rows.state(),
        }
        if self._cover:
            parts["cover"] = self._cover.state(seal)
        meta = {name: [len(part.blobs), dict(part.meta)] for name, part in parts.items()}
        return Body(meta, tuple(blob for part in parts.values() for blob in part.blobs))

    def restore(self, state: Body, unseal: Callable[[bytes], bytes]) -> None:
        """Inverse of `state`."""
        if not state.blobs:
            return
        blobs = iter(state.blobs)
        parts = {
            name: Body(meta, tuple(islice(blobs, count)))
            for name, (count, meta) in state.meta.items()
        }
        held = parts["key_share"]
        self._seed = held.blobs[0]
        self._context = CkksContext(self._plan.ckks, self._plan.session)
        self._secret = KeyShare.unsealed(self._context, held, unseal)
        keys, rows = self._open(self._secret)
        keys.restore(parts["keys"])
        rows.restore(parts["rows"])
        total = np.frombuffer(parts["public_key"].blobs[0], np.uint64)
        self._public_b = total.reshape(self._public_b.shape)
        if self._cover:
            self._cover.restore(parts["cover"], unseal)

    def _commit_keys(self, request: Body) -> Body:
        seeds: Any = request.meta.get("seeds")
        if not isinstance(seeds, dict):
            raise MessageError("the step `commit-keys` hands out no seeds")
        self._seed = agree.joint_seed(self._plan, seeds)
        self._context = CkksContext(self._plan.ckks, self._plan.session)
        self._secret = KeyShare(self._context, self._seed, len(self._plan.members))
        keys, _ = self._open(self._secret)
        return keys.commit(keygen.answer_keys(self._context, self._secret))

    def _open(self, secret: KeyShare) -> tuple[Opening, Opening]:
        plan, name, seed, key = self._plan, self._name, self._seed, self._signing_key
        self._keys = Opening(Terms.of(plan, commitments.KEYS, seed), name, key)
        self._rows = Opening(Terms.of(plan, commitments.ROWS, seed), name, key)
        if plan.cover is not None:
            self._cover = CoverShare(plan, name, seed, key, secret)
        return self._keys, self._rows

    def _contribution(self, context: CkksContext, secret: KeyShare, key: Any) -> Body:
        plan, shard = self._plan, self._shard
        noise = plan.draw_noise(self._randomness)
        if isinstance(plan, GramPlan):
            sums = plan.contribution(shard.x, shard.y, noise)
            return gram.contribution(context, secret, key, plan.task, sums)
        if isinstance(plan, LffrPlan):
            return lffr.contribution(
                context, secret, key, plan, self._name, shard.x, shard.y, noise
            )
        if isinstance(plan, RowsPlan):
            curvature, (first, noise) = None, plan.divide_noise(noise)
            if plan.curvature is not None:
                curvature = plan.curvature.share(shard.x, plan.num_rows, first)
            return contribute.contribution(
                context,
                secret,
                key,
                plan,
                self._name,
                shard.x,
                shard.y,
                noise,
                curvature,
            )
        raise PolicyError(f"protocol={plan.protocol!r} is unknown to this party")
