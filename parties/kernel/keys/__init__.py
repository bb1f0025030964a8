"""A party's keys in a run under threshold CKKS. Here: what a run asks of them, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.ckks import CkksParameters
from protocols.ckks.flooding import Flooding

__all__ = ["CkksParameters", "KeysSheet"]  # records of this room


@dataclass(frozen=True, kw_only=True, slots=True)
class KeysSheet:
    """One party's keys in a run under threshold CKKS.

    session, roster: see `SumsSheet`; params: of the ring; rotations: indices of keys; refreshes:
    ciphertexts of each step; shown: which of the `coordinates`, slots or coefficients, the release
    shows; shown_error, error: bounds on the noise of these, and of all, before the decryption
    [integer units]; decryptions: of one message.
    """

    session: str
    roster: tuple[tuple[str, str], ...]
    params: CkksParameters
    rotations: tuple[int, ...]
    refreshes: tuple[int, ...]
    shown: tuple[int, ...]
    coordinates: int
    shown_error: float
    error: float
    decryptions: int

    def flooding(self) -> Flooding:
        """What hides these errors to 40 bits (`ckks.flooding`)."""
        shown = np.zeros(self.coordinates, np.bool_)
        shown[list(self.shown)] = True
        n, errors = self.params.ring_dim, (self.shown_error, self.error)
        return Flooding.of(shown, n, *errors, self.decryptions)
