"""Recipe of the secure-aggregation protocol: rule, objective, noise schedule, cipher, twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parties.objectives import open_contributor
from protocols.errors import ParameterError
from protocols.gradients import GradientPlan
from protocols.models.registry import model_named
from protocols.plan import Member, RunPlan
from protocols.privacy import sum_certificate
from protocols.privacy.certificate import Certificate
from sims.config import SimulationConfig
from sims.gradient_setting import GradientSetting, choose_gradients
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.recipe import Twin
from sims.result import Course
from sims.sums_twin import run_in_plain


@dataclass(frozen=True)
class GradientRecipe:
    """A rule with its objective and noise."""

    config: SimulationConfig
    data: PreparedData
    setting: GradientSetting

    @classmethod
    def choose(cls, config: SimulationConfig, data: PreparedData) -> GradientRecipe:
        """Every refusal that depends on public figures only comes here, before the first key."""
        setting = choose_gradients(
            config,
            rows_by_party=tuple(shard.rows for shard in data.shards.values()),
            num_features=data.schema.num_features,
            norm_bound=data.schema.norm_bound,
        )
        return cls(config, data, setting)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return self.setting.rule.rounds

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Of the sums."""
        setting = self.setting
        if setting.privacy is None:
            return None
        members = tuple(
            Member(name=name, rows=shard.rows, verify_key="", commitment="")
            for name, shard in self.data.shards.items()
        )
        return certificate_of(self.make_plan("certificate", members)).to_dict()

    @property
    def notes(self) -> tuple[str, ...]:
        """Of the setting."""
        return self.setting.notes

    def make_plan(self, session: str, members: tuple[Member, ...]) -> GradientPlan:
        """The plan that all parties agree to."""
        schema, setting = self.data.schema, self.setting
        return GradientPlan(
            session=session,
            members=members,
            schema={"digest": schema.digest(), "features": list(schema.feature_names)},
            num_features=schema.num_features,
            privacy=setting.privacy,
            profile=self.config.profile,
            cipher=setting.cipher,
            objective=setting.objective.to_dict(),
            update=setting.rule.to_dict(),
            length=schema.num_features,
            weights=setting.weights,
            mechanism=setting.mechanism,
            noise_scales=setting.noise_scales,
        )

    def twin(self, plan: RunPlan, specs: Mapping[str, PartySpec]) -> Twin:
        """The plan in float64, with the parties' own contributions and noise, not encrypted."""
        if not isinstance(plan, GradientPlan):
            raise ParameterError(f"protocol={plan.protocol!r} is not this recipe's")
        sources = {name: spec.noise_source() for name, spec in specs.items()}
        owners = {
            name: open_contributor(plan, name, spec.shard, sources[name])
            for name, spec in specs.items()
        }

        data, test = self.data, self.data.test
        model = model_named(plan.model)
        course = Course(model, (data.rows, data.labels), (test.x, test.y))
        weights = run_in_plain(plan, owners, sources, np.zeros(plan.length), course.record)
        return Twin(weights=weights, iterations=tuple(course.metrics))


def certificate_of(plan: GradientPlan) -> Certificate:
    """The certificate of a plan's sums; satisfied, or the setting was chosen wrongly."""
    return sum_certificate.check(plan.sum_setting()).require()
