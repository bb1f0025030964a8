"""Ledgers that leak, for the audit to find: each tells the truth, as equations (tests only)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from protocols.steps.samples import EPHEMERAL, SEED, SHARE, Element, Pad, Sample

Samples = tuple[Sample, ...]
Change = Callable[[Sample], Sample]


def changed(label: str, change: Change) -> Callable[[Samples], Samples]:
    """Every sample whose label begins so."""
    return lambda samples: tuple(
        change(sample) if sample.label.startswith(label) else sample for sample in samples
    )


def element(name: str, factor: int = 1) -> Change:
    """Another seed element in place of its own, times a factor."""

    def change(sample: Sample) -> Sample:
        terms = tuple(
            replace(term, element=Element(SEED, name), factor=term.factor * factor)
            if term.element.kind == SEED
            else term
            for term in sample.terms
        )
        return replace(sample, terms=terms)

    return change


def pads(name: str, through: str | None = None) -> Change:
    """Another mask."""
    return lambda sample: replace(
        sample,
        pads=tuple(
            Pad(name, pad.factor, pad.through if through is None else through)
            for pad in sample.pads
        ),
    )


def old_flow(samples: Samples) -> Samples:
    """u = s: -a s + P g s + e and a s + e1 with one a, as OpenFHE's examples have it."""

    def change(sample: Sample) -> Sample:
        terms = tuple(
            replace(term, secret=SHARE) if term.secret == EPHEMERAL else term
            for term in sample.terms
        )
        return replace(sample, terms=terms)

    return changed("relinearisation", change)(samples)


def unbound(samples: Samples) -> Samples:
    """The element of a refresh does not depend on c1, which may then depend on it; no map."""
    return tuple(
        replace(
            element(sample.label)(sample), pads=tuple(replace(p, through="") for p in sample.pads)
        )
        if sample.label.startswith("refresh/0") and sample.error_std
        else sample
        for sample in samples
    )


def again(samples: Samples) -> Samples:
    """A regenerated share: same label and c1, another mask and error."""
    first = [sample for sample in samples if sample.label.startswith("refresh/0/0")]
    second = [
        pads("another M")(
            replace(sample, error=sample.label + " again" if sample.error_std else "")
        )
        for sample in first
    ]
    return (*samples, *second)


def two_outputs(samples: Samples) -> Samples:
    """T1(M) and T2(M) under one element."""
    (h1,) = (s for s in samples if s.label == "refresh/0/0/h1")
    second = replace(pads("M(refresh/0/0)", "T2")(h1), label="refresh/0/0/h2")
    return (*samples, second)


def digits_share_an_element(samples: Samples) -> Samples:
    """One a for both digits of the relinearisation key."""
    return changed("relinearisation/1/h", element("relinearisation/0"))(samples)


def rotation_digits_share_an_element(samples: Samples) -> Samples:
    """One a for both digits of a rotation key."""
    return changed("rotation/64/1", element("rotation/64/0"))(samples)


def one_mask_for_two(samples: Samples) -> Samples:
    """Two ciphertexts under one M, of which T(M) is given once."""
    kept = tuple(sample for sample in samples if sample.label != "refresh/1/0/h1")
    return changed("refresh/1/0/h0", pads("M(refresh/0/0)"))(kept)


MUTANTS: Mapping[str, Callable[[Samples], Samples]] = {
    "old flow": old_flow,
    "no e2": changed("relinearisation/0/t", lambda s: replace(s, error_std=0.0)),
    "one e2 for two digits": changed(
        "relinearisation/", lambda s: replace(s, error="e2") if s.label.endswith("/t") else s
    ),
    "reused M": changed("refresh/1/0", pads("M(refresh/0/0)")),
    "one M for two ciphertexts": one_mask_for_two,
    "an element 3 a of another": changed("rotation/64/0", element("rotation/128/0", 3)),
    "one a for two digits": digits_share_an_element,
    "one a for two digits of a rotation": rotation_digits_share_an_element,
    "two outputs under one element": two_outputs,
    "a regenerated share": again,
    "an element that c1 does not bind": unbound,
}
