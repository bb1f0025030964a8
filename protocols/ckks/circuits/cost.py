"""What an operation costs: in transforms and residue products, and in seconds on this machine.

Seconds are measured at the run's own ring and levels on a throwaway key pair, in about two of them,
and kept in a cache file named by a digest of what they depend on: processor, threads, OpenFHE's
release, parameters.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parties.kernel.model.masks import mask_values
from parties.kernel.rows.masks import draw_mask
from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.circuits.tally import OPERATIONS
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.evaluation import CkksContext, unload
from protocols.ckks.flooding import Flooding, encode_complex
from protocols.ckks.lift import lift
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.residues import Residues, each
from protocols.ckks.sampling import encryption, fresh_errors, gaussian, in_pq
from protocols.ckks.subring import TraceMap
from protocols.errors import CohortError, ParameterError
from protocols.exchange.messages import (
    Body,
    Envelope,
    decode,
    encode,
    new_signing_key,
    public_bytes,
)
from protocols.exchange.serialise import from_plain, to_plain
from protocols.model import refresh as model_refresh
from protocols.privacy.laws.randomness import ExpandedRandomness, SystemRandomness
from protocols.steps import refresh

# -- work -----------------------------------------------------------------------------------------

# Measured at rings 2^14 and 2^15, where a unit then takes the same to 10 % in all operations: a
# product of two numbers that vary, whose quotient is not known beforehand (Shoup), is 2.5 of one
# with a known number; a transform of a rescaling, in place, two thirds of one of a key switch.
_VARYING = 2.5
_IN_PLACE = 2 / 3


class Work(NamedTuple):
    """What an operation does: transforms [n log2 n] and residue products [n]."""

    transforms: float
    products: float

    def units(self, ring_dim: int) -> float:
        """One scale for both: a butterfly is a residue product and two additions."""
        return ring_dim * (self.transforms * math.log2(ring_dim) / 2 + self.products)


def work(operation: str, params: CkksParameters, level: int) -> Work:
    """Of one operation on a ciphertext of this level.

    A key switch raises D digits of l primes to l + k, multiplies them with the key, and divides two
    polynomials by P: (D + 2)(l + k) transforms (Han and Ki, CT-RSA 2020).
    """
    towers, special = params.num_towers - level, params.num_special_towers
    if operation in ("rotate", "relinearise", "raise", "hoisted", "turned", "gathered"):
        size = math.ceil(params.num_towers / params.num_digits)
        digits, wide = math.ceil(towers / size), towers + special
        raising = towers * (wide - min(size, towers))
        switching = 2 * digits * wide + 2 * special * towers
        return {
            "raise": Work(digits * wide, raising),
            "hoisted": Work(2 * wide, switching),
            "turned": Work(0, 2 * digits * wide),
            "gathered": Work(digits * wide, raising + 2 * digits * wide),
        }.get(operation, Work((digits + 2) * wide, raising + switching))
    if operation == "rescale":
        return Work(_IN_PLACE * 2 * towers, 2 * towers)
    if operation == "encode":
        # A complex transform of half the slots' size; then one transform per prime.
        return Work(towers + 4, 0)
    return Work(0, _VARYING * 4 * towers if operation == "tensor" else 2 * towers)


# -- seconds --------------------------------------------------------------------------------------

VERSION = 13
# Load average per processor beyond which a measurement is not kept.
BUSY_LOAD = 1.5
# What grows with the residues of a polynomial in Q, of a key, of one row.
_BY_TOWERS = (
    *("setup", "encrypt", "refresh_share", "refresh_join", "map_share", "map_join", "read"),
    *("trace_share", "trace_join"),
)
_BY_KEY = ("key_share", "key_join")
_BY_ROW = ("expand", "decryption_share", "load", "fresh_reply")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTimes:
    """Seconds for one of each, or per byte.

    operations: by name (`ckks.circuits.tally.OPERATIONS`), one entry per level 0 … depth - 1.
    setup: context and frames. encrypt: one ciphertext, to residues. key_share: a party's half of
    one evaluation key; key_join: the coordinator's assembly of one. refresh_share, refresh_join:
    one ciphertext, the party's and the coordinator's part; map_share, map_join: of one that goes
    through a map. read: OpenFHE's fixed time for reading any number of ciphertexts, which all of
    these leave out; load: of one row of residues, on top. trace_share, trace_join: of an encrypted
    model's refresh, for k = 1; subring: what larger k cost, for one row and one of (2k)^2 products.
    fresh_reply: a party's encryption of zero and kernel, of one part; pad: of one part, towards one
    other party. expand: one row of a public random element, which keys and refreshes leave out.
    decryption_share: flooding included. pack, unpack, add, reduce: residues, per wire byte. sign,
    check, copy: messages, per byte; message: a request and its reply, however small.
    """

    operations: Mapping[str, tuple[float, ...]]
    setup: float
    encrypt: float
    key_share: float
    key_join: float
    refresh_share: float
    refresh_join: float
    map_share: float
    map_join: float
    read: float
    load: float
    trace_share: float
    trace_join: float
    subring: float
    fresh_reply: float
    pad: float
    expand: float
    decryption_share: float
    pack: float
    unpack: float
    add: float
    reduce: float
    sign: float
    check: float
    copy: float
    message: float

    def __post_init__(self) -> None:
        if not all(self.operations.get(name) for name in OPERATIONS):
            raise ParameterError("operations: no level was timed of one of them")

    def of(self, operation: str, level: int) -> float:
        """Seconds of one operation on a ciphertext of this level."""
        by_level = self.operations[operation]
        return by_level[min(level, len(by_level) - 1)]

    def scaled(self, measured: CkksParameters, wanted: CkksParameters) -> UnitTimes:
        """Carried over from the parameters that they were measured at to others."""
        if measured == wanted:
            return self

        def units(name: str, params: CkksParameters, depth: int) -> list[float]:
            return [work(name, params, k).units(params.ring_dim) for k in range(depth)]

        operations = {}
        for name in OPERATIONS:
            laps = self.operations[name]
            # Seconds per unit of work, over all levels of the measured parameters.
            pace = sum(laps) / sum(units(name, measured, len(laps)))
            operations[name] = tuple(each * pace for each in units(name, wanted, wanted.depth))
        n = wanted.ring_dim / measured.ring_dim
        factors = dict.fromkeys(_BY_TOWERS, n * wanted.num_towers / measured.num_towers)
        factors |= dict.fromkeys(_BY_KEY, n * wanted.key_rows / measured.key_rows)
        factors |= dict.fromkeys(_BY_ROW, n)
        rest = {name: getattr(self, name) * factor for name, factor in factors.items()}
        return replace(self, operations=operations, **rest)


def unit_times(params: CkksParameters, folder: Path | None = None) -> UnitTimes:
    """The cached times of this machine, measured if there are none.

    folder: of the cache; None: the user's. A cache that cannot be read or written is no error.
    What was measured on a busy machine is used, but not kept.
    """
    path = (folder or cache_folder()) / f"timing-{fingerprint(params)}.json"
    try:
        return from_plain(UnitTimes, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, CohortError):
        pass
    times = measure(params)
    if busy():
        return times
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(to_plain(times)), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        pass
    return times


def busy() -> bool:
    """Whether more processes wanted to run than there are processors, over the last minute."""
    return os.getloadavg()[0] > BUSY_LOAD * len(os.sched_getaffinity(0))


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/ciphercohort, or ~/.cache/ciphercohort."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ciphercohort"


def fingerprint(params: CkksParameters) -> str:
    """Digest of everything that the times depend on."""
    about = {
        "version": VERSION,
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "openfhe": metadata.version("openfhe"),
        "python": platform.python_version(),
        "params": to_plain(params),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def processor() -> str:
    """Model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# -- measurement ----------------------------------------------------------------------------------

