"""The sample ledger: every polynomial that a party publishes and that depends on a secret.

Each is one linear equation in the run's secrets, with elements that everybody knows,

    published = sum_k factor_k element_k secret_k + message + error + pads        mod Q or QP,

and no two of them may cancel each other's secrets. `SampleLedger.note` refuses a sample before it
is made, in the whole life of a secret, restarts included, unless:

(i)   an element from the joint seed is used once per secret group. A group is closed under
      automorphisms, rescaling, dropped primes and public linear relations: s, what stands in for
      other parties, u and u - s are one group. The lemma "two secrets" alone may use it for two.
(ii)  an element that the coordinator sent is used by a lemma's exception alone, under a label that
      is answered once.
(iii) a pad enters one masked sample, or as a coefficient of a secret's sharing one for each
      receiver; each output of its map has an element of its own.
(iv)  every sample has an error of its own, or a pad.

Elements named "received" are the coordinator's word: c1, H0, H1. The ledger does not check them.

Nothing here is secret. What follows from the list is in docs/method/security-argument.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.errors import PolicyError

# The least error that is used, of rotation keys (`ckks.NARROW_ERROR_STD`).
SMALLEST_ERROR_STD = 1.0
# Where an element comes from.
SEED, JOINT_KEY, GADGET, RECEIVED, ONE = "H", "joint-key", "P g", "received", "1"
# Secrets: a key share (and what stands in for others), the ephemeral secret of the relinearisation
# key; every encryption has a secret v of its own.
SHARE, EPHEMERAL = "s", "u"
_GROUPS = {EPHEMERAL: SHARE}

LEMMAS = {
    "two secrets": "-a u + e0 and a s + e1 for independent u, s are ring-LWE samples of two "
    "secrets under one element: a hybrid over the secrets",
    "relinearisation": "t_p = s_p H0 + (u_p - s_p) H1 + e2: to P - 1 colluders what t_p hides is "
    "-s_h h1 + e2, uniform by ring-LWE; circular, its element h1 = a s + e1 depends on the secret",
    "masked decryption": "c1 s_p - M_p is uniform up to the mask's statistical distance, where "
    "the message of c1 is within the room; beyond it a sample with a huge error, whose element c1 "
    "is a sample: replies that it is made of are fixed before any is seen, that it is made of "
    "these is the coordinator's word",
    "flooded decryption": "c1 s_p + e, e Gaussian, by sqrt(12 tau) 2^(s/2) above the norm of the "
    "errors: Li, Micciancio, Schultz, Sorrell, CRYPTO 2022, Theorem 2",
    "opening key": "s_p under pads of pairs that cancel in the sum of all parties: Bonawitz et "
    "al., CCS 2017; the sum of all s_p is public by design",
    "secret sharing": "any t - 1 values of a polynomial of degree t - 1 with uniform coefficients "
    "are uniform: Shamir 1979",
}


@dataclass(frozen=True, slots=True)
class Element:
    """A public polynomial; kind: SEED, JOINT_KEY, GADGET, RECEIVED or ONE; name: which."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}({self.name})" if self.name else self.kind


@dataclass(frozen=True, slots=True)
class Term:
    """factor * element * secret(X^automorphism)."""

    element: Element
    secret: str
    factor: int = 1
    automorphism: int = 1


