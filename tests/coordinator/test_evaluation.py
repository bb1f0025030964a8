"""A model is judged across machines, by agents that answer any plan of encrypted sums."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss, roc_auc_score

from ciphercohort.deploy.deployed import Session
from ciphercohort.deploy.evaluation import evaluated, evaluation_plan, finished_evaluation
from ciphercohort.job.layout import EVALUATION
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.verify.session import _check_training, centre_problems
from coordinator.deployment import create_session
from coordinator.replay import replay
from coordinator.settings import CARDS
from parties.agent.vault import Vault
from parties.kernel.private import closed
from parties.reader.schema import Classes, Schema
from protocols.errors import CohortError, ParameterError, ProtocolError
from protocols.plan.held_out import HeldOut
from protocols.plan.kinds import plan_from_dict
from sims.evaluation import evaluate
from tests.coordinator.test_deployment import NAMES, Centre
from tests.parties.agents import COINS, PASSPHRASE
from tests.support.helpers import log2_error

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
    finished_evaluation(centre.settings, session, model, least=2)
    found = json.loads((centre.settings.session_folder(session) / EVALUATION).read_text())
    shards = [party.run.rows._value for party in centre.agents.session.parties.values()]
    y = np.concatenate([shard.y for shard in shards])
    p = 1 / (1 + np.exp(-np.concatenate([shard.x for shard in shards]) @ model.weights))
    assert found["rows"] == len(y) == 8
    assert found["auc"] == pytest.approx(roc_auc_score(y, p), abs=found["auc_error_bound"] + 1e-12)
    assert found["log_loss"] == pytest.approx(log_loss(y, p), abs=1e-6)
    assert centre.forgotten()


@pytest.mark.parametrize("replica", ["own", (NAMES[1],)])
def test_a_centre_whom_owners_check_verifies(
    replica: Any, tmp_path: Path, model: ReleasedModel
) -> None:
    """Who follows whom is said at enrolment, as commitments are."""
    made = Centre(tmp_path, Vault(PASSPHRASE))
    for name, party in made.agents.session.parties.items():
        own = "own" if name == NAMES[1] else replica
        party._policy = replace(party._policy, replica=own)
        made.agents.restart(name)
    session = create_session(made.settings, evaluation_plan(made.settings, model, **WITHOUT))
    made.serve(session)
    finished_evaluation(made.settings, session, model, least=2)
    found = Session.of(made.settings.session_folder(session))
    assert all(member.follows for member in found.plan.members)
    assert not [*centre_problems(found)]


def test_a_model_of_several_classes_is_judged_too(tmp_path: Path) -> None:
    made = Centre(tmp_path, Vault(PASSPHRASE))
    folder, labels = made.settings.folder, np.array([0, 1, 2, 0, 1, 2, 2, 1])
    schema = replace(Schema.load(folder / "schema.json"), label=Classes("y", ("a", "b", "c")))
    schema.save(folder / "schema.json")
    for (name, party), own in zip(
        made.agents.session.parties.items(), (labels[:4], labels[4:]), strict=True
    ):
        party.run.rows = closed(replace(party.run.rows._value, schema=schema, y=np.eye(3)[own]))
        card = json.loads((path := folder / CARDS / f"{name}.json").read_text())
        path.write_text(json.dumps({**card, "schema": schema.digest()}))
        made.agents.restart(name)
    weights = np.random.default_rng(0).normal(0, 1, (schema.num_features, 3))
    model = ReleasedModel(schema=schema, weights=weights, model="softmax")
    session = create_session(made.settings, evaluation_plan(made.settings, model, **WITHOUT))
    made.serve(session)
    found = finished_evaluation(made.settings, session, model, least=2).figures
    x = np.concatenate([party.run.rows._value.x for party in made.agents.session.parties.values()])
    p = softmax(x @ weights, axis=1)
    assert found.log_loss == pytest.approx(log_loss(labels, p), abs=1e-6)
    areas = roc_auc_score(labels, p, multi_class="ovr")
    assert found.auc == pytest.approx(areas, abs=found.auc_error_bound + 1e-12)
    assert found.auc_error_bound < 0.1 and set(found.by_class) == {"a", "b", "c"}


FIELDS = (
    *(
        "rows_of",
        "held_out",
        "model",
        "trained_in",
        "view",
        "parties",
        "sites",
        "suppressed",
        "privacy",
    ),
    *("certificate", "noise", "warnings", "session", "plan", "transcript", "out_of_range"),
)


def test_one_set_of_fields_wherever_the_parties_are(centre: Centre, model: ReleasedModel) -> None:
    session = create_session(centre.settings, evaluation_plan(centre.settings, model, **WITHOUT))
    centre.serve(session)
    deployed = finished_evaluation(centre.settings, session, model, least=2).summary()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x0": rng.uniform(-1, 1, 20), "x1": rng.uniform(-1, 1, 20)})
    frame["y"] = np.arange(20) % 2
    simulated = evaluate(model, frame, parties=2, seed=1).summary()
    assert set(deployed) == set(simulated) >= set(FIELDS)
    assert deployed["session"] == session and deployed["transcript"] and deployed["parties"] == 2


def held(centre: Centre) -> np.ndarray:
    """Rows and labels that parties hold back, by the coins on their disks."""
    plan = plan_of(centre.settings.session_folder(centre.trained))
    found = []
    for name, party in centre.agents.session.parties.items():
        own: Any = centre.agents.coins(name)
        back = replace(plan.held_out, judged=True)
        shard = party.run.rows._value.only(
            own.chosen(back, party.run.rows._value, "", plan.digest())
        )
        found.append(np.column_stack([shard.x, shard.y]))
    return np.concatenate(found)


def plan_of(folder: Path) -> Any:
    return plan_from_dict(json.loads((folder / "outcome.json").read_text())["plan"])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Centre:
    """A training that holds half of every party's rows back; killed, and agents restarted."""
    made: Any = Centre(tmp_path_factory.mktemp("study"), Vault(PASSPHRASE))
    for party in made.agents.session.parties.values():  # of four rows each
        party._policy = replace(party._policy, min_rows_apart=1)
    whole = made.template
    made.template = replace(whole, held_out=HeldOut(share=0.5, draw="d1")).among(
        "template", whole.members
    )
    made.trained, _ = made.begin()
    chosen = []

    def dying(step: str, outgoing: Any) -> Any:
        replies = made.ask(step, outgoing)
        if step in ("reveal", "contribute"):
            for name in outgoing:
                made.agents.restart(name)
            chosen.append([made.agents.coins(name).kept["d1"].secret for name in outgoing])
        if step == "reveal" and len(chosen) == 1:
            raise KeyboardInterrupt
        return replies

    with pytest.raises(KeyboardInterrupt):
        made.serve(made.trained, dying)
    made.serve(made.trained, dying)
    assert len(chosen) > 1 and all(secrets == chosen[0] for secrets in chosen)
    assert chosen[0][0] != chosen[0][1]
    return made  # type: ignore[no-any-return]


