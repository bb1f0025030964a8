"""A ledger's samples as linear equations over a tiny ring: pads eliminated, the rest a lattice.

Z_q[X] / (X^n + 1), n = 16 or 4, q a prime of the audit's choice. Each label gets a random element,
secrets are ternary, what the coordinator sends is what it should be: H0, H1 and the joint key are
true sums over all parties. Row i of a sample says

    coefficient i of published = (pads) + (errors) + (secrets)

with a column for each coefficient of each pad, error and secret. Any coefficient of a published
polynomial is a row, and so all products by X^k and all automorphisms are among the combinations.

The row echelon form mod q, pads first, then errors, then secrets, has three kinds of rows. Pivot
under a pad: the pad hides it. Pivot under a secret: no error is left, an exact equation. Pivot
under an error: kept. Combinations of the kept rows with small coefficients everywhere are the short
vectors of a lattice. It is searched twice (`lattice.shortest`):

- for combinations that cancel every secret, over a run as it is;
- for those that leave secrets with small coefficients, as harmful as errors with small ones. Some
  of them exist by design: c0 + s c1 of an encryption, with the key itself as coefficient. Nobody
  who lacks s can form them, so here the audited party's secret is uniform in the sums that H0, H1
  and the joint key are, and only what colluders know of them is small.

Moduli: the gadget's P g is 0 on the special primes, and on those of other digits: an equation of
its own, without the gadget, modulo each. A combination that is short modulo Q P is short modulo
each prime, so primes are looked at one by one (`gadgets`). Every sample is given modulo all kinds
of primes, which is more than is sent.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint import fmpz, fmpz_mod_ctx, fmpz_mod_mat

from protocols.steps.samples import (
    GADGET,
    JOINT_KEY,
    ONE,
    RECEIVED,
    SEED,
    SHARE,
    Element,
    Sample,
    Term,
)

Polynomial = list[int]
Ledgers = Mapping[str, Sequence[Sample]]
# What a chosen c1 may be: nothing known, or the worst that a coordinator can send.
RANDOM, CONSTANT = "random", "constant"


def gadgets(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Kinds of primes: special ones, on which all P g are 0, and each digit's."""
    elements = {term.element for sample in samples for term in sample.terms}
    return ("", *sorted(e.name for e in elements if e.kind == GADGET))


def prime_of(bits: int) -> int:
    """The first prime beyond 2^bits."""
    return next(q for q in itertools.count((1 << bits) + 1, 2) if fmpz(q).is_prime())


