"""What ends a run, as its coordinator sees it."""

from __future__ import annotations

from protocols.errors import ProtocolError


class LostError(ProtocolError):
    """Parties did not reply to a step; `parties` names them all."""

    def __init__(self, message: str, parties: tuple[str, ...]) -> None:
        super().__init__(message, culprit=parties[0] if len(parties) == 1 else None)
        self.parties = parties


class AbortedError(ProtocolError):
    """A run across machines was aborted; `session` names it."""

    def __init__(self, message: str, session: str, culprit: str | None = None) -> None:
        super().__init__(message, culprit)
        self.session = session
