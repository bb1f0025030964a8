"""A run of secure sums: one party's rows, noise and secret, behind a sheet that it checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact
from parties.kernel.private import Kept, Terms, opened, public_figure, terms_of
from parties.kernel.sheet import LEAST_UNITS, LEEWAY, SLACK, Floor, hold, longest
from parties.kernel.sums import NORMS, SumsSheet
from parties.kernel.sums.aggregate_share import AggregateShare, Masked
from parties.kernel.sums.row_function import Contributor, Own, SumFunction
from parties.kernel.sums.row_functions import OwnCode, row_function
from protocols.aggregate import ROUNDING_STD, AggregateParameters
from protocols.aggregate.ntt import Residues
from protocols.errors import MessageError, PolicyError
from protocols.exchange.signed_values import SignedValue
from protocols.privacy.laws import RandomSource, SystemRandomness, apart
from protocols.privacy.laws.discrete import discrete_gaussian

TAIL = 12
"""Deviations of a share of noise that the range has room for, beside what rows add at most."""
COARSEST = 1 << 20
"""Units of the cipher in a share's deviation, at least."""


class SumsSession:
    """One party of one run.

    name: in the roster; rows: behind their boundary, which has the owner's terms; randomness: of
    noise and coins; own_code: its owner's, which takes the place of the sheet's row function.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, or is none.
    """

    def __init__(
        self,
        sheet: SumsSheet,
        name: str,
        rows: Any,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
        own_code: Callable[[Any, RandomSource], Contributor] | None = None,
    ) -> None:
        self._sheet, self._name, self._terms = sheet, name, terms_of(rows)
        self._randomness, self._signing_key = randomness, signing_key
        self._function = row_function(sheet.row_function, self._terms.protocols)
        check(sheet, name, signing_key.public_key().public_bytes_raw().hex(), self._terms)
        # Ring, primes and room for so many parties, from the table of what is secure.
        self._params = AggregateParameters(
            ring_dim=sheet.ring_dim,
            primes=sheet.primes,
            scale_bits=sheet.scale_bits,
            parties=len(sheet.roster),
        )
        weight = sheet.weights[list(dict(sheet.roster)).index(name)]
        self._own = Own(name=name, weight=weight, norm=sheet.norm, randomness=randomness)
        function, length = self._function, self._function.length(int(rows.num_features))
        others = function.alone(dict(sheet.roster), self._terms.colluders)
        alone, held, own = name in others, function.longest(), public_figure(rows, "rows") or 1
        for field, holds in (
            ("row_function: of exact sums", not (sheet.law and function.without_noise)),
            ("sites: without site_tables", self._terms.alone or not alone),
            ("length: of another row function", length in (None, sheet.length)),
            ("row_function: of fewer rows", own <= function.most_rows()),
            (f"row_function: rows are longer than {held}", held * LEEWAY >= longest(rows)),
        ):
            if not holds:
                raise PolicyError(f"the sheet of this run is refused: {field}")
        self._most = {r.query: function.most(r.query) * weight for r in sheet.rounds}
        self._hold_parts(weight, own)
        self._rows = rows
        # A sheet's row function looks at rows once everybody has signed that sheet.
        own_part = own_code(rows, randomness) if own_code else None
        self._adds: Contributor | None = own_part and kept_like(rows, own_part)
        self._share: AggregateShare | None = None
        self._next, self._is_over = 0, False

    def _hold_parts(self, weight: float, rows: int) -> None:
        """Refuse weights, a range and a unit by which other parts, or their noise, would be lost.

        What is cut off or rounded is so in each part by itself: of others that are far beyond the
        range, or below its unit, nothing is left, and this party's part stands alone, with its own
        share of the noise.
        """
        sheet, params, terms = self._sheet, self._params, self._terms
        alike = len({*sheet.weights}) == 1
        # Parties that weigh the same, whatever their rows: each holds its own weight to that.
        same = math.isclose(weight * rows * len(sheet.roster), 1.0, rel_tol=1e-9)
        noise = max(math.ldexp(r.units, -r.bits) for r in sheet.rounds) if sheet.law else 0.0
        least = min(math.ldexp(r.units, sheet.scale_bits - r.bits) for r in sheet.rounds)
        largest = max(self._most.values()) * rows + TAIL * noise
        # Bounds of exact sums are the sheet's word; what a row counts is not.
        finest = math.ldexp(min(weight, *self._most.values()), sheet.scale_bits)
        for field, holds in (
            # Without noise each part is on a grid by its own weight: one alone may be left of all.
            ("weights: of one party apart", alike or (same and (bool(sheet.law) or terms.alone))),
            ("weights: of a plain sum", alike or not isinstance(self._function, SumFunction)),
            ("scale_bits: rows are cut off", largest <= params.max_value * SLACK),
            ("scale_bits: noise is rounded", not sheet.law or least >= COARSEST),
            ("scale_bits: rows are rounded", bool(sheet.law) or finest >= 1),
        ):
            if not holds:
                raise PolicyError(f"the sheet of this run is refused: {field}")

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a secret."""
        return self._share is not None

    @property
    def _secret(self) -> AggregateShare:
        if self._share is None:
            raise PolicyError("this session has no secret yet")
        return self._share

    def begin(self, seeds: Mapping[str, str]) -> bytes:
        """Make the secret, once; the joint seed, 32 bytes; seeds: see `KeySession.begin`."""
        if self._share is not None or self._is_over:
            raise PolicyError("this session has its secret; another would answer rounds again")
        seed = self._terms.joint_seed(seeds)
        if self._adds is None:
            self._adds = kept_like(self._rows, self._function.of(opened(self._rows), self._own))
        self._share = AggregateShare(
            self._params,
            name=self._name,
            roster=dict(self._sheet.roster),
            session=self._sheet.session,
            seed=seed,
            signing_key=self._signing_key,
            randomness=SystemRandomness(),
        )
        return seed

    def mask_key(self) -> SignedValue:
        """See `AggregateShare.mask_key`."""
        return self._secret.mask_key()

    def masked_secret(self, keys: Mapping[str, SignedValue]) -> Masked:
        """See `AggregateShare.masked_secret`."""
        return self._secret.masked_secret(keys)

    def round(self, t: int, point: NDArray[np.float64]) -> Residues:
        """The ciphertext of round t at a point, shape (length,); once, above all earlier rounds.

        Raises:
            PolicyError: the round is over, or none. MessageError: the point is not of this run.
        """
        secret, rounds, adds = self._secret, self._sheet.rounds, self._adds
        assert adds is not None  # noqa: S101 (made with the secret)
        if type(t) is not int or not self._next <= t < len(rounds):
            raise PolicyError(f"round {t!r} is over or none: {self._next} to {len(rounds) - 1} are")
        point = np.array(point, np.float64)
        if point.shape != (self._sheet.length,) or not np.isfinite(point).all():
            raise MessageError("the point of a round is not finite, or of another length")
        self._next = t + 1  # whatever comes: fresh noise on a second request is a second release
        self._terms.spend()
        units = self._noisy(t, adds.exact(rounds[t].query, t, point))
        # Noise beyond its tail is cut off at the range: a refusal would tell of the value.
        largest = self._params.max_units
        return secret.encrypt(t, np.clip(units, -largest, largest))

    def state(self) -> None:
        """There is none. Raises PolicyError: the secret is held in memory only."""
        if self.begun:
            raise PolicyError("the secret of secure aggregation is held in memory only")

    def erase(self) -> None:
        """Forget the secret; nothing leaves any more, and none is made."""
        self._next, self._is_over = len(self._sheet.rounds), True
        if self._share is not None:
            self._share.erase()

    def _noisy(self, t: int, exact: Exact) -> NDArray[Any]:
        """Contribution and noise, rounded to the cipher's units."""
        sheet, own, scale = self._sheet, self._sheet.rounds[t], self._params.scale_bits
        if exact.units.shape != (sheet.length,):
            raise PolicyError(f"a contribution has shape {exact.units.shape}, not {sheet.length}")
        if not sheet.law:
            # To the nearest, the smaller owners' parts could be 0, beside which one stands alone.
            return exact.blurred(scale, ROUNDING_STD, apart(self._randomness, f"rounding/{t}"))
        most, bound = exact.most, self._most[own.query]
        if most is None and self._function.kind == OwnCode.kind:
            raise PolicyError("a row's part of the owner's own code is held to no bound")
        if most is not None and most > Fraction(bound * SLACK) * Fraction(2) ** exact.bits:
            raise PolicyError(f"rows are held to {most} units, beyond {bound}")
        noise = draw_noise(sheet, t, self._randomness)
        return Exact(exact.on(own.bits) + noise, own.bits).on(scale)


