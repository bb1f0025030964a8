"""A party's card: what it tells the coordinator and its peers about itself; nothing is secret."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from protocols.names import check_name

CARD_KIND = "ciphercohort-party"
MAX_BYTES = 1 << 16
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """What a party tells about itself.

    identity: Ed25519 verification key, 64 hexadecimal digits; node_key: Flower's, in OpenSSH form;
    rows, num_features, schema (digest): the shape of its data.

    Raises:
        ParameterError: a field is out of range; names it.
    """

    name: str
    identity: str
    node_key: str
    rows: int
    num_features: int
    schema: str

    def __post_init__(self) -> None:
        check_name(self.name)
        for name in ("identity", "schema"):
            check_key(name, getattr(self, name))
        node_key: object = self.node_key
        if not isinstance(node_key, str) or not re.fullmatch("[ -~]*", node_key):
            raise ParameterError("node_key is not one line of ASCII")
        for name in ("rows", "num_features"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ParameterError(f"{name}={getattr(self, name)!r} is not a positive integer")

    @classmethod
    def load(cls, path: Path) -> Card:
        """Read a card that somebody sent.

        Raises:
            ParameterError: the file is no card, or a field of it is out of range.
        """
        with path.open("rb") as file:
            text = file.read(MAX_BYTES)
        try:
            fields = json.loads(text)
            if not isinstance(fields, dict) or fields.pop("kind", None) != CARD_KIND:
                raise TypeError
            return cls(**fields)
        except ParameterError as error:
            raise ParameterError(f"{path} is no party's card: {error}") from None
        except (ValueError, TypeError, RecursionError):
            raise ParameterError(
                f"{path} is no party's card: cohort party init makes one"
            ) from None

    def to_json(self) -> str:
        """The file's text."""
        fields: dict[str, Any] = {"kind": CARD_KIND, **asdict(self)}
        return json.dumps(fields, indent=1) + "\n"


def check_key(name: str, value: object) -> str:
    """Text of 64 hexadecimal digits: a verification key or a digest.

    Raises:
        ParameterError: it is not.
    """
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ParameterError(f"{name}={value!r:.80} is not 64 hexadecimal digits (0-9, a-f)")
    return value


def spoken(key: str) -> str:
    """A key in groups of four, to be compared by telephone."""
    return " ".join(key[k : k + 4] for k in range(0, len(key), 4))
