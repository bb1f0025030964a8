"""A party's messages, cut into polynomials: which label each has by its place in a reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocols.ckks import DECRYPTION_TOWERS, REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from protocols.exchange import PUBLIC_KEY, RELINEARISATION, rotation_label
from protocols.model import gradient as model_gradient
from protocols.steps import decrypt, keygen, refresh
from protocols.steps.endorsed import KEYS, ROWS
from tests.provenance.runs import Run

DEAL = "cover-deal"
Published = tuple[tuple[int, ...], Residues]
# Label and moduli of a polynomial.
Shape = tuple[str, tuple[int, ...]]


class UntrueError(AssertionError):
    """The ledger does not say what was sent."""


def repeats(kind: str) -> str:
    """The step that a step repeats, itself if it repeats none."""
    return kind.removeprefix("cover-")


def shapes(plan: Any, context: CkksContext, step: str, count: int) -> list[Shape]:
    """What a reply of so many blobs is made of.

    Raises:
        UntrueError: no step is known to carry anything.
    """
    kind, _, index = step.partition("/")
    primes, extended = context.primes, context.extended_primes

    def digits(name: str, half: str = "") -> list[Shape]:
        return [(f"{name}/{k}{half}", extended) for k in range(plan.ckks.num_digits)]

    if kind == KEYS.open:
        halves = (digits(RELINEARISATION, half) for half in ("/h0", "/h1"))
        return [(PUBLIC_KEY, primes), *(shape for half in halves for shape in half)]
    if kind == "rotations":
        names = map(rotation_label, plan.rotation_chunks[int(index)])
        return [shape for name in names for shape in digits(name)]
    if kind == keygen.RELINEARISE:
        return digits(RELINEARISATION, "/t")
    if kind == ROWS.open:
        return [(f"{kind}/{k}/{c}", primes) for k in range(count) for c in ("c0", "c1")]
    if repeats(kind) == model_gradient.STEP:
        low = primes[:REFRESH_TOWERS]
        return [(f"{step}/{k}/{c}", low) for k in range(count // 2) for c in ("c0", "c1")]
    if repeats(kind) == refresh.STEP:
        halves = (("h0", primes[:REFRESH_TOWERS]), ("h1", primes))
        labels = (refresh.label(step, k) for k in range(count // 2))
        return [(f"{label}/{half}", moduli) for label in labels for half, moduli in halves]
    if repeats(kind) == decrypt.STEP:
        return [(step, primes[:DECRYPTION_TOWERS])]
    raise UntrueError(f"no sample accounts for what {step} carries")


def unpacked(
    plan: Any, context: CkksContext, step: str, blobs: tuple[bytes, ...]
) -> Iterator[tuple[Shape, Residues]]:
    """The polynomials of a reply.

    Raises:
        UntrueError: a blob that no step accounts for.
    """
    n, data = plan.ckks.ring_dim, b"".join(blobs)
    found = shapes(plan, context, step, len(blobs)) if data else []
    if len(data) != sum(rns.packed_size(moduli, n) for _, moduli in found):
        raise UntrueError(f"{step} carries {len(data)} bytes, not its samples alone")
    for label, moduli in found:
        size = rns.packed_size(moduli, n)
        yield (label, moduli), rns.unpack(data[:size], moduli, n)
        data = data[size:]


def published(run: Run, party: str) -> dict[str, Published]:
    """Every polynomial that a party sent, by the label that its place gives it.

    Raises:
        UntrueError: see `unpacked`; a label's polynomial differs from an earlier one.
    """
    found: dict[str, Published] = {}
    fixed = ((*place, None, reply) for place, reply in run.unopened.items())
    for step, name, _, reply in [*run.messages, *fixed]:
        # Dealt shares are sealed: see `dealt`.
        if name != party or step == DEAL:
            continue
        for (label, primes), rows in _opened(run, party, step, reply.blobs):
            if label in found and (found[label][1] != rows).any():
                raise UntrueError(f"{label} was sent a second time by {party}, not resent")
            found[label] = (primes, rows)
    return found


def _opened(
    run: Run, party: str, step: str, blobs: tuple[bytes, ...]
) -> Iterator[tuple[Shape, Residues]]:
    """Without what locks h0 of a refresh, for whoever has all words, or the pairs' secrets."""
    lock, n = run.locks.get((step, party)), run.plan.ckks.ring_dim
    low = run.context.primes[:REFRESH_TOWERS] if run.context else ()
    streams = iter(lock.streams(len(blobs) // 2, low, n) if lock else ())
    for (label, primes), rows in unpacked(run.plan, run.context, step, blobs):
        if lock and label.endswith("/h0"):
            rows = rns.subtract(rows, next(streams), low)
        yield (label, primes), rows


def dealt(run: Run, party: str) -> dict[str, Published]:
    """What others hold of a dealer, by the ledger's label."""
    points = {name: k + 1 for k, name in enumerate(run.plan.names)}
    return {
        f"{DEAL}/{points[holder]}": (run.context.primes, held[party])
        for holder, held in run.held.items()
        if party in held
    }
