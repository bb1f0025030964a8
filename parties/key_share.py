"""A party's additive share of the joint secret key: the only file where a secret key appears.

The joint secret is s = sum_p s_p, each s_p uniform ternary; nobody ever holds s. Every operation
takes and returns residues, so a secret can neither be serialised by mistake nor travel. It leaves
this file only sealed (`KeyShare.sealed`), for an agent that goes on after a restart.

Everything that a party publishes under threshold CKKS and that depends on a secret is noted in the
sample ledger first (`protocols.samples`): b_p in `__init__`, everything else in `_publish`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import openfhe
from numpy.typing import NDArray

from protocols.ckks import residues as rns
from protocols.ckks import shamir, subring
from protocols.ckks.context import CkksContext, refuse_forked_child
from protocols.ckks.flooding import FRESH_ERROR_STD, gaussian_polynomial
from protocols.ckks.fresh_errors import fresh_errors
from protocols.ckks.lift import lift
from protocols.ckks.masks import draw_mask, mask_values
from protocols.ckks.parameters import NARROW_ERROR_STD, REFRESH_TOWERS
from protocols.ckks.residues import Residues, add
from protocols.ckks.shared_keys import forget, once
from protocols.ckks.threads import each
from protocols.ckks.trace_map import TraceMap
from protocols.errors import PolicyError
from protocols.keygen import PUBLIC_KEY, RELINEARISATION, rotation_label
from protocols.messages import Body
from protocols.privacy.randomness import ExpandedRandomness, SystemRandomness
from protocols.protocol import repeated
from protocols.samples import (
    EPHEMERAL,
    GADGET,
    JOINT_KEY,
    ONE,
    RECEIVED,
    SEED,
    SHARE,
    Element,
    Pad,
    Sample,
    SampleLedger,
    Term,
)
from protocols.secret_half import Asked, Halves
from protocols.serialise import from_plain, to_plain

T = TypeVar("T")
# What OpenFHE's calls take uniform halves from: as many as a message asks for by default.
_REFERENCE, _REFERENCES = "reference", 4
# Three errors of OpenFHE's: of s H0, s H1 and u H1.
_ROUND_TWO_STD = FRESH_ERROR_STD * 3**0.5


class KeyShare:
    """One party's secret s_p and what it computes with it.

    Security: a label is answered at most once; a second request raises PolicyError (regenerated
    shares leak the key, eprint 2024/194). A label that repeats another (`protocols.cover`) is
    answered for the same ciphertext only. All uniform elements come from the joint seed, which no
    party and no coordinator chose alone.

    context: CKKS context; joint_seed: 32 bytes, from all parties' revealed seeds; parties: P, which
    the size of a refresh's masks depends on.
    """

    def __init__(self, context: CkksContext, joint_seed: bytes, parties: int) -> None:
        refuse_forked_child()
        self._context = context
        self._seed = joint_seed
        self._parties = parties
        self._ledger = SampleLedger()
        self._ephemeral: Any = None
        self._standing_in: Residues | None = None
        self._left: list[Residues] = []
        a = context.uniform_polynomial(joint_seed, PUBLIC_KEY)

        def public() -> Any:
            return context.public_key(np.zeros_like(a), a)

        reference = once(context, _REFERENCE, (PUBLIC_KEY, joint_seed), public, _REFERENCES)
        # b_p = -a s_p + e_p with the common a.
        self._ledger.note(Sample(PUBLIC_KEY, (_seeded(PUBLIC_KEY, SHARE, -1),), FRESH_ERROR_STD))
        pair = context.cc.MultipartyKeyGen(reference, False, True)
        self._secret: Any = pair.secretKey
        self._rows: Residues | None = None
        # Not a view: the other half is `a`.
        self._public_b: Residues | None = context.residues_of(pair.publicKey)[: len(a)].copy()

    def __repr__(self) -> str:
        return "KeyShare(<secret>)"

    def __reduce__(self) -> Any:
        raise PolicyError("a key share is never serialised")

    def erase(self) -> None:
        """Forget the secrets; every later operation raises PolicyError."""
        for rows in (self._rows, self._standing_in):
            if rows is not None:
                rows.fill(0)
        self._secret = self._ephemeral = self._rows = self._standing_in = None
        self._left = []

    @property
    def context(self) -> CkksContext:
        """The public context."""
        return self._context

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was published, in order."""
        return self._ledger.samples

    def sealed(self, seal: Callable[[bytes], bytes]) -> Body:
        """Sealed secrets, joint seed and sample ledger for `unsealed`; empty once erased."""
        if self._secret is None:
            return Body()
        secrets = [
            seal(openfhe.Serialize(key, openfhe.BINARY)) if key else b""
            for key in (self._key, self._ephemeral)
        ]
        samples = [to_plain(sample) for sample in self.samples]
        return Body({"parties": self._parties, "samples": samples}, (self._seed, *secrets))

    @classmethod
    def unsealed(
        cls, context: CkksContext, state: Body, unseal: Callable[[bytes], bytes]
    ) -> KeyShare:
        """The same share in another process, which refuses the same second shares."""
        refuse_forked_child()
        share = cls.__new__(cls)
        share._context, share._parties = context, int(state.meta["parties"])
        share._ledger = SampleLedger(from_plain(Sample, sample) for sample in state.meta["samples"])
        share._public_b = share._rows = share._standing_in = None
        share._left = []
        share._seed, *secrets = state.blobs
        share._secret, share._ephemeral = (
            openfhe.DeserializePrivateKeyString(unseal(sealed), openfhe.BINARY) if sealed else None
            for sealed in secrets
        )
        return share

    def _publish(self, samples: Sequence[Sample], make: Callable[[], T]) -> T:
        """Note samples, then make them: what the ledger refuses is never made."""
        _ = self._key
        self._ledger.note(*samples)
        return make()

    @property
    def _key(self) -> Any:
        if self._secret is None:
            raise PolicyError("this key share was erased at the end of its run")
        refuse_forked_child()
        return self._secret

    # -- key ceremony -------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """b_p = -a s_p + e_p, shape (towers, n)."""
        if self._public_b is None:
            raise PolicyError("the public share was already given; resend it, never a new one")
        return self._public_b

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """(-a u_p + P s_p g + e0, a s_p + e1) per digit, each (digits * ext. towers, n).

        u_p is a fresh ternary secret, kept until the second round.
        """
        key, cc = self._key, self._context.cc
        reference = self._reference(RELINEARISATION, self._context.evaluation_key)
        samples = []
        for digit in range(self._context.params.num_digits):
            name = f"{RELINEARISATION}/{digit}"
            hidden = Term(Element(GADGET, str(digit)), SHARE)
            first = (_seeded(name, EPHEMERAL, -1), hidden)
            samples += [
                Sample(f"{name}/h0", first, NARROW_ERROR_STD),
                Sample(f"{name}/h1", (_seeded(name, SHARE),), FRESH_ERROR_STD, lemma="two secrets"),
            ]

        def make() -> tuple[Residues, Residues]:
            self._ephemeral = cc.KeyGen().secretKey
            h0 = self._halves(cc.MultiKeySwitchGen(key, self._ephemeral, reference))[1]
            return h0, self._halves(cc.MultiMultEvalKey(key, reference))[0]

        return self._publish(samples, make)

    def relinearisation_second(self, h0: Residues, h1: Residues) -> Residues:
        """s_p H0 + (u_p - s_p) H1 + e2 per digit, (digits * ext. towers, n); forgets u_p.

        h0, h1: H0 and H1, the sums of all parties' first rounds, on the coordinator's word.

        Raises:
            PolicyError: a second request.
        """
        key, cc, primes = self._key, self._context.cc, self._context.key_primes
        samples = []
        for digit in range(self._context.params.num_digits):
            name = f"{RELINEARISATION}/{digit}"
            sums = [Element(RECEIVED, f"{name}/H0"), Element(RECEIVED, f"{name}/H1")]
            terms = (Term(sums[0], SHARE), Term(sums[1], EPHEMERAL), Term(sums[1], SHARE, -1))
            samples.append(Sample(f"{name}/t", terms, _ROUND_TWO_STD, lemma="relinearisation"))

        def make() -> Residues:
            sums = hashlib.sha256(h0.tobytes())
            sums.update(h1.tobytes())
            name = (RELINEARISATION, self._seed, sums.digest())
            forget(self._context, _REFERENCE)
            both = once(self._context, "sums", name, lambda: self._context.evaluation_key(h1, h0))
            of_h1, of_h0 = self._halves(cc.MultiMultEvalKey(key, both))
            of_u, _ = self._halves(cc.MultiMultEvalKey(self._ephemeral, both))
            self._ephemeral = None
            return add(add(of_h0, of_u, primes), rns.negate(of_h1, primes), primes)

        return self._publish(samples, make)

    def rotation_share(self, index: int) -> Residues:
        """b_p = -a s_p(X^k) + P s_p g + e per digit, for the left rotation by index."""
        context, label = self._context, rotation_label(index)
        reference = self._reference(label, partial(context.rotation_key_map, index))
        automorphism = context.automorphism(index)
        back = pow(automorphism, -1, 2 * context.params.ring_dim)
        samples = [
            Sample(
                f"{label}/{digit}",
                (
                    Term(Element(SEED, f"{label}/{digit}"), SHARE, -1, back),
                    Term(Element(GADGET, str(digit)), SHARE),
                ),
                NARROW_ERROR_STD,
            )
            for digit in range(context.params.num_digits)
        ]

        def make() -> Residues:
            share = context.cc.MultiEvalAutomorphismKeyGen(self._key, reference, [automorphism])
            return self._halves(share)[1]

        return self._publish(samples, make)

    # -- rows -----------------------------------------------------------------------------------

    def encrypt(self, public_key: Any, slots: NDArray[np.float64], label: str) -> Residues:
        """(b v + e0 + m, a v + e1) for a fresh ternary v, shape (2 towers, n).

        slots: real values m; label: unique name of this ciphertext.
        """
        own = f"v({label})"
        samples = [
            Sample(
                f"{label}/c0",
                (Term(Element(JOINT_KEY), own),),
                FRESH_ERROR_STD,
                message="m",
            ),
            Sample(f"{label}/c1", (_seeded(PUBLIC_KEY, own),), FRESH_ERROR_STD),
        ]
        context = self._context
        return self._publish(
            samples, lambda: context.residues_of(context.encrypt(public_key, slots))
        )

    def encrypt_onto(
        self, public_key: Any, sums: Sequence[Sequence[Residues]], label: str
    ) -> list[list[Residues]]:
        """Polynomials of each ciphertext plus a fresh encryption of zero, at REFRESH_TOWERS towers.

        sums: (c0, c1) whose c1 depends on private rows; label: unique name of them all.
        """
        names = [f"{label}/{k}" for k in range(len(sums))]
        samples = [
            Sample(
                f"{name}/{half}",
                (Term(element, f"v({name})"),),
                FRESH_ERROR_STD,
                message="gradient",
            )
            for name in names
            for half, element in (
                ("c0", Element(JOINT_KEY)),
                ("c1", Element(SEED, PUBLIC_KEY)),
            )
        ]
        context, low = self._context, self._context.primes[:REFRESH_TOWERS]
        level = context.params.num_towers - REFRESH_TOWERS
        zero = once(context, "zero", level, lambda: context.encode(np.zeros(1), level))

        def make() -> list[list[Residues]]:
            found = []
            for total in sums:
                fresh = context.polynomials_of(context.cc.Encrypt(public_key, zero))
                found.append([add(own, new, low) for own, new in zip(total, fresh, strict=True)])
            return found

        return self._publish(samples, make)

    # -- cover for missing parties ------------------------------------------------------------

    def deal(self, threshold: int, points: Collection[int]) -> dict[int, Residues]:
        """Shamir shares of s_p for the parties at these points, each of shape (towers, n).

        Uniform coefficients from the operating system's generator; the caller seals them.
        """
        samples = [
            Sample(
                f"cover-deal/{point}",
                (Term(Element(ONE), SHARE),),
                pads=tuple(Pad(f"f{k}", point**k) for k in range(1, threshold)),
                lemma="secret sharing",
            )
            for point in points
        ]
        rows, primes = self._residues(), self._context.primes
        return self._publish(
            samples, lambda: shamir.deal(rows, primes, threshold, points, SystemRandomness())
        )

    def stand_in(self, extra: Residues | None) -> None:
        """Use s_p + extra in place of s_p from now on, None: s_p; extra: shape (towers, n)."""
        primes = self._context.primes
        self._standing_in = None if extra is None else add(self._residues(), extra, primes)

    def _residues(self) -> Residues:
        """s_p, shape (towers, n)."""
        key = self._key
        if self._rows is None:
            self._rows = self._context.residues_of(key)
        return self._rows

    # -- shares of ciphertexts ----------------------------------------------------------------

    def refresh_shares(self, asked: Sequence[Asked]) -> list[Halves]:
        """Masked decryption and re-encryption share of each ciphertext (c1, label, T).

        c1: second polynomial at REFRESH_TOWERS towers; label: unique name of this refresh; both
        fix the random element a'; T: a map that is applied on the way, or None. Returns (h0, h1):
        h0 = c1 s_p - M_p at c1's towers, h1 = -a' s_p + T(M_p) + e at level 0, M_p uniform in the
        room of c1's primes (`ckks.masks`).
        """
        context, primes = self._context, self._context.primes
        low, n = primes[:REFRESH_TOWERS], context.params.ring_dim
        samples, names = self._refresh_samples(asked)

        def make() -> list[Halves]:
            secret, random = self._present, SystemRandomness()

            def share(one: Asked, name: str, mask: Residues, error: Residues) -> Halves:
                mapped = context.mapped(one[2], mask) if one[2] else mask
                return self._shown(one[0], name, secret, mask[: len(low)], mapped, error)

            masks = each(lambda _: draw_mask(low, self._parties, n, random), asked)
            errors = self._fresh_errors(len(asked))
            return each(share, asked, names, lift(context, masks), errors)

        return self._publish(samples, make)

    def trace_shares(self, asked: Sequence[tuple[Residues, str, TraceMap]]) -> list[Halves]:
        """The same through maps of the subring's coefficients alone (`ckks.subring`).

        M_p is uniform modulo c1's primes on all others; on these it is uniform in the room.
        """
        context, primes = self._context, self._context.primes
        low, n = primes[:REFRESH_TOWERS], context.params.ring_dim
        samples, names = self._refresh_samples(asked)

        def make() -> list[Halves]:
            secret = self._present

            def share(one: tuple[Residues, str, TraceMap], name: str, error: Residues) -> Halves:
                c1, _, trace_map = one
                count = 2 * trace_map.period
                inner = mask_values(low, self._parties, count, SystemRandomness())
                mask = subring.kernel(low, n, trace_map.period, ExpandedRandomness())
                mask = add(mask, subring.embed(inner, low, n), low)
                mapped = subring.embed(trace_map.apply(inner), primes, n)
                return self._shown(c1, name, secret, mask, mapped, error)

            return each(share, asked, names, self._fresh_errors(len(asked)))

        return self._publish(samples, make)

    def _fresh_errors(self, count: int) -> list[Residues]:
        """Each used once. They are made two at a time: one that is left is for the next share."""
        found = self._left + fresh_errors(self._context, count - len(self._left))
        self._left = found[count:]
        return found[:count]

    def _shown(
        self,
        c1: Residues,
        name: str,
        secret: Residues,
        mask: Residues,
        mapped: Residues,
        error: Residues,
    ) -> Halves:
        """(c1 s_p - M_p, -a' s_p + T(M_p) + e), a' the random element of this name."""
        primes, low = self._context.primes, self._context.primes[: len(c1)]
        h0 = rns.subtract(rns.product(c1, secret[: len(low)], low), mask, low)
        hidden = rns.product(self._context.uniform_polynomial(self._seed, name), secret, primes)
        return h0, rns.subtract(add(mapped, error, primes), hidden, primes)

    def _refresh_samples(
        self, asked: Sequence[tuple[Residues, str, Any]]
    ) -> tuple[list[Sample], list[str]]:
        """What is published, and the labels of the random elements."""
        samples, names = [], []
        for c1, label, through in asked:
            given, mask = self._given(c1, label), f"M({label})"
            names.append(self._context.refresh_label(label, c1))
            samples += [
                Sample(
                    f"{label}/h0",
                    (Term(given, SHARE),),
                    pads=(Pad(mask, -1),),
                    lemma="masked decryption",
                ),
                Sample(
                    f"{label}/h1",
                    (_seeded(names[-1], SHARE, -1),),
                    FRESH_ERROR_STD,
                    pads=(Pad(mask, 1, "T" if through else ""),),
                ),
            ]
        return samples, names

    def decryption_share(self, c1: Residues, label: str, flooding_std: float) -> Residues:
        """d = c1 s_p + e_flood, shape of c1.

        flooding_std: of e_flood per coefficient, see `protocols.ckks.flooding`; drawn from the
        operating system's generator.
        """
        context, primes = self._context, self._context.primes[: len(c1)]
        terms = (Term(self._given(c1, label), SHARE),)
        sample = Sample(label, terms, flooding_std, lemma="flooded decryption")

        def make() -> Residues:
            flood = gaussian_polynomial(context, flooding_std, len(c1), SystemRandomness())
            return add(rns.product(c1, self._present[: len(c1)], primes), flood, primes)

        return self._publish([sample], make)

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _present(self) -> Residues:
        """s_p, or what stands in for others as well, shape (towers, n)."""
        return self._residues() if self._standing_in is None else self._standing_in

    def _given(self, c1: Residues, label: str) -> Element:
        """The coordinator's c1, as an element.

        Raises:
            PolicyError: a repetition for another ciphertext than the first time.
        """
        element = Element(RECEIVED, hashlib.sha256(c1.tobytes()).hexdigest())
        first = repeated(label)
        if first != label:
            answered = self._ledger.get(f"{first}/h0") or self._ledger.get(first)
            if answered is None or answered.terms[0].element != element:
                raise PolicyError(
                    f"{label!r} is not for the ciphertext that {first!r} was given for"
                )
        return element

    def _reference(self, label: str, key: Callable[[Residues, Residues], Any]) -> Any:
        """A key of the label's uniform half and zeros; parties of one process share it."""

        def make() -> Any:
            a = self._context.uniform_key_half(self._seed, label)
            return key(a, np.zeros_like(a))

        return once(self._context, _REFERENCE, (label, self._seed), make, _REFERENCES)

    def _halves(self, key: Any) -> tuple[Residues, Residues]:
        rows = self._context.residues_of(key)
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def _seeded(name: str, secret: str, factor: int = 1) -> Term:
    """factor * H(name) * secret."""
    return Term(Element(SEED, name), secret, factor)
