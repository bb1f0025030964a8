"""From public figures to the plan of one stage of a torch module's training.

A stage is a session of its own: `stage_rounds` full-batch rounds that share the noise scale of the
whole training. Gaussian releases compose exactly, so the stages together cost what one session of
all rounds would.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from protocols.aggregate import NOISE_STD, TAIL, AggregateParameters
from protocols.aggregate.choice import choose
from protocols.errors import ParameterError
from protocols.plan.run_plan import Member, PrivacyPlan
from protocols.privacy.certificates.sums import MECHANISM_SHARE, SumSetting
from protocols.privacy.laws.noise import NOISE_TAIL
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import mu_for_epsilon
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent
from protocols.updates.update import Update

# Without noise: largest error of a sum over the largest value.
PRECISION = 2.0**-30


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Training of all rounds, from public figures alone.

    update: with all rounds; clip: L2 bound of one row's gradient, > 0; epsilon: of all rounds, None
    for no privacy; delta, colluders: as in `PrivacyPlan`; rows_by_party: row counts; layout: names
    and shapes of the parameters; length: their number; schema: the rows' digest; features: values
    of a row; stage_rounds: rounds of a stage, at most those of `update`.

    Raises:
        ParameterError: fields that do not go together.
    """

    update: Update
    clip: float
    epsilon: float | None
    delta: float
    colluders: int
    rows_by_party: tuple[int, ...]
    layout: list[tuple[str, list[int]]]
    length: int
    schema: str
    features: int
    stage_rounds: int

    def __post_init__(self) -> None:
        if not 1 <= self.stage_rounds <= self.update.rounds:
            raise ParameterError(
                f"checkpoint_every={self.stage_rounds} is outside 1 .. {self.update.rounds}, the "
                "rounds of the update"
            )
        if self.stage_rounds < self.update.rounds and not isinstance(self.update, GradientDescent):
            raise ParameterError(
                f"update={self.update.to_dict()['kind']!r} keeps more than its weights from round "
                "to round, which no checkpoint holds: take gd, or no checkpoints"
            )
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ParameterError(f"epsilon={self.epsilon} must be finite and positive")

    @property
    def split(self) -> NoiseSplit:
        """P and t."""
        return NoiseSplit(parties=len(self.rows_by_party), colluders=self.colluders)

    @property
    def task(self) -> RowObjective:
        """The clipped loss."""
        return RowObjective(kind="torch", clip=self.clip)

    @property
    def sensitivity(self) -> float:
        """2 C / N, replace-one, L2, of the mean gradient."""
        return 2 * self.clip / sum(self.rows_by_party)

    @property
    def noise_scale(self) -> float:
        """Smallest std on the mean gradient that keeps the promise: C' sqrt(T) / mu.

        C' is the sensitivity with the rounding to the noise grid, whose unit depends on the std: a
        fixed point, reached at once.
        """
        if self.epsilon is None:
            return 0.0
        mu = mu_for_epsilon(epsilon=self.epsilon, delta=MECHANISM_SHARE * self.delta)
        scale = self.sensitivity
        for _ in range(3):
            widened = self._setting(scale, self.update.rounds).widened[0]
            scale = widened * math.sqrt(self.update.rounds) / mu
        return scale

    def privacy(self, rounds: int) -> PrivacyPlan | None:
        """The promise of so many rounds."""
        if self.epsilon is None:
            return None
        scale, epsilon = self.noise_scale, self.epsilon
        if rounds < self.update.rounds:
            epsilon = self._setting(scale, rounds).epsilon_of()
        return PrivacyPlan(
            epsilon=epsilon,
            delta=self.delta,
            colluders=self.colluders,
            sigma=scale,
            share_std=self.split.share_std(scale),
            sensitivity=2 * self.clip,
        )

    def _setting(self, scale: float, rounds: int) -> SumSetting:
        return SumSetting(
            mechanism="gaussian",
            sensitivities=(self.sensitivity,) * rounds,
            scales=(scale,) * rounds,
            length=self.length,
            split=self.split,
            epsilon=self.epsilon or 1.0,
            delta=self.delta,
        )

    @property
    def cipher(self) -> AggregateParameters:
        """Range for the largest part and the tail of its noise; one unit is the noise grid's."""
        parties, scale = len(self.rows_by_party), self.noise_scale
        largest = self.clip * max(self.rows_by_party) / sum(self.rows_by_party)
        precision = PRECISION * largest
        if scale:
            unit = self.split.grid(scale).unit
            precision = unit * (math.ceil(TAIL * NOISE_STD * math.sqrt(parties)) + parties)
        largest_sum = parties * (largest + NOISE_TAIL * scale)
        return choose(parties=parties, largest_sum=largest_sum, precision=precision)

    def stages(self, first: int = 0) -> tuple[tuple[int, int], ...]:
        """First round and rounds of every stage, from round `first` on."""
        total, step = self.update.rounds, self.stage_rounds
        return tuple((t, min(step, total - t)) for t in range(first, total, step))

    def stage_plan(self, session: str, members: tuple[Member, ...], rounds: int) -> GradientPlan:
        """The plan of one stage that all parties agree to."""
        update = self.update
        if isinstance(update, GradientDescent):
            update = replace(update, rounds=rounds)
        return GradientPlan(
            session=session,
            members=members,
            schema={"digest": self.schema, "parameters": [list(entry) for entry in self.layout]},
            num_features=self.features,
            privacy=self.privacy(rounds),
            model="torch",
            cipher=self.cipher,
            objective=self.task.to_dict(),
            update=update.to_dict(),
            length=self.length,
            noise_scales=(self.noise_scale,) * rounds if self.epsilon else (),
        )

    def digest(self) -> str:
        """SHA-256 of everything that a checkpoint's continuation must share, hexadecimal."""
        fields: Mapping[str, Any] = {
            "update": self.update.to_dict(),
            "clip": self.clip,
            "promise": [self.epsilon, self.delta, self.colluders],
            "rows": list(self.rows_by_party),
            "layout": self.layout,
            "schema": self.schema,
            "stage_rounds": self.stage_rounds,
        }
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
