"""Attacks of whoever drives a kernel, each on what stands between two calls; toy rings, INSECURE.

A payment is spent once; a session ends with its run; a state that is gone on from is the latest of
all runs; rows are looked at once everybody has signed; no secret of the owner's is passed on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties import launch
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.kernel.private import HiddenError
from parties.kernel.rows import session as rows_session
from parties.kernel.serving import COMMITTED
from parties.kernel.sheet import cost
from parties.kernel.sums.dual import DualSteps
from parties.verifier.remote import Calls
from protocols.errors import CohortError, PolicyError
from protocols.exchange import Body
from tests.kernel import test_rows_session
from tests.kernel.test_sums_session import SHEET
from tests.support.others import Others
from tests.verifier.remote import OPENED, served
from tests.verifier.test_hostile import EVENT, KEYS, KEYS_SHEET, Hostile, begin, call, reserved


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def owner(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


# -- the account --------------------------------------------------------------------------------


@pytest.mark.parametrize("between", [(), ("take_back",), ("begin",), ("take_back", "begin")])
def test_a_name_buys_one_release_whatever_comes_between(
    owner: Hostile, between: tuple[str, ...]
) -> None:
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    assert call(ask, session, "round", 0, np.zeros(2)).shape
    for name in between:
        ask(name)
    with suppress(PolicyError):
        ask("begin")
    with pytest.raises(PolicyError, match="budget is refused"):
        ask("account", "reserve", (EVENT,), 0.0, "run")
    ask("take_back")
    ask("begin")
    assert owner.runs_spent() == 1


def test_a_run_that_died_unspent_is_asked_again(owner: Hostile) -> None:
    """Nothing had left under its name."""
    reserved(owner)
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    call(ask, session, "round", 0, np.zeros(2))
    assert owner.runs_spent() == 1


# -- sessions end with their run -----------------------------------------------------------------


def test_no_session_outlives_what_is_taken_back(owner: Hostile) -> None:
    """Its sheet would be signed by nobody, its keys known to those who made its roster."""
    ask, rows = reserved(owner)
    mine = replace(KEYS_SHEET, roster=(KEYS_SHEET.roster[0], *KEYS_SHEET.roster[2:]))
    old, _ = ask("open", mine, rows, "")
    ask("take_back")
    ask("account", "reserve", (EVENT,), 0.0, "again")
    with pytest.raises(PolicyError, match="is over or none"):
        call(ask, old, "begin", {})
    ask("open", KEYS_SHEET, rows, "")
    session, _ = ask("open", SHEET, rows, "")
    seeds = Others(KEYS).agree(ask)
    call(ask, old, "begin", seeds)  # the number is that of the run's own keys
    assert owner.runs[-1].keys._sheet == KEYS_SHEET
    call(ask, session, "begin", seeds)


@pytest.mark.parametrize("kind", ["KeysSheet", "SumsSheet"])
def test_an_erased_session_makes_no_secret(owner: Hostile, kind: str) -> None:
    """Behind the boundary, too, whoever still holds it."""
    ask, rows = reserved(owner)
    sheet: Any = KEYS_SHEET if kind == "KeysSheet" else SHEET
    ask("open", sheet, rows, "")
    run = owner.runs[-1]
    ((_, session),) = run._opened
    seeds = Others(KEYS).agree(ask)
    session.erase()
    with run.private, pytest.raises(PolicyError):
        session.begin(seeds)


def test_rows_are_encrypted_under_the_keys_of_their_run_alone(
    owner: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a driver names, or has from a run before."""
    ask, _ = reserved(owner)
    sheet = replace(
        test_rows_session.SHEET,
        session=SHEET.session,
        roster=SHEET.roster,
        rows=(3, 7, 7, 7),
        num_features=2,
        bound=2.0,
        moves=2.0,
    )
    event = replace(EVENT, noise_multiplier=cost(sheet) ** -0.5)
    met = list[Any]()
    monkeypatch.setattr(rows_session, "encrypt", lambda keys, key, *_: met.append((keys, key)))
    foreign, _ = ask("open", KEYS_SHEET, ask("used", "", "", None), "")
    for k, named in enumerate(((), (foreign,), (KEYS_SHEET.roster,))):
        before = owner.runs[-1].keys
        ask("begin")
        ask("account", "reserve", (event,), 0.0, f"rows {k}")
        ask("open", KEYS_SHEET, ask("used", "", "", None), "")
        session, _ = ask("open", sheet, ask("used", "", "", None), "")
        own = owner.runs[-1].keys
        for each in (before, own):
            monkeypatch.setattr(each, "public_key", lambda each=each: ("of", each))
        slots = np.zeros(own.context.num_slots, np.int32)
        slots[: 2 * (3 + sheet.rounds)] = np.arange(1, 1 + 2 * (3 + sheet.rounds))
        with suppress(CohortError, HiddenError):
            call(ask, session, "contribute", *named, [slots])
        assert met == ([] if named else [(own, ("of", own))])
        met.clear()


