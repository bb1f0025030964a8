"""Recipe of the encrypted-rows protocol: certified setting, circuit parameters, twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parties.data.schema import Schema
from protocols.ckks.circuit import iteration_levels
from protocols.ckks.packing import Layout
from protocols.ckks.parameters import CkksParameters, choose_parameters
from protocols.errors import ParameterError
from protocols.plan import Member, RunPlan
from protocols.planner import cheapest_layout
from protocols.rows import RowsPlan
from sims.config import SimulationConfig
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.recipe import Twin
from sims.setting import TrainingSetting, choose_setting
from sims.twin import run_twin


@dataclass(frozen=True)
class RowsRecipe:
    """A certified setting and the ring for it."""

    config: SimulationConfig
    data: PreparedData
    setting: TrainingSetting
    params: CkksParameters

    @classmethod
    def choose(cls, config: SimulationConfig, data: PreparedData) -> RowsRecipe:
        """Every refusal that depends on public figures only comes here, before the first key."""
        schema = data.schema
        setting = choose_setting(
            config,
            rows=len(data.labels),
            num_features=schema.num_features,
            norm_bound=schema.norm_bound,
            parties=len(data.shards),
        )
        params = choose_ckks(config, setting)
        Layout(
            num_slots=params.num_slots,
            num_features=schema.num_features,
            rows_by_party=tuple(shard.rows for shard in data.shards.values()),
            rounds=setting.rule.rounds,
        )
        return cls(config, data, setting, params)

    @property
    def rounds(self) -> int:
        """Iterations T."""
        return self.setting.rule.rounds

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Of the setting."""
        return self.setting.certificate.to_dict() if self.setting.certificate else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Of the setting."""
        return self.setting.notes

    def make_plan(self, session: str, members: tuple[Member, ...]) -> RowsPlan:
        """The plan that all parties agree to."""
        schema = self.data.schema
        plan = rows_plan(self.config, session, schema, self.setting, self.params, members)
        return plan.with_slot_bound(schema.norm_bound)

    def twin(self, plan: RunPlan, specs: Mapping[str, PartySpec]) -> Twin:
        """The plan in float64 on pooled rows, with the parties' summed noise."""
        if not isinstance(plan, RowsPlan):
            raise ParameterError(f"protocol={plan.protocol!r} is not this recipe's")
        noise = np.sum([plan.draw_noise(s.noise_source()) for s in specs.values()], axis=0)
        data, test = self.data, self.data.test
        weights, iterations = run_twin(plan, data.rows, data.labels, noise, test.x, test.y)
        radius, largest = plan.link.radius, iterations[-1].largest_logit
        warnings: tuple[str, ...] = ()
        if largest > radius:
            warnings = (
                f"the largest logit of the twin, {largest:.3g}, left the sigmoid polynomial's "
                f"interval [-{radius:g}, {radius:g}]: widen it (--interval), take fewer iterations "
                "or a smaller learning rate",
            )
        return Twin(weights=weights, iterations=iterations, warnings=warnings)


def choose_ckks(config: SimulationConfig, setting: TrainingSetting) -> CkksParameters:
    """Smallest parameters for the circuit; a ring without security only when asked for.

    Raises:
        ParameterError: no secure ring fits, or the asked ring is insecure.
    """
    levels = iteration_levels(setting.link.polynomial, setting.rule)
    secure = config.profile == "secure"
    return choose_parameters(levels, secure=secure, ring_dim=config.ring_dim)


def rows_plan(
    config: SimulationConfig,
    session: str,
    schema: Schema,
    setting: TrainingSetting,
    params: CkksParameters,
    members: tuple[Member, ...],
) -> RowsPlan:
    """The plan of a setting, in the cheapest layout."""
    plan = RowsPlan(
        session=session,
        members=members,
        schema={"digest": schema.digest(), "features": list(schema.feature_names)},
        num_features=schema.num_features,
        link=setting.link.polynomial,
        update=setting.rule.to_dict(),
        ckks=params,
        cover=config.cover,
        privacy=setting.privacy,
        profile=config.profile,
    )
    return cheapest_layout(plan)
