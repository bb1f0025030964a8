"""How long this machine takes for each operation, in about two seconds, kept in a cache file.

Everything runs at the run's own ring and levels on a throwaway key pair. The cache file is named
by a digest of what the figures depend on: processor, threads, OpenFHE's release, parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.context import CkksContext
from protocols.ckks.flooding import gaussian_polynomial
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.tally import OPERATIONS
from protocols.messages import Body, Envelope, decode, encode, new_signing_key, public_bytes
from protocols.privacy.randomness import SystemRandomness

VERSION = 5
REPETITIONS = 4
# A run takes another key for every rotation, which is then not in the processor's cache.
_INDICES = tuple(1 << k for k in range(REPETITIONS))
# Bytes of the message and of the residues that serialisation is timed with.
SAMPLE_BYTES = 1 << 23
# Load average per processor beyond which a measurement is not kept.
BUSY_LOAD = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTimes:
    """Seconds for one of each, or per byte.

    operations: by name (`protocols.ckks.tally.OPERATIONS`), one entry per level 0 … depth - 1.
    setup: context and frames. encrypt: one ciphertext, to residues. key_share: a party's half of
    one evaluation key; key_join: the coordinator's assembly of one. refresh_share, refresh_join:
    one ciphertext, the party's and the coordinator's part. expand: one row of a public random
    element, which the four before it leave out. decryption_share: flooding included. pack, unpack,
    add, reduce: residues, per wire byte. sign, check, copy: messages, per byte.
    """

    operations: Mapping[str, tuple[float, ...]]
    setup: float
    encrypt: float
    key_share: float
    key_join: float
    refresh_share: float
    refresh_join: float
    expand: float
    decryption_share: float
    pack: float
    unpack: float
    add: float
    reduce: float
    sign: float
    check: float
    copy: float

    def of(self, operation: str, level: int) -> float:
        """Seconds of one operation on a ciphertext of this level."""
        by_level = self.operations[operation]
        return by_level[min(level, len(by_level) - 1)]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> UnitTimes:
        """Inverse of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: not what `to_dict` wrote.
        """
        operations = {name: tuple(map(float, fields["operations"][name])) for name in OPERATIONS}
        if not all(operations.values()):
            raise ValueError("operations: no level was timed")
        rest = {name: float(value) for name, value in fields.items() if name != "operations"}
        return cls(operations=operations, **rest)


def unit_times(params: CkksParameters, folder: Path | None = None) -> UnitTimes:
    """The cached times of this machine, measured if there are none.

    folder: of the cache; None: the user's. A cache that cannot be read or written is no error.
    What was measured on a busy machine is used, but not kept.
    """
    path = (folder or cache_folder()) / f"timing-{fingerprint(params)}.json"
    try:
        return UnitTimes.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    times = measure(params)
    if busy():
        return times
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(times.to_dict()), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        pass
    return times


def busy() -> bool:
    """Whether more processes wanted to run than there are processors, over the last minute."""
    return os.getloadavg()[0] > BUSY_LOAD * len(os.sched_getaffinity(0))


def lesser(left: UnitTimes, right: UnitTimes) -> UnitTimes:
    """The lesser of two measurements, entry by entry: a unit time is a least time."""
    operations = {
        name: tuple(map(min, laps, right.operations[name]))
        for name, laps in left.operations.items()
    }
    rest = {
        name: min(getattr(left, name), getattr(right, name))
        for name in UnitTimes.__dataclass_fields__
        if name != "operations"
    }
    return UnitTimes(operations=operations, **rest)


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
        "params": params.to_dict(),
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


def measure(params: CkksParameters) -> UnitTimes:
    """Time everything once over; a few seconds."""
    started = time.perf_counter()
    context = CkksContext(params, "timing")
    # The frames of every level are made on first use: not part of what is timed below.
    blank = np.zeros((params.num_towers, params.ring_dim), np.uint64)
    context.ciphertext([blank, blank])
    setup = time.perf_counter() - started
    keys = context.cc.KeyGen()
    context.cc.EvalMultKeyGen(keys.secretKey)
    context.cc.EvalRotateKeyGen(keys.secretKey, list(_INDICES))
    return UnitTimes(
        operations=_operations(context, keys),
        setup=setup,
        encrypt=_seconds(
            lambda: context.residues_of(context.encrypt(keys.publicKey, np.ones(params.num_slots)))
        ),
        decryption_share=_decryption_share(context),
        expand=_seconds(lambda: context.uniform_polynomial(os.urandom(32), "")) / params.num_towers,
        **_key_times(context, keys),
        **_refresh_times(context, keys),
        **_byte_times(context),
    )


def _seconds(work: Callable[[], Any], repetitions: int = REPETITIONS) -> float:
    """Least wall clock: whatever else the machine does only adds to it."""
    laps = []
    for _ in range(repetitions):
        started = time.perf_counter()
        work()
        laps.append(time.perf_counter() - started)
    return min(laps)


def _operations(context: CkksContext, keys: Any) -> dict[str, tuple[float, ...]]:
    cc, params = context.cc, context.params
    values = np.full(params.num_slots, 0.5)
    fresh = context.encrypt(keys.publicKey, values)
    found: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    index = cycle(_INDICES)
    for level in range(params.depth):
        ct = cc.Compress(fresh, params.num_towers - level) if level else fresh
        product = cc.EvalMultNoRelin(ct, ct)
        scaled = cc.EvalMult(ct, 0.5)
        work: dict[str, Callable[[], Any]] = {
            "rotate": lambda ct=ct: cc.EvalRotate(ct, next(index)),  # type: ignore[misc]
            "relinearise": lambda product=product: cc.Relinearize(product),  # type: ignore[misc]
            "tensor": lambda ct=ct: cc.EvalMultNoRelin(ct, ct),  # type: ignore[misc]
            "mask": lambda ct=ct, level=level: cc.EvalMult(  # type: ignore[misc]
                ct, context.encode(values, level)
            ),
            "scalar": lambda ct=ct: cc.EvalMult(ct, 0.5),  # type: ignore[misc]
            "rescale": lambda scaled=scaled: cc.Rescale(scaled),  # type: ignore[misc]
            "add": lambda ct=ct: cc.EvalAdd(ct, ct),  # type: ignore[misc]
        }
        for name in OPERATIONS:
            found[name].append(_seconds(work[name]))
    return {name: tuple(laps) for name, laps in found.items()}


def _key_times(context: CkksContext, keys: Any) -> dict[str, float]:
    seed = bytes(32)
    half = context.uniform_key_half(seed, "timing")

    def share() -> Any:
        a = context.uniform_key_half(seed, "timing")
        reference = context.rotation_key_map(1, a, np.zeros_like(a))
        key = context.cc.MultiEvalAtIndexKeyGen(keys.secretKey, reference, [1])
        return context.residues_of(key)

    def join() -> Any:
        return context.rotation_key_map(1, context.uniform_key_half(seed, "timing"), half)

    return {"key_share": _seconds(share), "key_join": _seconds(join)}


def _refresh_times(context: CkksContext, keys: Any) -> dict[str, float]:
    cc, params, seed = context.cc, context.params, bytes(32)
    fresh = context.encrypt(keys.publicKey, np.full(params.num_slots, 0.5))
    deep = cc.Compress(fresh, REFRESH_TOWERS)
    shares: list[Any] = []

    def adjust() -> tuple[Any, rns.Residues]:
        ct = cc.IntMPBootAdjustScale(deep)
        return ct, context.polynomials_of(ct)[1]

    shallow, c1 = adjust()

    def share() -> None:
        element = context.refresh_element(seed, "timing", c1)
        second, random = context.ciphertexts([[c1], [element]])
        pair = cc.IntMPBootDecrypt(keys.secretKey, second, random)
        shares[:] = [context.residues_of(part) for part in pair]

    def join() -> None:
        adjust()
        element = context.refresh_element(seed, "timing", c1)
        *pair, random = context.ciphertexts([[part] for part in (*shares, element)])
        cc.IntMPBootEncrypt(keys.publicKey, pair, random, shallow)

    return {"refresh_share": _seconds(share), "refresh_join": _seconds(join)}


def _decryption_share(context: CkksContext) -> float:
    return _seconds(lambda: gaussian_polynomial(context, 1e6, 2, SystemRandomness()))


def _byte_times(context: CkksContext) -> dict[str, float]:
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
    seconds = {
        "pack": _seconds(lambda: rns.pack(residues, primes)),
        "unpack": _seconds(lambda: rns.unpack(packed, primes, n)),
        "add": _seconds(lambda: np.add(total, residues, out=total)),
        "reduce": _seconds(lambda: np.remainder(total, modulus, out=total)),
        "sign": _seconds(sign),
        "check": _seconds(lambda: decode(message, verify_key)),
        "copy": _seconds(lambda: bytearray(message)),
    }
    return {name: value / len(packed) for name, value in seconds.items()}
