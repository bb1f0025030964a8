"""What goes on after a restart, under a driver that opens sessions again as it likes."""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.kernel.channel import Handle
from parties.kernel.gram.sums import gram_sensitivity
from parties.kernel.keys import KeysSheet
from parties.kernel.model import Columns, ModelSheet
from parties.kernel.model import session as model_session
from parties.kernel.private import HiddenError
from parties.kernel.rows import RowsSheet, packed
from parties.kernel.sheet import cost
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.verifier.remote import Calls
from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.flooding import rounding_std
from protocols.errors import CohortError, PolicyError
from protocols.exchange import Body
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of
from protocols.plan.held_out import HeldOut
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.statistics.study.cox import written
from protocols.steps import endorsed
from tests.kernel.test_sums_session import KEYS as FOUR
from tests.support.others import PLAN, Others
from tests.verifier.remote import served
from tests.verifier.test_hostile import SHEET, Hostile, call

KEYS = {name: FOUR[name] for name in "ab"}
OTHERS = Others(KEYS)
ROSTER = tuple(OTHERS.roster.items())
N = 512
TOY = CkksParameters(ring_dim=N, depth=3, security_bits=0)
ERROR = 4 * rounding_std(TOY, 2)
KEYS_SHEET = KeysSheet(
    session="s",
    roster=ROSTER,
    params=TOY,
    rotations=(1,),
    refreshes=(1,),
    shown=tuple(range(6)),
    coordinates=N // 2,
    shown_error=ERROR,
    error=ERROR,
    decryptions=1,
)
SUMS = RowsSheet(
    session="s",
    roster=ROSTER,
    rows=(3, 3),
    kind="gram",
    num_features=2,
    num_outputs=0,
    rounds=1,
    bound=math.sqrt(2),
    scale=2.0**-8,
    target_bound=1.0,
    moves=gram_sensitivity(math.sqrt(2), 1.0),
    law="gaussian",
    honest=1,
    bits=30,
    units=2 << 30,
)
EVENT = GaussianEvent(noise_multiplier=cost(SUMS) ** -0.5)
PRIMES = RingContext(TOY, "s").primes


class Restarted(Hostile):
    """An owner of the party "a", whose process is started again and again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.named = {"b": OTHERS.roster["b"]}
        self._folder, self._vault = folder / "state", Vault("correct horse battery staple")
        self.store = SessionStore(self._folder, self._vault)

    def again(self) -> Calls:
        self.store = SessionStore(self._folder, self._vault)
        return served(self)


def places() -> Any:
    found = np.zeros(N // 2, np.int32)
    found[:6] = np.arange(1, 7)
    return found


def give_joint_key(ask: Calls, keys: Handle, seed: bytes) -> None:
    """The two shares of it; the other owner's secret is zero."""
    own = call(ask, keys, "public_share")
    blobs = tuple(rns.pack(share, PRIMES) for share in (own, np.zeros_like(own)))
    rest = {"a": ["00" * 32], "b": ["11" * 32]}
    text = partial(committed_text, "commitment", "keys", seed)
    told = {
        name: digest_of([hashlib.sha256(blob).hexdigest(), *rest[name]])
        for name, blob in zip("ab", blobs, strict=True)
    }
    signed = {
        "a": SignedValue(told["a"], ask("sign", text("a", told["a"])).hex()),
        "b": SignedValue.by(KEYS["b"], text, "b", told["b"]),
    }
    call(ask, keys, "add_public_shares", ["a", "b"], Body({"others": rest}, blobs), signed)


def opened(ask: Calls, *sheets: Any) -> list[Handle]:
    rows = ask("used", "", "", None)
    return [ask("open", sheet, rows, "")[0] for sheet in sheets]


