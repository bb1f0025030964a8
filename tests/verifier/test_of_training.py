"""A sum is of the rows of its training, and of its series, or is refused where they are known."""

from __future__ import annotations

import json
import logging
import pkgutil
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.agent.owner import CoinBox, Owner
from parties.agent.settings import COINS, OUTCOME, ROWS, STATE
from parties.agent.store import CONSENT, SESSIONS, SessionStore
from parties.agent.vault import Vault
from parties.kernel.serving import Serving
from parties.policy import REFUSED, Policy
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.views import encode_with_views
from parties.verifier.foreseen import BEFORE, foreseen
from protocols.errors import CohortError, PolicyError
from protocols.plan.held_out import HeldOut
from protocols.plan.kinds import KINDS
from protocols.privacy.laws import SystemRandomness
from tests.parties.agents import PASSPHRASE
from tests.support.damage import DAMAGED
from tests.support.helpers import make_plan

KEY = Ed25519PrivateKey.generate()
TRAINING, OTHER = (make_plan(session=session).digest() for session in "ab")
SCHEMA = Schema(
    columns=(NumericColumn("age", 0.0, 100.0, 50.0, 10.0),),
    label=Label("died", "yes", "no"),
    row_norm=1.5,
)
FRAME = pd.DataFrame({"age": np.linspace(20.0, 80.0, 6), "died": ["yes", "no"] * 3})
FILLED = replace(SCHEMA, columns=(NumericColumn("age", 0.0, 100.0, 50.0, 10.0, "typical"),))
CHANGED: dict[str, tuple[pd.DataFrame, Schema]] = {
    "a cell": (FRAME.replace({"age": {20.0: 21.0}}), SCHEMA),
    "a label": (FRAME.assign(died=["no", *FRAME.died[1:]]), SCHEMA),
    "labels among rows": (FRAME.assign(died=FRAME.died.to_numpy()[::-1]), SCHEMA),
    "a cell beyond the clamp of training": (FRAME.replace({"age": {80.0: 79.0}}), SCHEMA),
    "order": (FRAME.iloc[::-1].reset_index(drop=True), SCHEMA),
    "a row more": (pd.concat([FRAME, FRAME[:1]], ignore_index=True), SCHEMA),
    "schema": (FRAME, replace(SCHEMA, row_norm=1.0)),
}


def owner(folder: Path | None, frame: pd.DataFrame = FRAME, schema: Schema = SCHEMA) -> Owner:
    """As an agent that was started on these rows."""
    rows, views = encode_with_views(frame, schema)
    return Owner(
        name="north",
        rows=rows,
        views=views,
        schema=schema,
        signing_key=KEY,
        store=SimpleNamespace(record=lambda session: object()),  # type: ignore[arg-type]
        terms=Policy().terms(),
        peers=dict,
        results=folder,
    )


