"""Standard errors across machines: the table of a simulation, the owners' consent and ledgers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.text import Text

from ciphercohort.after.sums import SpentError, sums_wanted
from ciphercohort.deploy.check import check_deployed, missing_by
from ciphercohort.deploy.deployed import Session
from ciphercohort.deploy.inference import infer_deployed, table_document
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.layout import INFERENCE
from ciphercohort.report.status_page import status_tables
from ciphercohort.results.documents import model_fields, to_json
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.verify import session as verified
from coordinator.deployment import OUTCOME, SESSION
from coordinator.settings import SESSIONS
from coordinator.status import read_status, sessions
from parties.agent.manifest import describe_plan
from parties.agent.vault import Vault
from parties.policy import Policy
from parties.reader.look import filled_words, told
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from parties.reader.views import by_range, encode_with_views, missing_schema
from parties.verifier.party import Party
from protocols.errors import ParameterError, PolicyError, PrivacyError, ProtocolError, SchemaError
from protocols.names import EMPTY_VIEW as MISSING
from protocols.names import RANGES_VIEW as RANGES
from protocols.plan.held_out import HeldOut
from protocols.plan.kinds import plan_from_dict
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger
from protocols.statistics.inference.objective import InformationObjective
from protocols.sums.missing_cells import MissingObjective
from sims.simulated_sums import Sums, encoded, infer, with_shards
from sims.simulation import party_specs
from tests.coordinator.test_deployment import NAMES, Centre
from tests.parties.agents import PASSPHRASE, Agents
from tests.sims.model_runs import cohort

ROWS = 400
SCHEMA = Schema(
    columns=(
        NumericColumn("age", 20.0, 90.0, 50.0, 10.0, "typical"),
        CategoricalColumn("ward", ("A", "B")),
    ),
    label=Label("died", "yes", "no"),
    row_norm=1.5,
)
MODEL = ReleasedModel(schema=SCHEMA, weights=np.array([1.0, 0.2, -0.2, 0.0]))


def rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(20, 90, ROWS), "ward": rng.choice(["A", "B"], ROWS)})
    risk = 0.05 * (frame.age - 55) + 0.5 * (frame.ward == "A")
    died = rng.random(ROWS) < 1 / (1 + np.exp(-risk))
    age = frame.age.where(rng.random(ROWS) < 0.9)
    return frame.assign(died=np.where(died, "yes", "no"), age=age)


FRAMES = {name: rows(k) for k, name in enumerate(NAMES)}


class Owners(Agents):
    """Agents of owners who hold tables, with a ledger each."""

    private = True

    def make_party(self, name: str) -> Party:
        old, (shard, views) = self.session.parties[name], encode_with_views(FRAMES[name], SCHEMA)
        return Party.of(
            name=name,
            shard=shard,
            signing_key=old.run.signing_key,
            coordinator_key=old._coordinator_key,
            policy=old._policy,
            randomness=SeededRandomness(3, name),
            ledger=self.ledger(name) if self.private else None,
            dataset="rows",
            views=views,
            coins=self.coins(name),
        )

    def ledger(self, name: str) -> Ledger:
        return Ledger(path=self.folder / f"{name}.jsonl", epsilon=12.0, delta=1e-5)


class Hospitals(Centre):
    """A coordinator of owners who hold tables."""

    agents: Owners

    def __init__(self, folder: Path, vault: Vault) -> None:
        super().__init__(folder, vault)
        self.agents = Owners(folder / "owners", vault, session=self.agents.session)
        (self.settings.folder / "schema.json").write_text(SCHEMA.to_json())
        for name in NAMES:
            path = self.settings.card_path(name)
            card = json.loads(path.read_text())
            path.write_text(json.dumps({**card, "rows": ROWS, "schema": SCHEMA.digest()}))

    def drive(self, session: str) -> dict[str, Any]:
        self.serve(session)
        status = read_status(self.settings.session_folder(session))
        assert status is not None
        return status

    def infer(self, epsilon: float | None, drive: Any = None, **terms: Any) -> Any:
        terms = {"epsilon": epsilon, "delta": 1e-5, "colluders": 0, "however_noisy": True} | terms
        # A ledger has no entry for a run without a promise, and refuses it.
        self.agents.private = epsilon is not None
        return infer_deployed(self.settings, MODEL, drive or self.drive, **terms)


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def centre(tmp_path: Path, vault: Vault) -> Hospitals:
    return Hospitals(tmp_path, vault)


def simulated(epsilon: float | None) -> Any:
    """The same rows, noise streams and model, in one process."""
    config = SimulationConfig(label="died", epsilon=epsilon, seed=3)
    shards = encoded(FRAMES, SCHEMA, private=epsilon is not None)
    specs = with_shards(party_specs(config, shards, 3, ""), shards)
    return infer(specs, SCHEMA, MODEL.weights, "logistic", sums_wanted(epsilon, 1e-5, 0))


@pytest.mark.parametrize("epsilon", [None, 10.0])
def test_the_table_is_that_of_a_simulation(
    centre: Hospitals, epsilon: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the last digits of a point, which encryption moves, would change the seeded noise.
    monkeypatch.setattr(InformationObjective, "stream", "of this test")
    killed: list[str] = []

    def dying(session: str) -> dict[str, Any]:
        if len(killed) == 2:
            raise KeyboardInterrupt
        killed.append(session)
        return centre.drive(session)

    with pytest.raises(KeyboardInterrupt):
        centre.infer(epsilon, dying)
    path, found = centre.infer(epsilon, first=killed[0])
    expected = simulated(epsilon)
    np.testing.assert_allclose(found.coef, expected.coef, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.se, expected.se, rtol=0, atol=1e-7)
    body = json.loads(path.read_text())
    assert path.parent.name == body["sessions"][0] == killed[0]
    assert body["sessions"][:2] == killed and len(body["sessions"]) == expected.rounds
    assert len(list(path.parent.parent.iterdir())) == expected.rounds  # none was opened twice
    assert [row["name"] for row in body["inference"]] == ["intercept", "age", "ward=A", "ward=B"]
    assert (path.parent / "inference.tex").is_file() and centre.forgotten()
    for name in NAMES:
        if epsilon is not None:
            spent = centre.agents.ledger(name).spent("rows").epsilon
            assert 0.97 * epsilon < spent <= epsilon * (1 + 1e-9)


def test_owners_are_told_what_a_sum_opens_and_hold_its_cost_against_their_limit(
    centre: Hospitals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ciphercohort.deploy.coordinator.drive", lambda settings, name, say: centre.drive(name)
    )
    fields = model_fields(SCHEMA, MODEL.weights, "logistic")
    fields |= {"weights": MODEL.weights.tolist(), "schema": SCHEMA.to_dict()}
    (tmp_path / "model.json").write_text(json.dumps(fields))
    asked = ("--model", tmp_path / "model.json", "--epsilon", 10)
    shown = cohort("coordinator", "infer", centre.settings.folder, *asked)
    assert shown.exit_code == 0 and "std err" in shown.stdout and "epsilon 10" in shown.stdout
    path = Path(shown.stdout.split("finished:")[1].replace("\n", "").strip())
    outcome = json.loads((path.parent / "outcome.json").read_text())
    plan = plan_from_dict(outcome["plan"])
    text = describe_plan(plan, NAMES[0], SCHEMA.norm_bound)
    for words in ("the gradient and the curvature", "epsilon=10", "asked again", "ranges"):
        assert words in text
    assert "cannot confirm" not in text
    centre.agents.session.parties[NAMES[1]]._policy = Policy(
        max_epsilon=8.0, allow_insecure=True, accept_unbounded=True
    )
    with pytest.raises(ProtocolError, match="exceeds"):
        centre.infer(10.0)


def test_what_does_not_fit_is_refused(centre: Hospitals) -> None:
    with pytest.raises(PrivacyError, match="no interval.*nothing was spent.*--however-noisy"):
        centre.infer(0.2, however_noisy=False)
    assert not [*centre.settings.folder.glob(f"{SESSIONS}/*")]
    with pytest.raises(PrivacyError, match="no interval.* opened before that: count epsilon=0.2"):
        centre.infer(0.2)
    with pytest.raises(ParameterError, match="another schema"):
        other = ReleasedModel(schema=by_range(SCHEMA), weights=MODEL.weights)
        infer_deployed(centre.settings, other, centre.drive, epsilon=None, delta=1e-5, colluders=0)
    path, _ = centre.infer(None)
    with pytest.raises(ParameterError, match="of another series"):
        centre.infer(9.0, first=path.parent.name)


def test_what_noisy_sums_spent_without_a_result_is_on_disk(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first session's folder, which `verify` makes again, and in its status."""
    with pytest.raises(PrivacyError) as found:
        centre.infer(0.2)
    (path,) = (centre.settings.folder / SESSIONS).glob(f"*/{INFERENCE}")
    held = json.loads(path.read_text())
    assert held["refused"] == str(found.value) and "count epsilon=0.2" in held["refused"]
    assert held["privacy"] == {"epsilon": 0.2, "delta": 1e-5, "colluders": 0}
    assert held["sessions"][0] == path.parent.name and "inference" not in held
    assert len(held["sessions"]) == len(held["transcripts"]) and not list(
        path.parent.parent.glob("*/inference.tex")
    )
    (status,) = (
        each for each in sessions(path.parent.parent) if each["session"] == path.parent.name
    )
    assert (status["state"], status["reason"]) == ("finished", held["refused"])
    lines = [str(each) for each in status_tables([status]) if isinstance(each, Text)]
    assert any("count epsilon=0.2" in line for line in lines)
    monkeypatch.setattr(verified, "_models", lambda *_: iter([(MODEL, [])]))
    session = Session.of(path.parent)
    texts, _ = verified.written_again(session)
    assert texts == {INFERENCE: path.read_text()}
    assert not [*verified.differences(path.parent, texts)]
    assert not [*verified.centre_problems(session)]
    path.write_text(path.read_text().replace("epsilon=0.2", "epsilon=0.1"))
    assert [*verified.differences(path.parent, texts)]
    with pytest.raises(PrivacyError, match="count epsilon=0.2"):  # nobody is asked again
        centre.infer(0.2, first=path.parent.name)
    assert json.loads(path.read_text()) == held
    body, table = table_document(centre.settings, MODEL, None, 0.2, first=path.parent.name)
    assert json.loads(to_json(body)) == held and isinstance(table, SpentError)


