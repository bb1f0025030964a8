"""A party's additive share of the joint secret key: here it is made, and does what it does.

The joint secret is s = sum_p s_p, each s_p uniform ternary; nobody ever holds s. Every operation
takes and returns residues, so a secret can neither be serialised by mistake nor travel. It leaves
this file for an agent's sealed state alone (`STATE`), from which it goes on after a restart.

Everything that a party publishes under threshold CKKS and that depends on a secret is noted in the
sample ledger first (`protocols.steps.samples`): b_p in `make`, everything else by `_note`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from protocols.ckks import NARROW_ERROR_STD
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext, refuse_forked_child
from protocols.ckks.flooding import FRESH_ERROR_STD, Flooding
from protocols.ckks.residues import Residues, add, each
from protocols.ckks.sampling import encryption, fresh_errors, gaussian, in_pq, ternary
from protocols.ckks.transform import Integers, turned
from protocols.errors import PolicyError
from protocols.exchange import PUBLIC_KEY, RELINEARISATION, rotation_label
from protocols.privacy.laws import SystemRandomness
from protocols.steps.samples import (
    EPHEMERAL,
    GADGET,
    JOINT_KEY,
    RECEIVED,
    SEED,
    SHARE,
    Element,
    Pad,
    Sample,
    SampleLedger,
    Term,
)

# c1, label and map of a ciphertext that is to be refreshed; both halves of a share of it.
Asked = tuple[Residues, str, Any]
Halves = tuple[Residues, Residues]
# Of so many parties, for each of these maps.
Drawn = Callable[[RingContext, int, Sequence[Any]], list[Halves]]
# As of three errors: of s H0, s H1 and u H1.
_ROUND_TWO_STD = FRESH_ERROR_STD * 3**0.5


class KeyShare:
    """One party's secret s_p and what it computes with it.

    Security: a label is answered at most once; a second request raises PolicyError (regenerated
    shares leak the key, eprint 2024/194). All uniform elements come from the joint seed, which no
    party and no coordinator chose alone.

    context: CKKS context; parties: P, which the size of a refresh's masks depends on; joint_seed:
    see `make`, empty: later. What goes on in another process refuses the same second shares.
    """

    STATE: tuple[str, ...] = ("_seed", "_secret", "_ephemeral", "_ledger")

    def __init__(self, context: RingContext, joint_seed: bytes, parties: int) -> None:
        self.context, self._parties, self._seed = context, parties, b""
        self._ledger = SampleLedger()
        self._secret: Integers | None = None
        self._ephemeral: Integers | None = None
        self._rows: Residues | None = None
        self._public_b: Residues | None = None
        if joint_seed:
            self.make(joint_seed)

    def make(self, joint_seed: bytes) -> None:
        """The secret, and b_p; once. joint_seed: 32 bytes, from all parties' revealed seeds."""
        refuse_forked_child()
        a, primes = self.context.uniform_polynomial(joint_seed, PUBLIC_KEY), self.context.primes
        # b_p = -a s_p + e_p with the common a.
        self._ledger.note(Sample(PUBLIC_KEY, (_seeded(PUBLIC_KEY, SHARE, -1),), FRESH_ERROR_STD))
        self._seed, self._secret = joint_seed, ternary(self.context.params.ring_dim)
        (error,) = fresh_errors(self.context, 1)
        self._public_b = rns.subtract(error, rns.product(a, self._residues(), primes), primes)

    @property
    def seed(self) -> bytes:
        """The joint one."""
        if not self._seed:
            raise PolicyError("this session has no key share yet")
        return self._seed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def __reduce__(self) -> Any:
        raise PolicyError("a key share is never serialised")

    def erase(self) -> None:
        """Forget the secrets; every later operation raises PolicyError."""
        for secret in (self._rows, self._secret, self._ephemeral):
            if secret is not None:
                secret.fill(0)
        self._secret = self._ephemeral = self._rows = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was published, in order."""
        return self._ledger.samples

    def _note(self, *samples: Sample) -> None:
        """Before these samples are made: what the ledger refuses never is."""
        _ = self._key
        self._ledger.note(*samples)

    @property
    def _key(self) -> Integers:
        if self._secret is None:
            raise PolicyError("there is no key share yet, or it was erased at the end of its run")
        refuse_forked_child()
        return self._secret

    # -- key ceremony -------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """b_p = -a s_p + e_p, shape (towers, n)."""
        if self._public_b is None:
            raise PolicyError("no public share: it was already given; resend it, never a new one")
        return self._public_b

    def relinearisation_first(self) -> tuple[Residues, Residues]:
        """(-a u_p + P s_p g + e0, a s_p + e1) per digit, each (digits * ext. towers, n).

        u_p is a fresh ternary secret, kept until the second round.
        """
        samples = []
        for digit in range(self.context.params.num_digits):
            name = f"{RELINEARISATION}/{digit}"
            hidden = Term(Element(GADGET, str(digit)), SHARE)
            first = (_seeded(name, EPHEMERAL, -1), hidden)
            samples += [
                Sample(f"{name}/h0", first, NARROW_ERROR_STD),
                Sample(f"{name}/h1", (_seeded(name, SHARE),), FRESH_ERROR_STD, lemma="two secrets"),
            ]
        self._note(*samples)
        self._ephemeral = ternary(self.context.params.ring_dim)
        a, s = self.context.uniform_key_half(self.seed, RELINEARISATION), self._wide()
        h0 = self._hidden(a, in_pq(self.context, self._ephemeral), NARROW_ERROR_STD, -1)
        h1 = self._hidden(a, s, FRESH_ERROR_STD)
        return self._with_gadget(h0), h1

    def relinearisation_second(self, h0: Residues, h1: Residues) -> Residues:
        """s_p H0 + (u_p - s_p) H1 + e2 per digit, (digits * ext. towers, n); forgets u_p.

        h0, h1: H0 and H1, the sums of all parties' first rounds, on the coordinator's word.

        Raises:
            PolicyError: a second request.
        """
        primes = self.context.key_primes
        samples = []
        for digit in range(self.context.params.num_digits):
            name = f"{RELINEARISATION}/{digit}"
            sums = [Element(RECEIVED, f"{name}/H0"), Element(RECEIVED, f"{name}/H1")]
            terms = (Term(sums[0], SHARE), Term(sums[1], EPHEMERAL), Term(sums[1], SHARE, -1))
            samples.append(Sample(f"{name}/t", terms, _ROUND_TWO_STD, lemma="relinearisation"))
        self._note(*samples)
        assert self._ephemeral is not None  # noqa: S101 (the first round made it)
        s, u = self._wide(), in_pq(self.context, self._ephemeral)
        self._ephemeral.fill(0)
        self._ephemeral = None
        difference = rns.subtract(u, s, self.context.extended_primes)
        of_h1 = self._hidden(h1, difference, _ROUND_TWO_STD)
        return add(of_h1, rns.product(h0, self._each_digit(s), primes), primes)

    def rotation_share(self, index: int) -> Residues:
        """b_p = -a s_p(X^k) + P s_p g + e per digit, for the left rotation by index."""
        context, label = self.context, rotation_label(index)
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
        self._note(*samples)
        a = context.uniform_key_half(self.seed, label)
        image = turned(self._wide(), back)
        return self._with_gadget(self._hidden(a, image, NARROW_ERROR_STD, -1))

    # -- what is encrypted --------------------------------------------------------------------

    def encrypt_onto(
        self,
        public: Halves,
        sums: Sequence[Sequence[Residues]],
        names: Sequence[str],
        hides: tuple[str, str],
    ) -> list[list[Residues]]:
        """(m0 + b v + e0, m1 + a v + e1) for each of these (m0, m1), v ternary, fresh.

        public: (b, a) of the joint key; sums: each half of shape (towers, n); names: unique, of
        each; hides: what m0 and m1 are, empty: nothing private.
        """
        halves = ("c0", Element(JOINT_KEY), hides[0]), ("c1", Element(SEED, PUBLIC_KEY), hides[1])
        samples = [
            Sample(f"{n}/{half}", (Term(element, f"v({n})"),), FRESH_ERROR_STD, message=hidden)
            for n in names
            for half, element, hidden in halves
        ]
        self._note(*samples)
        found = []
        for _, own in zip(names, sums, strict=True):
            primes = self.context.primes[: len(own[0])]
            fresh = encryption(self.context, *public, towers=len(primes))
            found.append([add(m, zero, primes) for m, zero in zip(own, fresh, strict=True)])
        return found

    # -- shares of ciphertexts ----------------------------------------------------------------

    def _residues(self) -> Residues:
        """s_p, shape (towers, n)."""
        return self._wide()[: self.context.params.num_towers]

    def _wide(self) -> Residues:
        """s_p modulo the primes of Q and P, shape (extended towers, n)."""
        if self._rows is None:
            self._rows = in_pq(self.context, self._key)
        return self._rows

    def shares(self, asked: Sequence[Asked], drawn: Drawn) -> list[Halves]:
        """Masked decryption and re-encryption share of each ciphertext (c1, label, T).

        c1: second polynomial at REFRESH_TOWERS towers; label: unique name of this refresh; both
        fix the random element a'; T: a map that is applied on the way, or None; drawn: masks M_p
        modulo c1's primes, and T(M_p) at level 0. Returns (h0, h1): h0 = c1 s_p - M_p at c1's
        towers, h1 = -a' s_p + T(M_p) + e at level 0.
        """
        names = [self.context.refresh_label(label, c1) for c1, label, _ in asked]
        samples = [
            self._refresh_samples(self._given(c1, label), label, through, name)
            for (c1, label, through), name in zip(asked, names, strict=True)
        ]
        self._note(*chain.from_iterable(samples))
        secret, primes = self._present, self.context.primes
        masks = drawn(self.context, self._parties, [through for _, _, through in asked])
        errors = fresh_errors(self.context, len(asked))

        def share(one: Asked, name: str, masked: Halves, error: Residues) -> Halves:
            (c1, _, _), (mask, mapped), low = one, masked, primes[: len(one[0])]
            h0 = rns.subtract(rns.product(c1, secret[: len(low)], low), mask, low)
            hidden = rns.product(self.context.uniform_polynomial(self.seed, name), secret, primes)
            return h0, rns.subtract(add(mapped, error, primes), hidden, primes)

        return each(share, asked, names, masks, errors)

    @staticmethod
    def _refresh_samples(given: Element, label: str, through: Any, name: str) -> list[Sample]:
        """What is published; given: c1; name: of the random element."""
        mask, image = Pad(f"M({label})", -1), Pad(f"M({label})", 1, "T" if through else "")
        term, own = Term(given, SHARE), _seeded(name, SHARE, -1)
        return [
            Sample(f"{label}/h0", (term,), pads=(mask,), lemma="masked decryption"),
            Sample(f"{label}/h1", (own,), FRESH_ERROR_STD, pads=(image,)),
        ]

    def decryption_share(self, c1: Residues, label: str, flooding: Flooding) -> Residues:
        """d = c1 s_p + e_flood, shape of c1.

        flooding: of e_flood, from the operating system's generator.
        """
        context, primes = self.context, self.context.primes[: len(c1)]
        terms = (Term(self._given(c1, label), SHARE),)
        std = flooding.rms(context.params.ring_dim)
        sample = Sample(label, terms, std, lemma="flooded decryption")
        self._note(sample)
        flood = flooding.draw(context, len(c1), SystemRandomness())
        return add(rns.product(c1, self._present[: len(c1)], primes), flood, primes)

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _present(self) -> Residues:
        """What decrypts and refreshes: s_p, shape (towers, n)."""
        return self._residues()

    def _given(self, c1: Residues, label: str) -> Element:
        """The coordinator's c1, as an element; label: that it is answered under."""
        _ = label
        return Element(RECEIVED, hashlib.sha256(c1.tobytes()).hexdigest())

    def _each_digit(self, rows: Residues) -> Residues:
        """The same in all digits of a key."""
        return np.tile(rows, (self.context.params.num_digits, 1))

    def _hidden(self, a: Residues, secret: Residues, std: float, sign: int = 1) -> Residues:
        """sign a secret + e per digit; a: (digits * ext. towers, n), secret: (ext. towers, n)."""
        params, primes = self.context.params, self.context.key_primes
        errors = [
            in_pq(self.context, gaussian(params.ring_dim, std)) for _ in range(params.num_digits)
        ]
        combine = add if sign > 0 else rns.subtract
        return combine(
            np.concatenate(errors), rns.product(a, self._each_digit(secret), primes), primes
        )

    def _with_gadget(self, half: Residues) -> Residues:
        """P s_p g added: P s_p on each digit's own primes."""
        context, rows, count = self.context, half.copy(), len(self.context.extended_primes)
        special, primes = prod(context.special_primes), context.primes
        scaled = rns.scale(self._residues(), [special] * len(primes), primes)
        of_digit = -(-len(primes) // context.params.num_digits)
        for k, prime in enumerate(primes):
            row = count * (k // of_digit) + k
            rows[row : row + 1] = add(rows[row : row + 1], scaled[k : k + 1], [prime])
        return rows


def _seeded(name: str, secret: str, factor: int = 1) -> Term:
    """factor * H(name) * secret."""
    return Term(Element(SEED, name), secret, factor)
