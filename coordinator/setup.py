"""`cohort coordinator init`: identity, certificates, configuration, and the parties' invitation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator import settings as files
from coordinator.certificates import CA, hosts_of, make_certificates
from protocols.errors import ParameterError
from protocols.exchange.cards import Card, Invitation
from protocols.exchange.documents import parse_json, to_toml
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.exchange.private_files import private_folder, write_private
from protocols.names import spoken

INVITATION = "invitation.json"
_COMMENTS = {
    "fleet": "bound for the parties; public: the same as they dial it",
    "control": "bound for `cohort coordinator run`; serverappio: for its own processes",
    "step_seconds": "longest wait for all parties in one step",
    "session_seconds": "longest run, restarts included",
    "relay": "owners with replicas are sent others' replies, those with witnesses their words",
    "training": "options of cohort simulate that settle the plan",
}
_APP = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "ciphercohort-app"
version = "1.0.0"
description = "No code: the components below are those that each host has installed"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.flwr.app]
publisher = "ciphercohort"

[tool.flwr.app.components]
serverapp = "{server}:app"
clientapp = "{client}:app"

[tool.flwr.app.config]
"""
_LICENSE = "Apache License 2.0, http://www.apache.org/licenses/LICENSE-2.0\n"


def init_coordinator(
    folder: Path,
    schema: Mapping[str, Any],
    addresses: Mapping[str, str],
    training: Mapping[str, Any],
    limits: Mapping[str, float | bool] | None = None,
) -> Path:
    """Make the folder; returns the invitation's path.

    schema: the public column schema as JSON; addresses: fleet, control, serverappio, public of
    `settings.Settings`; training: its options.

    Raises:
        ParameterError: the folder is in use, or an address is none.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ParameterError(f"{folder} is not empty: choose another folder")
    hosts = [host_of(address) for address in addresses.values()]  # before anything is written
    private_folder(folder)
    (folder / files.CARDS).mkdir()
    key = new_signing_key()
    raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    write_private(folder / files.IDENTITY, raw.hex().encode())
    make_certificates(folder, [*hosts, "localhost", "127.0.0.1"])
    (folder / files.SCHEMA).write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
    fields = {**addresses, **(limits or {}), "training": training}
    (folder / files.FILE).write_text(to_toml(fields, _COMMENTS), encoding="utf-8")
    write_app(folder / files.APP)
    return _invite(folder, public_bytes(key), addresses["public"], schema)


def renew(settings: files.Settings) -> Path:
    """New certificates for the same hosts; returns the path of the invitation that has them."""
    folder = settings.folder
    make_certificates(folder, hosts_of(folder))
    schema = parse_json((folder / files.SCHEMA).read_bytes(), files.SCHEMA)
    return _invite(folder, public_bytes(settings.signing_key()), settings.public, schema)


def _invite(folder: Path, key: str, superlink: str, schema: Mapping[str, Any]) -> Path:
    invitation = Invitation(
        coordinator_key=key,
        superlink=superlink,
        ca=(folder / CA).read_text(encoding="ascii"),
        schema=dict(schema),
    )
    (folder / INVITATION).write_text(invitation.to_json(), encoding="utf-8")
    return folder / INVITATION


def write_app(
    folder: Path,
    server: str = "coordinator.flower_app",
    client: str = "parties.flower_app",
    config: Mapping[str, Any] = MappingProxyType({"session": ""}),
) -> None:
    """A code-free Flower app: hosts run the modules that they installed themselves."""
    folder.mkdir()
    text = _APP.format(server=server, client=client) + to_toml(config, {})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    (folder / "LICENSE").write_text(_LICENSE, encoding="utf-8")


def host_of(address: str) -> str:
    """HOST of HOST:PORT. Raises ParameterError: it is not of this form."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ParameterError(f"address={address!r} is not HOST:PORT, a port from 1 to 65535")
    return host.strip("[]")


def admit(settings: files.Settings, path: Path) -> Card:
    """Take a party's card in.

    Raises:
        ParameterError: it is no card, its party uses another schema, or another party has its name.
    """
    card = Card.load(path)
    cards = settings.cards()
    target = settings.card_path(card.name)
    if card.name in cards and cards[card.name].identity != card.identity:
        raise ParameterError(
            f"party {card.name!r} is admitted with another key, "
            f"{spoken(cards[card.name].identity)}: ask its administrator by telephone; if "
            f"{spoken(card.identity)} is right, remove {target} first"
        )
    for known in cards.values():
        if known.schema != card.schema:
            raise ParameterError(
                f"party {card.name!r} uses another schema than {known.name!r}: every party takes "
                f"the one of {INVITATION}"
            )
    write_private(target, card.to_json().encode())
    return card
