"""What a protocol step needs of a party's key share; implemented in parties/key_share.py."""

from __future__ import annotations

from typing import Protocol

from protocols.ckks.column_map import ColumnMap
from protocols.ckks.residues import Residues


class SecretHalf(Protocol):
    """Operations with one party's secret s_p; see `parties.key_share.KeyShare` for shapes."""

    def public_share(self) -> Residues:
        """b_p of the joint public key."""
        ...

    def relinearisation_share(self) -> Residues:
        """b_p of the first relinearisation round."""
        ...

    def relinearisation_square(self, joint_b: Residues) -> tuple[Residues, Residues]:
        """Second relinearisation round."""
        ...

    def rotation_share(self, index: int) -> Residues:
        """b_p of one rotation key."""
        ...

    def refresh_share(
        self, c1: Residues, label: str, column_map: ColumnMap | None = None
    ) -> tuple[Residues, Residues]:
        """Share of a collective refresh, through a map if there is one, once per label."""
        ...

    def decryption_share(self, c1: Residues, label: str, flooding_std: float) -> Residues:
        """Flooded partial decryption, once per label."""
        ...
