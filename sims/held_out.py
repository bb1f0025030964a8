"""Rows that simulated owners hold back: coins, the rows that are left, and the record of both.

private/held-out.json in a run folder (mode 0600): what every owner of a deployment keeps to itself.
Of each owner its coins, and which rows of the table it had, for a simulation deals them out.
Whoever has it and the table knows which rows were held back; without it a model is not judged on
them any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from ciphercohort.job.layout import HELD_BACK, PRIVATE
from ciphercohort.results.documents import to_json
from parties.coins import Coin, Coins
from parties.reader.shard import Shard
from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import Checked, parse_json, read
from protocols.exchange.private_files import write_private
from protocols.plan.held_out import HeldOut
from protocols.privacy.laws import SystemRandomness
from sims.party_process import PartySpec
from sims.prepare import PreparedData


class Owner(Checked, frozen=True):
    """coin: of the draw; rows: positions in the table, in this owner's order."""

    coin: Coin
    rows: list[int]


class HeldBack(Checked, frozen=True):
    """What owners hold back; owners: by name, in the plan's order."""

    draw: str
    share: float
    owners: dict[str, Owner]

    @classmethod
    def of(cls, held_out: HeldOut, data: PreparedData, specs: Mapping[str, PartySpec]) -> HeldBack:
        """Of a run whose owners have tossed; data: as it was prepared."""
        owners = {
            name: Owner(coin=spec.coins.kept[held_out.draw], rows=data.places[name].tolist())
            for name, spec in specs.items()
            if spec.coins is not None
        }
        return cls(draw=held_out.draw, share=held_out.share, owners=owners)

    @classmethod
    def load(cls, run: Path) -> HeldBack:
        """Of a run folder.

        Raises:
            ParameterError: nothing was held back from that run, or its record is gone or malformed.
        """
        path = run / PRIVATE / HELD_BACK
        if not path.exists():
            raise ParameterError(
                f"{path} does not exist: no rows were held back from this run (cohort simulate "
                "--held-out 0.2 --out FOLDER), or the record of them is gone"
            )
        found: HeldBack = read(parse_json(path.read_bytes(), str(path)), cls, str(path))
        return found

    def save(self, private: Path) -> None:
        """Into the private half of a run folder."""
        owners = {
            name: {
                "coin": {"share": o.coin.share, "secret": o.coin.secret, "rows": o.coin.rows},
                "rows": o.rows,
            }
            for name, o in self.owners.items()
        }
        fields = {"draw": self.draw, "share": self.share, "owners": owners}
        write_private(private / HELD_BACK, to_json(fields, indent=None).encode())

    @property
    def judged(self) -> HeldOut:
        """The rows that were held back, for a plan."""
        return HeldOut(share=self.share, draw=self.draw, judged=True)

    def frames(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Rows by owner.

        Raises:
            DataError: the table is too short to be the one of the training.
        """
        largest = max(max(owner.rows) for owner in self.owners.values())
        if largest >= len(table):
            raise DataError(
                f"the table has {len(table):,} rows, the run had row {largest + 1:,}: give the "
                "table that the model was trained on"
            )
        return {name: table.iloc[owner.rows] for name, owner in self.owners.items()}

    def coins(self, name: str) -> Coins:
        """Of an owner."""
        return Coins(SystemRandomness(), {self.draw: self.owners[name].coin})


def used(
    held_out: HeldOut | None, data: PreparedData, specs: Mapping[str, PartySpec]
) -> PreparedData:
    """The rows that training uses; owners without coins of the draw toss them."""
    if held_out is None:
        return data
    shards, kept, start = {}, [], 0
    for name, shard in data.shards.items():
        coins = specs[name].coins
        if coins is None:
            raise AssertionError("an owner that holds rows back has coins")
        if held_out.draw not in coins.kept:
            coins.toss(held_out, shard)
        rows = coins.chosen(held_out, shard)
        shards[name] = shard.only(rows)
        kept.append(start + rows)
        start += shard.rows
    return replace(data, shards=shards, raw=data.raw[np.concatenate(kept)])


def otherwise_encoded(spec: PartySpec, shard: Shard) -> PartySpec:
    """The same owner with its whole table encoded otherwise, row by row: its coins go with it."""
    coins = spec.coins
    if coins is not None:
        rows = shard.fingerprint()
        kept = {draw: msgspec.structs.replace(coin, rows=rows) for draw, coin in coins.kept.items()}
        coins = Coins(SystemRandomness(), kept)
    return replace(spec, shard=shard, coins=coins)
