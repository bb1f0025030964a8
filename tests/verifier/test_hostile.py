"""Whatever a driver asks of a kernel, in any order: nothing beyond what the account has booked."""

from __future__ import annotations

import random
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parties.agent.store import SessionStore, codec
from parties.agent.vault import Vault
from parties.kernel import serving
from parties.kernel.channel import Channel, Handle
from parties.kernel.private import HiddenError
from parties.kernel.serving import METHODS
from parties.kernel.sheet import digest_of
from parties.policy import Policy
from parties.reader.schema import Label, Schema
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.remote import Calls
from protocols.errors import CohortError, PolicyError, ProtocolError
from protocols.exchange import Body
from protocols.exchange.signed_values import Agreement
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger
from tests.kernel import test_key_session
from tests.kernel.test_sums_session import BOOKED, KEYS, SHEET
from tests.support.helpers import unit_columns
from tests.support.others import PLAN, Others
from tests.verifier import remote
from tests.verifier.remote import OPENED, Owned, served

ODD = 0.7236067977499789  # rare: of a row
X = np.array([[ODD, 1.0], [-ODD / 3, 1.0], [0.1234567891234, 1.0]])
KEYS_SHEET = replace(test_key_session.SHEET, session=SHEET.session, roster=SHEET.roster)
OTHERS = Others(KEYS)
EVENT = GaussianEvent(noise_multiplier=BOOKED**-0.5)


