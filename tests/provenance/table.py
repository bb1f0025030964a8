"""The table of samples of docs/method/samples.md, from the ledgers of toy runs.

`python -m tests.provenance.table` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from protocols.steps.samples import GADGET, ONE, RECEIVED, SEED, SHARE, Sample
from tests.provenance.options import COVERED, LOST
from tests.provenance.runs import record, rows_session
from tests.support.sessions import gram_session, model_session, sums_session

README = Path(__file__).resolve().parents[2] / "docs" / "method" / "samples.md"
BEGIN = "<!-- samples: written by `python -m tests.provenance.table` -->"
END = "<!-- end of samples -->"
HEAD = "| sample | equation | std of e | elements | lemma |\n|---|---|---|---|---|\n"
# Letters of a label's numbers, in order.
LETTERS = {
    "rotation": ("k", "digit"),
    "relinearisation": ("digit",),
    "cover-deal": ("x",),
    "contribute": ("i",),
    "gradient": ("t", "part"),
    "cover-gradient": ("t", "part"),
    "refresh": ("k", "i"),
    "cover-refresh": ("k", "i"),
    "round": ("t", "chunk"),
}


def lettered(label: str) -> str:
    """refresh/0/1/h0 -> refresh/k/i/h0."""
    letters = iter(LETTERS.get(label.split("/")[0], ()))
    return re.sub(r"(?<=/)\d+(?=/|$|\))", lambda _: next(letters), label)


def equation(sample: Sample) -> str:
    """In a formula's form."""
    images = [f"(X^{t.automorphism})" if t.automorphism != 1 else "" for t in sample.terms]
    terms = zip(sample.terms, images, strict=True)
    parts = [(t.factor, f"{t.element} {t.secret}{image}") for t, image in terms]
    parts += [(p.factor, f"{p.through}({p.name})" if p.through else p.name) for p in sample.pads]
    parts += [(1, sample.message)] if sample.message else []
    parts += [(1, "e")] if sample.error_std else []
    text = "".join(
        f" {'-' if factor < 0 else '+'} {'' if abs(factor) == 1 else f'{abs(factor)} '}{what}"
        for factor, what in parts
    )
    return text.removeprefix(" + ").strip()


def row(sample: Sample) -> tuple[str, ...]:
    """One line, without its numbers."""
    text = equation(sample)
    for term in sample.terms:
        kind, name = term.element.kind, term.element.name
        if kind == RECEIVED:
            short = "c1" if re.fullmatch("[0-9a-f]{64}", name) else name.rpartition("/")[2]
            text = text.replace(f"{kind}({name})", short)
        if kind == SEED:
            text = text.replace(f"{kind}({name})", "H")
    text = re.sub(r"^- ", "-", re.sub(r"P g\(\d+\)", "P g", text))
    text = re.sub(f"^{ONE} {SHARE}", SHARE, text)
    text = re.sub(r"\(X\^\d+\)", "(X^m)", re.sub(r"v\([^)]*\)", "v", text))
    text = re.sub(r"M\((?:cover-)?refresh[^)]*\)", "M", text)
    text = re.sub(r"(?: [+-] M\('[^)]*\))+", " + pads of pairs", text)
    if sample.lemma == "secret sharing":
        text = "s + x f1 + … + x^(t-1) f(t-1)"
    std = f"{sample.error_std:.3g}" if sample.error_std else "none"
    if sample.lemma == "flooded decryption":
        std = "flooding"
    return f"`{lettered(sample.label)}`", f"`{text}`", std, _origins(sample), sample.lemma


def _origins(sample: Sample) -> str:
    found = []
    for term in sample.terms:
        kind, name = term.element.kind, term.element.name
        if kind == SEED:
            bound = re.search("/[0-9a-f]{64}$", name)
            found.append(
                f"H(`{lettered(name[: bound.start()])}`, c1)" if bound else f"H(`{lettered(name)}`)"
            )
        elif kind not in (GADGET, ONE):
            found.append({RECEIVED: "the coordinator's"}.get(kind, "the sum of all public keys"))
    return ", ".join(dict.fromkeys(found)) or "none"


def table(samples: Iterable[Sample]) -> str:
    """Markdown, one line for each kind of sample."""
    lines = dict.fromkeys("| " + " | ".join(row(sample)) + " |" for sample in samples)
    return HEAD + "\n".join(lines) + "\n"


def section() -> str:
    """What stands between the markers."""
    circuit = record(rows_session("gd", **COVERED), LOST).samples["hospital-1"]
    unmapped = record(gram_session(rounds=2)).samples["hospital-1"]
    plain = [s for s in unmapped if s.label.startswith("refresh")]
    model = record(model_session()).samples["hospital-1"]
    replies = [s for s in model if s.label.startswith("gradient")]
    sums = record(sums_session()).samples["hospital-1"]
    return (
        f"{BEGIN}\nUnder threshold CKKS; `refresh/k/i/h1` is with a map and without:\n\n"
        f"{table([*circuit, *plain])}\nOf an encrypted model, in place of `contribute`:\n\n"
        f"{table(replies)}\nSecure aggregation:\n\n{table(sums)}{END}"
    )


def written(text: str) -> str:
    """The README with today's section."""
    before, rest = text.split(BEGIN)
    return before + section() + rest.split(END)[1]


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
