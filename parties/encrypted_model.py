"""A party of the protocol `encrypted-model`: a session of the kernel beside its key share."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.shard import Shard
from parties.encrypted_rows import EncryptedRowsParty
from parties.kernel.model_session import ModelSession
from parties.party_protocol import Seal
from parties.sheets import model_sheet
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import Shared
from protocols.labels import repeated
from protocols.messages import Body
from protocols.model_plan import ModelPlan
from protocols.privacy.randomness import RandomSource


class EncryptedModelParty(EncryptedRowsParty):
    """A `protocols.model_gradient.ModelHalf`; see `EncryptedRowsParty` for its key share.

    session: holds rows, noise and pads; elements: labels of the random elements that are the second
    polynomials of the current point.
    """

    plan: ModelPlan

    def __init__(
        self,
        plan: ModelPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        super().__init__(plan, name, shard, randomness, signing_key)
        self.elements: list[str] = []
        self._shared = Shared()
        sheet = model_sheet(plan, shard.schema.norm_bound)
        self.session = ModelSession(sheet, name, shard, randomness, signing_key, self._shared)

    def begin(self, seed: bytes) -> None:
        """Make the key share and the pads' key; seed: the joint one."""
        super().begin(seed)
        self.session.begin(seed, self.secret)

    def take_keys(self, index: int, keys: Sequence[Residues]) -> None:
        """Keep some of the evaluation keys."""
        if not index:
            self.session.take_public_key(self.public_b)
        self.session.take_keys(keys)

    def gradient(self, t: int, label: str, point: Sequence[Residues]) -> list[list[Residues]]:
        """(c0, c1) of each part of the gradient at a point, noise included; see `ModelSession`.

        t: the round; label: of the step; point: c0 of each part, none at zero weights.

        Raises:
            PolicyError: a repetition at another point: the difference of both has no noise.
        """
        again, view = repeated(label) != label, self.rounds.view.digest
        return self.session.gradient(t, point, self.elements, view, self.missing, again)

    def erase(self) -> None:
        """Erase the key share, rows, noise and pads."""
        super().erase()
        self.session.erase()
        self._shared.leave()

    # -- going on in another process --------------------------------------------------------------

    def state(self, seal: Seal) -> Body:
        """What the encrypted-rows party has, and the session."""
        whole = super().state(seal)
        if not whole.blobs:
            return whole
        own = self.session.state(seal)
        model = {"rows_blobs": len(whole.blobs), "elements": self.elements, "own": dict(own.meta)}
        return Body({**whole.meta, "model": model}, (*whole.blobs, *own.blobs))

    def restore(self, state: Body, unseal: Seal) -> None:
        """Inverse of `state`."""
        if not state.blobs:
            return
        meta = dict(state.meta)
        model = meta.pop("model")
        rows = model["rows_blobs"]
        super().restore(Body(meta, state.blobs[:rows]), unseal)
        self.elements = list(model["elements"])
        self.session.begin(self.seed, self.secret)
        if model["own"]["keys"]:
            self.session.take_public_key(self.public_b)
        self.session.restore(Body(model["own"], state.blobs[rows:]), unseal)