REPETITIONS = 4
# A run takes another key for every rotation, and other ciphertexts for every operation, which are
# then not in the processor's cache: at ring 2^15 and level 0, 13 MB and 4 MB each.
INDICES = tuple(1 << k for k in range(REPETITIONS))
_OPERANDS = 12
# Ciphertexts of the refresh step that is timed, and blocks of its map, on which its time hardly
# depends.
_REFRESHED, _BLOCKS = 2, 16
# Coefficients of the subring that its products are timed with.
_COEFFICIENTS = 32
# Bytes of the message and of the residues that serialisation is timed with: about those of a run's
# messages, more than a processor's cache holds.
SAMPLE_BYTES = 1 << 25
# A small message and its reply over frames and signatures alone: what carries them, measured.
_CARRIED = 5.0
_SEED = bytes(32)


def measure(params: CkksParameters) -> UnitTimes:
    """Time everything once over; a few seconds. No evaluation key is left behind."""
    started = time.perf_counter()
    context = CkksContext(params, "timing")
    try:
        return _measured(context, started)
    finally:
        unload(context.tag)


def _measured(context: CkksContext, started: float) -> UnitTimes:
    """started: before the context was made."""
    params = context.params
    # The frames of every level are made on first use: not part of what is timed below.
    blank = np.zeros((params.num_towers, params.ring_dim), np.uint64)
    context.ciphertext([blank, blank])
    setup = time.perf_counter() - started
    keys = context.cc.KeyGen()
    context.cc.EvalMultKeyGen(keys.secretKey)
    context.cc.EvalRotateKeyGen(keys.secretKey, list(INDICES))

    def fresh() -> Any:
        return context.encrypt(keys.publicKey, np.full(params.num_slots, 0.5))

    operands = [fresh() for _ in range(_OPERANDS)]
    levels = [_operations(context, operands, level) for level in range(params.depth)]
    element = _seconds(lambda: context.uniform_polynomial(os.urandom(32), ""))
    # The flooding, next to which all else of a decryption share is little.
    noise = Flooding.even(params.ring_dim, 1e6)
    flooding = _seconds(lambda: noise.draw(context, 2, SystemRandomness()))
    b, a = np.split(context.residues_of(keys.publicKey), 2)
    return UnitTimes(
        operations={name: tuple(laps[name] for laps in levels) for name in OPERATIONS},
        setup=setup,
        encrypt=_seconds(lambda: encryption(context, b, a)),
        decryption_share=flooding,
        expand=element / params.num_towers,
        **_key_times(context),
        **_refresh_times(context, keys, fresh()),
        **_model_times(context, keys.publicKey, fresh()),
        **_byte_times(context),
    )


