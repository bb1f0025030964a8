"""One run over an owner's rows: the door to them, to what they may spend, and to its identity."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from parties.kernel import named
from parties.kernel.private import Private, Terms, closed, order_coins
from parties.kernel.sheet import digest_of
from protocols.errors import PolicyError
from protocols.exchange.signed_values import Agreement, commitment, new_seed
from protocols.privacy.laws import RandomSource, apart
from protocols.steps import restore, state_of

if TYPE_CHECKING:
    from parties.account import Account
    from parties.coins import Coins

SESSIONS: Mapping[str, str] = {
    "CoveredSheet": "parties.kernel.cover.session:CoveredKeys",
    "KeysSheet": "parties.kernel.keys.session:KeySession",
    "ModelSheet": "parties.kernel.model.session:ModelSession",
    "RowsSheet": "parties.kernel.rows.session:RowsSession",
    "SumsSheet": "parties.kernel.sums.session:SumsSession",
}
"""By the sheet that asks for one; loaded when it does."""
KEYS = ("CoveredSheet", "KeysSheet")


class Run:
    """What one run of an owner may use.

    name: of the party; rows: as for training; views: the same, otherwise encoded; signing_key: its
    identity; randomness: of noise, of coins by which rows are ordered and taken; account: of this
    run; coins: by which rows are held back; terms: what the owner agreed to, whatever the account
    says is put in; peers: keys of the other parties that the owner knows, as they are now, None:
    everybody is the owner, as in a simulation.

    number: random, hexadecimal; by it a state that was set back is told from the latest one.

    Security: it draws its own part of the joint seed, and shows it once every party has signed
    exactly the sheets that are open here; none is opened after that. No session has a secret
    before, and whoever drives it chooses no random element.
    """

    def __init__(
        self,
        *,
        name: str,
        rows: Any,
        signing_key: Ed25519PrivateKey,
        randomness: RandomSource,
        account: Account,
        coins: Coins,
        terms: Terms | None = None,
        views: Any = None,
        peers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.name, self.rows, self.views = name, closed(rows), views
        self.signing_key, self.account, self.coins = signing_key, account, coins
        self.private = Private(account)
        self._randomness = randomness
        self.terms = terms or Terms(exact=False, alone=False, insecure=False)
        self._order = order_coins(randomness)
        self._peers, self._seed, self.number = peers, new_seed(), secrets.token_hex(16)
        self._opened: list[tuple[Any, Any]] = []  # sheets, sessions: of keys, of rows
        self._held: dict[str, Any] = {}
        self._agreed: Agreement | None = None
        self._is_signed = False  # by everybody

    def __repr__(self) -> str:
        return "Run(<private>)"

    def used(self, rows: Any, held_out: Any = None, *plans: str) -> Any:
        """Of all rows, or of a view, those that a run uses, shuffled; the rest: see `Coins`.

        Nothing else may count positions: see `parties.kernel.private`.
        """
        chosen = None
        if held_out is not None:
            if not self.account.is_booked:
                raise PolicyError("rows are compared with coins once a run is booked")
            every, spend = self.private.keep(self.rows), self.account.spend
            chosen = self.coins.chosen(held_out, every, *plans, spend=spend)
        return self.private.keep(rows).used(self._order, chosen)

    def open(self, sheet: Any, rows: Any, stream: str = "", **beside: Any) -> Any:
        """A session of these rows, which checks the sheet itself; stream: of a run beside another.

        Raises:
            PolicyError, ParameterError: see the session; or the run has one of this kind, or its
                sheets are signed without this one.
        """
        kind = type(sheet).__name__
        session = named(SESSIONS[kind], self.terms.protocols)
        # What the account booked is for one session of rows.
        if any((type(other).__name__ in KEYS) == (kind in KEYS) for other, _ in self._opened):
            raise PolicyError("a run has one session of keys, and one of rows")
        digest = digest_of(sheet)
        if self._agreed is not None and digest not in self._held:
            raise PolicyError("the sheets of this run are signed: no other one is opened")
        self.private.terms = replace(
            self.terms,
            booked=self.account.booked,
            spend=self.account.spend,
            joint_seed=partial(self._joint_seed, digest),
            keys=lambda: self.keys,
        )
        source = apart(self._randomness, stream) if stream else self._randomness
        own = () if kind in KEYS else (source,)
        opened = session(sheet, self.name, rows, *own, self.signing_key, **beside)
        if self._held.get(digest) is not None:
            opened.restore(self._held[digest])
        self._held.pop(digest, None)  # gone on from: not where that failed
        self._opened.append((sheet, opened))
        return opened

    @property
    def keys(self) -> Any:
        """The session of keys. Raises PolicyError: there is none."""
        for sheet, session in self._opened:
            if type(sheet).__name__ in KEYS:
                return session
        raise PolicyError("this run has no session of keys")

    @property
    def has_model(self) -> bool:
        """Whether its rows meet an encrypted model."""
        return any(type(sheet).__name__ == "ModelSheet" for sheet, _ in self._opened)

    # -- what all owners sign, and the joint seed -------------------------------------------------

    @property
    def commitment(self) -> str:
        """To this party's part of the joint seed."""
        return commitment(self._seed)

    def agree(self, plan: str, commitments: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
        """Digests of the open sheets, and this party's signature, hexadecimal; once.

        plan: digest of what the sheets follow from; commitments: to seeds, by party.

        Raises:
            PolicyError: the sheets are not of one run of parties that this owner named, or another
                commitment stands in the place of its own.
        """
        sheets = [sheet for sheet, _ in self._opened]
        key = self.signing_key.public_key().public_bytes_raw().hex()
        roster = dict(sheets[0].roster) if sheets else {}
        runs = {(sheet.session, sheet.roster) for sheet in sheets}
        known = roster if self._peers is None else {**self._peers(), self.name: key}
        strangers = [name for name, own in roster.items() if known.get(name) != own]
        for what, holds in (
            ("they are already", self._agreed is None),
            ("none is open, or of two runs", len(runs) == 1),
            (f"its owner has not named {strangers} by these keys", not strangers),
            ("commitments of others", commitments.keys() == roster.keys()),
            ("commitment: not its own", commitments.get(self.name) == self.commitment),
        ):
            if not holds:
                raise PolicyError(f"the sheets of this run are not signed: {what}")
        self._agreed = Agreement(
            session=sheets[0].session,
            plan=plan,
            sheets=tuple(map(digest_of, sheets)),
            roster=roster,
            commitments=dict(commitments),
        )
        text = Agreement.text(self.name, self._agreed.digest)
        return tuple(self._agreed.sheets), self.signing_key.sign(text).hex()

    def reveal(self, signatures: Mapping[str, str]) -> bytes:
        """This party's part of the joint seed, once all have signed the same; see `Agreement`.

        Raises:
            PolicyError: this party has signed none. ProtocolError: names who has not.
        """
        if self._agreed is None:
            raise PolicyError("the sheets of this run are not signed: no seed is shown")
        self._agreed.check(signatures)
        self._is_signed = True
        return self._seed

    def _joint_seed(self, sheet: str, seeds: Mapping[str, str]) -> bytes:
        if self._agreed is None or not self._is_signed or sheet not in self._agreed.sheets:
            raise PolicyError("not everybody has signed the sheets of this run")
        return self._agreed.joint_seed(seeds)

    def take_back(self) -> None:
        """Nothing more leaves its sessions; the run counts no longer, unless it is spent."""
        self._held = {}
        for _, session in self._opened:
            session.erase()
        if not self.account.is_spent:
            self._opened = []
        self.account.abandon()

    def row_seal(self, rows: Any, plan: str) -> str:
        """This party's word that its rows are these, which it alone can tell; plan: a digest.

        Raises:
            PolicyError: not all have signed the run: seals tell which of one's own rows are alike.
        """
        if not self._is_signed:
            raise PolicyError("not everybody has signed the sheets of this run")
        return row_seal(self.signing_key, plan, rows.fingerprint())

    STATE = ("_order", "_seed", "number", "_is_signed", "_agreed")

    def state(self) -> list[Any]:
        """For `restore`; there are secrets in it."""
        held = {digest_of(sheet): session.state() for sheet, session in self._opened}
        return [state_of(self), self.account.state(), {**self._held, **held}]

    def restore(self, state: list[Any]) -> None:
        """Inverse of `state`, in a new run over the same rows; `open` gives sessions theirs."""
        own, account, self._held = state
        restore(self, own)
        self.account.restore(account)


def row_seal(key: Ed25519PrivateKey, plan: str, fingerprint: str) -> str:
    """Of a party's rows, hexadecimal; plan: digest; fingerprint: SHA-256 of rows and schema."""
    private = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    derived = HKDF(hashes.SHA256(), 32, None, b"ciphercohort/seal-of-rows/1").derive(private)
    return hmac.new(derived, f"{plan}/{fingerprint}".encode(), "sha256").hexdigest()
