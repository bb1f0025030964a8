"""A party's messages, cut into polynomials: which label each has by its place in a reply."""

from __future__ import annotations

from collections.abc import Iterator

from protocols import cover, decrypt, keygen, refresh
from protocols.ckks import residues as rns
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.ckks.residues import Residues
from protocols.commitments import KEYS, ROWS
from protocols.protocol import repeated
from tests.provenance.runs import Run

Published = tuple[tuple[int, ...], Residues]


class UntrueError(AssertionError):
    """The ledger does not say what was sent."""


def published(run: Run, party: str) -> dict[str, Published]:
    """Every polynomial that a party sent, by the label that its place gives it.

    Raises:
        UntrueError: a blob that no step accounts for.
    """
    found: dict[str, Published] = {}
    for step, name, _, reply in run.messages:
        if name == party:
            for label, primes, rows in _read(run, step, reply.blobs):
                if label in found and (found[label][1] != rows).any():
                    raise UntrueError(f"{label} was sent a second time by {party}, not resent")
                found[label] = (primes, rows)
    return found


def _read(run: Run, step: str, blobs: tuple[bytes, ...]) -> Iterator[tuple[str, tuple, Residues]]:
    context, n = run.context, run.plan.ckks.ring_dim
    kind, _, index = step.partition("/")
    if context is None or max(map(len, blobs), default=0) < 8 * n:
        return
    primes, extended = context.primes, context.extended_primes
    low, pair = primes[:REFRESH_TOWERS], (primes, primes)
    shapes: list[tuple[str, tuple[int, ...]]]

    def digits(name: str, half: str = "") -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{name}/{k}{half}", extended) for k in range(run.plan.ckks.num_digits)]

    if kind == KEYS.open:
        shapes = [(keygen.PUBLIC_KEY, primes)]
        shapes += digits(keygen.RELINEARISATION, "/h0") + digits(keygen.RELINEARISATION, "/h1")
    elif kind == "rotations":
        names = map(keygen.rotation_label, run.plan.rotation_chunks[int(index)])
        shapes = [shape for name in names for shape in digits(name)]
    elif kind == keygen.RELINEARISE:
        shapes = digits(keygen.RELINEARISATION, "/t")
    elif kind == ROWS.open:
        halves = [f"{kind}/{k}/{c}" for k in range(len(blobs)) for c in ("c0", "c1")]
        shapes = list(zip(halves, pair * len(blobs), strict=True))
    elif repeated(kind) == refresh.STEP:
        labels = [refresh.label(step, k) for k in range(len(blobs) // 2)]
        shapes = [s for x in labels for s in ((f"{x}/h0", low), (f"{x}/h1", primes))]
    elif repeated(kind) == decrypt.STEP:
        shapes = [(step, primes[: decrypt.DECRYPTION_TOWERS])]
    elif kind == cover.DEAL:
        return  # sealed: see `_dealt`
    else:
        raise UntrueError(f"no sample accounts for what {step} carries")
    data = b"".join(blobs)
    if len(data) != sum(rns.packed_size(moduli, n) for _, moduli in shapes):
        raise UntrueError(f"{step} carries {len(data)} bytes, not its samples alone")
    for label, moduli in shapes:
        size = rns.packed_size(moduli, n)
        yield label, moduli, rns.unpack(data[:size], moduli, n)
        data = data[size:]


def dealt(run: Run, party: str) -> dict[str, Published]:
    """What others hold of a dealer, by the ledger's label."""
    points = {name: k + 1 for k, name in enumerate(run.plan.names)}
    return {
        f"{cover.DEAL}/{points[holder]}": (run.context.primes, held[party])
        for holder, held in run.held.items()
        if party in held
    }
