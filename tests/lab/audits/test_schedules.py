"""`--schedule` and `--mechanism` reach the plan, by simulation and by a coordinator's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.deploy.deployed import plan_template
from coordinator.settings import Settings
from parties.agent.manifest import describe_plan
from parties.reader.schema import Schema
from parties.verifier.objectives import open_contributor
from parties.verifier.recompute import recompute
from protocols.exchange.cards import CARD_KIND
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.sums.plan import GradientPlan
from protocols.words import count
from sims.lab.audits.sums import Pair, candidates
from sims.lab.studies.epsilon import Case, plan_of
from tests.sims.model_runs import cohort

SCD = ("--protocol", "secure-aggregation", "--update", "scd", "--batches", 5, "--iterations", 10)


def template(folder: Path, *options: object) -> GradientPlan:
    """What `cohort coordinator init` with these options settles for three parties."""
    pd.DataFrame({"age": range(20, 60), "y": [0, 1] * 20}).to_csv(folder / "rows.csv", index=False)
    file = folder / "schema.json"
    assert (
        cohort("schema", "init", folder / "rows.csv", "--label", "y", "--out", file).exit_code == 0
    )
    done = cohort("coordinator", "init", folder / "centre", "--schema", file, *SCD, *options)
    assert done.exit_code == 0, done.output
    schema = Schema.load(file)
    for name in ("a", "b", "c"):
        card = {
            "kind": CARD_KIND,
            "name": name,
            "identity": "ab" * 32,
            "node_key": "",
            "rows": 400,
            "num_features": schema.num_features,
            "schema": schema.digest(),
        }
        path = folder / "centre" / "parties" / f"{name}.json"
        path.write_text(pd.Series(card).to_json())
    plan, _ = plan_template(Settings.load(folder / "centre"))
    assert isinstance(plan, GradientPlan)
    return plan


@pytest.mark.parametrize("schedule", ["cyclic", "poisson"])
def test_a_coordinators_schedule_is_the_plans(tmp_path: Path, schedule: str) -> None:
    plan = template(tmp_path, "--schedule", schedule)
    assert plan.objective["schedule"] == schedule
    setting = plan.sum_setting()
    assert (setting.rate, setting.batches) == {"cyclic": (1, 5), "poisson": (0.2, 1)}[schedule]
    assert recompute(plan, 1.0).epsilon == pytest.approx(1.0, rel=2e-3)


def test_coins_are_the_owners_own() -> None:
    """Who joins follows from the owner's source alone: no message, plan or other owner tells."""
    plan = plan_of(Case(protocol="secure-aggregation", update="scd", schedule="poisson"))
    pair = next(iter(candidates(plan)))

    def joined(seed: int) -> list[bool]:
        owner = open_contributor(plan, "p0", _shard(pair, plan), SeededRandomness(seed, "coins"))
        point = np.zeros(plan.length)
        return [bool(owner.contribution("dual", t, point).any()) for t in range(plan.rounds)]

    assert joined(1) == joined(1)
    assert len({tuple(joined(seed)) for seed in range(20)}) > 10
    share = np.mean([joined(seed) for seed in range(60)])
    # 600 coins of chance 1/4: four standard deviations are 0.07.
    assert share == pytest.approx(0.25, abs=0.08)


def _shard(pair: Pair, plan: GradientPlan) -> Any:
    from parties.reader.shard import ClampCounts, Shard
    from sims.lab.audits.sums import unit_schema

    count = plan.members[0].rows
    x, y = np.zeros((count, plan.length)), np.zeros(count)
    x[0], y[0] = pair.rows[0]
    return Shard(x=x, y=y, counts=ClampCounts(rows=count), schema=unit_schema(plan.length))


@pytest.mark.parametrize("update", ["gd", "scd"])
def test_an_owner_reads_the_certificates_epsilons(update: str) -> None:
    """In the words that it consents to, for each number of colluding parties."""
    schedule = "cyclic" if update == "scd" else "all rows"
    case = Case(protocol="secure-aggregation", update=update, schedule=schedule)
    plan = plan_of(case)
    text = describe_plan(plan, "p0", 1.0)
    for k, epsilon in enumerate(recompute(plan, 1.0).certificate.epsilon_by_coalition):
        who = f"and {count(k, 'other owner')}" if k else "alone"
        assert f"towards the coordinator {who}: epsilon={epsilon:.4g}, of all rounds" in text
    assert "towards the coordinator and 1 other owner: epsilon=1, of all rounds" in text
    assert "towards one other owner, who subtracts its own noise: epsilon=1\n" in text
    # Every noisy sum opens, not the coefficients alone.
    assert "released to everyone: the noisy sum of every round" in text
    assert "nothing else" not in text
    assert f"Joint decryptions: {len(plan.queries)};" in text
