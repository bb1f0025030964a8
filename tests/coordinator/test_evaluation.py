"""A model is judged across machines, by agents that answer any plan of encrypted sums."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from coordinator.deployment import create_session
from parties.agent.vault import Vault
from parties.data.schema import Schema
from protocols.errors import ParameterError, ProtocolError
from sims.deployed_evaluation import evaluation_plan, write_evaluation
from sims.predict import ReleasedModel
from tests.coordinator.test_deployment import Centre
from tests.parties.agents import PASSPHRASE

WITHOUT: dict[str, Any] = {"epsilon": None, "delta": 1e-5, "colluders": 0, "least": 2}


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Centre:
    return Centre(tmp_path_factory.mktemp("evaluation"), Vault(PASSPHRASE))


@pytest.fixture(scope="module")
def model(centre: Centre) -> ReleasedModel:
    schema = Schema.load(centre.settings.folder / "schema.json")
    return ReleasedModel(schema=schema, weights=np.linspace(1.0, -0.4, schema.num_features))


def test_the_figures_are_those_of_pooled_rows(centre: Centre, model: ReleasedModel) -> None:
    plan = evaluation_plan(centre.settings, model, **WITHOUT)
    session = create_session(centre.settings, plan)
    centre.serve(session)
    found = json.loads(write_evaluation(centre.settings, session, model, least=2).read_text())
    shards = [party._shard for party in centre.agents.session.parties.values()]
    y = np.concatenate([shard.y for shard in shards])
    p = 1 / (1 + np.exp(-np.concatenate([shard.x for shard in shards]) @ model.weights))
    assert found["rows"] == len(y) == 8
    assert found["auc"] == pytest.approx(roc_auc_score(y, p), abs=found["auc_error_bound"] + 1e-12)
    assert found["log_loss"] == pytest.approx(log_loss(y, p), abs=1e-6)
    assert centre.forgotten()


def test_a_table_of_one_party_needs_its_owner(centre: Centre, model: ReleasedModel) -> None:
    plan = evaluation_plan(centre.settings, model, sites=("hospital-1",), **WITHOUT)
    with pytest.raises(ProtocolError, match="site_tables = true"):
        centre.serve(create_session(centre.settings, plan))


def test_what_does_not_fit_is_refused(centre: Centre, model: ReleasedModel) -> None:
    with pytest.raises(ParameterError, match="no party of 5 rows or more"):
        evaluation_plan(centre.settings, model, sites=("hospital-1",), **{**WITHOUT, "least": 5})
    other = replace(model, schema=replace(model.schema, row_norm=7.0))
    with pytest.raises(ParameterError, match="another schema"):
        evaluation_plan(centre.settings, other, **WITHOUT)
    session, _ = centre.begin()
    with pytest.raises((ParameterError, FileNotFoundError)):
        write_evaluation(centre.settings, session, model)
