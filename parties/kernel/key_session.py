"""One party's keys in a run under threshold CKKS, behind a sheet that it checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.cover_share import CoverShare
from parties.kernel.key_share import Asked, Halves, KeyShare
from parties.kernel.private import Terms, terms_of
from parties.kernel.sheet import KeysSheet
from protocols.body import Body
from protocols.ckks.context import RingContext
from protocols.ckks.flooding import rounding_std
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.residues import Residues
from protocols.ckks.trace_map import TraceMap
from protocols.errors import PolicyError
from protocols.labels import COVERED
from protocols.signed_values import SignedValue

Seal = Callable[[bytes], bytes]
DECRYPT = "decrypt"
_REFRESH = re.compile(r"refresh/(0|[1-9][0-9]*)/(0|[1-9][0-9]*)")


class KeySession:
    """Key share, and others' shares that it covers with; it makes both, once, and gives neither.

    name: in the roster; rows: behind their boundary, which has the owner's terms.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, or is none.
    """

    def __init__(
        self, sheet: KeysSheet, name: str, rows: Any, signing_key: Ed25519PrivateKey
    ) -> None:
        self._sheet, self._name, self._signing_key = sheet, name, signing_key
        check(sheet, name, signing_key.public_key().public_bytes_raw().hex(), terms_of(rows))
        self._share: KeyShare | None = None
        self._cover: CoverShare | None = None

    def __repr__(self) -> str:
        return "KeySession(<secret>)"

    def begin(self, seed: bytes, context: RingContext) -> None:
        """Make the key share, once; seed: the joint one, 32 bytes; context: of the sheet's ring.

        Raises:
            PolicyError: there is one, or the context is another one's.
        """
        self._check_context(context)
        self._hold(seed, KeyShare(context, seed, len(self._sheet.roster)))

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a key share."""
        return self._share is not None

    @property
    def context(self) -> RingContext:
        """The public context."""
        return self._secret.context

    # -- keys -------------------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """See `KeyShare.public_share`."""
        return self._secret.public_share()

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """See `KeyShare.relinearisation_first`."""
        return self._secret.relinearisation_first()

    def relinearisation_second(self, h0: Residues, h1: Residues) -> Residues:
        """See `KeyShare.relinearisation_second`."""
        return self._secret.relinearisation_second(h0, h1)

    def rotation_share(self, index: int) -> Residues:
        """See `KeyShare.rotation_share`.

        Raises:
            PolicyError: the sheet has no such rotation.
        """
        if index not in self._sheet.rotations:
            raise PolicyError(f"rotation {index!r} is none of this run's")
        return self._secret.rotation_share(index)

    # -- what is encrypted, refreshed, decrypted --------------------------------------------------

    def encrypt(self, public_key: Any, slots: NDArray[np.float64], label: str) -> Residues:
        """See `KeyShare.encrypt`."""
        return self._secret.encrypt(public_key, slots, label)

    def encrypt_onto(
        self, public_key: Any, sums: Sequence[Sequence[Residues]], label: str
    ) -> list[list[Residues]]:
        """See `KeyShare.encrypt_onto`."""
        return self._secret.encrypt_onto(public_key, sums, label)

    def refresh_shares(self, asked: Sequence[Asked]) -> list[Halves]:
        """See `KeyShare.refresh_shares`.

        Raises:
            PolicyError: the sheet has no refresh of this name.
        """
        self._check_refresh([label for _, label, _ in asked])
        return self._secret.refresh_shares(asked)

    def trace_shares(self, asked: Sequence[tuple[Residues, str, TraceMap]]) -> list[Halves]:
        """See `KeyShare.trace_shares`; refused alike."""
        self._check_refresh([label for _, label, _ in asked])
        return self._secret.trace_shares(asked)

    def decryption_share(self, c1: Residues, label: str) -> Residues:
        """c1 s_p + e_flood, shape of c1; once, and once more by who stands in for others.

        Raises:
            PolicyError: another label than the one of the released model.
        """
        if label not in (DECRYPT, *([f"{COVERED}{DECRYPT}"] if self._cover else [])):
            raise PolicyError(f"{label!r} is not the decryption of this run")
        return self._secret.decryption_share(c1, label, self._sheet.flooding())

    def _check_refresh(self, labels: Sequence[str]) -> None:
        for label in labels:
            found = _REFRESH.fullmatch(label.removeprefix(COVERED) if self._cover else label)
            step, position = map(int, found.groups()) if found else (-1, 0)
            due = self._sheet.refreshes[step] if 0 <= step < len(self._sheet.refreshes) else 0
            if position >= due:
                raise PolicyError(f"{label!r} is no refresh of this run")

    # -- cover for missing parties ----------------------------------------------------------------

    def cover_key(self) -> SignedValue:
        """See `CoverShare.key`."""
        return self._covering.key()

    def deal(self, keys: Mapping[str, SignedValue]) -> tuple[bytes, ...]:
        """See `CoverShare.deal`."""
        return self._covering.deal(keys)

    def hold(self, sealed: Sequence[bytes]) -> None:
        """See `CoverShare.hold`."""
        self._covering.hold(sealed)

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is covered for."""
        return self._cover.missing if self._cover else ()

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `CoverShare.stand_in`."""
        return self._covering.stand_in(request)

    # -- going on in another process --------------------------------------------------------------

    def state(self, seal: Seal) -> tuple[Body, Body]:
        """For `restore`: key share, and what covers, sealed; empty without a secret."""
        share = self._share.sealed(seal) if self._share else Body()
        return share, self._cover.state(seal) if self._cover and share.blobs else Body()

    def restore(self, context: RingContext, share: Body, cover: Body, unseal: Seal) -> bytes:
        """Inverse of `state`, in place of `begin`; the joint seed."""
        self._check_context(context)
        self._hold(share.blobs[0], KeyShare.unsealed(context, share, unseal))
        if self._cover:
            self._cover.restore(cover, unseal)
        return share.blobs[0]

    def erase(self) -> None:
        """Forget every secret; nothing leaves any more."""
        for secret in (self._share, self._cover):
            if secret is not None:
                secret.erase()

    @property
    def _secret(self) -> KeyShare:
        if self._share is None:
            raise PolicyError("this session has no key share yet")
        return self._share

    @property
    def _covering(self) -> CoverShare:
        if self._cover is None:
            raise PolicyError("the plan has no cover: nobody can be covered for")
        return self._cover

    def _check_context(self, context: RingContext) -> None:
        if self._share is not None:
            raise PolicyError("this session has its key share; another would answer labels again")
        if context.params != self._sheet.params:
            raise PolicyError("the context is of another ring than the sheet's")

    def _hold(self, seed: bytes, share: KeyShare) -> None:
        sheet, key = self._sheet, self._signing_key
        self._share = share
        if sheet.cover is not None:
            self._cover = CoverShare(dict(sheet.roster), sheet.cover, self._name, seed, key, share)