def test_rows_that_a_training_held_back_are_left_out(centre: Hospitals) -> None:
    """Each sum is over the same rows, those of the model's training."""
    folder = centre.settings.session_folder("training")
    folder.mkdir(parents=True)
    plan = replace(centre.template, held_out=HeldOut(share=0.25, draw="d1"))
    (folder / OUTCOME).write_text(json.dumps({"plan": plan.to_dict(), "weights": []}))
    (folder / SESSION).write_text("{}")
    centre.agents.private = False
    trained = replace(MODEL, session="training")
    asked: dict[str, Any] = {"epsilon": None, "delta": 1e-5, "colluders": 0}
    # Coins that are gone are not tossed anew: the rows would be others than those of the training.
    with pytest.raises(ProtocolError, match="which rows were held back is not on record here"):
        infer_deployed(centre.settings, trained, centre.drive, **asked)
    used = {}
    for name, frame in FRAMES.items():
        coins, shard = centre.agents.coins(name), encode_shard(frame, SCHEMA)
        assert coins is not None
        used[name] = frame.iloc[coins.chosen(plan.held_out, shard, plan.digest())]
        centre.agents.restart(name)
    _, found = infer_deployed(centre.settings, trained, centre.drive, **asked)
    assert found.about()["rows"] == 2 * 300
    config = SimulationConfig(label="died", epsilon=None, seed=3)
    shards = encoded(used, SCHEMA, private=False)
    specs = with_shards(party_specs(config, shards, 3, ""), shards)
    alone = infer(specs, SCHEMA, MODEL.weights, MODEL.model, sums_wanted(None, 1e-5, 0))
    np.testing.assert_allclose(found.se, alone.se, atol=1e-7)


