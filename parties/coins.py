"""A party's coins: which of its rows it holds back, one secret for each draw, tossed once.

Security: coins are kept for as long as the party may be asked to judge a model of their draw, told
to nobody, and independent of the rows (`protocols.plan.held_out`). Rows and schema are those of the
toss, by their digest: other rows in the same places were not held back from anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parties.kernel.private import COIN_BYTES
from protocols.errors import DataError, PolicyError
from protocols.exchange.documents import Checked
from protocols.privacy.laws import RandomSource, apart

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from parties.reader.shard import Shard
    from protocols.plan.held_out import HeldOut


def cell_coins(identity: Ed25519PrivateKey) -> bytes:
    """Of draws of missing cells: the same in all sums of a series, also after a restart."""
    return hashlib.sha256(b"missing cells" + identity.private_bytes_raw()).digest()


class Coin(Checked, frozen=True):
    """Of one draw: share that is held back; secret: hexadecimal; rows: digest of the shard."""

    share: float
    secret: str
    rows: str

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

    def chosen(self, held_out: HeldOut, shard: Shard, tosses: bool = False) -> NDArray[np.intp]:
        """Indices of the rows that a run uses; tosses: for a new training, where none are known.

        Raises:
            PolicyError: there are no coins of this draw, or they are of another share.
            ParameterError: too few rows. DataError: other rows; what is told to nobody else.
        """
        held_out.size(shard.rows)
        coin = self.kept.get(held_out.draw)
        if coin is not None and coin.share != held_out.share:
            raise PolicyError(
                f"held_out={held_out.share:g} of the plan is not {coin.share:g}, which draw "
                f"{held_out.draw[:16]} was tossed for"
            )
        if coin is None:
            if held_out.judged or not tosses:
                raise PolicyError(
                    f"this party has no coins of draw {held_out.draw[:16]}: it took no part in "
                    "that training, or its record of it is gone, so it cannot tell which rows were "
                    "held back"
                )
            source = apart(self._randomness, f"held-out/{held_out.draw}")
            secret = source.words(COIN_BYTES // 8).astype("<u8").tobytes()
            coin = Coin(share=held_out.share, secret=secret.hex(), rows=shard.fingerprint())
            self._keep(held_out.draw, coin)
        if coin.rows != shard.fingerprint():
            raise DataError(
                f"the rows or their schema have changed since draw {held_out.draw[:16]}: which of "
                "them were held back cannot be told any more"
            )
        return held_out.chosen(bytes.fromhex(coin.secret), shard.rows)

    def _keep(self, draw: str, coin: Coin) -> None:
        """Note new coins, before anything depends on them."""
        self.kept[draw] = coin
