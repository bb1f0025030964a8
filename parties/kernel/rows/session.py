"""A run on encrypted rows or sums: what one party encrypts once, behind a sheet that it checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.keys.key_share import Halves
from parties.kernel.keys.session import KeySession, refresh_reply
from parties.kernel.private import Terms, opened, terms_of
from parties.kernel.rows import ColumnMap, RowsSheet, masks, packed
from parties.kernel.rows.curvature import in_range, largest_row_sum
from parties.kernel.sheet import LEEWAY, Floor, fits, hold, of_rows
from protocols.ckks import residues as rns
from protocols.ckks.flooding import encode_complex
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, PolicyError
from protocols.exchange import CONTRIBUTE, Body
from protocols.privacy.laws import RandomSource
from protocols.steps import restore, state_of


class RowsSession:
    """One party of one run.

    name: in the roster; rows: behind their boundary, which has the owner's terms; randomness: of
    the noise.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, or is none.
    """

    def __init__(
        self,
        sheet: RowsSheet,
        name: str,
        rows: Any,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        self._sheet, self._rows, self._terms = sheet, rows, terms_of(rows)
        self._randomness, self.is_over = randomness, False
        self._numbers = packed.numbers(sheet, self._terms.protocols)
        key = signing_key.public_key().public_bytes_raw().hex()
        check(sheet, name, key, rows, self._terms, self._numbers)

    def contribute(self, places: Sequence[NDArray[np.int32]]) -> list[Residues]:
        """(c0, c1) of each vector of slots, once.

        places: for each slot of each vector 1 + the place of its number in `packed.values`, one
        array after the other; 0 where it is empty.

        Raises:
            PolicyError: a second time, or before the joint key. MessageError: a row stands in two
                slots, or in none.
        """
        if self.is_over:
            raise PolicyError("this session has encrypted its rows; again, they would have others")
        sheet, keys = self._sheet, self._terms.keys()
        self.check_places(places, keys.context.num_slots)
        key = keys.public_key()
        self.is_over = True
        self._terms.spend()
        shard = opened(self._rows)
        noise = packed.draw_noise(sheet, self._numbers.noise_size(sheet), self._randomness)
        found = self._numbers.values(sheet, shard.x, shard.y, noise, shard.weight)
        numbers = np.concatenate([[0.0], *(each.ravel() for each in found)])
        return [
            encrypt(keys, key, numbers[place], f"{CONTRIBUTE}/{k}")
            for k, place in enumerate(places)
        ]

    def check_places(self, places: Sequence[NDArray[np.int32]], num_slots: int) -> None:
        """Each number has a slot; numbers of a row one, those of sums as many as the layout."""
        sheet = self._sheet
        total = 1 + sum(map(math.prod, self._numbers.shapes(sheet, int(self._rows.rows))))
        if not all(p.shape == (num_slots,) and p.dtype == np.int32 for p in places):
            raise MessageError("places are int32, one for each slot of a vector")
        if not all(int(p.min()) >= 0 and int(p.max()) < total for p in places):
            raise MessageError("a slot has a place that holds no number")
        counts = sum((np.bincount(p, minlength=total) for p in places), np.zeros(total, np.int64))
        once = total if sheet.kind != "gram" else 1
        if not ((counts[1:once] == 1).all() and (counts[once:] >= 1).all()):
            raise MessageError("a number of a row stands in no slot, or in two")

    def hold_refresh(
        self, maps: Sequence[ColumnMap | None], step: str, before: str, asked: Body
    ) -> Body:
        """Digest, signed, of the shares of a refresh through these maps; see `hold_reply`."""
        keys: KeySession = self._terms.keys()
        shares = partial(keys.shares, drawn=masks.drawn, of_model=False)
        make = partial(refresh_reply, keys.context, shares, maps, step)
        return keys.hold_reply(step, before, asked, make)

    def erase(self) -> None:
        """Nothing leaves any more."""
        self.is_over = True

    STATE = ("is_over",)
    state, restore = state_of, restore


def encrypt(keys: Any, public: Halves, slots: NDArray[np.float64], label: str) -> Residues:
    """(b v + e0 + m, a v + e1) of real slots m, shape (2 towers, n); see `KeyShare.encrypt_onto`.

    m is encoded apart from e0: beside large slots the encoder's doubles would round it away.
    """
    m = keys.context.residues_of(encode_complex(keys.context, slots.astype(np.complex128)))
    pair = [m, rns.zeros(*m.shape)]
    return np.concatenate(keys.encrypt_onto(public, [pair], [label], ("m", ""))[0])


def check(sheet: RowsSheet, name: str, key: str, rows: Any, terms: Terms, numbers: Any) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's.

    numbers: see `packed.numbers`.
    """
    sizes = (sheet.scale, sheet.target_bound, sheet.side, sheet.start)
    floors: list[Floor] = [
        ("features", lambda: sheet.num_features == rows.num_features),
        ("outputs", lambda: type(sheet.num_outputs) is int and sheet.num_outputs >= 0),
        ("outputs: none", lambda: sheet.num_outputs > 0 or sheet.kind != "lffr"),
        ("matrix: not of this kind", lambda: not sheet.matrix or sheet.kind != "lffr"),
        ("scales", lambda: all(map(fits, sizes)) and sheet.scale > 0),
        ("numbers", lambda: 0 < sheet.most < math.inf and all(map(math.isfinite, sheet.curvature))),
        ("curvature", lambda: len(sheet.curvature) in (0, 3)),
    ]
    if sheet.law:
        bare = "a curvature that has no noise"
        floors.append((bare, lambda: not (sheet.curvature or sheet.row_sums)))
    held = numbers.HELD
    own = of_rows(sheet, name, rows, terms, lambda: numbers.least_move(sheet), held)
    # A refusal of rows that add more would tell of one.
    added = partial(largest_row_sum, rows, sheet.matrix, held)
    if sheet.curvature:
        own.append(("curvature: less than rows add", lambda: in_range(sheet.curvature, added())))
    if sheet.kind == "gram" and not (sheet.law or sheet.matrix):
        own.append(("most: less than rows add", lambda: sheet.most * LEEWAY >= 2 * added()))
    hold("this run", sheet, name, key, terms, [*floors, *own])
