"""The provenance audit of a run, from its sample ledgers alone.

No equation without error or pad may be left once pads are eliminated, and no combination may be
shorter than for a run whose elements are all random. Searched are

1. all samples of a view at once, n = 4;
2. every part of them, n = 16. Samples belong together that share a symbol: an element (H0, H1 and
   the joint key share those that they are sums of), a pad, an error.

Why parts are enough. Elements of different parts are hashes of different labels: independent. For
r = (r_1, r_2, …) over the parts, sum_i r_i A_i is uniform as soon as one r_i A_i is: a short
combination across parts is no likelier than for random elements, unless each r_i alone is one that
its part's elements leave structure in. That is looked for part by part; 1 is the check of this.
Of samples of one part that say the same about secrets of their own (encryptions) two are taken.
Parts that are equal but for names are searched once.

Whose view: one honest party's, all others' secrets given away (H0, H1 and the joint key hold their
short parts). To know more secrets only adds combinations. With cover, t - 1 shares as well, and
both a missing party and a stand-in (`equations.covered_view`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocols.steps.samples import GADGET, JOINT_KEY, ONE, RECEIVED, Sample
from tests.provenance.equations import (
    CONSTANT,
    RANDOM,
    Ledgers,
    TinyRing,
    covered_view,
    gadgets,
    prime_of,
    reduce,
    view,
)
from tests.provenance.lattice import shortest

# log2 of what a random run's shortest combination is about.
RANDOM_BITS = 12
WHOLE, PART = 4, 16
# A short combination has a norm of few units; LLL and chance move a long one by much less.
ENOUGH = 0.5


@dataclass(frozen=True)
class Finding:
    """samples: of the view; left: equations after elimination; exact: coefficients of secrets that
    follow without error; cancelling, leaving, random: shortest combination that cancels every
    secret, that leaves small ones, and that leaves small ones if all elements were random; where:
    the samples of the worst part.
    """

    samples: int
    left: int
    exact: int
    cancelling: float
    leaving: float
    random: float
    where: str = ""

    @property
    def passed(self) -> bool:
        """Nothing follows that would not follow from random elements."""
        return not self.exact and min(self.cancelling, self.leaving) >= ENOUGH * self.random

    @property
    def ratio(self) -> float:
        """Shortest combination over the random run's."""
        return min(self.cancelling, self.leaving) / self.random


def audit(
    ledgers: Ledgers,
    threshold: int | None = None,
    covered: tuple[str, str] | None = None,
    *,
    whole: int = WHOLE,
    part: int = PART,
) -> Finding:
    """The worst over all views.

    threshold, covered: t, and (a stand-in, a missing party), with cover; whole, part: n.
    """
    views = [(party, view(ledgers, party, threshold)) for party in ledgers]
    found = [_search(ledgers, views[0], whole)] if whole else []
    if covered and threshold:
        both = " and ".join(covered)
        views.append((both, covered_view(ledgers, *covered, threshold)))
        found += [_search(ledgers, views[-1], whole)] if whole else []
    for owner, samples in views:
        found += [_search(ledgers, (owner, each), part) for each in parts(samples)]
    worst = min(found, key=lambda each: (each.exact == 0, each.ratio, each.random))
    largest = max((samples for _, samples in views), key=len)
    total = sum(1 for sample in largest if sample.error_std)
    return Finding(
        len(largest),
        total,
        worst.exact,
        worst.cancelling,
        worst.leaving,
        worst.random,
        worst.where,
    )


def _search(ledgers: Ledgers, owned: tuple[str, Sequence[Sample]], n: int) -> Finding:
    owner, samples = owned
    key = canonical(samples), n
    if key not in _FOUND:
        _FOUND[key] = _searched(ledgers, owner, samples, n)
    return _FOUND[key]


_FOUND: dict[tuple[str, int], Finding] = {}


