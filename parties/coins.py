"""A party's coins: which of its rows it holds back, one secret for each draw, tossed once.

Security: coins are kept for as long as the party may be asked to judge a model of their draw, told
to nobody, and independent of the rows (`protocols.plan.held_out`). Rows and schema are those of the
toss, by their digest: other rows in the same places were not held back from anything. Coins know
the plans that had their rows: what follows one of these has the same rows, or is refused. So coins
that were lost and tossed anew, by whatever plan of their draw, are never taken for those before.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from parties.kernel.private import COIN_BYTES
from parties.policy import Reason, ToldError
from protocols.errors import DataError
from protocols.exchange.documents import Checked
from protocols.privacy.laws import RandomSource, apart

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from parties.reader.shard import Shard
    from protocols.plan.held_out import HeldOut

log = logging.getLogger(__name__)


def cell_coins(identity: Ed25519PrivateKey) -> bytes:
    """Of draws of missing cells: the same in all sums of a series, also after a restart."""
    return hashlib.sha256(b"missing cells" + identity.private_bytes_raw()).digest()


class Coin(Checked, frozen=True):
    """Of one draw: share that is held back; secret: hexadecimal; rows: digest of the shard.

    plans: digests of those that had these rows, None: nobody noted them, in a simulation or in an
    earlier release.
    """

    share: float
    secret: str
    rows: str
    plans: list[str] | None = None

    def __repr__(self) -> str:
        return "Coin(<secret>)"


class Coins:
    """Coins of one party, by draw.

    randomness: what they are tossed with; kept: those that were.
    """

    def __init__(self, randomness: RandomSource, kept: Mapping[str, Coin] | None = None) -> None:
        self._randomness = randomness
        self.kept = dict(kept or {})

    def __repr__(self) -> str:
        return f"Coins(<secret>, draws={len(self.kept)})"

    def chosen(
        self,
        held_out: HeldOut,
        shard: Shard,
        own: str = "",
        before: str = "",
        *,
        spend: Callable[[], None] = lambda: None,
    ) -> NDArray[np.intp]:
        """Indices of the rows that a run uses.

        own: digest of its plan, where that trains or sums a second moment: it is noted, and tosses
        the coins where it follows no other; before: of the plan whose rows these are, one that was
        noted, empty where it follows none; spend: is called before rows are compared with those
        of an earlier toss, as whoever asks sees how that ends.

        Raises:
            ToldError: there are no coins of this draw, or they are of another share or of other
                plans; which, the owner alone is told.
            ParameterError: too few rows. DataError: other rows; what is told to nobody else.
        """
        held_out.size(shard.rows)
        coin = self.kept.get(held_out.draw)
        is_new = coin is None and bool(own) and not before and not held_out.judged
        if is_new:
            coin = self.toss(held_out, shard, [own])
        if coin is None:
            raise _refused(
                f"there are no coins of draw {held_out.draw[:16]}: this party took no part in that "
                "training, or its record of it is gone; restore held-out.sealed, or train again"
            )
        if coin.share != held_out.share:
            raise _refused(
                f"held_out={held_out.share:g} of the plan is not {coin.share:g}, which draw "
                f"{held_out.draw[:16]} was tossed for"
            )
        is_first = bool(own) and not before
        if coin.plans is not None and not is_first and before not in coin.plans:
            raise _refused(
                f"the coins of draw {held_out.draw[:16]} are not those that plan {before[:16]} was "
                "with: they were tossed later; restore held-out.sealed as it was, or train again"
                if before
                else f"the plan names no training, and coins of draw {held_out.draw[:16]} are of "
                "the plans that had them alone"
            )
        if not is_new:
            spend()
        if coin.rows != shard.fingerprint():
            raise DataError(
                f"the rows or their schema have changed since draw {held_out.draw[:16]}: which of "
                "them were held back cannot be told any more"
            )
        if own and coin.plans is not None and own not in coin.plans:
            self._keep(held_out.draw, replace(coin, plans=[*coin.plans, own]))
        return held_out.chosen(bytes.fromhex(coin.secret), shard.rows)

    def toss(self, held_out: HeldOut, shard: Shard, plans: list[str] | None = None) -> Coin:
        """New coins of a draw that has none; plans: as of `Coin`."""
        source = apart(self._randomness, f"held-out/{held_out.draw}")
        secret = source.words(COIN_BYTES // 8).astype("<u8").tobytes()
        coin = Coin(held_out.share, secret.hex(), shard.fingerprint(), plans)
        self._keep(held_out.draw, coin)
        return coin

    def _keep(self, draw: str, coin: Coin) -> None:
        """Note new coins, before anything depends on them."""
        self.kept[draw] = coin


def _refused(words: str) -> ToldError:
    log.warning("%s", words)
    return ToldError(Reason.COINS)