def begun(owner: Restarted) -> tuple[Calls, Handle, Handle, bytes]:
    """A run with its keys, paid for, saved."""
    ask = served(owner)
    ask("begin")
    ask("account", "reserve", (EVENT,), 0.0, "run")
    ask("save", Body(), 1)
    ask("store", "begin", "session")
    keys, session = opened(ask, KEYS_SHEET, SUMS)
    seed = bytes(call(ask, keys, "begin", OTHERS.agree(ask)))
    give_joint_key(ask, keys, seed)
    ask("save", Body(), 1)
    return ask, keys, session, seed


def test_a_state_that_nobody_opened_is_saved_again(tmp_path: Path) -> None:
    """Or a session begins anew, under the same seed and the same payment."""
    owner = Restarted(tmp_path)
    *_, seed = begun(owner)
    ask = owner.again()
    ask("resume")
    ask("save", Body(), 1)
    ask = owner.again()
    ask("resume")
    assert ask("open", KEYS_SHEET, ask("used", "", "", None), "")[1] == seed


def test_a_refused_state_is_not_gone_on_from(tmp_path: Path) -> None:
    """Or a label is answered as often as the process is started."""
    owner = Restarted(tmp_path)
    ask, keys, *_ = begun(owner)
    call(ask, keys, "rotation_share", 1)
    ask = owner.again()
    with pytest.raises(PolicyError, match="set back"):
        ask("resume")
    with pytest.raises(PolicyError, match="no run has begun"):
        ask("used", "", "", None)


def test_what_was_taken_back_is_not_opened_after_a_restart(tmp_path: Path) -> None:
    """Or sessions outlive their run, on other rows."""
    owner = Restarted(tmp_path)
    ask, _, session, _ = begun(owner)
    call(ask, session, "contribute", [places()])
    ask("save", Body(), 1)
    ask = owner.again()
    ask("resume")
    ask("take_back")
    for sheet in (KEYS_SHEET, SUMS):
        with pytest.raises(PolicyError):
            opened(ask, sheet)


@pytest.mark.parametrize("end", ["take_back", "stop", "begin"])
def test_a_run_that_goes_on_is_charged(tmp_path: Path, end: str) -> None:
    """Or its sums open under a payment that the ledger took back."""
    owner = Restarted(tmp_path)
    ask, *_ = begun(owner)
    if end == "stop":
        owner.stop()
    else:
        ask(end)
    ask = owner.again()
    with suppress(CohortError):
        ask("resume")
        _, session = opened(ask, KEYS_SHEET, SUMS)
        call(ask, session, "contribute", [places()])
        assert owner.runs_spent() == 1
        return
    assert end != "stop", "a session that was stopped goes on"


def test_one_agreement_of_a_run(tmp_path: Path) -> None:
    owner = Restarted(tmp_path)
    ask = served(owner)
    ask("begin")
    ask("account", "reserve", (EVENT,), 0.0, "run")
    ask("save", Body(), 1)
    ask("store", "begin", "session")
    opened(ask, KEYS_SHEET)
    ask("agree", PLAN, OTHERS.commitments(ask("commitment")))
    with pytest.raises(PolicyError, match="set back"):
        owner.again()("resume")


def test_seals_are_of_a_signed_runs_rows(tmp_path: Path) -> None:
    """Of other draws they would tell which rows are alike, for nothing."""
    owner = Restarted(tmp_path)
    ask = served(owner)
    ask("begin")
    ask("account", "reserve", (EVENT,), 0.0, "run")
    rows = ask("used", "", "", None)
    ask("open", SUMS, rows, "")
    with pytest.raises(PolicyError, match="not everybody has signed"):
        ask("row_seal", rows, PLAN)
    OTHERS.agree(ask)
    others = ask("used", "", "", HeldOut(share=0.34, draw="d"), "ab" * 32)
    with pytest.raises(PolicyError, match="a session of this run has"):
        ask("row_seal", others, PLAN)
    assert len(ask("row_seal", rows, PLAN)) == 64


