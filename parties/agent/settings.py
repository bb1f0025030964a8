"""A party's folder, party.toml in it, the peers that it lists, and the agent that they make.

identity.sealed: the Ed25519 identity, sealed with the passphrase. node.key, node.pub: Flower's, of
the relay. card.json: what the coordinator's administrator gets. state/, state.last: see `store`.
ledger.jsonl: privacy spent on each data set. held-out.sealed: coins by which rows were held back;
without them models are no longer judged on these rows, and no sum is made of the others.
sessions/ID/: what a run released.
"""

from __future__ import annotations

import json
import logging
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.agent.vault import Vault
from parties.policy import Policy
from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import Checked, check_durations, load_toml, read
from protocols.exchange.private_files import write_private
from protocols.names import check_key, check_name, spoken
from protocols.privacy.laws import RandomSource, SystemRandomness
from protocols.privacy.loss.ledger import Ledger

if TYPE_CHECKING:
    import pandas as pd

    from parties.reader.query import Query
    from parties.reader.table import Table

log = logging.getLogger(__name__)

FILE, IDENTITY, SCHEMA, CA = "party.toml", "identity.sealed", "schema.json", "ca.crt"
NODE_KEY, NODE_PUBLIC, CARD, STATE = "node.key", "node.pub", "card.json", "state"
LEDGER, COINS = "ledger.jsonl", "held-out.sealed"
UNCOUNTED = (
    "a ledger cannot count a run without noise, which this policy accepts: keep no ledger "
    "(--no-ledger, or keep_ledger = false above the first table), or accept private runs only"
)
RESULTS, OUTCOME, ROWS = "sessions", "outcome.json", "rows.json"
BUDGET = f"[budget] of {FILE} (and start the agent again)"
IDENTITY_LABEL = "identity"
_PEERS = re.compile(r"\s*\[\s*peers\s*\]\s*(#.*)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Limits(Checked, frozen=True):
    """How long a session may last.

    idle_seconds: between two messages, longer than a step and a consent may take: whoever has
    answered waits for the slowest; session_seconds: in all. After either the key share is erased
    and every later message is refused.
    """

    idle_seconds: float = 7200.0
    session_seconds: float = 24 * 3600.0

    def __post_init__(self) -> None:
        """Refuse a limit that limits nothing."""
        Checked.__post_init__(self)
        check_durations(self, "idle_seconds", "session_seconds")


class ConsentMode(Checked, frozen=True):
    """mode: ask a person, or leave it to the policy; wait_seconds: for the person."""

    mode: Literal["ask", "policy"] = "ask"
    wait_seconds: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse a wait that never ends."""
        Checked.__post_init__(self)
        check_durations(self, "wait_seconds")


class Allowance(Checked, frozen=True):
    """Privacy that all runs on one data set may spend together; None where nothing is said."""

    epsilon: float | None = None
    delta: float | None = None


class Settings(Checked, frozen=True):
    """party.toml.

    data: file with this party's rows, or [data], a query (`parties.reader.query`).
    coordinator_key: the only key whose messages are read. superlink: address that the node dials;
    clientappio: address that Flower's own SuperNode binds, where it runs instead.
    socket: of the agent; relay_uid: user of the SuperNode, where it is another one. strict: refuse
    values outside the schema. keep_key_share: keep it on disk, sealed, while a run lasts, so that
    the agent may restart. insecure_noise_seed: NOT PRIVATE, for tests. budget: for all runs on
    `dataset`, counted in LEDGER; keep_ledger: false counts nothing. peers: verification keys of the
    other parties by name; a plan with any other member is refused. keyring: entry of the operating
    system's keyring that has the passphrase; empty: it is asked for. encoded_rows_mb: memory for
    encoded rows of the protocol encrypted-model; those without room are encoded in every round.

    Raises:
        ParameterError: a field is out of range, or one key has two names.
    """

    folder: Path
    name: str
    data: str | dict[str, Any]
    coordinator_key: str
    superlink: str
    socket: str
    clientappio: str = "127.0.0.1:9094"
    relay_uid: int | None = None
    strict: bool = False
    keep_key_share: bool = True
    keep_ledger: bool = True
    dataset: str = ""
    insecure_noise_seed: int | None = None
    keyring: str = ""
    encoded_rows_mb: int = 2304
    consent: ConsentMode = ConsentMode()
    policy: Policy = Policy()
    budget: Allowance = Allowance()
    limits: Limits = Limits()
    peers: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields, then the peers against one another."""
        Checked.__post_init__(self)
        if not isinstance(self.data, str):
            _ = self._query
        if self.encoded_rows_mb < 0:
            raise ParameterError(f"encoded_rows_mb={self.encoded_rows_mb} is below 0")
        idle, wait = self.limits.idle_seconds, self.consent.wait_seconds
        if idle <= wait:
            raise ParameterError(
                f"idle_seconds={idle:g} under [limits] is not above wait_seconds={wait:g} under "
                "[consent]: no run would outlast a consent that comes late; raise the one to "
                f"{2 * wait:g}, or lower the other"
            )
        if isinstance(self.policy.replica, tuple) and self.name in self.policy.replica:
            raise ParameterError(
                f"replica={[*self.policy.replica]} names this party itself: name others who have a "
                'replica, or take "own"'
            )
        for name, key in self.peers.items():
            check_key(f"peers.{check_name(name)}", key)
            twins = [other for other in self.peers if self.peers[other] == key]
            if len(twins) > 1:
                raise ParameterError(
                    f"[peers] gives {' and '.join(map(repr, twins))} the same key: one owner would "
                    "count as two; remove one of them"
                )

    @classmethod
    def load(cls, folder: Path) -> Settings:
        """Read the folder's file.

        Raises:
            ParameterError: it is missing, or a field is unknown or out of range.
        """
        found: Settings = load_toml(folder / FILE, cls, folder=folder.resolve())
        return found

    def know(self, name: str, key: str, *, replace: bool = False) -> None:
        """Know a party from now on; the other lines of party.toml stay as they are.

        replace: also where another key is known by this name.

        Raises:
            ParameterError: the name has another key, the key has another name, or the file is not
                understood.
        """
        if self.peers.get(name, key) != key and not replace:
            raise ParameterError(
                f"party {name!r} is known with another key, {spoken(self.peers[name])}: ask its "
                "owner by telephone which one is right, and give --replace if it is the new one"
            )
        self._write_peers({**self.peers, name: key})

    def forget(self, name: str) -> None:
        """Know a party no longer.

        Raises:
            ParameterError: it is not known, or the file is not understood.
        """
        if name not in self.peers:
            raise ParameterError(f"party {name!r} is not among {', '.join(self.peers) or 'none'}")
        self._write_peers({known: key for known, key in self.peers.items() if known != name})

    def _write_peers(self, peers: Mapping[str, str]) -> None:
        path = self.folder / FILE
        wanted = msgspec.structs.replace(self, peers=dict(peers))
        lines = path.read_text(encoding="utf-8").splitlines()
        if not any(_PEERS.fullmatch(line) for line in lines):
            lines += ["", "[peers]"]
        first = next(k for k, line in enumerate(lines) if _PEERS.fullmatch(line)) + 1
        rest = (k for k in range(first, len(lines)) if lines[k].lstrip().startswith("["))
        last = next(rest, len(lines))
        comments = [line for line in lines[first:last] if re.match(r"\s*(#|$)", line)]
        entries = [
            f"{name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)} = "
            f"{json.dumps(key)}"
            for name, key in peers.items()
        ]
        lines[first:last] = [*entries, *comments]
        text = "\n".join(lines) + "\n"
        try:
            fields = msgspec.toml.decode(text)
            is_right = msgspec.convert({**fields, "folder": self.folder}, Settings) == wanted
        except msgspec.DecodeError:
            is_right = False
        if not is_right:
            raise ParameterError(
                f"{path} is written in a way that this command does not understand: put these "
                f"lines under [peers] by hand: {'; '.join(entries)}"
            )
        write_private(path, text.encode())

    def rows(self) -> Table:
        """This party's rows: a path, or what the query gives, batch by batch.

        Raises, once they are read:
            DataError: the query gives no table; nothing that it holds is quoted.
        """
        return self.folder / self.data if isinstance(self.data, str) else self._asked

    @property
    def _query(self) -> Query:
        """What stands in the place of a path. Raises ParameterError: it is no query."""
        from parties.reader.query import Query

        found: Query = read(self.data, Query, FILE, field="data")
        return found

    def _asked(self, rows: int | None) -> Iterator[pd.DataFrame]:
        try:
            yield from self._query.batches(self.folder, rows)
        except DataError as error:
            raise DataError(f"[data] of {self.folder / FILE} {error}") from None

    def open_vault(self, passphrase: str) -> tuple[Vault, Ed25519PrivateKey]:
        """The vault and the identity in it. Raises PolicyError: the passphrase is wrong."""
        sealed = (self.folder / IDENTITY).read_bytes()
        vault = Vault.for_file(passphrase, sealed)
        plain = vault.open(sealed, IDENTITY_LABEL)
        return vault, Ed25519PrivateKey.from_private_bytes(plain)

    def open_ledger(self) -> Ledger | None:
        """What earlier runs have spent; None where the owner keeps no record.

        Raises:
            ParameterError: the budget is missing, out of range, or given without a ledger; or the
                policy accepts runs that no ledger counts.
        """
        epsilon, delta = self.budget.epsilon, self.budget.delta
        if not self.keep_ledger and (epsilon, delta) != (None, None):
            raise ParameterError(
                f"{self.folder / FILE}: keep_ledger = false, but [budget] is given: remove one"
            )
        if not self.keep_ledger:
            log.warning("no ledger is kept (keep_ledger = false): nobody adds up what runs spend")
            return None
        if self.policy.exact_sums:
            raise ParameterError(f"{self.folder / FILE}: exact_sums = true, but {UNCOUNTED}")
        if epsilon is None or delta is None:
            raise ParameterError(
                f"{self.folder / FILE}: [budget] must say what all runs on this data may spend: "
                "add epsilon = 1.0 and delta = 1e-5 under it, or, to keep no ledger, "
                "keep_ledger = false above the first table"
            )
        return Ledger(path=self.folder / LEDGER, epsilon=epsilon, delta=delta, budget=BUDGET)

    def randomness(self) -> RandomSource:
        """The noise source of one session."""
        if self.insecure_noise_seed is None:
            return SystemRandomness()
        log.warning("NOT PRIVATE: the noise is seeded (insecure_noise_seed)")
        from protocols.privacy.laws.seeded import SeededRandomness

        return SeededRandomness(self.insecure_noise_seed, self.name)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which other users can change what the owner consents to."""
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ParameterError(
            f"other users can write to {folder}, so they could consent for you: look through "
            f"{FILE}, then run chmod 700 {folder}"
        )


class Driving(Checked, frozen=True):
    """What an owner says of whoever drives its kernel, in this process or another one.

    coordinator_key: the only key whose messages are read; ask, wait_seconds: whether a person
    accepts each plan, and how long one waits for it; card: file that is gone once the run is over,
    empty: it serves many.
    """

    coordinator_key: str
    policy: Policy = Policy()
    ask: bool = False
    wait_seconds: float = 3600.0
    limits: Limits = Limits()
    card: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Driving:
        """As a folder's party.toml says."""
        return cls(
            coordinator_key=settings.coordinator_key,
            policy=settings.policy,
            ask=settings.consent.mode == "ask",
            wait_seconds=settings.consent.wait_seconds,
            limits=settings.limits,
        )
