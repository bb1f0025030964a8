"""What `timing` measures: one function for each kind of work, on a throwaway key pair."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from protocols import refresh
from protocols.aggregate.gaussian import narrow_gaussian
from protocols.ckks import residues as rns
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.context import CkksContext
from protocols.ckks.flooding import FRESH_ERROR_STD, gaussian_polynomial
from protocols.ckks.lift import lift, reduced
from protocols.ckks.masks import draw_mask
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.ckks.residues import Residues
from protocols.ckks.tally import OPERATIONS
from protocols.messages import Body, Envelope, decode, encode, new_signing_key, public_bytes
from protocols.privacy.randomness import SystemRandomness

REPETITIONS = 4
# A run takes another key for every rotation, and other ciphertexts for every operation, which are
# then not in the processor's cache: at ring 2^15 and level 0, 13 MB and 4 MB each.
INDICES = tuple(1 << k for k in range(REPETITIONS))
_OPERANDS = 12
# Ciphertexts of the refresh step that is timed, and blocks of its map, on which its time hardly
# depends.
_REFRESHED, _BLOCKS = 2, 16
# Bytes of the message and of the residues that serialisation is timed with.
SAMPLE_BYTES = 1 << 23


def seconds(
    work: Callable[..., Any],
    prepare: Callable[[], tuple[Any, ...]] = tuple,
    repetitions: int = REPETITIONS,
) -> float:
    """Least wall clock: whatever else the machine does only adds to it.

    prepare: makes the arguments of every lap, which is not timed.
    """
    laps = []
    for _ in range(repetitions):
        arguments = prepare()
        started = time.perf_counter()
        work(*arguments)
        laps.append(time.perf_counter() - started)
    return min(laps)


def operations(context: CkksContext, keys: Any) -> dict[str, tuple[float, ...]]:
    """By level, as `Evaluator` works: in place where it is, on products that were just made."""
    cc, params = context.cc, context.params
    values = np.full(params.num_slots, 0.5)
    fresh = [context.encrypt(keys.publicKey, values) for _ in range(_OPERANDS)]
    index = cycle(INDICES)
    found: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    for level in range(params.depth):
        towers = params.num_towers - level
        ring = cycle([cc.Compress(ct, towers) for ct in fresh] if level else fresh)

        def one(ring: Any = ring) -> tuple[Any]:
            return (next(ring),)

        def two(ring: Any = ring) -> tuple[Any, Any]:
            return next(ring), next(ring)

        def product(ring: Any = ring) -> tuple[Any]:
            return (cc.EvalMultNoRelin(next(ring), next(ring)),)

        def scaled(one: Any = one) -> tuple[Any]:
            return (cc.EvalMult(*one(), 0.5),)

        def masked(ct: Any, level: int = level) -> None:
            cc.EvalMult(ct, context.encode(values, level))

        work: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
            "rotate": (lambda ct: cc.EvalRotate(ct, next(index)), one),
            "relinearise": (cc.Relinearize, product),
            "tensor": (cc.EvalMultNoRelin, two),
            "mask": (masked, one),
            "scalar": (lambda ct: cc.EvalMult(ct, 0.5), one),
            "rescale": (cc.RescaleInPlace, scaled),
            "add": (cc.EvalAddInPlace, two),
        }
        for name in OPERATIONS:
            found[name].append(seconds(*work[name]))
    return {name: tuple(laps) for name, laps in found.items()}


def key_times(context: CkksContext, keys: Any) -> dict[str, float]:
    """Both parts of one rotation key."""
    seed = bytes(32)
    half = context.uniform_key_half(seed, "timing")

    def share() -> Any:
        a = context.uniform_key_half(seed, "timing")
        reference = context.rotation_key_map(1, a, np.zeros_like(a))
        key = context.cc.MultiEvalAtIndexKeyGen(keys.secretKey, reference, [1])
        return context.residues_of(key)

    def join() -> Any:
        return context.rotation_key_map(1, context.uniform_key_half(seed, "timing"), half)

    return {"key_share": seconds(share), "key_join": seconds(join)}


def refresh_times(context: CkksContext, keys: Any) -> dict[str, float]:
    """The party's part as in `parties.key_share`, the coordinator's from `protocols.refresh`."""
    cc, params, seed = context.cc, context.params, bytes(32)
    column_map = ColumnMap(params.num_slots // _BLOCKS, 0, 0.5)
    fresh = context.encrypt(keys.publicKey, np.full(params.num_slots, 0.5))
    deep = cc.Compress(fresh, REFRESH_TOWERS)

    def adjust() -> tuple[Any, Residues]:
        ct = cc.IntMPBootAdjustScale(deep)
        return ct, context.polynomials_of(ct)[1]

    def element(c1: Residues) -> Residues:
        return context.refresh_element(seed, "timing", c1)

    _, c1 = adjust()

    primes, low, n = context.primes, context.primes[:REFRESH_TOWERS], params.ring_dim
    # The size of a secret's residues, whatever they are.
    secret = context.uniform_polynomial(seed, "secret")

    def share(column_map: ColumnMap | None = None) -> tuple[Residues, Residues]:
        random, a = SystemRandomness(), element(c1)
        error = reduced(narrow_gaussian(FRESH_ERROR_STD, n, random), low)
        mask, error = lift(context, [draw_mask(low, 2, n, random), error])
        moved = context.mapped(column_map, mask) if column_map else mask
        h0 = rns.add(rns.product(c1, secret[:REFRESH_TOWERS], low), mask[:REFRESH_TOWERS], low)
        h1 = rns.add(rns.product(a, secret, primes), rns.add(error, moved, primes), primes)
        return h0, h1

    def join(column_map: ColumnMap | None, shares: tuple[Residues, Residues]) -> None:
        adjusted = [adjust() for _ in range(_REFRESHED)]
        sums = [(*shares, element(second)) for _, second in adjusted]
        maps = (column_map,) * _REFRESHED
        refresh.join(context, keys.publicKey, [ct for ct, _ in adjusted], maps, sums)

    read = seconds(lambda: context.ciphertext([c1[:1]]))
    plain, mapped = share(), share(column_map)
    # One reading, or two: see `read`.
    return {
        "refresh_share": seconds(share),
        "refresh_join": (seconds(lambda: join(None, plain)) - read) / _REFRESHED,
        "map_share": seconds(lambda: share(column_map)),
        "map_join": (seconds(lambda: join(column_map, mapped)) - 2 * read) / _REFRESHED,
        "read": read,
    }


def expansion(context: CkksContext) -> float:
    """One row of a public random element."""
    lasts = seconds(lambda: context.uniform_polynomial(os.urandom(32), ""))
    return lasts / context.params.num_towers


def decryption_share(context: CkksContext) -> float:
    """The flooding, next to which all else is little."""
    return seconds(lambda: gaussian_polynomial(context, 1e6, 2, SystemRandomness()))


def byte_times(context: CkksContext) -> dict[str, float]:
    """Residues and messages."""
    n = context.params.ring_dim
    primes = context.key_primes * max(1, SAMPLE_BYTES // (8 * n * len(context.key_primes)))
    residues = np.zeros((len(primes), n), np.uint64) + np.arange(n, dtype=np.uint64)
    packed = rns.pack(residues, primes)
    total, modulus = np.zeros_like(residues), np.array(primes, np.uint64)[:, None]
    key = new_signing_key()
    verify_key = public_bytes(key)

    def sign() -> bytes:
        # A new body: the old one remembers its blobs' hashes.
        return encode(Envelope("timing", "timing", "a", "b", Body(blobs=(packed,))), key)

    message = sign()
    found = {
        "pack": seconds(lambda: rns.pack(residues, primes)),
        "unpack": seconds(lambda: rns.unpack(packed, primes, n)),
        "add": seconds(lambda: np.add(total, residues, out=total)),
        "reduce": seconds(lambda: np.remainder(total, modulus, out=total)),
        "sign": seconds(sign),
        "check": seconds(lambda: decode(message, verify_key)),
        "copy": seconds(lambda: bytearray(message)),
    }
    return {name: value / len(packed) for name, value in found.items()}
