"""A party's duties under threshold CKKS: key shares, one contribution, refreshes, decryption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.cover_share import CoverShare
from parties.key_share import KEY_SHARE_BLOBS, KeyShare
from parties.shard import Shard
from protocols import agree, contribute, cover, decrypt, gram, keygen, lffr, refresh
from protocols.circuit_plan import CircuitPlan
from protocols.ckks.context import CkksContext
from protocols.errors import MessageError, PolicyError
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.messages import Body
from protocols.privacy.randomness import RandomSource
from protocols.rows import RowsPlan


class CircuitDuties:
    """Holds the key share from `keys` to `decrypt`, and what covers for others."""

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

    def answer(self, kind: str, index: int, request: Body) -> Body:
        """Reply to one step."""
        if kind == "keys":
            return self._keys(request)
        if self._context is None or self._secret is None:
            raise PolicyError("no keys are made yet")
        plan, context, secret = self._plan, self._context, self._secret
        if kind == "rotations":
            # From the plan, never from the request.
            return keygen.answer_rotations(context, secret, plan.rotation_chunks[index])
        if kind == keygen.RELINEARISE:
            return keygen.answer_relinearise(context, secret, request)
        if kind == "contribute":
            return self._contribute(context, secret, request)
        if self._cover is not None and kind not in cover.REPEATED:
            if kind == cover.KEYS:
                return cover.answer_keys(self._cover)
            if kind == cover.DEAL:
                return cover.answer_deal(self._cover, request)
            if kind == cover.HOLD:
                return cover.answer_hold(self._cover, request)
            self._cover.stand_in(request)
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
        """Sealed secrets and what was published; empty without a secret."""
        held = self._secret.sealed(seal) if self._secret else Body()
        if not held.blobs:
            return Body()
        covering = self._cover.state(seal) if self._cover else Body()
        meta = {"key_share": dict(held.meta), "cover": dict(covering.meta)}
        return Body(meta, (*held.blobs, *covering.blobs))

    def restore(self, state: Body, unseal: Callable[[bytes], bytes]) -> None:
        """Inverse of `state`."""
        if not state.blobs:
            return
        held = Body(state.meta["key_share"], state.blobs[:KEY_SHARE_BLOBS])
        self._seed = held.blobs[0]
        self._context = CkksContext(self._plan.ckks, self._plan.session)
        self._secret = KeyShare.unsealed(self._context, held, unseal)
        self._open_cover(self._secret)
        if self._cover:
            covering = Body(state.meta["cover"], state.blobs[KEY_SHARE_BLOBS:])
            self._cover.restore(covering, unseal)

    def _keys(self, request: Body) -> Body:
        seeds: Any = request.meta.get("seeds")
        if not isinstance(seeds, dict):
            raise MessageError("the step `keys` hands out no seeds")
        self._seed = agree.joint_seed(self._plan, seeds)
        self._context = CkksContext(self._plan.ckks, self._plan.session)
        self._secret = KeyShare(self._context, self._seed, len(self._plan.members))
        self._open_cover(self._secret)
        return keygen.answer_keys(self._context, self._secret)

    def _open_cover(self, secret: KeyShare) -> None:
        if self._plan.cover is not None:
            self._cover = CoverShare(self._plan, self._name, self._seed, self._signing_key, secret)

    def _contribute(self, context: CkksContext, secret: KeyShare, request: Body) -> Body:
        plan, shard = self._plan, self._shard
        noise = plan.draw_noise(self._randomness)
        if isinstance(plan, GramPlan):
            sums = plan.contribution(shard.x, shard.y, noise)
            return gram.answer_contribute(context, secret, plan.task, self._seed, request, sums)
        if isinstance(plan, LffrPlan):
            return lffr.answer_contribute(
                context, secret, plan, self._name, self._seed, request, shard.x, shard.y, noise
            )
        if isinstance(plan, RowsPlan):
            curvature, (first, noise) = None, plan.divide_noise(noise)
            if plan.curvature is not None:
                curvature = plan.curvature.share(shard.x, plan.num_rows, first)
            return contribute.answer_contribute(
                context,
                secret,
                plan,
                self._name,
                self._seed,
                request,
                shard.x,
                shard.y,
                noise,
                curvature,
            )
        raise PolicyError(f"protocol={plan.protocol!r} is unknown to this party")
