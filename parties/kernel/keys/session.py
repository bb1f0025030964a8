"""One party's keys in a run under threshold CKKS, behind a sheet that it checks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.keys import answers
from parties.kernel.keys.key_share import Asked, Halves, KeyShare
from parties.kernel.keys.sheet import KeysSheet
from parties.kernel.private import Terms, terms_of
from parties.kernel.rooms import named
from parties.kernel.sheet import Floor, hold
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.flooding import rounding_std
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange.body import Body
from protocols.exchange.labels import COVERED, KEYS, PUBLIC_KEY, commit_of
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of
from protocols.exchange.signed_values import check as check_signed
from protocols.steps.confirmed import Opening, View
from protocols.steps.confirmed import Terms as Committed

if TYPE_CHECKING:
    from parties.kernel.cover.share import CoverShare
    from protocols.ckks.column_map import ColumnMap

Seal = Callable[[bytes], bytes]
COVER = "parties.kernel.cover.share:CoverShare"
ROW_MASKS = "parties.kernel.rows.masks"
DECRYPT, RELINEARISE = "decrypt", "relinearise"
_OF_SHARE = 3  # blobs of `KeyShare.sealed`: seed, secret, ephemeral secret


class Once:
    """For one party there is nothing to share."""

    @staticmethod
    def once(context: Any, kind: str, name: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes."""
        return make()


_REFRESH = re.compile(r"refresh/(0|[1-9][0-9]*)/(0|[1-9][0-9]*)")