def _searched(ledgers: Ledgers, owner: str, samples: Sequence[Sample], n: int) -> Finding:
    q = prime_of(_bits(samples))
    hidden = tuple(owner.split(" and "))
    received = {t.element for s in samples for t in s.terms if t.element.kind == RECEIVED}
    chosen = [RANDOM, CONSTANT] if received and n > WHOLE else [RANDOM]
    masked = [s for s in samples if s.error_std]
    found: list[Finding] = []
    for pads in (True, False) if any(s.pads for s in masked) and n > WHOLE else (True,):
        given = samples if pads else masked
        unrelated = TinyRing(n, q, ledgers, independent=True)
        random = shortest(reduce(unrelated, given, pads=pads), cancel=False)
        for digit in gadgets(given):
            for c1 in chosen:
                true = reduce(TinyRing(n, q, ledgers, digit, c1), given, pads=pads)
                ring = TinyRing(n, q, ledgers, digit, c1, hidden=hidden)
                made = reduce(ring, given, pads=pads)
                lengths = shortest(true, cancel=True), shortest(made, cancel=False)
                left = len(true.kept) // n
                exact = max(true.exact, made.exact)
                where = ", ".join(s.label for s in given[:6])
                found.append(Finding(len(given), left, exact, *lengths, random, where))
    return min(found, key=lambda each: (each.exact == 0, each.ratio, each.random))


def _bits(samples: Sequence[Sample]) -> int:
    """log2 q: a random run's shortest combination, q^(secrets / columns), has RANDOM_BITS."""
    shared = [s for s in samples if not any(t.secret.startswith("v(") for t in s.terms)]
    needed = [24]
    for each in (samples, shared):
        errors = len({s.error_name for s in each if s.error_std})
        secrets = len({term.secret for s in each for term in s.terms})
        needed.append(RANDOM_BITS * (errors + secrets) // max(1, secrets))
    return max(needed)


# -- parts -----------------------------------------------------------------------------------------


def parts(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples that share a symbol, two of those that say the same at most."""
    groups: list[tuple[set[str], list[Sample]]] = []
    for sample in samples:
        own, members = set(_symbols(sample)), [sample]
        for group in [g for g in groups if g[0] & own]:
            own |= group[0]
            members = group[1] + members
            groups.remove(group)
        groups.append((own, members))
    return [_two_of_each(members) for _, members in groups]


def _symbols(sample: Sample) -> Iterable[str]:
    for term in sample.terms:
        kind, name = term.element.kind, term.element.name
        if kind == JOINT_KEY:
            yield "H public-key"
        elif kind == RECEIVED and name.endswith(("/H0", "/H1")):
            yield "H " + name.rpartition("/")[0]
        elif kind not in (GADGET, ONE):
            yield f"{kind} {name}"
    yield from (f"pad {pad.name}" for pad in sample.pads)
    if sample.error_std:
        yield f"error {sample.error_name}"


def _two_of_each(samples: Sequence[Sample]) -> list[Sample]:
    """Beyond two, samples of secrets that no other kind of sample has are left out."""
    alone = Counter(t.secret for s in samples for t in s.terms if t.secret.startswith("v("))
    kept: list[Sample] = []
    seen: dict[str, set[str]] = {}
    for sample in samples:
        (secret, *_) = (term.secret for term in sample.terms)
        if secret in alone:
            like = seen.setdefault(canonical([sample]), set())
            if len(like) >= 2:
                continue
            like.add(secret)
        kept.append(sample)
    return kept


def canonical(samples: Sequence[Sample]) -> str:
    """What samples say, whatever things are called."""
    names: dict[str, str] = {}

    def name(kind: str, text: str) -> str:
        if kind == RECEIVED and text.endswith(("/H0", "/H1")):
            return f"{name('H', text[:-3])}{text[-2:]}"
        if kind in (GADGET, ONE, JOINT_KEY):
            return kind if kind != GADGET else f"g{name('digit', text)}"
        bound = re.fullmatch(r"(.*)/([0-9a-f]{64})", text)
        if bound:
            return f"{name(kind, bound[1])}:{name(RECEIVED, bound[2])}"
        return names.setdefault(f"{kind} {text}", f"{kind}{len(names)}")

    lines = []
    for s in samples:
        terms = [
            (name(t.element.kind, t.element.name), name("s", t.secret), t.factor, t.automorphism)
            for t in s.terms
        ]
        pads = [(name("pad", p.name), p.factor, p.through) for p in s.pads]
        error = name("e", s.error_name) if s.error_std else ""
        lines.append(repr((terms, pads, error, round(s.error_std, 1))))
    return "\n".join(lines)
