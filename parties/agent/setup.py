"""`cohort party init`: identity, node key, configuration, and the card for the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from parties.agent import settings as files
from parties.agent.doors import check_path, owner_path
from parties.agent.vault import Vault
from parties.reader.query import Query
from parties.reader.schema import Schema
from parties.reader.shard import encode_shard
from protocols.errors import ParameterError
from protocols.exchange.cards import Card, Invitation
from protocols.exchange.documents import read, to_toml
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.exchange.private_files import private_folder, write_private
from protocols.names import DEFAULT_COLLUDERS, check_name

# Largest run.
MAX_EPSILON, MAX_DELTA = 1.0, 1e-5
# Budget over epsilon of one run: seven private runs of the largest size spend it, composed.
SEVERAL = 3
log = logging.getLogger(__name__)
DEFAULT_POLICY: Mapping[str, Any] = {
    "max_epsilon": MAX_EPSILON,
    "max_delta": MAX_DELTA,
    "min_colluders": DEFAULT_COLLUDERS,
}
_COMMENTS = {
    "data": "this party's rows: they never leave this machine unencrypted",
    "coordinator_key": "compare it with the coordinator's administrator, by telephone",
    "superlink": "what the node dials; clientappio: what Flower's own SuperNode binds, if it runs",
    "strict": "true: rows with values outside the schema are refused, not clamped",
    "relay_uid": "user of the SuperNode, if it is not the agent's own",
    "keep_key_share": "sealed on disk while a run lasts, so that the agent may restart",
    "dataset": "runs on the same data share one budget, whatever their schema",
    "consent": "ask: a person accepts every plan; policy: [policy] decides alone",
    "policy": "larger values are refused; runs without noise: no max_epsilon, and exact_sums",
    "keep_ledger": "false: nobody adds up what the runs on this data spend together",
    "budget": "for all runs on this data set together; ledger.jsonl counts",
    "limits": "after either, the key share is erased and the session is over",
    "peers": "the other parties that you know, see cohort party peers; no others in a plan",
    "keyring": "entry with the passphrase in the operating system's keyring; empty: asked for",
    "insecure_noise_seed": "NOT PRIVATE: for tests only",
}


def init_party(
    folder: Path,
    invitation: Path,
    passphrase: str,
    *,
    data: Path,
    socket: Path | None = None,
    policy: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    **more: Any,
) -> Card:
    """Make the folder and return the card.

    data: of this party's rows, or a .toml file with a query, which goes into party.toml; more:
    further fields of `settings.Settings`. policy, budget: those of the safe defaults above where
    None.

    Raises:
        CohortError: the folder is in use, the invitation is none, the data do not fit the schema,
            or options contradict one another; nothing is written then.
    """
    check_name(more.get("name"))
    if folder.exists() and any(folder.iterdir()):
        raise ParameterError(f"{folder} is not empty: choose another folder")
    policy = policy or DEFAULT_POLICY
    invited = Invitation.load(invitation)
    schema = Schema.from_dict(invited.schema)
    path = check_path(_plain(socket or folder / "agent.sock"))
    owner_path(path)  # it has to fit too
    fields = {
        "data": _query(data) if data.suffix == ".toml" else str(_plain(data)),
        "dataset": data.name,
        "coordinator_key": invited.coordinator_key,
        "superlink": invited.superlink,
        "socket": str(path),
        "policy": policy,
        **more,
    }
    if fields.get("keep_ledger", True):
        if policy.get("max_epsilon") is None:
            raise ParameterError(files.UNCOUNTED)
        delta = policy.get("max_delta", MAX_DELTA)
        fields["budget"] = budget or {"epsilon": SEVERAL * policy["max_epsilon"], "delta": delta}
    settings: files.Settings = read({"folder": folder, **fields}, files.Settings, files.FILE)
    if settings.keep_ledger:
        settings.open_ledger()  # its bounds
    shard = encode_shard(settings.rows(), schema, settings.strict)
    for words in shard.counts.doubts():
        log.warning("for the owner of these rows alone: %s", words)
    vault, identity = Vault(passphrase), new_signing_key()
    raw = identity.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    private_folder(folder)
    write_private(folder / files.IDENTITY, vault.seal(raw, files.IDENTITY_LABEL))
    node_key = _write_node_key(folder)
    (folder / files.CA).write_text(invited.ca, encoding="ascii")
    schema.save(folder / files.SCHEMA)
    said = {n: getattr(settings, n) for n in settings.__struct_fields__ if n != "folder"}
    written = msgspec.to_builtins(said)
    write_private(folder / files.FILE, to_toml(written, _COMMENTS).encode())
    card = Card(
        name=settings.name,
        identity=public_bytes(identity),
        node_key=node_key,
        rows=shard.rows,
        num_features=shard.num_features,
        schema=schema.digest(),
    )
    (folder / files.CARD).write_text(card.to_json(), encoding="utf-8")
    return card


def _plain(path: Path) -> Path:
    """Absolute, without "..": of a link the link itself."""
    return path.parent.resolve() / path.name


def _query(path: Path) -> dict[str, Any]:
    """The query of a file; its own files by their absolute paths, since it moves to another."""
    query = Query.load(path)
    if query.password_file:
        secret = str(_plain(path.parent / query.password_file))
        query = msgspec.structs.replace(query, password_file=secret)
    return msgspec.structs.asdict(query)


def _write_node_key(folder: Path) -> str:
    """Flower's node key pair, P-384 in OpenSSH form; returns the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(folder / files.NODE_KEY, private)
    (folder / files.NODE_PUBLIC).write_bytes(public + b"\n")
    return public.decode()
