"""Recipe of regressions on Gram sums: ridge, noise and curvature, circuit parameters, twin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from parties.schema import Schema
from protocols import arithmetic
from protocols.ckks.gram import GramLayout
from protocols.ckks.parameters import MAX_LOG_QP_128, CkksParameters, choose_parameters
from protocols.errors import ParameterError
from protocols.gram import row_sum_bound
from protocols.gram_plan import GramPlan
from protocols.gram_training import LEVELS
from protocols.models.gram_models import gram_model
from protocols.plan import Member, PrivacyPlan, RunPlan
from protocols.privacy.budget import Budget
from protocols.privacy.gram_certificate import (
    MECHANISM_SHARE,
    GramCertificate,
    GramSetting,
    gram_certificate,
)
from protocols.privacy.shares import NoiseSplit
from sims.config import SimulationConfig
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.recipe import Twin
from sims.regression_twin import run_gram_twin
from sims.result import Course, targets_of

DEFAULT_ROUNDS = 30
# Of the curvature; 1 / 64 would save a tenth of the iterations and double the noise of decryption.
FLOOR = 1 / 16
# Bound on an entry of an encoded row, the bias included, where rows are not clipped.
ENTRY_BOUND = {"range": 1.0, "standard": 2.0}
LARGEST_RING = max(MAX_LOG_QP_128)


@dataclass(frozen=True)
class GramRecipe:
    """A ridge, a bound on the curvature, a ring, and with privacy a certificate."""

    config: SimulationConfig
    data: PreparedData
    ridge: float
    curvature_bound: float
    params: CkksParameters
    release: GramCertificate | None

    @classmethod
    def choose(cls, config: SimulationConfig, data: PreparedData) -> GramRecipe:
        """Every refusal that depends on public figures only comes here, before the first key."""
        schema = data.schema
        params = choose_ckks(config, schema.num_features, targets_of(schema.label).outputs)
        ridge = config.ridge or 0.0
        if config.epsilon is None:
            return cls(config, data, ridge, curvature_of(schema), params, None)
        release = certified(config, data, ridge)
        return cls(config, data, release.ridge, release.curvature_bound, params, release)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return self.config.rounds or DEFAULT_ROUNDS

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Of the release."""
        return self.release.statement.to_dict() if self.release else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know about the ridge."""
        if self.release is None or self.ridge == (self.config.ridge or 0.0):
            return ()
        return (
            f"ridge={self.ridge:.4g} was chosen, the bound on the noise of the sums, so that "
            "training cannot diverge; it shrinks the model: more rows, fewer columns or a larger "
            "epsilon lower it",
        )

    def make_plan(self, session: str, members: tuple[Member, ...]) -> GramPlan:
        """The plan that all parties agree to."""
        schema, targets = self.data.schema, targets_of(self.data.schema.label)
        return GramPlan(
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
            model=self.config.model,
            ckks=self.params,
            cover=self.config.cover,
            outputs=targets.outputs,
            iterations=self.rounds,
            ridge=self.ridge,
            curvature_bound=self.curvature_bound,
            floor=FLOOR,
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
            sigma=release.sigma,
            share_std=split.share_std(release.sigma),
            sensitivity=release.sensitivity,
        )

    def twin(self, plan: RunPlan, specs: Mapping[str, PartySpec]) -> Twin:
        """The plan in float64, with the parties' own sums and noise."""
        if not isinstance(plan, GramPlan):
            raise ParameterError(f"protocol={plan.protocol!r} is not this recipe's")
        parts = (
            plan.contribution(s.shard.x, s.shard.y, plan.draw_noise(s.noise_source()))
            for s in specs.values()
        )
        data, test = self.data, self.data.test
        course = Course(plan.fitted, (data.rows, data.labels), (test.x, test.y))
        weights = run_gram_twin(plan.task, reduce(add, parts), course.record)
        return Twin(weights=weights, iterations=tuple(course.metrics))


def curvature_of(schema: Schema) -> float:
    """Bound on the parties' row sums b, from the schema alone."""
    entry = 1.0 if schema.row_norm is not None else ENTRY_BOUND[schema.scaling]
    return row_sum_bound(schema.norm_bound, schema.num_features, entry)


def choose_ckks(config: SimulationConfig, num_features: int, outputs: int) -> CkksParameters:
    """Smallest ring that is secure and holds the matrix for all outputs.

    Raises:
        ParameterError: there is none, or the asked ring is too small.
    """
    secure = config.profile == "secure"
    params = choose_parameters(LEVELS, secure=secure, ring_dim=config.ring_dim)
    shape = {"num_features": num_features, "outputs": outputs}
    # In the largest ring; refuses what no ring holds.
    period = GramLayout(num_slots=LARGEST_RING // 2, **shape).period
    if config.ring_dim is None and period > params.num_slots:
        params = choose_parameters(LEVELS, secure=secure, ring_dim=2 * period)
    GramLayout(num_slots=params.num_slots, **shape)
    return params


def certified(config: SimulationConfig, data: PreparedData, ridge: float) -> GramCertificate:
    """The least noise for the promise, and the ridge that it needs at least.

    Raises:
        PrivacyError: a condition fails.
    """
    schema, targets = data.schema, targets_of(data.schema.label)
    budget = Budget(
        epsilon=config.epsilon,
        delta=config.delta,
        split=NoiseSplit(parties=len(data.shards), colluders=config.colluders),
        mechanism_share=MECHANISM_SHARE,
        **arithmetic.beside(),
    )
    setting = GramSetting(
        budget=budget,
        norm_bound=schema.norm_bound,
        target_bound=gram_model(config.model).bound(targets.outputs),
        rows=len(data.labels),
        features=schema.num_features,
        outputs=targets.outputs,
    )
    found = gram_certificate(setting, ridge=math.inf)
    # A grid as coarse as that of the noise itself needs may be coarser by one step.
    found = gram_certificate(setting, ridge=math.inf, sigma=found.sigma)
    sigma = max(condition.right for condition in found.conditions if condition.name == "noise")
    sigma = max(sigma, found.sigma)
    least = gram_certificate(setting, ridge=math.inf, sigma=sigma).noise_bound
    return gram_certificate(setting, ridge=max(ridge, least), sigma=sigma).require()