@pytest.mark.parametrize("kind", ["rows", "gram", "lffr"])
@pytest.mark.parametrize("size", [0.1, 0.9, 3.0])
def test_no_matrix_lowers_a_bound(tmp_path: Path, kind: str, size: float) -> None:
    """A bound below what rows can be, once a matrix has changed them, would tell of one."""
    owner = Restarted(tmp_path)
    norm = owner._fields["shard"].schema.norm_bound
    due = size * norm if kind == "gram" else min(1.0, size * norm)

    def refusal(bound: float) -> str:
        matrix = ((size, 0.0), (0.0, 0.0))
        of_kind = {"kind": kind, "start": 0.5, "num_outputs": int(kind == "lffr")}
        sheet = replace(SUMS, bound=bound, matrix=matrix, units=1 << 39, moves=99.0, **of_kind)
        ask = served(owner)
        ask("begin")
        event = GaussianEvent(noise_multiplier=cost(sheet) ** -0.5)
        ask("account", "reserve", (event,), 0.0, f"run {bound}")
        try:
            opened(ask, KEYS_SHEET, sheet)
        except PolicyError as error:
            return str(error)
        return ""

    if kind == "lffr":
        assert "matrix" in refusal(norm)
    else:
        assert refusal(due) == "" and "refused: bound" in refusal(0.999 * due)


# -- payments, seals and signatures of another run -------------------------------------------------


def test_a_payment_that_was_taken_back_is_no_other_runs(tmp_path: Path) -> None:
    """The same name was paid for again, for almost nothing."""
    owner = Restarted(tmp_path)
    ask = served(owner)
    ask("begin")
    ask("account", "reserve", (EVENT,), 0.0, "run")
    ask("store", "begin", "session")
    opened(ask, KEYS_SHEET, SUMS)
    OTHERS.agree(ask)
    ask("save", Body(), 1)
    ask("take_back")
    ask("account", "reserve", (GaussianEvent(noise_multiplier=1e6),), 0.0, "run")
    owner.stop()
    with pytest.raises(PolicyError, match="the ledger has closed this run"):
        owner.again()("resume")


@pytest.mark.parametrize("before", ["spend", "take_back"])
def test_two_agents_on_one_ledger_release_once_for_a_payment(tmp_path: Path, before: str) -> None:
    one, other = (Restarted(tmp_path / name) for name in ("one", "other"))
    other.ledger = other._fields["ledger"] = one.ledger
    asked = []
    for owner in (one, other):
        ask = served(owner)
        ask("begin")
        ask("account", "reserve", (EVENT,), 0.0, "run")
        asked.append((ask, *opened(ask, KEYS_SHEET, SUMS), OTHERS.agree(ask)))
    ask, keys, session, seeds = asked[0]
    give_joint_key(ask, keys, bytes(call(ask, keys, "begin", seeds)))
    asked[1][0](*(("account", "spend") if before == "spend" else ("take_back",)))
    for _ in range(2):
        with pytest.raises(CohortError):
            ask("account", "spend")
            raise AssertionError("a second release under one payment")
    with pytest.raises((CohortError, HiddenError)):
        call(ask, session, "contribute", [places()])


def test_a_refused_session_unlocks_no_seal(tmp_path: Path) -> None:
    owner = Restarted(tmp_path)
    ask = served(owner)
    ask("begin")
    opened(ask, KEYS_SHEET)
    OTHERS.agree(ask)
    half = HeldOut(share=0.34, draw="d")
    with pytest.raises(PolicyError, match="once a run is booked"):  # its refusal would be free
        ask("used", "", "", half, "ab" * 32)
    ask("account", "reserve", (EVENT,), 0.0, "run")
    others = ask("used", "", "", half, "ab" * 32)
    with pytest.raises(PolicyError):
        ask("open", replace(SUMS, session="another"), others, "")
    with pytest.raises(PolicyError, match="a session of this run has"):
        ask("row_seal", others, PLAN)