def kept_like(rows: Any, value: Any) -> Any:
    """What was made of rows: behind their boundary, if they have one."""
    return rows.keep(value) if isinstance(rows, Kept) else value


def draw_noise(sheet: SumsSheet, t: int, randomness: RandomSource) -> NDArray[np.int64]:
    """One party's share of round t, in units of its grid, shape (length,)."""
    return discrete_gaussian(sheet.rounds[t].units, sheet.length, randomness)


def check(sheet: SumsSheet, name: str, key: str, terms: Terms) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's."""
    rounds, parties, booked, weights = sheet.rounds, len(sheet.roster), terms.booked, sheet.weights
    floors: list[Floor] = [
        ("rounds: none", lambda: bool(rounds) and type(sheet.length) is int and sheet.length > 0),
        ("weights", lambda: len(weights) == parties and all(0 < w < math.inf for w in weights)),
        ("norm", lambda: sheet.norm == NORMS.get(sheet.law, sheet.norm) and sheet.norm in (1, 2)),
    ]
    if sheet.law:
        least = LEAST_UNITS if sheet.law == "gaussian" else 1
        floors += [
            ("law", lambda: sheet.law in NORMS and (booked or (sheet.law,))[0] == sheet.law),
            (
                "units: no noise",
                lambda: all(type(r.units) is int and r.units >= least for r in rounds),
            ),
            ("noise: too little", lambda: booked is None or sheet.cost() <= booked[1] * SLACK),
        ]
    # A sum less the colluders' parts is the part of one owner, if there is one beside them.
    hold("this run", sheet, name, key, terms, floors, others=2)
