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
from parties.frames import check_path, owner_path
from parties.policy import Policy
from parties.schema import Schema
from parties.shard import encode_shard
from parties.tables import read_table
from parties.vault import Vault
from protocols.cards import Card
from protocols.errors import ParameterError
from protocols.messages import new_signing_key, public_bytes
from protocols.names import check_name
from protocols.plan import DEFAULT_COLLUDERS
from protocols.privacy.ledger import Ledger
from protocols.private_files import private_folder, write_private
from protocols.toml import to_toml

INVITATION_KIND = "ciphercohort-invitation"
# One run of the largest size; noise that withstands one other owner who pools with the coordinator,
# which every run of two or more parties can give.
MAX_EPSILON, MAX_DELTA = 1.0, 1e-5
_COMMENTS = {
    "data": "this party's rows: they never leave this machine unencrypted",
    "coordinator_key": "compare it with the coordinator's administrator, by telephone",
    "superlink": "what the SuperNode dials; clientappio: what it binds",
    "relay_uid": "user of the SuperNode, if it is not the agent's own",
    "keep_key_share": "sealed on disk while a run lasts, so that the agent may restart",
    "dataset": "runs on the same data share one budget, whatever their schema",
    "consent": "ask: a person accepts every plan; policy: [policy] decides alone",
    "policy": "larger values are refused; without max_epsilon a run without noise is accepted",
    "keep_ledger": "false: nobody adds up what the runs on this data spend together",
    "budget": "for all runs on this data set together; ledger.jsonl counts",
    "limits": "after either, the key share is erased and the session is over",
    "peers": "the other parties that you know, see cohort party peers; no others in a plan",
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
    passphrase: str = field(repr=False)
    clientappio: str = "127.0.0.1:9094"
    socket: Path | None = None
    relay_uid: int | None = None
    keep_key_share: bool = True
    keep_ledger: bool = True
    insecure_noise_seed: int | None = None
    keyring: str = ""
    consent: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)


def init_party(household: Household) -> Card:
    """Make the folder and return the card.

    Raises:
        CohortError: the folder is in use, the invitation is none, the data do not fit the schema,
            or options contradict one another; nothing is written then.
    """
    folder, name = household.folder, household.name
    check_name(name)
    if household.keep_ledger and _policy(household).get("max_epsilon") is None:
        raise ParameterError(
            "a ledger cannot count a run without noise, which this policy accepts: keep no ledger "
            "(--no-ledger), or accept private runs only"
        )
    Policy(**_policy(household))
    if household.keep_ledger:
        Ledger(path=folder / files.LEDGER, **_budget(household))
    mode = household.consent.get("mode", "ask")
    if mode not in ("ask", "policy"):
        raise ParameterError(f"consent={mode!r} is not ask or policy")
    if folder.exists() and any(folder.iterdir()):
        raise ParameterError(f"{folder} is not empty: choose another folder")
    invitation = _invitation(household.invitation)
    schema = Schema.from_dict(invitation["schema"])
    shard = encode_shard(read_table(household.data, label=schema.label.name), schema)
    socket = check_path((household.socket or folder / "agent.sock").absolute())
    owner_path(socket)  # it has to fit too
    vault, identity = Vault(household.passphrase), new_signing_key()
    raw = identity.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    private_folder(folder)
    write_private(folder / files.IDENTITY, vault.seal(raw, files.IDENTITY_LABEL))
    node_key = _write_node_key(folder)
    (folder / files.CA).write_text(invitation["ca"], encoding="ascii")
    schema.save(folder / files.SCHEMA)
    text = to_toml(_fields(household, invitation, socket), _COMMENTS)
    write_private(folder / files.FILE, text.encode())
    card = Card(
        name=name,
        identity=public_bytes(identity),
        node_key=node_key,
        rows=shard.rows,
        num_features=shard.num_features,
        schema=schema.digest(),
    )
    (folder / files.CARD).write_text(card.to_json(), encoding="utf-8")
    return card


def _policy(household: Household) -> Mapping[str, Any]:
    return household.policy or {
        "max_epsilon": MAX_EPSILON,
        "max_delta": MAX_DELTA,
        "min_colluders": DEFAULT_COLLUDERS,
    }


def _budget(household: Household) -> Mapping[str, float]:
    if household.budget or not household.keep_ledger:
        return household.budget
    policy = _policy(household)
    return {"epsilon": policy["max_epsilon"], "delta": policy.get("max_delta", MAX_DELTA)}


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
        "keep_ledger": household.keep_ledger,
        "insecure_noise_seed": household.insecure_noise_seed,
        "keyring": household.keyring,
        "consent": household.consent or {"mode": "ask", "wait_seconds": 3600.0},
        "policy": _policy(household),
        "budget": _budget(household),
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
