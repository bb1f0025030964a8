"""Until when TLS certificates are valid: read off them before anything is started."""

from __future__ import annotations

import ssl
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509

from protocols.errors import ParameterError

_DIAL_SECONDS = 5.0


def ends(pem: bytes, name: str) -> datetime:
    """When the first certificate of a chain ends, UTC.

    name: of whose it is, for the message.

    Raises:
        ParameterError: there is no certificate.
    """
    try:
        return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise ParameterError(f"{name} is no certificate: {error}") from None


def check(pem: bytes, name: str, cure: str, now: datetime | None = None) -> datetime:
    """As `ends`; cure: what to do about one that is over; now: default, by this machine's clock.

    Raises:
        ParameterError: a certificate is over, or not valid yet; names it and its date.
    """
    end, clock = ends(pem, name), now or datetime.now(timezone.utc)
    begin = max(each.not_valid_before_utc for each in x509.load_pem_x509_certificates(pem))
    if clock >= end:
        raise ParameterError(f"{name} expired on {day(end)}: {cure}")
    if clock < begin:
        raise ParameterError(
            f"{name} is valid from {begin:%Y-%m-%d %H:%M} UTC, and it is {clock:%Y-%m-%d %H:%M} "
            "UTC here: set this machine's clock"
        )
    return end


def check_file(path: Path, cure: str) -> datetime:
    """As `check`, of a file."""
    return check(path.read_bytes(), str(path), cure)


def until(end: datetime, cure: str, now: datetime | None = None) -> str:
    """until 2031-11-26, or when it expired, and what to do; now: as of `check`."""
    if (now or datetime.now(timezone.utc)) < end:
        return f"until {day(end)}"
    return f"expired on {day(end)}: {cure}"


def day(when: datetime) -> str:
    """2031-11-26."""
    return f"{when:%Y-%m-%d}"


def shown_at(address: str) -> bytes | None:
    """The certificate that a TLS server shows, PEM, which nothing has checked; None: none answers.

    address: HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    try:
        found = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=_DIAL_SECONDS)
    except (OSError, ValueError):
        return None
    return found.encode("ascii")