@dataclass
class TinyRing:
    """Elements and secrets of a run, made when first asked for.

    ledgers: of all parties, for the sums; digit: on whose primes we are, "" on the special ones;
    c1: RANDOM or CONSTANT; independent: every element of every sample is random, for comparison;
    hidden: parties whose secrets are uniform, not ternary, in what elements are made of.
    """

    n: int
    q: int
    ledgers: Ledgers
    digit: str = ""
    c1: str = RANDOM
    independent: bool = False
    hidden: tuple[str, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._elements: dict[Any, Polynomial] = {}
        self._maps: dict[str, list[Polynomial]] = {}
        self._secrets: dict[tuple[str, str], Polynomial] = {}

    def uniform(self) -> Polynomial:
        return [self._rng.randrange(self.q) for _ in range(self.n)]

    def small(self, std: float) -> Polynomial:
        return [round(self._rng.gauss(0, std)) for _ in range(self.n)]

    def constant(self, value: int) -> Polynomial:
        return [value % self.q] + [0] * (self.n - 1)

    def secret(self, party: str, name: str) -> Polynomial:
        """Ternary, unless hidden."""
        if (party, name) not in self._secrets:
            ternary = [self._rng.choice((-1, 0, 1)) for _ in range(self.n)]
            self._secrets[party, name] = self.uniform() if party in self.hidden else ternary
        return self._secrets[party, name]

    def element(self, element: Element, use: Any = None) -> Polynomial:
        """use: in which sample, where all are independent."""
        key = (element, use) if self.independent else element
        if key not in self._elements:
            self._elements[key] = self.uniform() if self.independent else self._make(element)
        return self._elements[key]

    def _make(self, element: Element) -> Polynomial:
        if element.kind == ONE:
            return self.constant(1)
        if element.kind == GADGET:
            # P: beyond what a short combination has.
            return self.constant(math.isqrt(self.q) if element.name == self.digit else 0)
        if element.kind == JOINT_KEY:
            return self._sum("public-key")
        if element.kind == RECEIVED and element.name.endswith(("/H0", "/H1")):
            return self._sum(element.name.replace("/H", "/h"))
        if element.kind == RECEIVED:
            return self._chosen(element)
        return self.uniform()

    def _chosen(self, element: Element) -> Polynomial:
        """What the coordinator sends: an element that it can know before, where there is one."""
        samples = [sample for ledger in self.ledgers.values() for sample in ledger]
        masks = {p.name for s in samples for t in s.terms if t.element == element for p in s.pads}
        for sample in samples:
            if masks & {pad.name for pad in sample.pads}:
                for term in sample.terms:
                    if term.element.kind == SEED and element.name not in term.element.name:
                        return self.element(term.element)
        return self.constant(1) if self.c1 == CONSTANT else self.uniform()

    def _sum(self, label: str) -> Polynomial:
        """Of what all parties publish under a label."""
        total = [0] * self.n
        for party, samples in self.ledgers.items():
            (sample,) = (s for s in samples if s.label == label)
            parts = [self.small(sample.error_std)]
            for term in sample.terms:
                image = automorphism(self.secret(party, term.secret), term.automorphism)
                product = multiply(self.element(term.element), image, self.q)
                parts.append([term.factor * c for c in product])
            total = [sum(column) % self.q for column in zip(total, *parts, strict=True)]
        return total

    def matrix(self, name: str) -> list[Polynomial]:
        """A public linear map of half the ring's rank, as sums over columns and copies have."""
        if name not in self._maps:
            n, q, half = self.n, self.q, self.n // 2
            left = [[self._rng.randrange(q) for _ in range(half)] for _ in range(n)]
            right = [[self._rng.randrange(q) for _ in range(n)] for _ in range(half)]
            self._maps[name] = [
                [sum(row[k] * right[k][j] for k in range(half)) % q for j in range(n)]
                for row in left
            ]
        return self._maps[name]


def multiply(left: Polynomial, right: Polynomial, q: int) -> Polynomial:
    """Modulo X^n + 1 and q."""
    n = len(left)
    found = [0] * n
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            found[(i + j) % n] += a * b if i + j < n else -a * b
    return [c % q for c in found]


def automorphism(polynomial: Polynomial, exponent: int) -> Polynomial:
    """a(X) -> a(X^exponent)."""
    n = len(polynomial)
    found = [0] * n
    for i, c in enumerate(polynomial):
        at = i * exponent % (2 * n)
        found[at % n] = c if at < n else -c
    return found


# -- the matrix ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduced:
    """exact: rows in secrets alone; kept: rows without pads, (errors, secrets) columns; pivots:
    theirs; weights: of the columns; errors: how many columns are of errors.
    """

    q: int
    exact: int
    kept: list[Polynomial]
    pivots: list[int]
    weights: list[int]
    errors: int


def reduce(ring: TinyRing, samples: Sequence[Sample], *, pads: bool = True) -> Reduced:
    """What is left of one party's samples once pads are eliminated.

    pads: False takes them for errors of no size, in samples that have an error beside.
    """
    n, q = ring.n, ring.q
    columns: dict[tuple[str, str], int] = {}
    weights: list[int] = []
    rows: list[dict[tuple[str, str], list[Polynomial]]] = []
    for sample in samples:
        blocks: dict[tuple[str, str], list[Polynomial]] = {}
        for pad in sample.pads if pads else ():
            block = ring.matrix(pad.through) if pad.through else scalar(1, n)
            _add(blocks, ("0 pad", pad.name), [[pad.factor * c for c in row] for row in block], q)
        if sample.error_std:
            _add(blocks, ("1 error", sample.error_name), scalar(1, n), q)
        for term in sample.terms:
            block = _term(ring, term, len(rows))
            _add(blocks, ("2 secret", term.secret), block, q)
        rows.append(blocks)
    stds = {s.error_name: s.error_std for s in samples}
    for key in sorted({key for blocks in rows for key in blocks}):
        columns[key] = n * len(columns)
        if key[0] != "0 pad":
            weights += [max(1, round(stds[key[1]])) if key[0] == "1 error" else 1] * n
    matrix = [[0] * (n * len(columns)) for _ in range(n * len(rows))]
    for r, blocks in enumerate(rows):
        for key, block in blocks.items():
            for i in range(n):
                matrix[n * r + i][columns[key] : columns[key] + n] = block[i]
    width = n * sum(key[0] == "0 pad" for key in columns)
    errors = n * sum(key[0] == "1 error" for key in columns)
    return _echelon(matrix, q, width, errors, weights)


def _term(ring: TinyRing, term: Term, use: Any) -> list[Polynomial]:
    """Block of factor * element * secret(X^automorphism): row i, coefficient i of the product."""
    element, n = ring.element(term.element, use), ring.n
    block = [[0] * n for _ in range(n)]
    for j in range(n):
        unit = [0] * n
        unit[j] = term.factor
        image = multiply(element, automorphism(unit, term.automorphism), ring.q)
        for i, c in enumerate(image):
            block[i][j] = c
    return block


def scalar(value: int, n: int) -> list[Polynomial]:
    """value times the identity."""
    return [[value * (i == j) for j in range(n)] for i in range(n)]


def _add(blocks: dict[Any, list[Polynomial]], key: Any, block: list[Polynomial], q: int) -> None:
    old = blocks.get(key) or [[0] * len(block) for _ in block]
    blocks[key] = [
        [(a + b) % q for a, b in zip(*pair, strict=True)] for pair in zip(old, block, strict=True)
    ]


def _echelon(
    matrix: list[Polynomial], q: int, pads: int, errors: int, weights: list[int]
) -> Reduced:
    context = fmpz_mod_ctx(q)
    form, rank = fmpz_mod_mat(matrix, context).rref()
    kept, pivots, exact = [], [], 0
    for row in form.tolist()[:rank]:
        entries = [int(entry) for entry in row]
        pivot = next(k for k, entry in enumerate(entries) if entry)
        if pivot >= pads:
            kept.append(entries[pads:])
            pivots.append(pivot - pads)
            exact += pivot >= pads + errors
    return Reduced(q, exact, kept, pivots, weights, errors)


# -- whose view ------------------------------------------------------------------------------------


def view(ledgers: Ledgers, party: str, threshold: int | None = None) -> list[Sample]:
    """What P - 1 colluders and the coordinator see of one party, t - 1 of its dealt shares.

    Flooded decryptions of one ciphertext count once: their lemma counts them (tau).
    """
    return _counted(_undealt(ledgers[party], threshold))


def _undealt(samples: Sequence[Sample], threshold: int | None) -> list[Sample]:
    dealt = [sample for sample in samples if sample.lemma == "secret sharing"]
    unseen = dealt[max(0, (threshold or 1) - 1) :]
    return [sample for sample in samples if sample not in unseen]


def _counted(samples: Sequence[Sample]) -> list[Sample]:
    found: list[Sample] = []
    for sample in samples:
        if sample.lemma != "flooded decryption" or not any(
            sample.terms == other.terms and other.lemma == sample.lemma for other in found
        ):
            found.append(sample)
    return found


def covered_view(ledgers: Ledgers, stand_in: str, missing: str, threshold: int) -> list[Sample]:
    """What t - 1 colluders see of a party that is covered for, and of an honest stand-in.

    With t - 1 shares of s_q the colluders know lambda f_q(x_p) but for s_q itself: from the first
    repeated step on, p answers under s_p + s_q. Secrets of other honest parties are given away.
    """
    found = [_renamed(sample, f" {missing}") for sample in _undealt(ledgers[missing], threshold)]
    covered = False
    for sample in _undealt(ledgers[stand_in], threshold):
        covered |= sample.label.startswith(("cover-refresh", "cover-decrypt"))
        terms = tuple(replace(t, secret=SHARE + f" {missing}") for t in sample.terms)
        own = _renamed(sample, f" {stand_in}")
        found.append(replace(own, terms=own.terms + terms) if covered else own)
    return _counted(found)


def _renamed(sample: Sample, suffix: str) -> Sample:
    terms = tuple(replace(term, secret=term.secret + suffix) for term in sample.terms)
    pads = tuple(replace(pad, name=pad.name + suffix) for pad in sample.pads)
    return replace(
        sample,
        label=sample.label + suffix,
        terms=terms,
        pads=pads,
        error=sample.error_name + suffix,
    )