class Hostile(Owned):
    """An owner with a ledger, who agreed to noise alone."""

    def __init__(self, folder: Path) -> None:
        label = Label(name="y", positive="1", negative="0")
        schema = Schema(columns=unit_columns(1), label=label, scaling="range")
        self.ledger = Ledger(path=folder / "ledger.jsonl", epsilon=50.0, delta=1e-5)
        shard = Shard(x=X, y=np.array([0.0, 1.0, 1.0]), counts=ClampCounts(rows=3), schema=schema)
        super().__init__(
            {
                "name": "a",
                "shard": shard,
                "signing_key": KEYS["a"],
                "randomness": SystemRandomness(),
                "policy": Policy(allow_insecure=True, min_colluders=1),
                "ledger": self.ledger,
                "dataset": "rows",
            }
        )

        self.named = {n: key for n, key in OTHERS.roster.items() if n != "a"}

    def runs_spent(self) -> int:
        """Of the ledger."""
        return self.ledger.spent("rows").runs


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def owner(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


def reserved(owner: Hostile) -> tuple[Calls, Handle]:
    """A run that has paid for SHEET, and its rows."""
    ask = served(owner)
    ask("begin")
    ask("account", "reserve", (EVENT,), 0.0, "run")
    return ask, ask("used", "", "", None)


def call(ask: Calls, session: Handle, method: str, *values: Any) -> Any:
    return ask("call", session, method, values, {})


def begin(ask: Calls, session: Handle) -> Any:
    """A session's secrets, once all owners have signed what is open; the joint seed."""
    return call(ask, session, "begin", OTHERS.agree(ask))


def test_one_payment_buys_one_session(owner: Hostile) -> None:
    """Two of them would be an epsilon each."""
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    with pytest.raises(PolicyError, match="one session of keys, and one of rows"):
        ask("open", SHEET, rows, "")
    ask("open", KEYS_SHEET, rows, "")
    with pytest.raises(PolicyError, match="one session of keys, and one of rows"):
        ask("open", KEYS_SHEET, rows, "")
    begin(ask, session)
    assert call(ask, session, "round", 0, np.zeros(2)).shape
    with pytest.raises(PolicyError, match="one session of keys, and one of rows"):
        ask("open", SHEET, rows, "")


def test_a_driver_chooses_no_seed(owner: Hostile) -> None:
    """With an element of its own it would read a key share from one refresh."""
    ask, rows = reserved(owner)
    keys, _ = ask("open", KEYS_SHEET, rows, "")
    chosen = OTHERS.all_seeds(bytes(32))
    for given in (bytes(32), chosen, {}, None):
        with pytest.raises(PolicyError, match="not everybody has signed"):
            call(ask, keys, "begin", given)
    seeds = OTHERS.agree(ask)
    for given in (bytes(32), chosen, {}, {**seeds, "b": seeds["a"]}):
        with pytest.raises(ProtocolError, match="seed"):
            call(ask, keys, "begin", given)
    begin_with(ask, keys, seeds)
    with pytest.raises(PolicyError, match="has its key share"):
        begin_with(ask, keys, chosen)
    with pytest.raises(PolicyError, match="signs its own keys and sheets"):
        ask("sign", Agreement.text("a", PLAN))


def begin_with(ask: Calls, session: Handle, seeds: Any) -> bytes:
    found: bytes = call(ask, session, "begin", seeds)
    return found


def test_another_sheet_for_one_owner_alone(owner: Hostile) -> None:
    """Its floors passed, it is no other owner's: no seed is shown, and no key is made."""
    ask, rows = reserved(owner)
    weak = replace(KEYS_SHEET, shown=(0, 4))
    keys, _ = ask("open", weak, rows, "")
    own = ask("commitment")
    sheets, signature = ask("agree", PLAN, OTHERS.commitments(own))
    assert sheets == (digest_of(weak),)
    true = OTHERS.agreement([digest_of(KEYS_SHEET)], own)
    with pytest.raises(ProtocolError, match="has not signed this plan, these sheets"):
        ask("reveal", OTHERS.signatures(true, signature))
    with pytest.raises(PolicyError, match="not everybody has signed"):
        call(ask, keys, "begin", OTHERS.all_seeds(bytes(32)))


def test_parties_that_the_owner_did_not_name(owner: Hostile) -> None:
    """Whoever drives the kernel cannot make them up."""
    owner.named = {n: key for n, key in OTHERS.roster.items() if n in "bc"}
    ask, rows = reserved(owner)
    ask("open", SHEET, rows, "")
    with pytest.raises(PolicyError, match=r"has not named \['d'\]"):
        OTHERS.agree(ask)
    owner.named["d"] = OTHERS.roster["d"]
    assert OTHERS.agree(ask)


def test_nothing_leaves_that_was_taken_back(owner: Hostile) -> None:
    """The budget is back, and so the session is over."""
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    ask("take_back")
    assert owner.runs_spent() == 0
    with pytest.raises(PolicyError, match="is over or none"):
        call(ask, session, "round", 0, np.zeros(2))


def test_what_was_taken_back_pays_for_nothing_else(owner: Hostile) -> None:
    """Another session would be one that nobody has paid for; a new payment is one."""
    ask, rows = reserved(owner)
    ask("open", SHEET, rows, "")
    ask("take_back")
    with pytest.raises(PolicyError, match="of this run is refused: law"):
        ask("open", SHEET, rows, "")
    ask("account", "reserve", (EVENT,), 0.0, "again")
    assert ask("open", SHEET, rows, "") and owner.runs_spent() == 1


def test_a_spent_payment_buys_no_second_session(owner: Hostile) -> None:
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    call(ask, session, "round", 0, np.zeros(2))
    ask("take_back")
    for t in (0, 1):
        with pytest.raises(PolicyError, match="is over or none"):
            call(ask, session, "round", t, np.zeros(2))
    with pytest.raises(PolicyError, match="one session of keys, and one of rows"):
        ask("open", SHEET, rows, "")


def test_what_was_opened_is_never_taken_back(owner: Hostile) -> None:
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    call(ask, session, "round", 0, np.zeros(2))
    ask("take_back")
    ask("begin")
    assert owner.runs_spent() == 1


def test_a_run_without_payment_has_no_session(owner: Hostile) -> None:
    ask = served(owner)
    ask("begin")
    rows = ask("used", "", "", None)
    with pytest.raises(PolicyError, match="of this run is refused: law"):
        ask("open", SHEET, rows, "")


def test_a_small_payment_buys_no_large_session(owner: Hostile) -> None:
    ask = served(owner)
    ask("begin")
    cheap = GaussianEvent(noise_multiplier=2 * BOOKED**-0.5)
    ask("account", "reserve", (cheap,), 0.0, "run")
    with pytest.raises(PolicyError, match="noise: too little"):
        ask("open", SHEET, ask("used", "", "", None), "")


def test_a_round_is_answered_once_whatever_is_asked_between(owner: Hostile) -> None:
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    begin(ask, session)
    call(ask, session, "round", 1, np.zeros(2))
    for t in (0, 1):
        with pytest.raises(PolicyError, match="is over or none"):
            call(ask, session, "round", t, np.ones(2))
    with pytest.raises(PolicyError, match="has its secret"):
        call(ask, session, "begin", {})
    with pytest.raises(PolicyError, match="at no other time"):
        ask("resume")


def test_a_state_set_back_is_refused(tmp_path: Path) -> None:
    """A driver that does not save what it was answered, and has the process started again."""
    owner = Hostile(tmp_path)
    store = SessionStore(tmp_path / "state", Vault("correct horse battery staple"))
    owner.store = store
    driven = Body({"known": 1}, (b"to the driver",))

    def first() -> Calls:
        ask = served(owner)
        ask("begin")
        ask("save", driven, 1)
        store.begin("session")
        rows = ask("used", "", "", None)
        keys, _ = ask("open", KEYS_SHEET, rows, "")
        joint.append(begin(ask, keys))
        call(ask, keys, "public_share")
        ask("save", driven, 2)
        return ask

    joint = list[bytes]()
    first()
    again = served(owner)
    assert again("resume") == driven  # as it was saved
    rows = again("used", "", "", None)
    keys, seed = again("open", KEYS_SHEET, rows, "")
    assert [seed] == joint
    call(again, keys, "rotation_share", 1)  # and not saved
    with pytest.raises(PolicyError, match="set back"):
        served(owner)("resume")


def in_session(folder: Path) -> tuple[Hostile, Calls]:
    """An owner whose session has begun, its state on disk."""
    owner = Hostile(folder)
    owner.store = SessionStore(folder / "state", Vault("correct horse battery staple"))
    ask = served(owner)
    ask("begin")
    ask("save", Body(), 1)
    owner.store.begin("session")
    return owner, ask


def test_a_session_goes_on_with_its_own_rows(tmp_path: Path) -> None:
    """A round that is repeated on others would differ by rows, and not by noise."""
    owner, ask = in_session(tmp_path)
    keys, _ = ask("open", KEYS_SHEET, ask("used", "", "", None), "")
    begin(ask, keys)
    ask("save", Body(), 2)
    again = served(owner)
    again("resume")
    rows = again("used", "", "", None)
    with pytest.raises(PolicyError, match="begun on other rows"):
        again("open", KEYS_SHEET, rows, "another stream")
    assert again("open", KEYS_SHEET, rows, "")[1]


def test_a_seed_that_was_shown_is_not_agreed_to_again(tmp_path: Path) -> None:
    """Set back to before its word, others could choose their seeds by what it has shown."""
    owner, ask = in_session(tmp_path)
    ask("open", KEYS_SHEET, ask("used", "", "", None), "")
    OTHERS.agree(ask)
    with pytest.raises(PolicyError, match="set back"):
        served(owner)("resume")


FLOORS: dict[str, tuple[str, str, Any]] = {
    "an agreement is counted": (
        "        self._count()  # set back", "        # set back",
        test_a_seed_that_was_shown_is_not_agreed_to_again,
    ),
    "sheets are the kernel's to sign": (
        "    SIGNED,\n)", ")", lambda folder: test_a_driver_chooses_no_seed(Hostile(folder)),
    ),
    "the same rows after a restart": (
        "if self._made_of.get(digest, made_of) != made_of:", "if False:",
        test_a_session_goes_on_with_its_own_rows,
    ),
}  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_the_mutant_of_a_floor_is_seen(floor: str, tmp_path: Path) -> None:
    """Each test above fails under the same file with one line changed."""
    old, new, holds = FLOORS[floor]
    source = Path(str(serving.__file__)).read_text()
    assert source.count(old) == 1, old
    found = ModuleType("mutant")
    with patch.dict(sys.modules, mutant=found):
        exec(compile(source.replace(old, new), "mutant", "exec"), found.__dict__)
    failed = (pytest.fail.Exception, CohortError)
    with patch.object(remote, "Serving", found.Serving), pytest.raises(failed):
        holds(tmp_path)


def test_names_that_are_in_no_table(owner: Hostile) -> None:
    ask, rows = reserved(owner)
    session, _ = ask("open", SHEET, rows, "")
    for method in ("_share", "__class__", "_noisy", "begun", "state", "restore", "_adds", ""):
        with pytest.raises(CohortError):
            call(ask, session, method)
    ask, rows = reserved_again(owner)
    for name in ("_end", "__init__", "serve", "eval", "told"):
        with pytest.raises(CohortError):
            ask(name)
    with pytest.raises(CohortError):
        ask("store", "save", Body(), 1)
    with pytest.raises(CohortError):
        ask("account", "restore", {"open": None, "spent": False, "booked": None})
    with pytest.raises(CohortError):  # a session that lives would be free
        ask("account", "abandon")


def reserved_again(owner: Hostile) -> tuple[Calls, Handle]:
    ask = served(owner)
    ask("begin")
    return ask, ask("used", "", "", None)


# -- anything -------------------------------------------------------------------------------------


PATH = ("begin", "account", "used", "open", "commitment", "agree", "reveal", "call")
"""Up to a secret, and what is asked of it: each opens what may be asked next."""


def fuzz(owner: Hostile, count: int, seed: int = 1) -> dict[str, int]:
    """Calls made of pieces of true ones; what was answered, by kind.

    Nothing that is answered holds a row's number, or the identity.
    """
    rng, outcomes = random.Random(seed), dict[str, int]()
    private = [np.float64(ODD).tobytes(), np.float64(X[2, 0]).tobytes()]
    private.append(KEYS["a"].private_bytes_raw())
    ask, answered = served(owner), set[tuple[int, int]]()
    run, known = 0, dict[str, Any]()
    for _ in range(count):
        name, values = _made(rng, known)
        try:
            found = ask(name, *values)
            outcome = "done"
        except HiddenError:
            outcome = "hidden"
        except CohortError as error:
            outcome, found = "refused", str(error)
        if name in ("begin", "resume") or outcome == "hidden":
            run += 1
            known.clear()
        if outcome == "done":
            known[name] = found
        if name == "call" and outcome == "done" and values[1] == "begin":
            assert "reveal" in known, "a secret before all have signed"
        if name == "call" and outcome == "done" and values[1] == "round":
            key = run, int(values[2][0])
            assert key not in answered, "a round was answered twice"
            answered.add(key)
        head, blobs = codec().encode(found)
        whole = head + b"".join(map(bytes, blobs))
        assert not any(each in whole for each in private)
        assert repr(ODD)[:12].encode() not in whole
        reached = values[1] if name == "call" and len(values) > 1 else name
        for kind in (outcome, str(reached)) if outcome == "done" else (outcome,):
            outcomes[kind] = outcomes.get(kind, 0) + 1
    return outcomes


def _made(rng: random.Random, known: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """known: what was answered last in this run, by call."""
    own, (sheets, signature) = known.get("commitment", ""), known.get("agree", ((), ""))
    signatures = OTHERS.signatures(OTHERS.agreement(sheets, own), signature)
    seeds = OTHERS.all_seeds(known.get("reveal", bytes(32)))
    handle = Handle(rng.choice((*[0] * 12, 1, 2, -1)))
    odd: list[Any] = [None, 0, 1, -1, 1 << 70, 0.5, float("inf"), "", "a", b"", (), [], {}, handle]
    odd += [np.zeros(2), np.full(2, np.nan), np.zeros((3, 3)), EVENT, SHEET, KEYS_SHEET, Body()]
    pick = lambda: rng.choice(odd)  # noqa: E731
    methods = [name for each in METHODS.values() for name in each] + ["begin", "erase"]
    true: list[tuple[str, tuple[Any, ...]]] = [
        ("begin", ()),
        ("used", ("", "", None)),
        ("open", (rng.choice((SHEET, KEYS_SHEET)), handle, "")),
        ("account", ("reserve", (EVENT,), 0.0, f"run{rng.random()}")),
        ("account", (rng.choice(("spend", "commit", "require")),)),
        ("commitment", ()),
        ("agree", (PLAN, OTHERS.commitments(own))),
        ("reveal", (signatures,)),
        ("call", (handle, "begin", (seeds,), {})),
        ("call", (handle, "round", (rng.randrange(4), np.zeros(2)), {})),
        ("call", (handle, rng.choice(methods), tuple(pick() for _ in range(rng.randrange(3))), {})),
        ("sign", (rng.randbytes(9),)),
        ("row_seal", (handle, "plan")),
        ("undo", ()),
        ("resume", ()),
        ("peers", ()),
        ("take_back", ()),
        (str(pick()), ()),
    ]
    weights = [1, 4, 6, 4, 1, 4, 4, 4, 6, 8, 8, 1, 1, 1, 0.3, 0.3, 1, 1]
    name, values = rng.choices(true, weights)[0]
    due = next((each for each in PATH if each not in known), None)
    if rng.random() < 0.7:
        next_ones = [each for each in true if each[0] == (due or "call")]
        name, values = next_ones[0] if due else rng.choice(next_ones)
    if values and rng.random() < 0.15:
        at = rng.randrange(len(values))
        values = (*values[:at], pick(), *values[at + 1 :])
    return name, values


def test_anything_is_answered_and_nothing_shows(tmp_path: Path) -> None:
    outcomes = fuzz(Hostile(tmp_path), 1500)
    assert min(outcomes[name] for name in ("agree", "reveal", "round")) > 3
    assert min(outcomes["done"], outcomes["refused"], outcomes["hidden"]) > 20


def test_bytes_that_are_no_frame_end_the_channel(owner: Hostile) -> None:
    rng = random.Random(2)
    for _ in range(100):
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=_serve, args=(owner, ours))
        thread.start()
        with theirs:
            theirs.settimeout(10)
            theirs.sendall(rng.randbytes(rng.randrange(1, 200)))
            theirs.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # it was left unread
                while theirs.recv(1 << 16):
                    pass
        thread.join(10)
        assert not thread.is_alive()


def _serve(owner: Hostile, ours: socket.socket) -> None:
    from parties.kernel.serving import Serving

    with ours:
        Serving(owner, Channel(ours, codec())).serve()


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        print(fuzz(Hostile(Path(folder)), int(sys.argv[1]), seed=int(sys.argv[2])))
