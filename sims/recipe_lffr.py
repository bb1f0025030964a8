"""Recipe of LFFR on encrypted rows: preconditioner, or with privacy a certified rate; twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parties.schema import Schema
from protocols import arithmetic
from protocols.ckks.lffr_circuit import LFFR_LEVELS, OutputLayout
from protocols.ckks.parameters import CkksParameters, choose_parameters
from protocols.curvature import Curvature, largest_row_sum
from protocols.errors import ParameterError
from protocols.lffr import LffrPlan, fixed_hessian_of
from protocols.models.lffr import CURVATURE, PAPER_LINK, Lffr
from protocols.plan import Member, PrivacyPlan, RunPlan
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate
from protocols.privacy.lffr_certificate import LffrSetting, lffr_certificate, row_bound
from protocols.privacy.shares import NoiseSplit
from sims.config import SimulationConfig
from sims.lffr_twin import run_lffr_twin
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.recipe import Twin
from sims.recipe_gram import ENTRY_BOUND
from sims.result import Array, Course, targets_of

DEFAULT_ROUNDS = 30
# Noise per round grows as fast as the steps shrink: more rounds gain nothing.
PRIVATE_ROUNDS = 10
BISECTIONS = 40


@dataclass(frozen=True)
class LffrRecipe:
    """A ring, a rate, and either an encrypted preconditioner or a certificate."""

    config: SimulationConfig
    data: PreparedData
    params: CkksParameters
    learning_rate: float
    curvature: Curvature | None
    release: Certificate | None

    @classmethod
    def choose(cls, config: SimulationConfig, data: PreparedData) -> LffrRecipe:
        """Every refusal that depends on public figures only comes here, before the first key."""
        secure = config.profile == "secure"
        params = choose_parameters(LFFR_LEVELS, secure=secure, ring_dim=config.ring_dim)
        rounds, schema = rounds_of(config), data.schema
        OutputLayout.for_outputs(
            num_slots=params.num_slots,
            num_features=schema.num_features,
            outputs=targets_of(schema.label).outputs,
            rows_by_party=tuple(shard.rows for shard in data.shards.values()),
            side_columns=1 if config.epsilon is None else rounds,
        )
        if config.epsilon is None:
            return cls(config, data, params, 1.0, curvature_of(schema, config.ridge or 0.0), None)
        release = certified(config, data)
        return cls(config, data, params, release.setting.eta, None, release)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return rounds_of(self.config)

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Of the noise on every gradient."""
        return self.release.to_dict() if self.release else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know about the rate."""
        if self.release is None:
            return ()
        return (
            f"learning_rate={self.learning_rate:.4g} was chosen, the largest with which no score "
            f"can leave [-{PAPER_LINK.radius:g}, {PAPER_LINK.radius:g}]: more rows, fewer columns "
            "or a larger epsilon raise it",
        )

    def make_plan(self, session: str, members: tuple[Member, ...]) -> LffrPlan:
        """The plan that all parties agree to."""
        schema, targets = self.data.schema, targets_of(self.data.schema.label)
        return LffrPlan(
            session=session,
            members=members,
            schema={
                "digest": schema.digest(),
                "features": list(schema.feature_names),
                "targets": list(targets.names),
            },
            num_features=schema.num_features,
            privacy=self._privacy(len(members)),
            profile=self.config.profile,
            ckks=self.params,
            cover=self.config.cover,
            outputs=targets.outputs,
            iterations=self.rounds,
            link=PAPER_LINK,
            curvature=self.curvature,
            learning_rate=self.learning_rate,
            ridge=self.config.ridge or 0.0,
        ).with_slot_bound(schema.norm_bound)

    def _privacy(self, parties: int) -> PrivacyPlan | None:
        config, release = self.config, self.release
        if release is None or config.epsilon is None:
            return None
        split = NoiseSplit(parties=parties, colluders=config.colluders)
        return PrivacyPlan(
            epsilon=config.epsilon,
            delta=config.delta,
            colluders=config.colluders,
            sigma=release.setting.sigma,
            share_std=split.share_std(release.setting.sigma),
            sensitivity=release.figures["D_widened"],
        )

    def twin(self, plan: RunPlan, specs: Mapping[str, PartySpec]) -> Twin:
        """The plan in float64 on pooled rows, with the parties' summed noise."""
        if not isinstance(plan, LffrPlan):
            raise ParameterError(f"protocol={plan.protocol!r} is not this recipe's")
        noise = np.sum([plan.draw_noise(s.noise_source()) for s in specs.values()], axis=0)
        data, test, scores = self.data, self.data.test, [0.0]
        course = Course(Lffr(), (data.rows, data.labels), (test.x, test.y))

        def record(t: int, weights: Array, largest: float) -> None:
            course.record(t, weights)
            scores.append(largest)

        weights = run_lffr_twin(plan, self.data.rows, self.data.labels, noise, record)
        warnings: tuple[str, ...] = ()
        if scores[-1] > plan.link.radius:
            warnings = (
                f"the largest score of the twin, {scores[-1]:.3g}, left the sigmoid polynomial's "
                f"interval [-{plan.link.radius:g}, {plan.link.radius:g}]: take fewer iterations or "
                "a ridge",
            )
        return Twin(weights=weights, iterations=tuple(course.metrics), warnings=warnings)


def rounds_of(config: SimulationConfig) -> int:
    """Iterations T."""
    return config.rounds or (DEFAULT_ROUNDS if config.epsilon is None else PRIVATE_ROUNDS)


def curvature_of(schema: Schema, ridge: float) -> Curvature:
    """Range of the diagonal bound, from the schema alone."""
    entry = 1.0 if schema.row_norm is not None else ENTRY_BOUND[schema.scaling]
    columns = [entry] * schema.num_features
    largest = largest_row_sum(schema.num_features, norm=schema.norm_bound, columns=columns)
    return fixed_hessian_of(largest, ridge=ridge)


def certified(config: SimulationConfig, data: PreparedData) -> Certificate:
    """The least noise for the promise, and the largest rate that keeps every score in range.

    Raises:
        PrivacyError: a condition fails whatever the rate.
    """
    schema, outputs = data.schema, targets_of(data.schema.label).outputs
    bound = row_bound(PAPER_LINK, schema.norm_bound, outputs)
    largest = 1 / (CURVATURE * schema.norm_bound**2)
    setting = LffrSetting(
        rows=len(data.labels),
        features=schema.num_features,
        outputs=outputs,
        norm_bound=schema.norm_bound,
        encryption_error=arithmetic.allowed_error(bound, schema.num_features * outputs),
        link=PAPER_LINK,
        eta=min(largest, 1 / (2 * config.ridge)) if config.ridge else largest,
        rounds=rounds_of(config),
        ridge=config.ridge or 0.0,
        budget=Budget(
            epsilon=config.epsilon,
            delta=config.delta,
            split=NoiseSplit(parties=len(data.shards), colluders=config.colluders),
            **arithmetic.beside(),
        ),
    ).resolved()
    return lffr_certificate(replace(setting, eta=_largest_rate(setting))).require()


def _largest_rate(setting: LffrSetting) -> float:
    """The largest rate, up to the setting's, whose walk stays in the ball; bisection."""
    if setting.reached() <= setting.radius:
        return setting.eta
    low, high = 0.0, setting.eta
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        trial = replace(setting, eta=middle)
        low, high = (middle, high) if trial.reached() <= setting.radius else (low, middle)
    return low or high