class KeySession:
    """Key share, and others' shares that it covers with; it makes both, once, and gives neither.

    name: in the roster; rows: behind their boundary, which has the owner's terms; shared: makes
    what is public once for all parties of a process.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, or is none.
    """

    def __init__(
        self,
        sheet: KeysSheet,
        name: str,
        rows: Any,
        signing_key: Ed25519PrivateKey,
        shared: Any = None,
    ) -> None:
        self._sheet, self._name, self._signing_key = sheet, name, signing_key
        self._shared = shared or Once()
        self._added, self._own = set[str](), ""
        self._total = rns.zeros(sheet.params.num_towers, sheet.params.ring_dim)
        terms = terms_of(rows)
        check(sheet, name, signing_key.public_key().public_bytes_raw().hex(), terms)
        self._protocols, self._joint_seed = terms.protocols, terms.joint_seed
        self._covers = None if sheet.cover is None else named(COVER, terms.protocols)
        self._share: KeyShare | None = None
        self._cover: CoverShare | None = None
        self._reply: tuple[str, tuple[str, ...], Opening] | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return "KeySession(<secret>)"

    def begin(self, seeds: Mapping[str, str], context: RingContext | None = None) -> bytes:
        """Make the key share, once; the joint seed, 32 bytes; context: of the sheet's ring.

        seeds: everybody's, hexadecimal, by party.

        Raises:
            PolicyError: there is one, the context is another one's, or not all have signed the
                run's sheets. ProtocolError: see `Agreement.joint_seed`.
        """
        context, seed = self._context(context), self._joint_seed(seeds)
        self._hold(seed, KeyShare(context, seed, len(self._sheet.roster)))
        return seed

    def add_public_shares(
        self, names: Sequence[str], shares: Body, commitments: Mapping[str, SignedValue]
    ) -> None:
        """Add b_p of these parties to the joint key; each party's once, as it committed to it.

        shares: blobs in the order of names, and `others`, digests of what was sent beside each;
        commitments: of these parties at least, to their whole messages.

        Raises:
            ProtocolError: a b_p is not what its party committed to, or is signed by another one;
            names it. PolicyError: a party's second one. MessageError: malformed.
        """
        roster, others, context = dict(self._sheet.roster), shares.meta.get("others"), self.context
        if not isinstance(others, dict) or len(shares.blobs) != len(names):
            raise MessageError(
                f"the step carries {len(names)} shares, and the digests sent beside them"
            )
        if not {*names} <= roster.keys() or {*names} & self._added or len({*names}) != len(names):
            raise PolicyError("each party of the roster has one share of the joint key")
        for name, own in zip(names, shares.digests, strict=True):
            rest, said = others.get(name), commitments.get(name)
            told = digest_of([own, *map(str, rest)]) if isinstance(rest, list) else ""
            if said is None or said.value != told:
                raise ProtocolError(
                    f"the public key share of party {name!r} is not the one that it committed to: "
                    "it was exchanged on the way; do not go on with this coordinator",
                    culprit=name,
                )
            text = partial(committed_text, "commitment", KEYS, self._secret.seed)
            check_signed("commitment to the key shares", text, {name: roster[name]}, {name: said})
            if name == self._name and own != self._own:
                raise PolicyError("this is not this party's own share of the joint key")
        total = self._total

        def add() -> tuple[Residues, Residues]:
            found = total
            for blob in shares.blobs:
                part = rns.unpack(blob, context.primes, context.params.ring_dim)
                found = rns.add(found, part, context.primes)
            return total, found

        # What is remembered holds the sum before: no other array has its place meanwhile.
        known = id(total), shares.digests
        self._total = self._shared.once(context, "public shares", known, add)[1]
        self._added |= {*names}

    @property
    def joint_key(self) -> Residues | None:
        """b of the joint public key, shape (towers, n), once everybody's share is in it."""
        return self._total if self._added == {*dict(self._sheet.roster)} else None

    def public_key(self) -> Any:
        """OpenFHE's object. Raises PolicyError: shares are missing."""
        b, context = self.joint_key, self.context
        if b is None:
            raise PolicyError("not all shares of the joint key are here yet")
        return context.public_key(b, context.uniform_polynomial(self._secret.seed, PUBLIC_KEY))

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a key share."""
        return self._share is not None

    @property
    def context(self) -> RingContext:
        """The public context."""
        return self._secret.context

    @property
    def seed(self) -> bytes:
        """The joint one."""
        return self._secret.seed

    # -- keys -------------------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """See `KeyShare.public_share`."""
        share = self._secret.public_share()
        self._own = hashlib.sha256(rns.pack(share, self.context.primes)).hexdigest()
        return share

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """See `KeyShare.relinearisation_first`."""
        return self._secret.relinearisation_first()

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
            PolicyError: the sheet has no refresh of this name, or the owner takes no part in
                encrypted rows.
        """
        _ = named(ROW_MASKS, self._protocols)
        self._check_refresh([label for _, label, _ in asked], of_model=False)
        return self._secret.refresh_shares(asked)

    def trace_shares(self, asked: Sequence[Asked]) -> list[Halves]:
        """See `KeyShare.trace_shares`; refused alike. A model's session hides them."""
        self._check_refresh([label for _, label, _ in asked], of_model=True)
        return self._secret.trace_shares(asked)

    def decryption_share(self, c1: Residues, label: str) -> Residues:
        """c1 s_p + e_flood, shape of c1; once, and once more where others are missing.

        Raises:
            PolicyError: another label than the one of the released model.
        """
        if label not in (DECRYPT, *([f"{COVERED}{DECRYPT}"] if self.missing else [])):
            raise PolicyError(f"{label!r} is not the decryption of this run")
        return self._secret.decryption_share(c1, label, self._sheet.flooding())

    # -- replies that are kept until everybody has signed what was asked ---------------------------

    def hold_relinearisation(self, step: str, before: str, asked: Body) -> Body:
        """Digest, signed, of t_p for H0 and H1; see `_hold_reply`, and `KeyShare`."""
        if step != RELINEARISE:
            raise PolicyError(f"{step!r} is not the step of the relinearisation key")
        make, once = self._secret.relinearisation_second, self._shared.once
        return self._hold_reply(
            step,
            before,
            asked,
            lambda body: answers.relinearisation(self.context, make, body, once),
        )

    def hold_refresh(
        self, maps: Sequence[ColumnMap | None], step: str, before: str, asked: Body
    ) -> Body:
        """Digest, signed, of the shares of a refresh through these maps; see `_hold_reply`."""
        return self._hold_reply(
            step,
            before,
            asked,
            lambda body: answers.refresh(self.context, self.refresh_shares, maps, step, body),
        )

    def hold_decryption(self, step: str, before: str, asked: Body) -> Body:
        """Digest, signed, of the share of the decryption; see `_hold_reply`."""
        return self._hold_reply(
            step,
            before,
            asked,
            lambda body: answers.decryption(self.context, self.decryption_share, step, body),
        )

    def _hold_reply(
        self, step: str, before: str, asked: Body, make: Callable[[Body], Body]
    ) -> Body:
        """Make a reply to `asked`, sign its digest for exactly this request, and keep it.

        step: in which it opens; before: view of all that was asked before. The view with this
        request is computed here, of the very bytes that the secret meets.
        """
        body, view = Body(dict(asked.meta), asked.blobs), View(b"")
        view.digest = bytes.fromhex(before).hex()
        view.note(commit_of(step), body)
        reply = make(body)
        missing = self.missing
        self._reply = step, missing, self._opening(step, missing, view.digest)
        return self._reply[2].commit(reply)

    def open_reply(self, request: Body) -> Body:
        """The reply, once every party that is left has signed for the same request; once.

        Raises:
            PolicyError: nothing is kept. ProtocolError, MessageError: see `Opening.open`.
        """
        if self._reply is None:
            raise PolicyError("no reply is kept for this run")
        return self._reply[2].open(request)

    def _opening(self, step: str, missing: Collection[str], view: str) -> Opening:
        roster = dict(self._sheet.roster)
        terms = Committed.of_round(roster, step, self._secret.seed, missing, view)
        return Opening(terms, self._name, self._signing_key)

    def _check_refresh(self, labels: Sequence[str], of_model: bool) -> None:
        if of_model != (self._sheet.coordinates == self._sheet.params.ring_dim):
            raise PolicyError("rows and models are refreshed under masks of their own")
        for label in labels:
            found = _REFRESH.fullmatch(label.removeprefix(COVERED) if self.missing else label)
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

    @property
    def covering(self) -> tuple[tuple[str, ...], ...]:
        """Who is covered for, and by whom; empty where nobody is."""
        return self._cover.covering if self._cover else ()

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `CoverShare.stand_in`."""
        return self._covering.stand_in(request)

    # -- going on in another process --------------------------------------------------------------

    def state(self, seal: Seal) -> tuple[Body, Body]:
        """For `restore`: key share, and what covers, sealed; empty without a secret."""
        share = self._share.sealed(seal) if self._share else Body()
        if share.blobs:
            meta = {**share.meta, "added": sorted(self._added), "own": self._own, "reply": None}
            blobs: tuple[bytes, ...] = (*share.blobs, self._total.tobytes())
            if self._reply is not None:
                step, missing, opening = self._reply
                own = opening.state()
                meta["reply"] = [step, list(missing), opening.view, dict(own.meta)]
                blobs += tuple(map(seal, own.blobs))
            share = Body(meta, blobs)
        return share, self._cover.state(seal) if self._cover and share.blobs else Body()

    def restore(self, context: RingContext | None, share: Body, cover: Body, unseal: Seal) -> bytes:
        """Inverse of `state`, in place of `begin`; the joint seed."""
        context = self._context(context)
        meta = dict(share.meta)
        kept = meta.pop("reply")
        count = _OF_SHARE + 1
        (*own, total), rest = share.blobs[:count], share.blobs[count:]
        added, self._own = {*meta.pop("added")}, str(meta.pop("own"))
        self._hold(own[0], KeyShare.unsealed(context, Body(meta, tuple(own)), unseal))
        self._total, self._added = np.frombuffer(total, np.uint64).reshape(self._total.shape), added
        if self._cover:
            self._cover.restore(cover, unseal)
        if kept is not None:
            step, missing, view, fields = kept
            self._reply = step, tuple(missing), self._opening(step, missing, view)
            self._reply[2].restore(Body(fields, tuple(map(unseal, rest))))
        return share.blobs[0]

    def erase(self) -> None:
        """Forget every secret; nothing leaves any more, and none is made."""
        self._reply, self._is_over = None, True
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

    def _context(self, given: RingContext | None) -> RingContext:
        if self._share is not None or self._is_over:
            raise PolicyError("this session has its key share; another would answer labels again")
        context = RingContext(self._sheet.params, self._sheet.session) if given is None else given
        if context.params != self._sheet.params:
            raise PolicyError("the context is of another ring than the sheet's")
        return context

    def _hold(self, seed: bytes, share: KeyShare) -> None:
        sheet, key = self._sheet, self._signing_key
        self._share = share
        if self._covers is not None:
            self._cover = self._covers(
                dict(sheet.roster), sheet.cover, self._name, seed, key, share
            )


def check(sheet: KeysSheet, name: str, key: str, terms: Terms) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's."""
    parties, params = len(sheet.roster), sheet.params
    # From the table of what is secure, whoever made the object.
    _ = CkksParameters(**asdict(params))
    cover, shown, least = sheet.cover, sheet.shown, rounding_std(params, parties)
    floors: list[Floor] = [
        ("ring: a toy, not agreed to", lambda: params.security_bits > 0 or terms.insecure),
        ("cover: by too few", lambda: cover is None or terms.colluders < cover <= parties),
        ("refreshes", lambda: all(type(n) is int and n >= 0 for n in sheet.refreshes)),
        ("shown", lambda: bool(shown) and {*shown} < {*range(sheet.coordinates)}),
        ("coordinates", lambda: sheet.coordinates in (params.ring_dim, params.num_slots)),
        ("errors: below a rescaling's", lambda: min(sheet.shown_error, sheet.error) >= least),
        ("decryptions", lambda: sheet.decryptions >= (1 if cover is None else 2)),
    ]
    hold("this run's keys", sheet, name, key, terms, floors)
