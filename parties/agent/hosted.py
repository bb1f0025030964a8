"""An agent for one run, which the run's own ClientApp starts where the owner runs none.

`python -m parties.agent.hosted` reads one line of JSON, `Hosted`, and then the rows (Parquet) where
no file has them; it answers with one line, the party's card or an error, and serves from then on.
It ends when its ClientApp says so (`CARD` is gone from its folder), or after two hours without a
message.

Security: it is a process of its own, started in isolated mode, so that nothing that an app ships is
loaded where the key share is. It has no passphrase: the key share is in memory alone, and the
identity is a file (mode 0600) of the owner's home folder, or of this run.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties import launch
from parties.agent import process
from parties.agent.owner import Owner
from parties.agent.run_folder import CARD, LEFT, LOG, MEMBERS, SOCKET
from parties.agent.settings import STATE, Allowance, Driving
from parties.agent.store import SessionStore
from parties.coins import cell_coins
from parties.policy import Policy
from parties.reader.schema import Schema
from parties.reader.table import Table
from parties.reader.views import encode_with_views
from protocols.errors import CohortError, ParameterError
from protocols.exchange.cards import Card
from protocols.exchange.documents import Checked, parse_json, read
from protocols.exchange.messages import public_bytes
from protocols.exchange.private_files import erase, private_folder, write_private
from protocols.names import check_key, check_name
from protocols.privacy.loss.ledger import Ledger

log = logging.getLogger(__name__)

IDENTITY, LEDGER = "identity.key", "ledger.jsonl"


class Hosted(Checked, frozen=True):
    """What the ClientApp says of its site.

    folder: of this run; home: the owner's, which stays: identity and ledger, empty: none; data:
    file of the rows, empty: they follow; pins: keys that may be members, None: those of the first
    list count; budget: of all runs on the data, with a home.
    """

    folder: str
    name: str
    coordinator_key: str
    schema: dict[str, Any]
    data: str = ""
    home: str = ""
    pins: list[str] | None = None
    policy: Policy = Policy()
    budget: Allowance = Allowance()

    def __post_init__(self) -> None:
        """Check the fields, then names and keys."""
        Checked.__post_init__(self)
        check_name(self.name)
        check_key("coordinator_key", self.coordinator_key)
        for key in self.pins or ():
            check_key("pins", key)

    def identity(self) -> Ed25519PrivateKey:
        """Of the home folder, made at first use, or of this run."""
        path = private_folder(Path(self.home or self.folder)) / IDENTITY
        if not path.exists():
            write_private(path, Ed25519PrivateKey.generate().private_bytes_raw())
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())

    def ledger(self) -> Ledger | None:
        """Of the home folder; None where nothing adds up what runs spend."""
        if not self.home or self.policy.max_epsilon is None:
            log.warning("no ledger is kept: nobody adds up what runs on these rows spend together")
            return None
        epsilon, delta = self.budget.epsilon, self.budget.delta
        return Ledger(
            path=Path(self.home) / LEDGER,
            epsilon=self.policy.max_epsilon if epsilon is None else epsilon,
            delta=self.policy.max_delta if delta is None else delta,
        )

    def members(self) -> Mapping[str, str]:
        """Keys by name of the run's list, as far as the owner's pins have them."""
        path = Path(self.folder) / MEMBERS
        listed = parse_json(path.read_bytes(), str(path)) if path.exists() else {}
        found: dict[str, str] = read(listed, dict[str, str], str(path))
        return {n: key for n, key in found.items() if self.pins is None or key in self.pins}


def build(hosted: Hosted, rows: Table) -> tuple[Owner, Card]:
    """The owner, and what everybody may know of its site; the rows are encoded here, once.

    Raises:
        CohortError: the rows do not fit the schema.
    """
    schema, key = Schema.from_dict(hosted.schema), hosted.identity()
    shard, views = encode_with_views(rows, schema, coins=cell_coins(key))
    owner = Owner(
        name=hosted.name,
        rows=shard,
        views=views,
        schema=schema,
        signing_key=key,
        store=SessionStore(Path(hosted.folder) / STATE, None),
        terms=hosted.policy.terms(),
        peers=hosted.members,
        ledger=hosted.ledger(),
        # Not the node's number, which the SuperLink gives out: each would have a budget.
        dataset=Path(hosted.data).name or "rows",
    )
    card = Card(
        name=hosted.name,
        identity=public_bytes(key),
        node_key="",
        rows=shard.rows,
        num_features=shard.num_features,
        schema=schema.digest(),
    )
    return owner, card


def _start() -> tuple[Hosted, Owner, Card]:
    source = sys.stdin.buffer
    hosted: Hosted = read(json.loads(source.readline()), Hosted, "the site")
    private_folder(Path(hosted.folder))
    path = Path(hosted.data)
    if hosted.data and not path.exists():
        raise ParameterError(f"cohort-data={hosted.data!r} is not there")
    rows = path if hosted.data else pd.read_parquet(io.BytesIO(source.read()))
    return hosted, *build(hosted, rows)


def main() -> int:
    """Serve one run; 1 where the site cannot take part, for a reason that is said."""
    launch.no_core_files()
    launch.log_lines("%(asctime)s %(message)s")
    try:
        hosted, owner, card = _start()
        folder = Path(hosted.folder)
        driving = Driving(
            coordinator_key=hosted.coordinator_key,
            policy=hosted.policy,
            card=str(folder / CARD),
        )

        def ready() -> None:
            print(json.dumps({"ready": hosted.name}), flush=True)
            _to_log(folder)

        write_private(folder / CARD, card.to_json().encode())
        with open(_log_file(folder), "wb") as output:
            process.serve(owner, driving, folder / SOCKET, ready, output=output.fileno())
    except CohortError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return 1
    _forget(folder)
    return 0


def _forget(folder: Path) -> None:
    """Leave of what was made for the run the log, and that it is over."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOG, LEFT):
            erase(path)


def _log_file(folder: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.open(folder / LOG, flags, 0o600)


def _to_log(folder: Path) -> None:
    """From now on nobody reads what this process says."""
    handle = _log_file(folder)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


def request(hosted: Hosted) -> bytes:
    """The line that this module reads."""
    return msgspec.json.encode(hosted) + b"\n"


if __name__ == "__main__":
    sys.exit(main())
