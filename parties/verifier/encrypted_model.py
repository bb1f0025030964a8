"""A party of the protocol `encrypted-model`: a session of the kernel beside its key share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parties.kernel.model.session import ModelSession
from parties.kernel.run import Run
from parties.verifier.encrypted_rows import EncryptedRowsParty
from parties.verifier.sheets import model_sheet
from protocols.ckks.residues import Residues
from protocols.ckks.shared_keys import Shared
from protocols.exchange import repeated
from protocols.model.plan import ModelPlan

if TYPE_CHECKING:  # what owns rows has it
    from parties.reader.shard import Shard


class EncryptedModelParty(EncryptedRowsParty):
    """A `protocols.model.gradient.ModelHalf`; see `EncryptedRowsParty` for its key share.

    session: holds rows, noise and pads; elements: labels of the random elements that are the second
    polynomials of the current point.
    """

    plan: ModelPlan

    session: ModelSession

    def __init__(self, plan: ModelPlan, shard: Shard, run: Run) -> None:
        self._shared = Shared()
        super().__init__(plan, shard, run)
        self.elements: list[str] = []

    def _opened(self) -> ModelSession:
        sheet = model_sheet(self.plan, self._shard.schema.norm_bound)
        session: ModelSession = self._run.open(sheet, self._shard, shared=self._shared)
        return session

    def take_keys(self, index: int, keys: Sequence[Residues]) -> None:
        """Keep some of the evaluation keys."""
        self.session.take_keys(keys)

    def gradient(self, t: int, label: str, point: Sequence[Residues]) -> list[list[Residues]]:
        """(c0, c1) of each part of the gradient at a point, noise included; see `ModelSession`.

        t: the round; label: of the step; point: c0 of each part, none at zero weights.

        Raises:
            PolicyError: a repetition at another point: the difference of both has no noise.
        """
        again, view = repeated(label) != label, self.rounds.view.digest
        return self.session.gradient(t, point, self.elements, view, again)

    def erase(self) -> None:
        """Erase the key share, rows, noise and pads."""
        super().erase()
        self._shared.leave()

    # -- going on in another process --------------------------------------------------------------

    def state(self) -> Any:
        """What the encrypted-rows party has, and the point."""
        return [super().state(), self.elements]

    def restore(self, state: Any) -> None:
        """Inverse of `state`."""
        own, self.elements = state
        super().restore(own)