def test_a_training_uses_the_other_rows_after_a_kill_too(study: Any) -> None:
    plan = plan_of(study.settings.session_folder(study.trained))
    assert [m.rows for m in plan.members] == [2, 2] and plan.held_out.draw == "d1"
    session, own = study.agents.session, study.agents.coins
    tables = {name: party.run.rows._value for name, party in session.parties.items()}
    shards = [
        t.only(own(name).chosen(plan.held_out, t, "", plan.digest())) for name, t in tables.items()
    ]
    session.plan, session.shards = plan, [(shard.x, shard.y) for shard in shards]
    assert log2_error(study.weights(study.trained), session.twin()) < -17
    assert replay(study.settings.session_folder(study.trained)).passed
    rows = np.concatenate([held(study)[:, :3], *(shard.x for shard in shards)])
    table = np.concatenate([party.run.rows._value.x for party in session.parties.values()])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, table))


def test_the_rows_held_back_are_judged_by_agents_that_restart(
    study: Any, model: ReleasedModel
) -> None:
    known = replace(model, session=study.trained)
    plan = evaluation_plan(study.settings, known, rows="held-out", **WITHOUT)
    assert [m.rows for m in plan.members] == [2, 2]
    for name in study.agents.agents:
        study.agents.restart(name)
    session = create_session(study.settings, plan)
    study.serve(session)
    found = finished_evaluation(study.settings, session, known, least=2).summary()
    rows = held(study)
    p = 1 / (1 + np.exp(-rows[:, :3] @ model.weights))
    assert found["rows"] == 4 and found["rows_of"] == "held-out"
    # As `verify` has it: the rows that the plan uses, and those of its own training.
    folder = study.settings.session_folder(session)
    for each in (session, study.trained):
        assert not [*centre_problems(Session.of(study.settings.session_folder(each)))]
    judged, trained = Session.of(folder), plan_of(study.settings.session_folder(study.trained))
    _check_training(judged, trained)
    for other in (replace(trained, held_out=None), replace(trained, session="other")):
        stated = replace(judged.plan, of_training=other.digest())
        with pytest.raises(ParameterError, match="of the training by plan|did not hold back"):
            _check_training(replace(judged, plan=stated), replace(other, held_out=None))
    assert found["log_loss"] == pytest.approx(log_loss(rows[:, 3], p, labels=[0, 1]), abs=1e-6)


CHOSEN = {"session", "members", "held_out", "of_training", "centre", "sites"}
"""Of an evaluation's plan: whom and what it is of, which its document says."""