def check(sheet: KeysSheet, name: str, key: str, terms: Terms) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's."""
    roster, parties, params = dict(sheet.roster), len(sheet.roster), sheet.params
    # From the table of what is secure, whoever made the object.
    _ = CkksParameters(**asdict(params))
    cover, shown, least = sheet.cover, sheet.shown, rounding_std(params, parties)
    floors: list[tuple[str, Callable[[], bool]]] = [
        ("roster: not this party's key", lambda: roster.get(name) == key),
        ("roster: names or keys twice", lambda: len({*roster.values()}) == len(roster) == parties),
        ("roster: too few members", lambda: parties >= terms.colluders + 2),
        ("ring: a toy, not agreed to", lambda: params.security_bits > 0 or terms.insecure),
        ("cover: by too few", lambda: cover is None or terms.colluders < cover <= parties),
        ("refreshes", lambda: all(type(n) is int and n >= 0 for n in sheet.refreshes)),
        ("shown", lambda: bool(shown) and {*shown} < {*range(sheet.coordinates)}),
        ("coordinates", lambda: sheet.coordinates in (params.ring_dim, params.num_slots)),
        ("errors: below a rescaling's", lambda: min(sheet.shown_error, sheet.error) >= least),
        ("decryptions", lambda: sheet.decryptions >= (1 if cover is None else 2)),
    ]
    for field, holds in floors:
        if not holds():
            raise PolicyError(f"the sheet of this run's keys is refused: {field}")
