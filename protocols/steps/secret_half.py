"""What the steps of encrypted rows need of a party, and of its key share; see `parties`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from protocols.ckks.column_map import ColumnMap
from protocols.ckks.residues import Residues
from protocols.exchange import Body

if TYPE_CHECKING:
    from protocols.ckks.evaluation import CkksContext
    from protocols.exchange.signed_values import SignedValue
    from protocols.plan.circuit_plan import CircuitPlan
    from protocols.steps.endorsed import Endorsed
    from protocols.steps.rounds import Rounds

# c1, label and map of a ciphertext that is to be refreshed; both halves of a share of it.
Asked = tuple[Residues, str, ColumnMap | None]
Halves = tuple[Residues, Residues]


class KeysHalf(Protocol):
    """What the key ceremony asks of a party's secret s_p; shapes: `kernel.keys.key_share`."""

    def public_share(self) -> Residues:
        """b_p of the joint public key."""
        ...

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """First round of the relinearisation key."""
        ...

    def rotation_share(self, index: int) -> Residues:
        """b_p of one rotation key."""
        ...


class SecretHalf(KeysHalf, Protocol):
    """Operations with one party's secret s_p; see `parties.kernel.keys.session.KeySession`."""

    def hold_relinearisation(self, step: str, before: str, asked: Body) -> Body:
        """Keep the second round for the sums of the first; its digest, signed."""
        ...

    def hold_decryption(self, step: str, before: str, asked: Body) -> Body:
        """Keep the flooded partial decryption; once per label."""
        ...

    def open_reply(self, request: Body) -> Body:
        """What is kept, once everybody signed for the same request."""
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


class JointHalf(SecretHalf, Protocol):
    """With the joint key, which it adds up itself."""

    def add_public_shares(
        self, names: Sequence[str], shares: Body, commitments: Mapping[str, SignedValue]
    ) -> None:
        """See `parties.kernel.keys.session.KeySession.add_public_shares`."""
        ...


class RowsHalf(Protocol):
    """Rows that are encrypted once; see `parties.kernel.rows.session.RowsSession`."""

    def hold_refresh(
        self,
        maps: Sequence[ColumnMap | None],
        step: str,
        before: str,
        asked: Body,
    ) -> Body:
        """Keep shares of a collective refresh, through maps if there are any; once per label."""
        ...


class CircuitHalf(Protocol):
    """One party of a run under threshold CKKS; see `verifier.encrypted_rows.EncryptedRowsParty`.

    seed: the joint one; secret: its keys; context, keys, rows: from `begin` on.
    """

    plan: CircuitPlan
    seed: bytes
    context: CkksContext
    secret: JointHalf
    session: RowsHalf
    keys: Endorsed
    rows: Endorsed
    rounds: Rounds

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the key share; seeds: everybody's."""
        ...

    def contribution(self) -> Body:
        """What this party encrypts of its rows, noise included; once."""
        ...