# -- states that were set back -------------------------------------------------------------------


def kept(owner: Hostile, folder: Path) -> SessionStore:
    store = SessionStore(folder / "state", Vault("correct horse battery staple"))
    owner.store = store
    return store


def answered_once(owner: Hostile, folder: Path) -> Calls:
    """A state of one call is on disk; then one more was answered."""
    store = kept(owner, folder)
    ask = served(owner)
    ask("begin")
    ask("save", Body(), 1)
    store.begin("session")
    keys, _ = ask("open", KEYS_SHEET, ask("used", "", "", None), "")
    begin(ask, keys)
    ask("save", Body(), 2)
    call(ask, keys, "rotation_share", 1)
    return ask


def by_another_run(ask: Calls) -> None:
    """Its calls are counted, too, up to the same number."""
    ask("begin")
    with suppress(CohortError):
        ask("reveal", {})


def by_the_end_of_another_session(ask: Calls) -> None:
    ask("store", "begin", "decoy")
    ask("store", "end", "decoy", "", "", "", b"")


def by_a_later_session(ask: Calls) -> None:
    ask("store", "begin", "later")


@pytest.mark.parametrize(
    "how", [lambda ask: None, by_another_run, by_the_end_of_another_session, by_a_later_session]
)
def test_no_call_of_a_driver_sets_a_session_back(owner: Hostile, tmp_path: Path, how: Any) -> None:
    ask = answered_once(owner, tmp_path)
    with suppress(CohortError):
        how(ask)
    again = served(owner)
    with suppress(PolicyError, HiddenError):
        again("resume")
        pytest.fail("the kernel went on from an older state")


# -- rows, and what is told of them --------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 0.99, 1.2])
def test_no_scale_of_a_sheet_tells_of_a_row(owner: Hostile, scale: float) -> None:
    """Refused by the schema's bound, whatever the rows are, and nothing is charged."""
    ask, rows = reserved(owner)
    steps = DualSteps(
        loss="logistic", lam=1.0, rows=12, batches=1, rounds=1, clip=1.0, row_scale=scale
    )
    asked = replace(SHEET.rounds[0], query="dual", units=1 << 46)
    with pytest.raises(PolicyError, match="rows are longer than"):
        ask("open", replace(SHEET, row_function=steps.fields(), rounds=(asked,)), rows, "")
    assert not owner.runs[-1].private.touched


def test_a_sheet_opens_without_a_look_at_rows(owner: Hostile) -> None:
    ask, rows = reserved(owner)
    ask("open", SHEET, rows, "")
    assert not owner.runs[-1].private.touched


# -- what is signed, and passed on ---------------------------------------------------------------


@pytest.mark.parametrize("step", ["relinearise", "decrypt", "cover-decrypt", "refresh/0"])
def test_a_driver_signs_for_no_reply_that_the_kernel_keeps(owner: Hostile, step: str) -> None:
    ask, _ = reserved(owner)
    with pytest.raises(PolicyError, match="nobody else does"):
        ask("sign", COMMITTED + step.encode() + b"\0" + bytes(64))
    assert ask("sign", COMMITTED + b"gradient/0\0" + bytes(64))


def test_the_verifier_gets_no_secret_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "s3cret")
    monkeypatch.setenv("COHORT_PASSPHRASE", "s3cret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "s3cret" not in json.dumps(launch.environment())
    assert launch.environment()["OMP_NUM_THREADS"] == "1"
    words = [sys.executable, "-c", "import numpy, os; print(sorted(os.environ.values()))"]
    said = subprocess.run(words, env=launch.environment(), capture_output=True, text=True)
    assert said.returncode == 0 and "s3cret" not in said.stdout


# -- two owners ----------------------------------------------------------------------------------


def test_two_owners_of_whom_one_may_collude_have_keys_but_no_sums(owner: Hostile) -> None:
    """A sum of two less one's own part is the other's; a decryption shows the model alone."""
    ask, rows = reserved(owner)
    assert ask("open", replace(KEYS_SHEET, roster=KEYS_SHEET.roster[:2]), rows, "")
    pair = replace(SHEET, roster=SHEET.roster[:2], weights=SHEET.weights[:2], honest=1)
    with pytest.raises(PolicyError, match="too few members .2 members; this party fears 1"):
        ask("open", pair, rows, "")
