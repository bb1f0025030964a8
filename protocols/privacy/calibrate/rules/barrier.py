"""The barrier, certified as on encrypted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.privacy.calibrate.rows import choose_rows
from protocols.updates.update import Update

if TYPE_CHECKING:
    from protocols.privacy.calibrate.sums import Case


def of_rows(case: Case) -> Update:
    """That of encrypted rows."""
    return choose_rows(case.figures, case.wanted).rule
