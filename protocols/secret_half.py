"""What a protocol step needs of a party's key share; implemented in parties/key_share.py."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.column_map import ColumnMap
from protocols.ckks.residues import Residues


class SecretHalf(Protocol):
    """Operations with one party's secret s_p; see `parties.key_share.KeyShare` for shapes."""

    def public_share(self) -> Residues:
        """b_p of the joint public key."""
        ...

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """First round of the relinearisation key."""
        ...

    def relinearisation_second(self, h0: Residues, h1: Residues) -> Residues:
        """Second round, for the sums of the first."""
        ...

    def rotation_share(self, index: int) -> Residues:
        """b_p of one rotation key."""
        ...

    def encrypt(self, public_key: Any, slots: NDArray[np.float64], label: str) -> Residues:
        """Both polynomials of a fresh ciphertext, one after the other."""
        ...

    def refresh_share(
        self, c1: Residues, label: str, column_map: ColumnMap | None = None
    ) -> tuple[Residues, Residues]:
        """Share of a collective refresh, through a map if there is one, once per label."""
        ...

    def decryption_share(self, c1: Residues, label: str, flooding_std: float) -> Residues:
        """Flooded partial decryption, once per label."""
        ...
