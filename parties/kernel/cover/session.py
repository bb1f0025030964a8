"""One party's keys in a run where parties stand in for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parties.kernel.cover import CoveredSheet
from parties.kernel.cover.covered_share import CoveredShare
from parties.kernel.cover.share import CoverShare
from parties.kernel.keys.session import KeySession
from parties.kernel.private import Terms
from parties.kernel.sheet import Floor
from protocols.errors import PolicyError
from protocols.exchange import COVERED, Body
from protocols.exchange.signed_values import SignedValue


class CoveredKeys(CoveredShare, KeySession):
    """See `KeySession`; it holds shares of others' key shares, and gives none away."""

    _sheet: CoveredSheet
    _cover: CoverShare | None = None
    decryptions = 2

    def make(self, joint_seed: bytes) -> None:
        """See `KeyShare.make`."""
        super().make(joint_seed)
        self._make_cover()

    def _make_cover(self) -> None:
        roster, most = dict(self._sheet.roster), self._sheet.cover
        self._cover = CoverShare(roster, most, self._name, self.seed, self._signing_key, self)

    def cover_key(self) -> SignedValue:
        """See `CoverShare.key`."""
        return self._covering.key()

    def deal(self, keys: Mapping[str, SignedValue]) -> tuple[bytes, ...]:
        """See `CoverShare.deal`."""
        return self._covering.deal(keys)

    def hold(self, sealed: Sequence[bytes]) -> None:
        """See `CoverShare.hold`."""
        self._covering.hold(sealed)

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `CoverShare.stand_in`."""
        return self._covering.stand_in(request)

    @property
    def missing(self) -> tuple[str, ...]:
        """See `KeySession.missing`."""
        return self._cover.missing if self._cover else ()

    @property
    def covering(self) -> tuple[tuple[str, ...], ...]:
        """See `KeySession.covering`."""
        return self._cover.covering if self._cover else ()

    def erase(self) -> None:
        """See `KeySession.erase`."""
        super().erase()
        if self._cover is not None:
            self._cover.erase()

    def state(self) -> Any:
        """See `KeySession.state`."""
        return [super().state(), self._cover and self._cover.state()]

    def restore(self, state: Any) -> None:
        """See `KeySession.restore`."""
        own, cover = state
        super().restore(own)
        if cover is not None:
            self._make_cover()
            self._covering.restore(cover)

    @property
    def _covering(self) -> CoverShare:
        if self._cover is None:
            raise PolicyError("this session has no key share yet: nobody can be covered for")
        return self._cover

    def _answered(self, label: str) -> str:
        return label.removeprefix(COVERED) if self.missing else label

    def _floors(self, terms: Terms) -> list[Floor]:
        most = len(self._sheet.roster)
        by_whom = ("cover: by too few", lambda: terms.colluders < self._sheet.cover <= most)
        return [by_whom, *super()._floors(terms)]