def test_refreshes_are_signed_under_the_runs_own_seed(tmp_path: Path) -> None:
    """A run of a model beside another one signs nothing for that."""
    owner = Restarted(tmp_path)
    *_, seed = begun(owner)
    terms = endorsed.of_round(dict(ROSTER), "cover-refresh/0", seed, (), "00" * 32)
    ask = served(Restarted(tmp_path / "beside"))
    ask("begin")
    columns = Columns(num_slots=N // 2, num_features=2, num_outputs=1, period=1)
    of_both = {"session": "s", "roster": ROSTER, "rows": (3, 3), "law": "gaussian", "bits": 30}
    model = ModelSheet(
        **of_both,
        columns=columns,
        circuit="link",
        link=(0.5, 0.2),
        radius=4.0,
        scale=1.0,
        rounds=2,
        bound=math.sqrt(2),
        moves=math.sqrt(2),
        units=4 << 30,
    )
    event = GaussianEvent(noise_multiplier=cost(model) ** -0.5)
    ask("account", "reserve", (event,), 0.0, "other")
    opened(ask, KEYS_SHEET, model)
    with pytest.raises(PolicyError, match="of this run"):
        ask("sign", terms.text("commitment", "a", "33" * 32))


# -- numbers that overflow where rows are open -----------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"matrix": ((1.7e308, 0.0), (0.0, 1.0)), "bound": 1e308},
        {"bound": 1e41},
        {"gamma": 1.0},
        {"scale": 2e292},
        {"scale": 1e-41},
        {"side": 1e41},
        {"start": 1e-300},
        {"target_bound": 1e300},
    ],
)
def test_no_number_of_a_sheet_overflows_on_a_row(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Else whether it does tells of the row, under noise that makes a run cost nothing."""
    ask = served(Restarted(tmp_path))
    ask("begin")
    sheet = replace(SUMS, **{"units": 1 << 39, "moves": 99.0, **wrong})
    event = GaussianEvent(noise_multiplier=cost(sheet) ** -0.5)
    ask("account", "reserve", (event,), 0.0, "run")
    with pytest.raises(PolicyError, match="is refused"):
        opened(ask, KEYS_SHEET, sheet)


@pytest.mark.parametrize("kind", ["rows", "lffr", "model"])
def test_noise_on_a_coarse_grid_hides_what_is_on_none(kind: str) -> None:
    """Sums of rows are not rounded: modulo the grid they would stand in the open."""
    if kind == "model":
        columns = Columns(num_slots=N // 2, num_features=400, num_outputs=1, period=8)
        sheet: Any = SimpleNamespace(rounds=10, columns=columns, law="gaussian", units=1 << 16)
        sheet.bits = 2
        found = model_session.draw_noise(sheet, SystemRandomness()).ravel()
    else:
        own = replace(SUMS, kind=kind, units=1 << 16, bits=2)
        found = packed.draw_noise(own, (4000,), SystemRandomness())
    rest = np.sort(found * 4 % 1)
    # Kolmogorov, p = 4e-9; on the grid all would be 0, and the largest distance 1.
    assert np.abs(rest - (np.arange(4000) + 0.5) / 4000).max() < 0.05


def test_what_is_summed_without_privacy_is_refused_under_a_law(tmp_path: Path) -> None:
    """Its bounds are a range's: one row could fill it."""
    cox = CoxRows(
        theta=(-1.0,),
        columns=(0,),
        bins=2,
        recorded=False,
        row_norm=1e-3,
        tables=written(np.zeros(12)),
        scores=(0.0, 1.0, 2),
        factor=(0,),
    )
    sheet = replace(SHEET, row_function=cox.fields(), length=cox.length(2))
    ask = served(Hostile(tmp_path))
    ask("begin")
    event = GaussianEvent(noise_multiplier=sheet.cost() ** -0.5)
    ask("account", "reserve", (event,), 0.0, "run")
    with pytest.raises(PolicyError, match="exact sums"):
        opened(ask, sheet)
    assert RiskSets.without_noise
