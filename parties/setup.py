"""`cohort party init`: identity, node key, configuration, and the card for the coordinator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from parties import settings as files
from parties.frames import check_path
from parties.schema import Schema
from parties.shard import encode_shard
from parties.tables import read_table
from parties.vault import Vault
from protocols.errors import ParameterError
from protocols.messages import COORDINATOR, new_signing_key, public_bytes
from protocols.private_files import write_private
from protocols.toml import to_toml

INVITATION_KIND, CARD_KIND = "ciphercohort-invitation", "ciphercohort-party"
_COMMENTS = {
    "data": "this party's rows: they never leave this machine unencrypted",
    "coordinator_key": "compare it with the coordinator's administrator, by telephone",
    "superlink": "what the SuperNode dials; clientappio: what it binds",
    "relay_uid": "user of the SuperNode, if it is not the agent's own",
    "keep_key_share": "sealed on disk while a run lasts, so that the agent may restart",
    "dataset": "runs on the same data share one budget, whatever their schema",
    "consent": "ask: a person accepts every plan; policy: [policy] decides alone",
    "policy": "larger values are refused; without max_epsilon a run without noise is accepted",
    "budget": "for all runs on this data set together",
    "limits": "after either, the key share is erased and the session is over",
    "peers": 'name = "verification key" of every other party; empty accepts any',
    "keyring": "entry with the passphrase in the operating system's keyring; empty: asked for",
    "insecure_noise_seed": "NOT PRIVATE: for tests only",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Household:
    """What `init_party` is told; see `settings.Settings` for the fields."""

    folder: Path
    invitation: Path
    name: str
    data: Path
    passphrase: str
    clientappio: str = "127.0.0.1:9094"
    socket: Path | None = None
    relay_uid: int | None = None
    keep_key_share: bool = True
    insecure_noise_seed: int | None = None
    keyring: str = ""
    consent: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)


def init_party(household: Household) -> dict[str, Any]:
    """Make the folder and return the card.

    Raises:
        CohortError: the folder is in use, the invitation is none, or the data do not fit the
            schema; nothing is written then.
    """
    folder, name = household.folder, household.name
    if not name.replace("-", "").replace("_", "").isalnum() or name == COORDINATOR:
        raise ParameterError(f"name={name!r}: use letters, digits, - and _, not {COORDINATOR!r}")
    if folder.exists() and any(folder.iterdir()):
        raise ParameterError(f"{folder} is not empty: choose another folder")
    invitation = _invitation(household.invitation)
    schema = Schema.from_dict(invitation["schema"])
    shard = encode_shard(read_table(household.data, label=schema.label.name), schema)
    socket = check_path((household.socket or folder / "agent.sock").absolute())
    vault, identity = Vault(household.passphrase), new_signing_key()
    raw = identity.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / files.IDENTITY, vault.seal(raw, files.IDENTITY_LABEL))
    node_key = _write_node_key(folder)
    (folder / files.CA).write_text(invitation["ca"], encoding="ascii")
    schema.save(folder / files.SCHEMA)
    (folder / files.FILE).write_text(
        to_toml(_fields(household, invitation, socket), _COMMENTS), encoding="utf-8"
    )
    card = {
        "kind": CARD_KIND,
        "name": name,
        "identity": public_bytes(identity),
        "node_key": node_key,
        "rows": shard.rows,
        "num_features": shard.num_features,
        "schema": schema.digest(),
    }
    (folder / files.CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return card


def _fields(household: Household, invitation: dict[str, Any], socket: Path) -> dict[str, Any]:
    return {
        "name": household.name,
        "data": str(household.data.absolute()),
        "dataset": household.data.name,
        "coordinator_key": invitation["coordinator_key"],
        "superlink": invitation["superlink"],
        "clientappio": household.clientappio,
        "socket": str(socket),
        "relay_uid": household.relay_uid,
        "keep_key_share": household.keep_key_share,
        "insecure_noise_seed": household.insecure_noise_seed,
        "keyring": household.keyring,
        "consent": household.consent or {"mode": "ask", "wait_seconds": 3600.0},
        "policy": household.policy or {"max_epsilon": 1.0, "max_delta": 1e-5, "min_colluders": 0},
        "budget": dict(household.budget),
        "limits": {"idle_seconds": 1800.0, "session_seconds": 86400.0},
        "peers": {},
    }


def _invitation(path: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = fields["kind"]
        missing = {"coordinator_key", "superlink", "ca", "schema"} - set(fields)
    except (ValueError, KeyError, TypeError):
        kind, missing = None, set()
    if kind != INVITATION_KIND or missing:
        raise ParameterError(f"{path} is no invitation: cohort coordinator init makes one")
    return fields


def _write_node_key(folder: Path) -> str:
    """Flower's node key pair, P-384 in OpenSSH form; returns the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(folder / files.NODE_KEY, private)
    (folder / files.NODE_PUBLIC).write_bytes(public + b"\n")
    return public.decode()
