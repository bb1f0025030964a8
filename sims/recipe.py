"""What depends on a run's protocol in a simulation: its plan, its certificate, its twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from parties.data.schema import Targets
from protocols.errors import SchemaError
from protocols.names import SECURE_AGGREGATION
from protocols.plan import Member, RunPlan
from protocols.privacy.mechanism import Mechanism
from sims.config import SimulationConfig
from sims.party_process import PartySpec
from sims.prepare import PreparedData

Plan = TypeVar("Plan", bound=RunPlan)


@dataclass(frozen=True, kw_only=True)
class Twin:
    """The same run in plaintext with the same noise.

    weights: shape (d,), or (d, c) for c outputs; iterations: its course, in the metrics of the
    model's result; warnings: sentences for the reader.
    """

    weights: NDArray[np.float64]
    iterations: tuple[Any, ...]
    warnings: tuple[str, ...] = ()


class Recipe(Protocol):
    """How one protocol runs with given options on given data; made before any key."""

    @property
    def rounds(self) -> int:
        """Iterations T."""
        ...

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The privacy certificate, JSON-ready."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader."""
        ...

    def make_plan(self, session: str, members: tuple[Member, ...]) -> RunPlan:
        """The plan that all parties agree to."""
        ...

    def twin(self, plan: RunPlan, specs: Mapping[str, PartySpec]) -> Twin:
        """The plan in plaintext on all rows."""
        ...


def confirmed(plan: Plan, norm_bound: float) -> Plan:
    """The plan, once its mechanism says what every party and auditor will be told.

    Raises:
        PrivacyError: its promise does not follow from it. ParameterError: nothing is known of it.
    """
    if plan.privacy:
        Mechanism.from_plan(plan, norm_bound).require()
    return plan


def open_recipe(config: SimulationConfig, data: PreparedData) -> Recipe:
    """The recipe of the configuration's protocol.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
        SchemaError: the schema is for another kind of model.
    """
    _check_outcome(config, data)
    if config.model == "lffr":
        from sims.recipe_lffr import LffrRecipe

        return LffrRecipe.choose(config, data)
    if config.is_regression:
        from sims.recipe_gram import GramRecipe

        return GramRecipe.choose(config, data)
    if config.protocol == SECURE_AGGREGATION:
        from sims.recipe_gradients import GradientRecipe

        return GradientRecipe.choose(config, data)
    from sims.recipe_rows import RowsRecipe

    return RowsRecipe.choose(config, data)


def _check_outcome(config: SimulationConfig, data: PreparedData) -> None:
    label = data.schema.label
    if isinstance(label, Targets) != config.is_regression:
        what = "numeric targets" if isinstance(label, Targets) else "a label of two values"
        raise SchemaError(
            f"model={config.model!r} does not go with the schema, which has {what} "
            f"({label.name}): choose another model, or another schema"
        )
