"""What a server asks of every client of a sum, in numbers; clients check it against their own."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from protocols.aggregate.one_time import largest_units
from protocols.aggregate.quorum import Quorum
from protocols.errors import MessageError, ParameterError
from protocols.exchange.serialise import parse

# Deviations of the summed noise that have room beside the summed updates.
_ROOM = 12.0
# Of delta; the rest is for the grid that the noise lives on.
NOISE_SHARE = 0.9
# A delta is the chance that a client's data come out whole; with this one nothing is promised.
LARGEST_DELTA = 0.01
RANGE = 16.0
# Of a plan, in characters.
_LONGEST = 1 << 16
_TYPES: dict[str, tuple[type, ...]] = {
    "rounds": (int,),
    "records": (int,),
    "weighted_by": (str,),
    "wide": (bool,),
}
# Of the 16 bits that wide words have more: so much finer are values, and so much wider their range.
_FINER = 256


def check_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    """Refuse what is no finite number, or out of range.

    Raises:
        ParameterError: names field, value and bound.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and above < value < below and least <= value <= most):
        low = f"above {above:g}" if above > -math.inf else f"from {least:g}"
        high = f" and below {below:g}" if below < math.inf else ""
        high = f" to {most:g}" if most < math.inf else high
        raise ParameterError(f"{name}={value!r} must be a finite number {low}{high}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Privacy:
    """Certified noise on every sum of updates; `for_rounds` chooses it.

    A neighbour has one client's data replaced by anything. In each round a client's update is
    scaled to an L2 norm of at most `clip`, so that the sum moves by at most 2 clip. Every
    client adds its share of the noise before it encrypts; without the shares of `Quorum.colluders`
    clients, and of all that may vanish, the noise still has std `noise_multiplier` * clip.

    records: 0, or about how many there are in all; then a neighbour has one record replaced by
    anything in place of one client's data, and clip and sampling are each record's: see `lots`. The
    mean is over sampling * records of them.
    rounds: in which one client takes part, at most; sampling: chance that a client's update takes
    part in a round, by its own secret coin (it sends noise where it does not); 1: always. That the
    server samples clients amplifies nothing, because the server knows whom. epsilon, delta: of all
    these rounds; each client recomputes it before its first one.

    Raises:
        ParameterError: a field is out of range.
    """

    clip: float
    noise_multiplier: float
    rounds: int
    epsilon: float
    delta: float
    sampling: float = 1.0
    records: int = 0

    def __post_init__(self) -> None:
        for name in ("clip", "noise_multiplier", "epsilon"):
            check_number(name, getattr(self, name), above=0)
        check_number("delta", self.delta, above=0, below=LARGEST_DELTA)
        if type(self.rounds) is not int or self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds!r} is no whole number from 1 on")
        check_number("sampling", self.sampling, above=0, most=1)
        if type(self.records) is not int or self.records < 0:
            raise ParameterError(f"records={self.records!r} is no whole number from 0 on")

    @classmethod
    def for_rounds(
        cls,
        *,
        epsilon: float,
        delta: float,
        rounds: int,
        clip: float,
        sampling: float = 1.0,
        records: int = 0,
    ) -> Privacy:
        """The least noise for these figures.

        Raises:
            ParameterError: a field is out of range.
        """
        cls(  # Checks them.
            clip=clip,
            noise_multiplier=1.0,
            rounds=rounds,
            epsilon=epsilon,
            delta=delta,
            sampling=sampling,
            records=records,
        )
        # Loads accountants, which a client without privacy never needs.
        from protocols.privacy.loss import mu_for_epsilon
        from protocols.privacy.loss.poisson import poisson_noise_multiplier

        share = NOISE_SHARE * delta
        if sampling < 1:
            multiplier = poisson_noise_multiplier(
                epsilon=epsilon, delta=share, rate=sampling, rounds=rounds
            )
        else:
            multiplier = 2 * math.sqrt(rounds) / mu_for_epsilon(epsilon=epsilon, delta=share)
        # So that rounding never takes the last round away.
        multiplier *= 1 + 1e-6
        return cls(
            clip=clip,
            noise_multiplier=multiplier,
            rounds=rounds,
            epsilon=epsilon,
            delta=delta,
            sampling=sampling,
            records=records,
        )

    def share_std(self, quorum: Quorum) -> float:
        """Of one client's noise."""
        return self.noise_multiplier * self.clip / math.sqrt(quorum.needed - quorum.colluders)

    def expected(self, quorum: Quorum, contributors: int) -> float:
        """Updates in a sum of so many clients, on average: of clients, or of records."""
        share = contributors / quorum.clients
        return (self.records * share or contributors) * self.sampling

    def noise_of_mean(self, quorum: Quorum, contributors: int) -> float:
        """Std of the noise on each value of a mean of so many clients."""
        noise = self.share_std(quorum) * math.sqrt(contributors)
        return noise / self.expected(quorum, contributors)

    def units(self, quorum: Quorum) -> float:
        """Units in 1, a power of 2: as many as the words have room for."""
        clients = quorum.clients
        updates = min(self.records, 2 * self.records * self.sampling + _ROOM) or clients
        largest = updates * self.clip + _ROOM * math.sqrt(clients) * self.share_std(quorum)
        return 2.0 ** math.floor(math.log2(clients * largest_units(clients) / largest))

    def share_units(self, quorum: Quorum) -> int:
        """Std of one client's noise, rounded up [units]."""
        return math.ceil(self.share_std(quorum) * self.units(quorum))