def test_empty_cells_are_counted_over_all_parties(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = sum(int(frame.age.isna().sum()) for frame in FRAMES.values())
    assert 50 < empty < 110
    terms: dict[str, Any] = {"delta": 1e-5, "colluders": 0}
    centre.agents.private = False
    path, found = check_deployed(centre.settings, centre.drive, epsilon=None, **terms)
    assert json.loads(path.read_text()) == found
    monkeypatch.setattr(
        "ciphercohort.deploy.coordinator.drive", lambda settings, name, say: centre.drive(name)
    )
    told_of = cohort("coordinator", "check", centre.settings.folder)
    assert f"age in {empty}" in told_of.stdout.replace("'", "") and told_of.exit_code == 0
    assert found["missing"] == {"age": empty} and found["rows"] == 2 * ROWS
    centre.agents.private = True
    _, noisy = check_deployed(centre.settings, centre.drive, epsilon=1.0, **terms)
    assert abs(noisy["missing"]["age"] - empty) < 4 * noisy["noise_std"] < 100
    assert 0.97 < centre.agents.ledger(NAMES[0]).spent("rows").epsilon <= 1.0
    shards = {
        name: encode_with_views(frame, SCHEMA)[1].find(MISSING, missing_schema(SCHEMA).digest())
        for name, frame in FRAMES.items()
    }
    whole = {name: shard._value for name, shard in shards.items() if shard is not None}
    specs = with_shards(
        party_specs(SimulationConfig(label="died", epsilon=None, seed=3), whole, 3, ""), whole
    )
    simulated = missing_by(
        Sums(specs=specs, schema=missing_schema(SCHEMA), wanted=sums_wanted(None, 1e-5, 0))
    )
    assert simulated["missing"] == found["missing"]


def test_few_empty_cells_are_not_told() -> None:
    counts = {"a": 0, "b": 9, "c": 10, "d": 91, "e": 100}
    assert told(counts, 100, 10) == {"a": 0, "b": None, "c": 10, "d": None, "e": 100}
    words = filled_words(told(counts, 100, 10), 100, 10)
    assert "b in fewer than 10" in words.replace("'", "") and "a in" not in words
    with pytest.raises(SchemaError, match="refuses empty cells"):
        missing_schema(replace(SCHEMA, columns=SCHEMA.columns[1:]))
    with pytest.raises(ParameterError, match="fills no cells"):
        MissingObjective(columns=0, exact=True)


def test_a_view_is_never_answered_by_the_rows_as_for_training(centre: Hospitals) -> None:
    """A count of empty cells over these would count rows above the middle of each column."""
    party = centre.agents.make_party(NAMES[0])
    plan: Any = SimpleNamespace(view=MISSING, schema={"digest": SCHEMA.digest()})
    with pytest.raises(PolicyError, match="another column schema"):
        party._rows_of(plan)
    plan.view = ""
    assert party._rows_of(plan) is party.run.rows


def test_rows_by_range_are_for_standard_errors_alone() -> None:
    shard, views = encode_with_views(FRAMES[NAMES[0]], SCHEMA)
    own = by_range(SCHEMA)
    found = views.find(RANGES, own.digest())
    assert found is not None and found.schema == own
    own_x, x = (rows._value.x for rows in (found, shard))
    assert np.abs(own_x).max() <= 1 and not np.array_equal(own_x, x)
    for view in ("", MISSING):
        assert views.find(view, own.digest()) is None
    assert views.find(RANGES, "00" * 32) is None


def test_a_table_is_of_the_sums_that_its_sessions_agreed_on(centre: Hospitals) -> None:
    """Each in its place, whatever session.json says: a copied sum would hide what one cost."""
    path, _ = centre.infer(10.0)
    sessions = json.loads(path.read_text())["sessions"]

    def again() -> str:
        body, _ = table_document(centre.settings, MODEL, None, 10.0, first=sessions[0])
        return to_json(body)

    assert again() == path.read_text()
    folders = [centre.settings.session_folder(each) for each in sessions]
    good = [(folder / OUTCOME).read_text() for folder in folders]
    named = [folder / SESSION for folder in folders]
    fields = [json.loads(each.read_text()) for each in named]
    for to, of in ((1, 0), (3, 2), (2, 3)):
        (folders[to] / OUTCOME).write_text(good[of])
        for plan in (fields[to]["plan"], fields[of]["plan"]):
            named[to].write_text(json.dumps({**fields[to], "plan": plan}))
            with pytest.raises(ParameterError, match="agreed on another plan|of another series"):
                again()
        (folders[to] / OUTCOME).write_text(good[to])
        named[to].write_text(json.dumps(fields[to]))
    assert again() == path.read_text()