@dataclass(frozen=True, slots=True)
class Pad:
    """factor * T(pad), T the identity where `through` is empty."""

    name: str
    factor: int = 1
    through: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One published polynomial.

    label: unique in the life of the secret; error: name of its error, the label by default;
    error_std: per coefficient, 0 for none [integer units]; message: what it hides beside secrets;
    lemma: of LEMMAS, where it is an exception.
    """

    label: str
    terms: tuple[Term, ...]
    error_std: float = 0.0
    pads: tuple[Pad, ...] = ()
    message: str = ""
    lemma: str = ""
    error: str = ""

    @property
    def error_name(self) -> str:
        """Equal names mean one and the same error."""
        return self.error or self.label


class SampleLedger:
    """What one party has published; refuses what breaks an invariant of the module."""

    STATE = ("samples",)

    def __init__(self) -> None:
        self._samples: dict[str, Sample] = {}
        self._uses: dict[tuple[Element, str], frozenset[str]] = {}
        self._masked: dict[str, frozenset[str]] = {}
        self._outputs: set[tuple[str, str]] = set()
        self._errors: set[str] = set()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All, in the order in which they were made."""
        return tuple(self._samples.values())

    @samples.setter
    def samples(self, samples: Iterable[Sample]) -> None:
        self.note(*samples)

    def note(self, *samples: Sample) -> None:
        """Take samples in, in order.

        Raises:
            PolicyError: names the sample and the invariant; then it must not be made.
        """
        for sample in samples:
            self._check(sample)
            self._samples[sample.label] = sample

    def _check(self, sample: Sample) -> None:
        if sample.label in self._samples:
            raise PolicyError(
                f"a share for {sample.label!r} was already given; resend the first one, never a "
                "new one"
            )
        if sample.lemma and sample.lemma not in LEMMAS:
            raise _refused(sample, f"lemma={sample.lemma!r} is not one of {', '.join(LEMMAS)}")
        kinds = {term.element.kind for term in sample.terms}
        if kinds & {RECEIVED, ONE} and not sample.lemma:
            raise _refused(sample, "an element that the coordinator chose needs a lemma (ii)")
        self._check_hidden(sample)
        for term in sample.terms:
            if term.element.kind in (SEED, JOINT_KEY):
                self._check_use(sample, term)
        for pad in sample.pads:
            self._check_pad(sample, pad, masked=SEED not in kinds)
        if SEED in kinds:
            self._check_bound(sample)

    def _check_use(self, sample: Sample, term: Term) -> None:
        place = term.element, _GROUPS.get(term.secret, term.secret)
        used = self._uses.get(place, frozenset())
        if term.secret in used or (used and sample.lemma != "two secrets"):
            again = f"{term.element} is used a second time in the group of {term.secret} (i)"
            raise _refused(sample, again)
        self._uses[place] = used | {term.secret}

    def _check_pad(self, sample: Sample, pad: Pad, *, masked: bool) -> None:
        given, output = self._masked.get(pad.name), (pad.name, pad.through)
        if masked:
            if given is not None and sample.lemma == "masked decryption":
                raise _refused(sample, f"{pad.name} has masked another polynomial (iii)")
            received = (t.element.name for t in sample.terms if t.element.kind == RECEIVED)
            self._masked[pad.name] = (given or frozenset()).union(received)
            return
        if given is None or output in self._outputs:
            raise _refused(sample, f"{pad.through}({pad.name}) is published a second time (iii)")
        self._outputs.add(output)

    def _check_bound(self, sample: Sample) -> None:
        """Who knew the element first would send c1 = element - delta, see `refresh_label`."""
        given = {name for pad in sample.pads for name in self._masked[pad.name]}
        for element in (t.element for t in sample.terms if t.element.kind == SEED):
            if not all(name in element.name for name in given):
                raise _refused(sample, f"{element} does not depend on what its pad masked (i)")

    def _check_hidden(self, sample: Sample) -> None:
        if not sample.error_std:
            pads_alone = all(term.element.kind in (RECEIVED, ONE) for term in sample.terms)
            # The sum of all is public by design, and one party alone is the sum.
            if not (pads_alone and (sample.pads or sample.lemma == "opening key")):
                raise _refused(sample, "neither an error nor a pad hides it (iv)")
            return
        if not sample.error_std >= SMALLEST_ERROR_STD:
            small = f"error_std={sample.error_std:g} is below {SMALLEST_ERROR_STD:g} (iv)"
            raise _refused(sample, small)
        if sample.error_name in self._errors:
            raise _refused(sample, f"the error {sample.error_name!r} is used a second time (iv)")
        self._errors.add(sample.error_name)


def _refused(sample: Sample, reason: str) -> PolicyError:
    return PolicyError(f"the sample {sample.label!r} must not be published: {reason}")
