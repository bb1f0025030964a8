"""What parties and coordinator tell each other about themselves in files; nothing is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from protocols.errors import ParameterError
from protocols.exchange.documents import Checked, parse_json, read
from protocols.names import check_key, check_name

CARD_KIND, INVITATION_KIND = "ciphercohort-party", "ciphercohort-invitation"
MAX_BYTES = 1 << 16
Size = Annotated[int, msgspec.Meta(ge=1)]


class _File(Checked, frozen=True, tag_field="kind"):
    """A JSON file that says what it is."""

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(msgspec.to_builtins(self), indent=1) + "\n"


class Card(_File, frozen=True, tag=CARD_KIND):
    """What a party tells about itself.

    identity: Ed25519 verification key, 64 hexadecimal digits; node_key: Flower's, in OpenSSH form;
    rows, num_features, schema (digest): the shape of its data.

    Raises:
        ParameterError: a field is out of range; names it.
    """

    name: str
    identity: str
    node_key: Annotated[str, msgspec.Meta(pattern=r"\A[ -~]*\Z")]  # one line of ASCII
    rows: Size
    num_features: Size
    schema: str

    def __post_init__(self) -> None:
        """Check the fields, then names and keys."""
        Checked.__post_init__(self)
        check_name(self.name)
        check_key("identity", self.identity)
        check_key("schema", self.schema)

    @classmethod
    def load(cls, path: Path) -> Card:
        """Read a card that somebody sent.

        Raises:
            ParameterError: the file is no card, or a field of it is out of range.
        """
        try:
            card: Card = _read(cls, path)
        except ParameterError as error:
            raise ParameterError(
                f"{path} is no party's card: {error}; cohort party init makes one"
            ) from None
        return card


class Invitation(_File, frozen=True, tag=INVITATION_KIND):
    """What a coordinator tells its parties: its verification key, its address, CA and schema."""

    coordinator_key: str
    superlink: str
    ca: str
    schema: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Invitation:
        """Read an invitation. Raises ParameterError: the file is none."""
        try:
            invitation: Invitation = _read(cls, path)
        except ParameterError as error:
            raise ParameterError(
                f"{path} is no invitation: {error}; cohort coordinator init makes one"
            ) from None
        return invitation


def _read(kind: type[_File], path: Path) -> Any:
    with path.open("rb") as file:
        fields = parse_json(file.read(MAX_BYTES), "the file")
    if not isinstance(fields, dict) or fields.get("kind") != kind.__struct_config__.tag:
        raise ParameterError("it is of another kind")
    return read(fields, kind, "the file")
