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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from protocols.ckks import stopwatch
from protocols.ckks.context import CkksContext
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.tally import OPERATIONS

VERSION = 6
# Load average per processor beyond which a measurement is not kept.
BUSY_LOAD = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTimes:
    """Seconds for one of each, or per byte.

    operations: by name (`protocols.ckks.tally.OPERATIONS`), one entry per level 0 … depth - 1.
    setup: context and frames. encrypt: one ciphertext, to residues. key_share: a party's half of
    one evaluation key; key_join: the coordinator's assembly of one. refresh_share, refresh_join:
    one ciphertext, the party's and the coordinator's part; map_share, map_join: of one that goes
    through a map. read: OpenFHE's fixed time for reading any number of ciphertexts, which the joins
    leave out. expand: one row of a public random element, which keys and refreshes leave out.
    decryption_share: flooding included. pack, unpack, add, reduce: residues, per wire byte. sign,
    check, copy: messages, per byte.
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
    context.cc.EvalRotateKeyGen(keys.secretKey, list(stopwatch.INDICES))
    return UnitTimes(
        operations=stopwatch.operations(context, keys),
        setup=setup,
        encrypt=stopwatch.seconds(
            lambda: context.residues_of(context.encrypt(keys.publicKey, np.ones(params.num_slots)))
        ),
        decryption_share=stopwatch.decryption_share(context),
        expand=stopwatch.expansion(context),
        **stopwatch.key_times(context, keys),
        **stopwatch.refresh_times(context, keys),
        **stopwatch.byte_times(context),
    )