def _seconds(timed: Callable[..., Any], prepare: Callable[[], tuple[Any, ...]] = tuple) -> float:
    """Least wall clock: whatever else the machine does only adds to it.

    prepare: makes the arguments of every lap, which is not timed.
    """
    laps = []
    for _ in range(REPETITIONS):
        arguments = prepare()
        started = time.perf_counter()
        timed(*arguments)
        laps.append(time.perf_counter() - started)
    return min(laps)


def _operations(context: CkksContext, fresh: Sequence[Any], level: int) -> dict[str, float]:
    """Of a level, as `Evaluator` works: in place where it is, on products that were just made."""
    cc, params = context.cc, context.params
    towers, values = params.num_towers - level, np.full(params.num_slots, 0.5 + 0.25j)
    plain = encode_complex(context, values, level)
    ring = cycle([cc.Compress(ct, towers) for ct in fresh] if level else fresh)
    index = cycle(INDICES)

    def some(count: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: tuple(islice(ring, count))

    timed: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
        "rotate": (lambda ct: context.rotated(ct, next(index)), some(1)),
        "raise": (cc.EvalFastRotationPrecompute, some(1)),
        "hoisted": (
            lambda ct, raised: context.rotated(ct, next(index), raised),
            lambda: (first := next(ring), cc.EvalFastRotationPrecompute(first)),
        ),
        "turned": (
            lambda ct, raised: cc.EvalFastRotationExt(ct, next(index), raised, True),
            lambda: (first := next(ring), cc.EvalFastRotationPrecompute(first)),
        ),
        "gathered": (
            lambda ct: cc.EvalFastRotationExt(
                ct, next(index), cc.EvalFastRotationPrecompute(ct), True
            ),
            some(1),
        ),
        "relinearise": (cc.Relinearize, lambda: (cc.EvalMultNoRelin(*islice(ring, 2)),)),
        "tensor": (cc.EvalMultNoRelin, some(2)),
        "encode": (lambda: encode_complex(context, values, level), some(0)),
        "plain": (cc.EvalMult, lambda: (next(ring), plain)),
        "scalar": (lambda ct: cc.EvalMult(ct, 0.5), some(1)),
        "rescale": (cc.RescaleInPlace, lambda: (cc.EvalMult(next(ring), 0.5),)),
        "add": (cc.EvalAddInPlace, some(2)),
    }
    return {name: _seconds(*timed[name]) for name in OPERATIONS}