def plan(training: str = TRAINING, *, judges: bool = False) -> Any:
    return SimpleNamespace(
        of_training=training, judges=judges, held_out=None, privacy=None, statistic="a sum"
    )


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    for session in "ab":
        made = make_plan(session=session)
        assert made.digest() == {"a": TRAINING, "b": OTHER}[session]
        owner(tmp_path).keep(session, made.digest(), json.dumps({"plan": made.to_dict()}))
    return tmp_path


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("what", BEFORE)
def test_what_follows_a_plan_over_other_rows_is_refused(
    what: str, change: str, trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything is booked; also where there is no record of another plan that it names."""
    for unknown in (None, *{*BEFORE.values()} - {BEFORE[what]}):
        named = {BEFORE[what]: TRAINING} | ({unknown: "ef" * 32} if unknown else {})
        later: Any = SimpleNamespace(
            judges=False, held_out=None, privacy=None, statistic="a sum", **named
        )
        assert any(
            "of the rows that you have now" in told for told in foreseen(later, owner(trained))
        )
        with pytest.raises(PolicyError) as refusal:
            foreseen(later, owner(trained, *CHANGED[change]))
        assert str(refusal.value) == REFUSED and f"follows the {what}" in caplog.text
        caplog.clear()


def test_every_field_that_names_another_plan_is_held_to_its_rows() -> None:
    kinds = [pkgutil.resolve_name(name) for name in KINDS.values()]
    plans = {kind.plan if hasattr(kind, "plan") else kind for kind in kinds}
    named = {field.name for plan_kind in plans for field in fields(plan_kind)}
    assert {name for name in named if name.startswith("of_") or name.endswith("_plan")} == {
        *BEFORE.values()
    }


@pytest.mark.parametrize("change", CHANGED)
def test_rows_that_were_held_back_are_known_by_their_coins_where_no_seal_is_left(
    change: str, tmp_path: Path, vault: Vault
) -> None:
    """An evaluation of them over others could only be refused after it is paid for."""
    back = HeldOut(share=0.5, draw="d")
    judging: Any = SimpleNamespace(
        of_training=TRAINING,
        judges=True,
        held_out=replace(back, judged=True),
        privacy=None,
        statistic="a sum",
    )
    coins = CoinBox(tmp_path / COINS, vault, SystemRandomness())
    before = owner(tmp_path / "a")
    coins.chosen(back, before._views._shard, TRAINING)
    for now in (before, owner(tmp_path / "a", *CHANGED[change])):
        now._coins = coins
        if now._views.trained() == before._views.trained():  # beyond a clamp it is no other row
            (told,) = foreseen(judging, now)
            assert "not on record" in told
            continue
        with pytest.raises(PolicyError, match=REFUSED):
            foreseen(judging, now)


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("judges", [False, True])
def test_other_rows_are_refused_and_the_owner_alone_is_told(
    change: str, judges: bool, trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An evaluation may be of new rows: its owner is told before it consents."""
    now = owner(trained, *CHANGED[change])
    with caplog.at_level(logging.WARNING):
        if judges:
            (told,) = foreseen(plan(judges=True), now)
            assert "other rows" in told
        else:
            with pytest.raises(PolicyError) as refusal:
                foreseen(plan(), now)
            assert str(refusal.value) == REFUSED and "have changed" in caplog.text
    assert TRAINING[:16] in (told if judges else caplog.text)


def test_a_cell_that_is_filled_in_is_another_one(tmp_path: Path) -> None:
    """By the very value that it was filled with: rows as for training are the same."""
    empty = FRAME.replace({"age": {20.0: np.nan}})
    full = FRAME.replace({"age": {20.0: 50.0}})
    owner(tmp_path, empty, FILLED).keep("a", TRAINING, "{}")
    assert owner(tmp_path, empty, FILLED).had_these_rows(TRAINING)
    assert owner(tmp_path, full, FILLED).had_these_rows(TRAINING) is False


@pytest.mark.parametrize("judges", [False, True])
def test_the_same_rows_and_unknown_trainings_are_said(judges: bool, trained: Path) -> None:
    for training in (TRAINING, OTHER):
        (told,) = foreseen(plan(training, judges=judges), owner(trained))
        assert "of the rows that you have now" in told
    (told,) = foreseen(plan("ef" * 32, judges=judges), owner(trained))
    assert "not on record" in told
    (told,) = foreseen(plan(judges=judges), owner(None))
    assert "not on record" in told
    assert foreseen(plan("", judges=judges), owner(trained, *CHANGED["order"])) == ()


def test_a_seal_is_of_one_plan_and_one_owner(trained: Path) -> None:
    """Rows that are alike do not show across trainings, nor to whoever knows them."""
    kept = [(trained / session / ROWS).read_text() for session in "ab"]
    assert len(set(kept)) == 2
    now = owner(trained)
    now.signing_key = Ed25519PrivateKey.generate()
    assert now.had_these_rows(TRAINING) is False
    (trained / "a" / ROWS).write_text(kept[1].replace(OTHER, TRAINING))
    assert owner(trained).had_these_rows(TRAINING) is False


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


LOST: dict[str, Callable[[Path], object]] = {
    **DAMAGED,
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "another release": lambda path: path.write_text('{"plan": "", "rows": "", "columns": 3}'),
}


@pytest.mark.parametrize("damage", LOST)
@pytest.mark.parametrize("files", [(ROWS,), (OUTCOME,), (ROWS, OUTCOME)])
def test_less_is_answered_where_a_record_is_lost_and_no_other_session_is_blocked(
    damage: str, files: tuple[str, ...], trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (trained / "notes.txt").write_text("of its owner")
    for file in files:
        LOST[damage](trained / "b" / file)
    now = owner(trained, *CHANGED["a cell"])
    with caplog.at_level(logging.WARNING):
        assert owner(trained).had_these_rows(TRAINING)
        assert now.had_these_rows(TRAINING) is now.had_these_rows(OTHER) is False
    assert owner(trained).had_these_rows(OTHER) is (ROWS not in files)
    # Where nothing says whose seal it was, it may be that of a training without another record.
    assert now.had_these_rows("ef" * 32) is (False if len(files) == 2 else None)
    assert (str(trained / "b" / ROWS) in caplog.text) is (ROWS in files)
    with pytest.raises(PolicyError, match=REFUSED):
        foreseen(plan(OTHER), now)


@pytest.mark.parametrize(
    ("record", "damage"),
    # A session that nobody remembers at all is a new one.
    sorted({*product((COINS, SESSIONS, CONSENT), LOST)} - {(SESSIONS, "gone")}),
)
def test_an_owner_without_a_record_starts_with_less_or_not_at_all(
    record: str, damage: str, vault: Vault, tmp_path: Path
) -> None:
    """Coins, sessions that are over, decisions."""
    shard = encode_with_views(FRAME, SCHEMA)[0]._value
    half = HeldOut(share=0.5, draw="d1")

    def opened() -> tuple[CoinBox, SessionStore]:
        return (
            CoinBox(tmp_path / COINS, vault, SystemRandomness()),
            SessionStore(tmp_path / STATE, None),
        )

    coins, store = opened()
    rows = coins.chosen(half, shard, TRAINING)
    store.end("s", "finished", "")
    store.decided(TRAINING, "words", accepted=True)
    coins, store = opened()
    assert coins.chosen(half, shard, "", TRAINING).tolist() == rows.tolist()
    assert store.record("s") and store.decisions() == {(TRAINING, "words"): True}
    LOST[damage](tmp_path / (record if record == COINS else f"{STATE}/{record}"))
    try:
        coins, store = opened()
        answered = store.decisions()
    except (CohortError, OSError):
        return
    assert record != SESSIONS
    if record == CONSENT:
        assert not answered
        return
    coins.chosen(half, shard, OTHER)
    with pytest.raises(PolicyError):
        coins.chosen(half, shard, "", TRAINING)


@pytest.mark.parametrize("change", CHANGED)
def test_a_session_goes_on_over_the_same_rows_alone(change: str, tmp_path: Path) -> None:
    """Also where rows as for training are the same: a sum of its table would not be."""

    def seen(*changed: Any) -> str:
        serving: Any = SimpleNamespace(_of=owner(tmp_path, *changed).begin())
        return Serving.fingerprint(serving)

    assert seen() == seen() != seen(*CHANGED[change])
