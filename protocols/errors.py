"""One tree of errors; every message names the field, its value, the bound and the cure."""

from __future__ import annotations


class CohortError(Exception):
    """Anything that ciphercohort refuses, or aborts for a stated reason."""


class PlatformError(CohortError):
    """This machine or interpreter cannot run the cryptography."""


class ParameterError(CohortError, ValueError):
    """A parameter is outside its bound, or two parameters do not go together."""


class SchemaError(CohortError, ValueError):
    """The public description of the columns is wrong, or a table does not fit it."""


class DataError(CohortError, ValueError):
    """A private table cannot be used as it is; the message never quotes a private value."""


class PrivacyError(CohortError):
    """A privacy statement cannot be certified, or a budget would be overdrawn."""


class PolicyError(CohortError):
    """A party refuses what it was asked for."""


class MessageError(CohortError):
    """Bytes from the wire are malformed, oversize, forged or out of place."""


class ProtocolError(CohortError):
    """A protocol step went wrong; ``culprit`` names the party at fault, where one is known."""

    def __init__(self, message: str, culprit: str | None = None) -> None:
        super().__init__(message)
        self.culprit = culprit