def _key_times(context: CkksContext) -> dict[str, float]:
    """Both parts of one rotation key, a party's as in `parties.kernel.keys.key_share`."""
    half = context.uniform_key_half(_SEED, "timing")

    def share() -> Any:
        a, params = context.uniform_key_half(_SEED, "timing"), context.params
        errors = [in_pq(context, gaussian(params.ring_dim)) for _ in range(params.num_digits)]
        shown = rns.product(a, half, context.key_primes)
        return rns.add(shown, np.concatenate(errors), context.key_primes)

    def join() -> Any:
        return context.rotation_key_map(1, context.uniform_key_half(_SEED, "timing"), half)

    return {"key_share": _seconds(share), "key_join": _seconds(join)}


def _refresh_times(context: CkksContext, keys: Any, fresh: Any) -> dict[str, float]:
    """Of `parties.kernel.keys.key_share`, and the coordinator's of `protocols.steps.refresh`."""
    cc, params = context.cc, context.params
    deep = cc.Compress(fresh, REFRESH_TOWERS)
    primes, low, n = context.primes, context.primes[:REFRESH_TOWERS], params.ring_dim

    def adjust() -> tuple[Any, Residues]:
        ct = cc.IntMPBootAdjustScale(deep)
        return ct, context.polynomials_of(ct)[1]

    def element(c1: Residues) -> Residues:
        return context.uniform_polynomial(_SEED, context.refresh_label("timing", c1))

    _, c1 = adjust()
    # The size of a secret's residues, whatever they are.
    secret = context.uniform_polynomial(_SEED, "secret")

    def share(column_map: ColumnMap | None) -> list[tuple[Residues, Residues]]:
        def halves(mask: Residues, error: Residues) -> tuple[Residues, Residues]:
            a, shown = element(c1), rns.product(c1, secret[:REFRESH_TOWERS], low)
            moved = context.mapped(column_map, mask) if column_map else mask
            h1 = rns.subtract(rns.add(moved, error, primes), rns.product(a, secret, primes), primes)
            return rns.subtract(shown, mask[:REFRESH_TOWERS], low), h1

        masks = each(lambda _: draw_mask(low, 2, n, SystemRandomness()), range(_REFRESHED))
        return each(halves, lift(context, masks), fresh_errors(context, _REFRESHED))

    def join(column_map: ColumnMap | None, shares: Sequence[tuple[Residues, Residues]]) -> None:
        adjusted = [adjust() for _ in shares]
        sums = [(*pair, element(c1)) for pair, (_, c1) in zip(shares, adjusted, strict=True)]
        maps = (column_map,) * _REFRESHED
        refresh.join(context, keys.publicKey, [ct for ct, _ in adjusted], maps, sums)

    # Readings of the coordinator: one, or two through a map; of a party: one.
    read = _seconds(lambda: context.ciphertext([c1[:1]]))

    def both(column_map: ColumnMap | None, readings: int) -> tuple[float, float]:
        shares = share(column_map)
        joined = _seconds(lambda: join(column_map, shares)) - readings * read
        made = _seconds(lambda: share(column_map)) - read
        return made / _REFRESHED, joined / _REFRESHED

    plain, mapped = both(None, 1), both(ColumnMap(params.num_slots // _BLOCKS, 0, 0.5), 2)
    names = ("refresh_share", "refresh_join", "map_share", "map_join", "read")
    return dict(zip(names, (*plain, *mapped, read), strict=True))


def _model_times(context: CkksContext, public_key: Any, fresh: Any) -> dict[str, float]:
    """Of an encrypted model; the party's parts as in `parties.kernel.keys.key_share`."""
    params, cc, primes, n = context.params, context.cc, context.primes, context.params.ring_dim
    low = primes[:REFRESH_TOWERS]
    trace_map = TraceMap(params.num_slots, 1, 0.5)
    deep = cc.Compress(fresh, REFRESH_TOWERS)
    b, a = np.split(context.residues_of(public_key), 2)
    c1 = context.polynomials_of(deep)[1]
    element, secret = (context.uniform_polynomial(_SEED, name) for name in ("timing", "secret"))

    def halves(_: int, error: Residues) -> tuple[Residues, Residues]:
        inner = mask_values(low, 2, 2, SystemRandomness())
        mask = subring.kernel(low, n, 1, ExpandedRandomness())
        mask = rns.add(mask, subring.embed(inner, low, n), low)
        h0 = rns.subtract(rns.product(c1, secret[: len(low)], low), mask, low)
        mapped = rns.add(subring.embed(trace_map.apply(inner), primes, n), error, primes)
        return h0, rns.subtract(mapped, rns.product(element, secret, primes), primes)

    def share() -> list[tuple[Residues, Residues]]:
        return each(halves, range(_REFRESHED), fresh_errors(context, _REFRESHED))

    def join(shares: Sequence[tuple[Residues, Residues]]) -> None:
        pairs = []
        for h0, h1 in shares:
            c0, c1 = context.polynomials_of(deep)
            hashlib.sha256(c1.tobytes())
            pairs.append([model_refresh.joined(context, c0, h0, h1, trace_map), element])
        # The first polynomials are what the next request carries.
        for ct in context.ciphertexts(pairs):
            context.polynomials_of(ct)

    def reply() -> None:
        fresh, total = encryption(context, b, a, len(low)), context.polynomials_of(deep)
        first, _ = (rns.add(own, new, low) for own, new in zip(total, fresh, strict=True))
        hidden = subring.kernel(low, n, 1, ExpandedRandomness())
        rns.add(first, rns.add(hidden, c1, low), low)

    shares = share()
    read = _seconds(lambda: context.ciphertext([c1[:1]]))
    both = _seconds(lambda: context.ciphertexts([[element, element]] * _REFRESHED))
    wide = subring.reduced(range(_COEFFICIENTS), low)
    squares = len(low) * _COEFFICIENTS**2
    return {
        "load": max(0.0, both - read) / (2 * _REFRESHED * params.num_towers),
        "trace_share": _seconds(share) / _REFRESHED,
        "trace_join": max(0.0, _seconds(lambda: join(shares)) - read) / _REFRESHED,
        "subring": _seconds(lambda: subring.embedded(wide, low, n)) / squares,
        "fresh_reply": _seconds(reply),
        "pad": _seconds(lambda: rns.add(rns.uniform(os.urandom(32), "", low, 2), wide[:, :2], low)),
    }


def _byte_times(context: CkksContext) -> dict[str, float]:
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
    # Messages come into memory that was not in use before, and stay for a while.
    copies: list[bytearray] = []
    timed: dict[str, Callable[[], Any]] = {
        "pack": lambda: rns.pack(residues, primes),
        "unpack": lambda: rns.unpack(packed, primes, n),
        "add": lambda: np.add(total, residues, out=total),
        "reduce": lambda: np.remainder(total, modulus, out=total),
        "sign": sign,
        "check": lambda: decode(message, verify_key),
        "copy": lambda: copies.append(bytearray(message)),
    }
    by_byte = {name: _seconds(each) / len(packed) for name, each in timed.items()}
    return {**by_byte, "message": message_seconds()}


def message_seconds() -> float:
    """A request and its reply, however small: frames, signatures, transport."""
    key = new_signing_key()
    verify_key, envelope = public_bytes(key), Envelope("timing", "timing", "a", "b", Body())
    both = _seconds(lambda: [decode(encode(envelope, key), verify_key) for _ in range(2)])
    return _CARRIED * both