@dataclass(frozen=True, kw_only=True, slots=True)
class SumPlan:
    """How values become integers, and what a sum may lose.

    range: bound on |difference weight / weight_scale| of each value, without privacy; what is
    beyond is cut off, and counted in the sum; weight_scale: a typical weight; weighted_by: metric
    that holds a client's weight; lost: share of the asked clients that may vanish; wide: words of
    48 bits, where the mean weight is not known yet: finer, and of a wider range.

    Raises:
        ParameterError: a field is out of range.
    """

    range: float = RANGE
    weight_scale: float = 1024.0
    weighted_by: str = "num-examples"
    lost: float = 1 / 3
    privacy: Privacy | None = None
    wide: bool = False

    def __post_init__(self) -> None:
        check_number("range", self.range, above=0)
        check_number("examples", self.weight_scale, above=0)
        check_number("lost", self.lost, least=0, below=0.5)
        if not isinstance(self.privacy, Privacy | None):
            raise ParameterError(
                f"privacy={self.privacy!r} is no Privacy: give it Privacy.for_rounds(epsilon=4.0, "
                "delta=1e-5, rounds=50, clip=1.0)"
            )

    @classmethod
    def of(
        cls,
        range: float,
        examples: float | None,
        lost: float,
        privacy: Privacy | None,
        **named: Any,
    ) -> SumPlan:
        """Of a server's arguments; examples: None, where nobody knows them before the first sum."""
        given = {"range": None if range == RANGE else range, "examples": examples}
        for name, value in given.items():
            if privacy is not None and value is not None:
                raise ParameterError(
                    f"{name}={value:g} is for sums without noise: beside privacy, the clip bounds "
                    "an update and all clients weigh the same; leave it out"
                )
        scale = 1024.0 if examples is None else examples
        wide = examples is None and privacy is None
        return cls(range=range, weight_scale=scale, lost=lost, privacy=privacy, wide=wide, **named)

    def units(self, clients: int) -> float:
        """Units in 1 of a weighted difference, without privacy."""
        return largest_units(clients) / self.range * (_FINER if self.wide else 1)

    def most(self, clients: int) -> int:
        """Bound on one client's weighted difference, without privacy [units]."""
        return largest_units(clients, wide=self.wide)

    def weighed_like(self, mean_weight: float) -> SumPlan:
        """With the power of 2 next to a mean that was opened as weight scale.

        One client that lies can put any mean there. The next round is then coarse, or cut off, and
        opens the true one; the model of its own round such a client spoils anyway.
        """
        scale = 2.0 ** round(math.log2(mean_weight))
        return replace(self, weight_scale=scale, wide=False)

    def error(self, clients: int, mean_weight: float) -> float:
        """Std of the error of a mean over so many clients, per value, without privacy.

        sqrt(H) 6.38 units of encryption noise and 0.3 of rounding, over the sum of weights.
        """
        noise = math.sqrt(clients) * math.hypot(6.38, 12**-0.5) / self.units(clients)
        return noise * self.weight_scale / (clients * mean_weight)

    def to_json(self) -> str:
        """For a request."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    @lru_cache(maxsize=4)
    def of_json(cls, text: str) -> SumPlan:
        """Inverse of `to_json`.

        Raises:
            MessageError: it is no plan.
        """
        try:
            fields: dict[str, Any] = parse(text, "plan of a sum", most=_LONGEST)
            privacy = fields.pop("privacy")
            for name, value in {**fields, **(privacy or {})}.items():
                if type(value) not in _TYPES.get(name, (int, float)):
                    raise ValueError(f"{name} is of a wrong type")
            return cls(**fields, privacy=Privacy(**privacy) if privacy else None)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MessageError(f"the request holds no plan of a sum: {error}") from None
