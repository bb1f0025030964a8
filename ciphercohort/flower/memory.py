"""What a client remembers between messages: each may start a new process.

For one run: keys, roster, the last round, what it has spent. Without a home folder this is in
Flower's own `context.state`, which stays with the SuperNode and dies with it, and Flower has to
deliver a node's messages one after the other. With one it is there, under a lock, and on disk
before a reply leaves. For ever, in a home folder that the client's owner names: its identity, whom
it knows, and its privacy ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ConfigRecord, Context, RecordDict

from ciphercohort.flower.members import KEY_BYTES
from ciphercohort.flower.rounds import LEAST_SHARE
from protocols.errors import MessageError, ParameterError
from protocols.exchange.private_files import erase, locked, private_folder, write_private

RECORD = "secure-sum"
_SETTINGS = ("home", "name", "pins", "admit", "min-clients", "epsilon", "delta")
_IDENTITY, _KNOWN, LEDGER = "identity.key", "known.json", "ledger.jsonl"


@dataclass(frozen=True, slots=True)
class Owner:
    """What a client's owner sets, in the node's configuration (`--node-config`).

    secure-sum-home: folder that lives on between runs; secure-sum-name: its name to others, by
    default the node's number; secure-sum-pins: file of the identities that may take part, one in
    hexadecimal per line; secure-sum-admit: new clients may join later; secure-sum-min-clients: of a
    sum (with pins any sample that leaves so many is enough); secure-sum-epsilon, secure-sum-delta:
    budget for all runs, with a home: both, or none.
    """

    name: str
    home: Path | None
    pins: frozenset[str] | None
    admit: bool
    min_clients: int
    epsilon: float | None
    delta: float | None

    @classmethod
    def of(cls, context: Context) -> Owner:
        """Raises ParameterError: a setting is unknown or malformed, or a file is not there."""
        config = context.node_config
        for key in config:
            if key.startswith("secure-sum-") and key.removeprefix("secure-sum-") not in _SETTINGS:
                known = ", ".join(f"secure-sum-{name}" for name in _SETTINGS)
                raise ParameterError(f"{key} in the node's configuration is none of {known}")

        def setting(name: str, kind: Any) -> Any:
            value = config.get(f"secure-sum-{name}")
            try:
                return None if value is None else kind(value)
            except ValueError:
                raise ParameterError(f"secure-sum-{name}={value!r} is no {kind.__name__}") from None

        home, pins = setting("home", Path), setting("pins", Path)
        epsilon, delta = setting("epsilon", float), setting("delta", float)
        if epsilon is not None and home is None:
            raise ParameterError(
                "secure-sum-epsilon without secure-sum-home: a budget needs a file"
            )
        if (epsilon is None) != (delta is None):
            raise ParameterError(
                "secure-sum-epsilon and secure-sum-delta go together: set both, or none"
            )
        try:
            listed = frozenset(pins.read_text(encoding="utf-8").split()) if pins else None
        except OSError as error:
            raise ParameterError(f"secure-sum-pins: {error}") from None
        return cls(
            name=setting("name", str) or str(context.node_id),
            home=private_folder(home) if home else None,
            pins=listed,
            admit=str(config.get("secure-sum-admit", "")).lower() in ("true", "1"),
            min_clients=setting("min-clients", int) or 0,
            epsilon=epsilon,
            delta=delta,
        )

    @property
    def least_share(self) -> float:
        """Of all known or pinned, in a roster and among those asked.

        Where an owner has named who may take part and how many are enough, the least sum is that
        number, whomever a server picks.
        """
        return 0.0 if self.pins is not None and self.min_clients else LEAST_SHARE

    def identity(self, fallback: bytes) -> Ed25519PrivateKey:
        """Of the home folder, made at first use; without one, of the 32 bytes `fallback`."""
        if self.home is None:
            return Ed25519PrivateKey.from_private_bytes(fallback)
        path = self.home / _IDENTITY
        if not path.exists():
            write_private(path, Ed25519PrivateKey.generate().private_bytes_raw())
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())


@dataclass(slots=True)
class Memory:
    """One client's memory of a run.

    session, epoch: of the roster; private: X25519; identity: Ed25519, where there is no home;
    roster: digest; own: number in it; pairs: common keys, one after the other; last: round that was
    answered; waiting: the round whose set is not named yet; answered: the last round whose set
    was, that set, and the answer; known: identities by name; members:
    identities in the roster; noise: "with" or "without", as the run's first plan said; cut: range
    and scale of weights of its first plan without noise; opened: of each model and kind that a sum
    was opened at, its contributors (digests, "model:contributors "; a text, for every message reads
    and writes them, and a run of 1000 rounds has as many); spent: see `private.Account`; layout: of
    the last private reply.
    """

    session: str = ""
    epoch: int = -1
    private: bytes = b""
    identity: bytes = b""
    roster: bytes = b""
    own: int = -1
    pairs: bytes = b""
    last: int = -1
    waiting: list[Any] = field(default_factory=list)
    answered: list[Any] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    noise: str = ""
    cut: list[float] = field(default_factory=list)
    opened: str = ""
    spent: dict[str, Any] = field(default_factory=dict)
    layout: str = ""

    def __repr__(self) -> str:
        return "Memory(<secret>)"

    @classmethod
    def load(cls, context: Context, owner: Owner) -> Memory:
        """From the home folder, or the run's state.

        Raises:
            MessageError: it is of another release.
        """
        memory, stored = cls(), _stored(context, owner)
        if other := stored.keys() - {*cls.__slots__}:
            raise MessageError(
                f"this client's memory of run {context.run_id} is of another release (it has "
                f"{', '.join(sorted(other))}): start the run anew"
            )
        for name, value in stored.items():
            setattr(memory, name, value)
        if not memory.identity:
            memory.identity = Ed25519PrivateKey.generate().private_bytes_raw()
        if owner.home and (owner.home / _KNOWN).exists():
            memory.known = _read((owner.home / _KNOWN).read_text(encoding="utf-8"))
        return memory

    def save(self, context: Context, owner: Owner) -> None:
        """Where `load` finds it."""
        values = {name: getattr(self, name) for name in self.__slots__}
        text = json.dumps({k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()})
        if owner.home is None:
            context.state[RECORD] = ConfigRecord({"memory": text})
            return
        write_private(_path(context, owner.home), text.encode())
        write_private(owner.home / _KNOWN, json.dumps(self.known, indent=1).encode())

    def fresh_key(self) -> X25519PrivateKey:
        """A new key for a session; the old one is forgotten."""
        key = X25519PrivateKey.generate()
        self.private = key.private_bytes_raw()
        self.roster, self.own, self.pairs = b"", -1, b""
        self.waiting, self.answered = [], []
        self.epoch, self.last = -1, -1
        return key

    def pair(self, member: int) -> bytes:
        """32 bytes in common with a member."""
        return self.pairs[KEY_BYTES * member : KEY_BYTES * (member + 1)]


_BYTES = ("private", "identity", "roster", "pairs")
# What no month takes away: none of it is a key.
_LASTING = ("noise", "cut", "opened", "spent")
_KEPT_SECONDS = 30 * 86_400


def _path(context: Context, home: Path) -> Path:
    return home / f"run-{context.run_id}.json"


def own_record(content: RecordDict) -> ConfigRecord | None:
    """Ours, if there is one: `config_records` would go through all records."""
    found = content.get(RECORD)
    return found if isinstance(found, ConfigRecord) else None


def _stored(context: Context, owner: Owner) -> dict[str, Any]:
    if owner.home is None:
        record = own_record(context.state)
        text = None if record is None else str(record["memory"])
    else:
        path = _path(context, owner.home)
        text = path.read_text(encoding="utf-8") if path.exists() else None
    if text is None:
        return {}
    values = _read(text)
    return {k: bytes.fromhex(v) if k in _BYTES else v for k, v in values.items()}


def _read(text: str) -> dict[str, Any]:
    """What this client wrote itself."""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise MessageError(f"malformed memory ({type(error).__name__})") from None
    return found


@contextmanager
def alone(owner: Owner) -> Iterator[None]:
    """Hold the home folder's lock, against other messages; forget keys of a month ago."""
    if owner.home is None:
        yield
        return
    with locked(owner.home / "lock"):
        for path in owner.home.glob("run-*.json"):
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                _forget_keys(path)
        yield


def _forget_keys(path: Path) -> None:
    values = _read(path.read_text(encoding="utf-8"))
    kept = {name: values[name] for name in _LASTING if values.get(name)}
    if kept:
        write_private(path, json.dumps(kept).encode())
    else:
        erase(path)
