"""A run of secure sums: one party's rows, noise and secret, behind a sheet that it checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.kernel.aggregate_share import AggregateShare, Masked
from parties.kernel.private import Terms, kept_like, terms_of
from parties.kernel.sheet import DUAL, NORMS, OPPOSITE, SumsSheet
from parties.kernel.sums.integer_sums import Exact
from protocols.aggregate.ntt import Residues
from protocols.aggregate.parameters import AggregateParameters
from protocols.errors import MessageError, PolicyError
from protocols.privacy.discrete import discrete_gaussian
from protocols.privacy.polya import laplace_share
from protocols.privacy.randomness import RandomSource, SystemRandomness
from protocols.privacy.skellam_sampler import skellam
from protocols.signed_values import SignedValue

SLACK = 1 + 1e-9  # of two machines' float64


class SumsSession:
    """One party of one run.

    name: in the roster; rows: behind their boundary, which has the owner's terms; adds: makes a
    `parties.objectives.Contributor` of them, once the sheet is checked; randomness: of noise.

    Raises:
        PolicyError, ParameterError: the sheet asks for more than the owner's terms, or is none.
    """

    def __init__(
        self,
        sheet: SumsSheet,
        name: str,
        rows: Any,
        adds: Callable[[Any], Any],
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        self._sheet, self._name, self._terms = sheet, name, terms_of(rows)
        self._randomness, self._signing_key = randomness, signing_key
        check(sheet, name, signing_key.public_key().public_bytes_raw().hex(), self._terms)
        # Ring, primes and room for so many parties, from the table of what is secure.
        self._params = AggregateParameters(
            ring_dim=sheet.ring_dim,
            primes=sheet.primes,
            scale_bits=sheet.scale_bits,
            parties=len(sheet.roster),
        )
        self._adds = kept_like(rows, adds(rows))
        self._share: AggregateShare | None = None
        self._next = 0

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a secret."""
        return self._share is not None

    @property
    def _secret(self) -> AggregateShare:
        if self._share is None:
            raise PolicyError("this session has no secret yet")
        return self._share

    def begin(self, seed: bytes) -> None:
        """Make the secret, once; seed: the joint one, 32 bytes."""
        if self._share is not None:
            raise PolicyError("this session has its secret; another would answer rounds again")
        self._share = AggregateShare(
            self._params,
            name=self._name,
            roster=dict(self._sheet.roster),
            session=self._sheet.session,
            seed=seed,
            signing_key=self._signing_key,
            randomness=SystemRandomness(),
        )

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
        secret, rounds = self._secret, self._sheet.rounds
        if type(t) is not int or not self._next <= t < len(rounds):
            raise PolicyError(f"round {t!r} is over or none: {self._next} to {len(rounds) - 1} are")
        point = np.array(point, np.float64)
        if point.shape != (self._sheet.length,) or not np.isfinite(point).all():
            raise MessageError("the point of a round is not finite, or of another length")
        self._next = t + 1  # whatever comes: fresh noise on a second request is a second release
        self._terms.spend()
        units = self._noisy(t, self._adds.exact(rounds[t].query, t, point))
        # Noise beyond its tail is cut off at the range: a refusal would tell of the value.
        largest = self._params.max_units
        return secret.encrypt(t, np.clip(units, -largest, largest))

    def erase(self) -> None:
        """Forget the secret; nothing leaves any more."""
        self._next = len(self._sheet.rounds)
        if self._share is not None:
            self._share.erase()

    def _noisy(self, t: int, exact: Exact) -> NDArray[Any]:
        """Contribution and noise, rounded to the cipher's units."""
        sheet, own, scale = self._sheet, self._sheet.rounds[t], self._params.scale_bits
        if exact.units.shape != (sheet.length,):
            raise PolicyError(f"a contribution has shape {exact.units.shape}, not {sheet.length}")
        if not sheet.law:
            return exact.on(scale)
        most = exact.most
        if most is not None and most > Fraction(own.most * SLACK) * Fraction(2) ** exact.bits:
            raise PolicyError(f"rows are held to {most} units, beyond most={own.most}")
        noise = draw_noise(sheet, t, self._randomness)
        return Exact(exact.on(own.bits) + noise, own.bits).on(scale)


def draw_noise(sheet: SumsSheet, t: int, randomness: RandomSource) -> NDArray[np.int64]:
    """One party's share of round t, in units of its grid, shape (length,)."""
    units, length = sheet.rounds[t].units, sheet.length
    if sheet.law == "laplace":
        return laplace_share(units, sheet.honest, length, randomness)
    if sheet.law == "skellam":
        return skellam(units**2, length, randomness)
    return discrete_gaussian(units, length, randomness)


def check(sheet: SumsSheet, name: str, key: str, terms: Terms) -> None:
    """Refuse what no honest plan gives, or this owner has not agreed to; key: this party's."""
    roster, rounds, parties = dict(sheet.roster), sheet.rounds, len(sheet.roster)
    booked = terms.booked
    floors: list[tuple[str, Callable[[], bool]]] = [
        ("roster: not this party's key", lambda: roster.get(name) == key),
        ("roster: names or keys twice", lambda: len({*roster.values()}) == len(roster) == parties),
        ("roster: too few members", lambda: parties >= terms.colluders + 2),
        ("rounds: none", lambda: bool(rounds) and type(sheet.length) is int and sheet.length > 0),
        ("law: none, and exact sums are not agreed to", lambda: bool(sheet.law) or terms.exact),
    ]
    if sheet.law:
        spread = 2.0 if sheet.row_function in OPPOSITE else 1.0
        turns = type(sheet.batches) is int and sheet.batches >= 1
        floors += [
            ("law", lambda: sheet.law in NORMS and (booked or (sheet.law,))[0] == sheet.law),
            ("units: no noise", lambda: all(type(r.units) is int and r.units > 0 for r in rounds)),
            ("honest: too many", lambda: 1 <= sheet.honest <= parties - terms.colluders),
            ("batches", lambda: turns and (sheet.batches == 1 or sheet.row_function == DUAL)),
            ("most", lambda: all(0 < r.most < math.inf for r in rounds)),
            ("moves", lambda: all(r.moves * SLACK >= spread * r.most for r in rounds)),
            ("noise: too little", lambda: booked is None or sheet.cost() <= booked[1] * SLACK),
        ]
    for field, holds in floors:
        if not holds():
            raise PolicyError(f"the sheet of this run is refused: {field}")
