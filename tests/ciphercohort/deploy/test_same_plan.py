"""Who deploys gets what who simulates gets: one plan of one job, field by field."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from ciphercohort.deploy.deployed import MESSAGE_BYTES, next_run
from ciphercohort.job.config import configured, training_fields
from coordinator.settings import SCHEMA, Settings
from parties.agent.setup import DEFAULT_POLICY
from parties.policy import Policy
from parties.reader.infer import infer_schema
from parties.reader.schema import Schema
from protocols.errors import CohortError
from protocols.exchange.cards import Card
from protocols.models.registry import MODELS, model_named
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.calibration import Calibration
from protocols.words import towards_one
from sims.simulation import Event, simulate

ROWS = 900
CASES = [(model, protocol) for model in MODELS for protocol in model_named(model).protocols]


@cache
def table(model: str) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 2)).round(2)
    of_classes = model_named(model).several
    label = np.arange(ROWS) % (3 if of_classes else 2)
    y = rng.integers(0, 4, ROWS) if model_named(model).numeric else label
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y})


@cache
def schema_of(model: str) -> Schema:
    numeric = model_named(model).numeric
    return infer_schema(
        table(model), ["y"] if numeric else "y", several=model_named(model).several,
        **({"scaling": "range", "row_norm": None} if numeric else {}),
    )  # fmt: skip


class Centre:
    """A coordinator's folder with so many cards, as far as a plan asks for it."""

    def __init__(self, folder: Path, schema: Schema, rows: list[int], training: Any) -> None:
        self.folder, self.training, self._schema, self._rows = folder, training, schema, rows
        schema.save(folder / SCHEMA)

    def owners(self) -> dict[str, Card]:
        found = {}
        for k, rows in enumerate(self._rows):
            found[f"p{k}"] = Card(
                name=f"p{k}", identity=f"{k:064x}", node_key="ecdsa-sha2-nistp384 A", rows=rows,
                num_features=self._schema.num_features, schema=self._schema.digest(),
            )  # fmt: skip
        return found

    cards = owners


class PlannedError(Exception):
    """Nothing after the plan is of interest."""


def simulated(model: str, folder: Path, options: dict[str, Any], parties: int) -> tuple[Any, Any]:
    """The first plan of a simulation, and the rows of its parties; or what refuses it."""
    seen: list[Event] = []

    def stop(event: Event) -> None:
        if event.kind == "plan":
            seen.append(event)
            raise PlannedError

    path = folder / "table.csv"
    table(model).to_csv(path, index=False)
    schema_of(model).save(folder / "s.json")
    try:
        config = configured(data=path, schema=folder / "s.json", parties=parties, **options)
        simulate(config, stop)
    except PlannedError:
        return seen[0].found, None
    except CohortError as error:
        return None, str(error)
    raise AssertionError


def plain(plan: RunPlan) -> dict[str, Any]:
    return {k: v for k, v in plan.to_dict().items() if k not in ("session", "members")}


@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(("model", "protocol"), CASES)
def test_a_deployment_plans_what_a_simulation_does(
    model: str, protocol: str, epsilon: float | None, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"model": model, "protocol": protocol}
    options |= {"no_privacy": True} if epsilon is None else {"epsilon": epsilon}
    if protocol != "secure-aggregation":
        options["profile"] = "fast-insecure"
    else:
        options |= {"iterations": 2, "update": "gd"}  # a choice of rules takes seconds
    for parties in (2, 3, 5):
        found, refused = simulated(model, tmp_path, options, parties)
        rows = [m.rows for m in found.template.members] if found else [ROWS // parties] * parties

        def deploy(rows: list[int] = rows) -> tuple[RunPlan, Calibration]:
            training = training_fields("Coordinator.init", options)
            return next_run(cast(Settings, Centre(tmp_path, schema_of(model), rows, training)))

        if found is None:
            with pytest.raises(CohortError) as error:
                deploy()
            assert str(error.value) == refused
            continue
        deployed, calibration = deploy()
        members = tuple(Member(name=f"p{k}", rows=n, verify_key="0" * 64, commitment="0" * 64)
                        for k, n in enumerate(rows))  # fmt: skip
        first = found.first_plan if found.first is not None else found.plan
        assert plain(deployed) == plain(first("s", members).fit_messages(MESSAGE_BYTES))
        assert plain(calibration.template) == plain(found.template)
        # Nor does an owner with the policy of `cohort party init` refuse it.
        terms: dict[str, Any] = {"allow_insecure": True, "accept_unbounded": True}
        terms |= {**DEFAULT_POLICY, "max_epsilon": epsilon, "exact_sums": epsilon is None}
        Policy(**terms).check(deployed)
        if epsilon is not None:
            against = found.certificate.epsilon_by_coalition
            assert against[1] > epsilon >= against[0]
            assert f"epsilon={against[1]:.4g}" in towards_one(against)
