"""One party's keys in a run under threshold CKKS, behind a sheet that it checks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.kernel.keys import KeysSheet
from parties.kernel.keys.key_share import Asked, Drawn, Halves, KeyShare
from parties.kernel.private import Terms, terms_of
from parties.kernel.sheet import Floor, hold
from protocols.ckks import DECRYPTION_TOWERS, REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.flooding import rounding_std
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange import KEYS, PUBLIC_KEY, Body, commit_of
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of
from protocols.exchange.signed_values import check as check_signed
from protocols.steps import restore, state_of
from protocols.steps.confirmed import CommitTerms, View

DECRYPT, RELINEARISE = "decrypt", "relinearise"
# Shares that are made together: one reading for all, 7 MB each at ring 2^15.
_TOGETHER = 16
# Of an operation on residues, such as `KeyShare.shares`.
Operation = Callable[..., Any]


class Once:
    """For one party there is nothing to share."""

    context = RingContext

    @staticmethod
    def once(context: Any, kind: str, name: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes."""
        return make()


_REFRESH = re.compile(r"refresh/(0|[1-9][0-9]*)/(0|[1-9][0-9]*)")


class KeySession(KeyShare):
    """A party's key share, which it makes once, behind a sheet; see `serving.METHODS`.

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
        self._shared, terms = shared or Once(), terms_of(rows)
        key = signing_key.public_key().public_bytes_raw().hex()
        hold("this run's keys", sheet, name, key, terms, self._floors(terms))
        super().__init__(self._shared.context(sheet.params, sheet.session), b"", len(sheet.roster))
        self._joint_seed = terms.joint_seed
        self._added, self._own = set[str](), ""
        self._total = rns.zeros(sheet.params.num_towers, sheet.params.ring_dim)
        self._reply: tuple[str, tuple[str, ...], str, Body] | None = None
        self._is_over = False

    def begin(self, seeds: Mapping[str, str]) -> bytes:
        """Make the key share, once; the joint seed, 32 bytes.

        seeds: everybody's, hexadecimal, by party.

        Raises:
            PolicyError: there is one, or not all have signed the run's sheets. ProtocolError: see
                `Agreement.joint_seed`.
        """
        if self.begun or self._is_over:
            raise PolicyError("this session has its key share; another would answer labels again")
        self.make(self._joint_seed(seeds))
        return self.seed

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
            text = partial(committed_text, "commitment", KEYS, self.seed)
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

    def public_key(self) -> Halves:
        """(b, a) of the joint key. Raises PolicyError: shares are missing."""
        if self.joint_key is None:
            raise PolicyError("not all shares of the joint key are here yet")
        make = partial(self.context.uniform_polynomial, self.seed, PUBLIC_KEY)
        return self._total, self._shared.once(self.context, "public key", self.seed, make)

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a key share."""
        return bool(self._seed)

    # -- keys -------------------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """See `KeyShare.public_share`."""
        share = super().public_share()
        self._own = hashlib.sha256(rns.pack(share, self.context.primes)).hexdigest()
        return share

    def rotation_share(self, index: int) -> Residues:
        """See `KeyShare.rotation_share`.

        Raises:
            PolicyError: the sheet has no such rotation.
        """
        if type(index) is not int or index not in self._sheet.rotations:
            raise PolicyError(f"rotation {index!r} is none of this run's")
        return super().rotation_share(index)

    # -- what is refreshed, decrypted -------------------------------------------------------------

    def shares(  # type: ignore[override]  # the room of the masks is said twice, and compared
        self, asked: Sequence[Asked], drawn: Drawn, of_model: bool
    ) -> list[Halves]:
        """See `KeyShare.shares`; drawn: masks of a model, or of rows. A model's session hides them.

        Raises:
            PolicyError: the sheet has no refresh of this name.
        """
        if of_model != (self._sheet.coordinates == self._sheet.params.ring_dim):
            raise PolicyError("rows and models are refreshed under masks of their own")
        for _, label, _ in asked:
            found = _REFRESH.fullmatch(self._answered(label))
            step, position = map(int, found.groups()) if found else (-1, 0)
            due = self._sheet.refreshes[step] if 0 <= step < len(self._sheet.refreshes) else 0
            if position >= due:
                raise PolicyError(f"{label!r} is no refresh of this run")
        return super().shares(asked, drawn)

    def decryption_share(self, c1: Residues, label: str) -> Residues:  # type: ignore[override]
        """c1 s_p + e_flood, shape of c1; once.

        Raises:
            PolicyError: another label than the one of the released model.
        """
        if self._answered(label) != DECRYPT:
            raise PolicyError(f"{label!r} is not the decryption of this run")
        return super().decryption_share(c1, label, self._sheet.flooding())

    # -- replies that are kept until everybody has signed what was asked ---------------------------

    def hold_relinearisation(self, step: str, before: str, asked: Body) -> Body:
        """Digest, signed, of t_p for H0 and H1; see `hold_reply`, and `KeyShare`."""
        if step != RELINEARISE:
            raise PolicyError(f"{step!r} is not the step of the relinearisation key")
        context, second = self.context, self.relinearisation_second
        make = partial(reply_of, context, second, 2, context.key_primes)
        return self.hold_reply(step, before, asked, make)

    def hold_decryption(self, step: str, before: str, asked: Body) -> Body:
        """Digest, signed, of the share of the decryption; see `hold_reply`."""
        context, share = self.context, partial(self.decryption_share, label=step)
        make = partial(reply_of, context, share, 1, context.primes[:DECRYPTION_TOWERS])
        return self.hold_reply(step, before, asked, make)

    def hold_reply(self, step: str, before: str, asked: Body, make: Callable[[Body], Body]) -> Body:
        """Make a reply to `asked`, sign its digest for exactly this request, and keep it.

        step: in which it opens; before: view of all that was asked before. The view with this
        request is computed here, of the very bytes that the secret meets.
        """
        body, view = Body(dict(asked.meta), asked.blobs), View(b"")
        view.digest = bytes.fromhex(before).hex()
        view.note(commit_of(step), body)
        self._reply = step, self.missing, view.digest, make(body)
        terms, message = self._kept()
        return terms.commit(message, self._name, self._signing_key)

    def open_reply(self, request: Body) -> Body:
        """The reply, once every party that is left has signed for the same request; once.

        Raises:
            PolicyError: nothing is kept. ProtocolError, MessageError: see `CommitTerms`.
        """
        terms, message = self._kept()
        found = terms.open(message, request, self._name, self._signing_key)
        self._reply = None
        return found

    def _kept(self) -> tuple[CommitTerms, Body]:
        """The reply, and what opens it."""
        if self._reply is None:
            raise PolicyError("no reply is kept for this run")
        step, missing, view, message = self._reply
        present = {name: key for name, key in self._sheet.roster if name not in missing}
        return CommitTerms(step, self.seed, present, f"replies to {step!r}", view), message

    # -- parties that are missing, where a run has cover ------------------------------------------

    decryptions = 1

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is covered for."""
        return ()

    @property
    def covering(self) -> tuple[tuple[str, ...], ...]:
        """Who is covered for, and by whom; empty where nobody is."""
        return ()

    def _answered(self, label: str) -> str:
        """The label that this one repeats, itself if it repeats none."""
        return label

    # -- going on in another process --------------------------------------------------------------

    STATE = (*KeyShare.STATE, "_is_over", "_added", "_own", "_total", "_reply")
    state, restore = state_of, restore  # in place of `begin`

    def erase(self) -> None:
        """Forget every secret; nothing leaves any more, and none is made."""
        self._reply, self._is_over = None, True
        super().erase()

    def _floors(self, terms: Terms) -> list[Floor]:
        """What no honest plan gives, or this owner has not agreed to."""
        sheet, params = self._sheet, self._sheet.params
        # From the table of what is secure, whoever made the object.
        _ = CkksParameters(**asdict(params))
        shown, least = sheet.shown, rounding_std(params, len(sheet.roster))
        errors = sheet.shown_error, sheet.error
        return [
            ("ring: a toy, not agreed to", lambda: params.security_bits > 0 or terms.insecure),
            ("refreshes", lambda: all(type(n) is int and n >= 0 for n in sheet.refreshes)),
            ("shown", lambda: bool(shown) and {*shown} < {*range(sheet.coordinates)}),
            ("coordinates", lambda: sheet.coordinates in (params.ring_dim, params.num_slots)),
            ("errors: below a rescaling's", lambda: all(least <= e < inf for e in errors)),
            ("decryptions", lambda: sheet.decryptions >= self.decryptions),
        ]


# -- what leaves of operations on what others chose: residues in, the message of a reply out -------


def refresh_reply(
    context: RingContext,
    shares: Operation,
    maps: Sequence[Any],
    step: str,
    request: Body,
) -> Body:
    """Reply to `refresh/k`, or to the step that repeats it; maps: the plan's.

    Raises:
        MessageError: malformed residues. PolicyError: more ciphertexts than the plan has, or a
            share was already given.
    """
    if not request.blobs:
        raise MessageError("the step `refresh` carries at least one blob")
    if len(request.blobs) > len(maps):
        raise PolicyError("more ciphertexts to refresh than the plan has")
    low = context.primes[:REFRESH_TOWERS]
    asked = [
        (rns.unpack(blob, low, context.params.ring_dim), f"{step}/{k}", column_map)
        for k, (blob, column_map) in enumerate(zip(request.blobs, maps, strict=False))
    ]
    blobs: list[bytes] = []
    for start in range(0, len(asked), _TOGETHER):
        for h0, h1 in shares(asked[start : start + _TOGETHER]):
            blobs += [rns.pack(h0, low), rns.pack(h1, context.primes)]
    return Body(blobs=tuple(blobs))


def reply_of(
    context: RingContext, make: Operation, count: int, primes: Sequence[int], request: Body
) -> Body:
    """Reply to a step: one polynomial, made of so many that are asked, modulo the same primes.

    Raises:
        MessageError: other than so many, or malformed residues. PolicyError: it was already given.
    """
    if len(request.blobs) != count:
        raise MessageError(f"the step carries exactly {count} blobs, not {len(request.blobs)}")
    asked = [rns.unpack(blob, primes, context.params.ring_dim) for blob in request.blobs]
    return Body(blobs=(rns.pack(make(*asked), primes),))