def others_of(value: Any) -> Iterator[Any]:
    """Values of the same shape, one leaf of which is another one; not of what is chosen."""
    if isinstance(value, dict):
        for key in value.keys() - CHOSEN:
            yield from ({**value, key: other} for other in others_of(value[key]))
    elif isinstance(value, list):
        for k, each in enumerate(value):
            yield from ([*value[:k], other, *value[k + 1 :]] for other in others_of(each))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from {2 * value + 1, value / 2} - {value}
    else:
        yield f"{value}x" if value else 1


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_figures_are_of_the_plan_that_follows_from_the_model(
    epsilon: float | None, study: Any, model: ReleasedModel
) -> None:
    """Whatever else was agreed: other bins or bounds give other figures of the same rows."""
    known = replace(model, session=study.trained)
    asked = {**WITHOUT, "epsilon": epsilon, "however_noisy": True}
    plan = evaluation_plan(study.settings, known, rows="held-out", threshold=0.3, **asked)
    session = create_session(study.settings, plan)
    study.serve(session)
    path = study.settings.session_folder(session) / "outcome.json"
    fields = json.loads(path.read_text())
    assert evaluated(study.settings, session, known, least=2).released()
    tried = [*others_of(fields["plan"])]
    tried.append({**fields["plan"], "held_out": {**fields["plan"]["held_out"], "judged": False}})
    of_ranges = {**fields["plan"]["objective"], "of_ranges": True}
    tried.append({**fields["plan"], "objective": of_ranges})
    assert len(tried) > 30
    for other in tried:
        path.write_text(json.dumps({**fields, "plan": other}))
        with pytest.raises((CohortError, ValueError, TypeError, KeyError)):
            evaluated(study.settings, session, known, least=2)
    path.write_text(json.dumps(fields))
    assert evaluated(study.settings, session, known, least=2).released()


def test_a_party_without_its_coins_says_so(study: Any, model: ReleasedModel) -> None:
    known = replace(model, session=study.trained)
    box = study.agents.folder / NAMES[1] / COINS
    kept = box.read_bytes()
    box.unlink()
    study.agents.restart(NAMES[1])
    plan = evaluation_plan(study.settings, known, rows="held-out", **WITHOUT)
    assert study.agents.coins(NAMES[0]).kept["d1"].plans == [plan.of_training]
    rows = study.agents.session.parties[NAMES[1]].run.rows._value
    refused = "'hospital-2' refuses.*which rows were held back is not on record"
    for _ in range(2):
        with pytest.raises(ProtocolError, match=refused):
            study.serve(create_session(study.settings, plan))
        # Another training by the same draw, whose coins are others.
        study.agents.coins(NAMES[1]).chosen(replace(plan.held_out, judged=False), rows, "ab" * 32)
        study.agents.restart(NAMES[1])
    box.write_bytes(kept)
    study.agents.restart(NAMES[1])


def test_a_party_whose_rows_changed_tells_its_owner_alone(
    study: Any, model: ReleasedModel, caplog: pytest.LogCaptureFixture
) -> None:
    known, party = replace(model, session=study.trained), study.agents.session.parties[NAMES[0]]
    plan, shard = (
        evaluation_plan(study.settings, known, rows="held-out", **WITHOUT),
        party.run.rows._value,
    )
    party.run.rows = closed(shard.only(np.arange(4)[::-1]))
    with pytest.raises(ProtocolError, match="this party refuses: see its own log"):
        study.serve(create_session(study.settings, plan))
    party.run.rows = closed(shard)
    assert "the rows or their schema have changed since draw d1" in caplog.text


@pytest.mark.parametrize(
    ("session", "options", "words"),
    [
        ("deadbeef", {}, "nobody knows which rows were held back"),
        (None, {"parties": ("stranger",)}, "stranger: no such admitted party"),
        (None, {"least": 5}, "fewer than 5 rows"),
        (None, {"rows": "some"}, "is not all or held-out"),
        *(
            (None, {"threshold": each}, r"is outside \(0, 1\)")
            for each in (0.0, 1.0, -1.0, 2.0, math.nan, math.inf)
        ),
    ],
)
def test_rows_that_nobody_held_back_are_not_judged(
    session: str | None, options: dict[str, Any], words: str, study: Any, model: ReleasedModel
) -> None:
    known = replace(model, session=session or study.trained)
    with pytest.raises(ParameterError, match=words):
        evaluation_plan(study.settings, known, **{**WITHOUT, "rows": "held-out", **options})


def test_a_table_of_one_party_needs_its_owner(centre: Centre, model: ReleasedModel) -> None:
    plan = evaluation_plan(centre.settings, model, sites=("hospital-1",), **WITHOUT)
    with pytest.raises(ProtocolError, match="site_tables = true"):
        centre.serve(create_session(centre.settings, plan))


def test_what_does_not_fit_is_refused(centre: Centre, model: ReleasedModel) -> None:
    noisy = {**WITHOUT, "epsilon": 2.0}
    with pytest.raises(ParameterError, match=r"epsilon=2 on 8 rows.*nothing was spent"):
        evaluation_plan(centre.settings, model, **noisy)
    assert evaluation_plan(centre.settings, model, **noisy, however_noisy=True).privacy
    with pytest.raises(ParameterError, match="no party of 5 rows or more"):
        evaluation_plan(centre.settings, model, sites=("hospital-1",), **{**WITHOUT, "least": 5})
    other = replace(model, schema=replace(model.schema, row_norm=7.0))
    with pytest.raises(ParameterError, match="another schema"):
        evaluation_plan(centre.settings, other, **WITHOUT)
    session, _ = centre.begin()
    with pytest.raises((ParameterError, FileNotFoundError)):
        finished_evaluation(centre.settings, session, model)
