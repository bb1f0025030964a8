"""What the steps of encrypted rows need of a party, and of its key share; see `parties`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.column_map import ColumnMap
from protocols.ckks.residues import Residues

if TYPE_CHECKING:
    from protocols.circuit_plan import CircuitPlan
    from protocols.ckks.evaluation import CkksContext
    from protocols.commitments import Opening, Rounds
    from protocols.signed_values import SignedValue

# c1, label and map of a ciphertext that is to be refreshed; both halves of a share of it.
Asked = tuple[Residues, str, ColumnMap | None]
Halves = tuple[Residues, Residues]


class KeysHalf(Protocol):
    """What the key ceremony asks of one party's secret s_p; shapes: `parties.kernel.key_share`."""

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


class SecretHalf(KeysHalf, Protocol):
    """Operations with one party's secret s_p; see `parties.kernel.key_session.KeySession`."""

    def encrypt(self, public_key: Any, slots: NDArray[np.float64], label: str) -> Residues:
        """Both polynomials of a fresh ciphertext, one after the other."""
        ...

    def refresh_shares(self, asked: Sequence[Asked]) -> list[Halves]:
        """Shares of a collective refresh, through maps if there are any, once per label."""
        ...

    def decryption_share(self, c1: Residues, label: str) -> Residues:
        """Flooded partial decryption, once per label."""
        ...

    def cover_key(self) -> SignedValue:
        """This party's signed ephemeral key."""
        ...

    def deal(self, keys: Mapping[str, SignedValue]) -> tuple[bytes, ...]:
        """Sealed shares of its secret for all others, in the plan's order; once."""
        ...

    def hold(self, sealed: Sequence[bytes]) -> None:
        """Open and keep the others' shares, in the plan's order."""
        ...


class CircuitHalf(Protocol):
    """One party of a run under threshold CKKS; see `parties.encrypted_rows.EncryptedRowsParty`.

    seed: the joint one; secret: its keys; context, keys, rows: from `begin` on;
    public_b: sum of the public key's shares so far.
    """

    plan: CircuitPlan
    seed: bytes
    context: CkksContext
    secret: SecretHalf
    keys: Opening
    rows: Opening
    rounds: Rounds
    public_b: Residues

    def begin(self, seed: bytes) -> None:
        """Make the key share."""
        ...

    def packed(self) -> tuple[dict[str, Any], list[NDArray[np.float64]]]:
        """Meta data and slots of what this party contributes, noise included; once."""
        ...
