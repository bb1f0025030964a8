"""Names of protocols and of parties, which become file names; keys as people compare them."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from protocols.errors import ParameterError

COORDINATOR = "coordinator"
ENCRYPTED_ROWS, ENCRYPTED_MODEL = "encrypted-rows", "encrypted-model"
SECURE_AGGREGATION = "secure-aggregation"
UNDER_CKKS = (ENCRYPTED_ROWS, ENCRYPTED_MODEL)
"""Protocols that compute on ciphertexts, and open the final model alone."""
_ALIASES = {"shards": ENCRYPTED_ROWS, "gradients": SECURE_AGGREGATION}
RANGES_VIEW, EMPTY_VIEW, CELLS_VIEW = "ranges", "missing", "cells"
"""Rows encoded otherwise than for training: see `parties.reader.views`."""
DEFAULT_COLLUDERS = 0
"""Owners who may pool what they see with the coordinator, of every plan, simulated or deployed, and
of an owner's policy, unless told otherwise; what one of them sees is said beside each epsilon."""
MAX_NAME = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_STEM, _KEPT = 160, 80


def protocol_name(name: str) -> str:
    """The name of a protocol for one of its aliases, shards and gradients; any other as it is."""
    return _ALIASES.get(name, name)


def check_name(name: object) -> str:
    """The name of a party of a deployment.

    Raises:
        ParameterError: it is no text, has odd characters, is too long, or is the coordinator's.
    """
    if (
        not isinstance(name, str)
        or not name.replace("-", "").replace("_", "").isalnum()
        or len(name) > MAX_NAME
        or name == COORDINATOR
    ):
        raise ParameterError(
            f"name={name!r}: use letters, digits, - and _, at most {MAX_NAME} of them, and not "
            f"{COORDINATOR!r}"
        )
    return name


def is_session(name: str) -> bool:
    """Whether a session may be called so: ASCII letters and digits, at most `MAX_NAME`."""
    return name.isascii() and name.isalnum() and len(name) <= MAX_NAME


def check_colluders_of_sums(colluders: int, parties: int) -> None:
    """Colluders of secure sums: a sum less the parts of P - 1 of them is one owner's own sum.

    Raises:
        ParameterError: more than P - 2.
    """
    if colluders > parties - 2:
        raise ParameterError(
            f"colluders={colluders} is above {parties - 2}: a secure sum of {parties} parties less "
            f"the parts of {colluders} is one owner's own; take at least {colluders + 2} parties, "
            f"or {'fewer colluders' if parties > 2 else 'colluders=0'}"
        )


def file_stem(name: str) -> str:
    """A file name without its ending, for any text; different texts have different ones.

    Letters and digits of ASCII, - _ ~ and inner dots stay. Everything else is percent-encoded, so
    that no result is hidden, leaves its folder, or is longer than a file system takes.
    """
    stem = quote(name, safe="", errors="surrogatepass")
    if stem.startswith("."):
        stem = f"%2E{stem[1:]}"
    if 0 < len(stem) <= _MAX_STEM:
        return stem
    # "%-" is no escape, so that no shorter name gives the same.
    return f"{stem[:_KEPT]}%-{hashlib.sha256(stem.encode()).hexdigest()}"


def spoken(key: str) -> str:
    """A key in groups of four, to be compared by telephone."""
    return " ".join(key[k : k + 4] for k in range(0, len(key), 4))


def check_key(name: str, value: object) -> str:
    """Text of 64 hexadecimal digits: a verification key or a digest.

    Raises:
        ParameterError: it is not.
    """
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ParameterError(f"{name}={value!r:.80} is not 64 hexadecimal digits (0-9, a-f)")
    return value
