"""Sheets and payments of a hostile driver, by which more was shown than the ledger said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.account import Account
from parties.agent.store import SessionStore, codec
from parties.agent.vault import Vault
from parties.kernel.channel import DTYPES
from parties.kernel.integers import added, row_norms
from parties.kernel.integers.exact import Exact
from parties.kernel.model import session as model_session
from parties.kernel.private import Private, Terms
from parties.kernel.rows import packed
from parties.kernel.rows import session as rows_session
from parties.kernel.sheet import LEAST_UNITS, LEEWAY, SLACK, is_square
from parties.kernel.study.glm import Generalised
from parties.kernel.sums import SumsRound
from parties.kernel.sums.products import MissingCells, Products
from parties.kernel.sums.session import SumsSession
from parties.kernel.sums.tables import Judged
from protocols.aggregate import ROUNDING_STD
from protocols.aggregate.choice import choose
from protocols.errors import CohortError, MessageError, ParameterError, PolicyError
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger
from tests.kernel import test_model_session as model
from tests.kernel import test_rows_session as rows
from tests.kernel.test_sums_session import KEYS, SHEET

DEAR, CHEAP = GaussianEvent(noise_multiplier=1.0), GaussianEvent(noise_multiplier=1e6)


def cost(event: GaussianEvent, beside: float = 0.0) -> Any:
    return SimpleNamespace(events=(event,), additive_delta=beside)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(path=tmp_path / "ledger.jsonl", epsilon=50.0, delta=1e-5)


def test_a_payment_after_a_spent_one_is_refused(ledger: Ledger) -> None:
    """It would count as spent here and nowhere else: the next run of its name took it back."""
    one = Account(ledger, "rows")
    one.reserve(cost(CHEAP), "cheap")
    one.spend()
    one.commit()
    with pytest.raises(PolicyError, match="already reserved"):
        one.reserve(cost(DEAR), "dear")


def test_a_name_that_was_taken_back_pays_for_no_older_run(ledger: Ledger) -> None:
    one, two = Account(ledger, "rows"), Account(ledger, "rows")
    one.reserve(cost(DEAR), "run")
    two.reserve(cost(DEAR), "run")
    two.abandon()
    two.reserve(cost(CHEAP), "run")
    for change in (one.spend, one.commit):
        with pytest.raises(PolicyError, match="budget is refused"):
            change()
    one.abandon()
    assert ledger.is_open("run")  # the other's


def test_what_is_committed_was_spent_once(ledger: Ledger) -> None:
    one, two = Account(ledger, "rows"), Account(ledger, "rows")
    one.reserve(cost(DEAR), "run")
    two.reserve(cost(DEAR), "run")
    two.spend()
    with pytest.raises(PolicyError, match="budget is refused"):
        one.commit()
    assert not one.is_spent


@pytest.mark.parametrize("name", [("a",), 5])
def test_a_ledger_has_names_and_events_alone(ledger: Ledger, name: Any) -> None:
    with pytest.raises(ParameterError):
        ledger.reserve("rows", [DEAR], identifier=name)
    with pytest.raises(ParameterError):
        ledger.reserve("rows", [SHEET], identifier="run")  # type: ignore[list-item]
    assert ledger.spent("rows").runs == 0


@pytest.mark.parametrize("with_ledger", [False, True])
def test_a_run_costs_at_most_what_one_may(ledger: Ledger, with_ledger: bool) -> None:
    """Without a ledger too, whatever its driver books: noise of next to nothing is no noise."""
    account = Account(ledger if with_ledger else None, "rows", largest=(1.0, 1e-5))
    for event, beside in ((DEAR, 0.0), (CHEAP, 1e-5), (CHEAP, 2e-5)):
        with pytest.raises(PolicyError, match="exceeds max_epsilon=1 "):
            account.reserve(cost(event, beside), "run")
        assert account.booked == ("", 0.0)
    account.reserve(cost(CHEAP), "run")
    assert account.booked == ("gaussian", CHEAP.count / CHEAP.noise_multiplier**2)


@pytest.mark.parametrize("with_ledger", [False, True])
@pytest.mark.parametrize("beside", [-0.99998, math.nan, "0", np.array(0.0)])
def test_no_delta_beside_a_run_is_given_back(
    ledger: Ledger, with_ledger: bool, beside: Any
) -> None:
    """At a delta of nearly 1 any noise has an epsilon below 1."""
    account = Account(ledger if with_ledger else None, "rows", largest=(1.0, 1e-5))
    with pytest.raises(PolicyError, match="additive_delta"):
        account.reserve(cost(GaussianEvent(noise_multiplier=0.16), beside), "run")
    assert account.booked == ("", 0.0)
    assert ledger.spent("rows").runs == 0


@pytest.mark.parametrize("kind", DTYPES)
def test_what_is_paid_for_is_no_array(kind: str) -> None:
    """The square of 2^16 is 0 in 32 bits: mu^2 was booked as infinite, and charged as 2^-32."""
    one = np.array(1, kind)
    for fields in ({"noise_multiplier": one}, {"noise_multiplier": 1.0, "count": one}):
        with pytest.raises(ParameterError):
            GaussianEvent(**fields)
    # As an owner's process reads them.
    head = {"r": ["GaussianEvent", [{"a": [kind, [], 0]}, 1]]}
    with pytest.raises((ParameterError, MessageError)):
        codec().decode(json.dumps(head).encode(), [one.tobytes()])


def opens(function: Any, length: int) -> None:
    shard = SimpleNamespace(rows=3, num_features=101, schema=SimpleNamespace(norm_bound=1.0))
    sheet = replace(SHEET, row_function=function.fields(), length=length)
    SumsSession(sheet, "a", shard, SystemRandomness(), KEYS["a"])


def test_a_sum_is_as_long_as_its_function_says() -> None:
    opens(MissingCells(columns=100), 100)
    for columns, length in ((1, 100), (100, 1)):
        with pytest.raises(CohortError):
            opens(MissingCells(columns=columns), length)


COUNTS = MissingCells(columns=1)


def opened_alone(function: Any = COUNTS, **changes: Any) -> SumsSession:
    """Exact sums of this party, counts if not of another function, in a sheet with changes."""
    shard = SimpleNamespace(num_features=2, rows=50)
    exact: dict[str, Any] = {"law": "", "rounds": (SumsRound(query="q"),)}
    exact["length"] = function.length(2)
    sheet = replace(SHEET, row_function=function.fields(), **(exact | changes))
    return SumsSession(sheet, "a", shard, SystemRandomness(), KEYS["a"])


def test_no_part_of_a_sum_stands_alone() -> None:
    """Beside tiny weights, or parts beyond the range or below its unit, it was one owner's own."""
    opened_alone()
    tiny = (1.0, 1e-9, 1e-9, 1e-9)
    for changes in (
        {"weights": tiny},
        {"weights": (1 / 200, *tiny[1:])},  # a training's, for parties that weigh the same
        {"scale_bits": SHEET.scale_bits + 12},
        {"scale_bits": -1},
    ):
        with pytest.raises(PolicyError, match="weights|scale_bits"):
            opened_alone(**changes)


def test_what_rounding_takes_of_an_owner_is_no_row() -> None:
    """A row function's own bound may be anything, and the smaller owners below its unit."""
    opened_alone(Products(row_norm=64.0), scale_bits=0)
    with pytest.raises(PolicyError, match="rows are rounded"):
        opened_alone(Products(row_norm=64.0), scale_bits=-1)


MODEL = Generalised(
    family="binomial", link="logit", theta=(0.0, -20.0), columns=(0,), target=(0, 0.0, 1.0),
    row_norm=2.0, rows=50, clusters=True,
)  # fmt: skip


def opened_model(model: Generalised = MODEL, **terms: Any) -> SumsSession:
    """Outer products of parties' scores, of 50 rows each."""
    params = choose(parties=4, largest_sum=200 * model.most("q"), precision=2.0**-20)
    names = ("ring_dim", "primes", "scale_bits")
    kept = Private(Account(None, ""))
    kept.terms = Terms(**terms)
    rows = kept.keep(SimpleNamespace(num_features=2, rows=50))
    sheet = replace(
        SHEET, row_function=model.fields(), law="", rounds=(SumsRound(query="q"),),
        length=model.length(2), **{name: getattr(params, name) for name in names},
    )  # fmt: skip
    return SumsSession(sheet, "a", rows, SystemRandomness(), KEYS["a"])


@pytest.mark.parametrize("changes", [{"clusters": True}, {"within": True, "clusters": False}])
def test_totals_of_owners_need_their_word(changes: dict[str, Any]) -> None:
    """Of three, with one who colludes, a column of signs and a constant score gave each total.

    Of rows about each owner's own mean one owner's were all, where the others' outcomes are alike.
    """
    model = replace(MODEL, **changes)
    opened_model(model, alone=True)
    opened_model(replace(MODEL, clusters=False), alone=False)
    with pytest.raises(PolicyError, match="site_tables"):
        opened_model(model, alone=False)


def test_outer_products_have_room() -> None:
    """Those of large owners were cut off at the range: constants beside a small one's."""
    with pytest.raises(PolicyError, match="fewer rows"):
        opened_model(replace(MODEL, rows=49))
    x, y = np.ones((50, 2)), np.ones((50, 1))
    for norm in (2.0, 1e-3):
        asked = replace(MODEL, row_norm=norm)
        own = asked.exact_sum(x, y, "a").values[-asked.values[3] :]
        assert np.linalg.norm(own) <= 50 * asked.most("q") * SLACK**2


def test_exact_tables_have_no_noise() -> None:
    judged = Judged(
        model="logistic", weights=((0.0,) * 101,), bins=2, width=1.0, centre=0.0, exact=True,
        row_norm=1.0,
    )  # fmt: skip
    with pytest.raises(PolicyError, match="of exact sums"):
        opens(judged, judged.length(101))


def test_a_bound_at_its_least_refuses_no_row_of_the_schemas_length() -> None:
    """Whatever a matrix does to rows at the ends of all ranges."""
    rng = np.random.default_rng(1)
    for k in range(1, 500):
        h = np.append(rng.choice([-1.0, 1.0], 7), 1.0)
        matrix = np.zeros((8, 8))
        matrix[:, 0] = k / 512 * h
        longest = np.sqrt(8) * np.linalg.norm(matrix, 2)
        assert row_norms((h @ matrix)[None])[0] <= longest / LEEWAY * SLACK


def test_matrices_are_square() -> None:
    assert is_square((), 3) and is_square(((1.0, 0.0), (0.0, 1.0)), 2)
    assert not is_square(((1.0,), (0.0,)), 2) and not is_square(((1.0, 0.0),), 2)


def test_two_rows_are_apart_at_some_model() -> None:
    """Whatever the start leaves of labels: the noise of such a sheet could be none."""
    sheet = replace(rows.SHEET, signed=True, start=1.0)
    assert packed.least_move(sheet) >= sheet.bound
    # Noise of 2^-43, and a cost of nothing.
    free: dict[str, Any] = {"moves": 0.0, "bits": 74, "units": 1 << 31}
    assert model.refused(model_session, **free, signed=True, link=(1.0, 0.2))
    assert model.refused(model_session, **free)
    assert rows.refused(rows_session, **free, signed=True, start=1.0)
    assert rows.refused(rows_session, kind="lffr", num_outputs=0)


def test_the_grid_is_fine() -> None:
    """Roundings to it are not counted: sqrt(m) of its units for m numbers."""
    assert LEAST_UNITS >= 1 << 30


def test_what_is_rounded_shows_its_sum_alone() -> None:
    """A row function has scales of its own: to the nearest, only the largest owner's part stood.

    Rounded up or down by chance, the variance told of each part: f (1 - f), f of a unit.
    """
    session, bits = opened_alone(), SHEET.scale_bits + 3
    assert [session._noisy(0, Exact(np.array([1]), SHEET.scale_bits)) for _ in range(9)] == [1] * 9
    assert len({int(session._noisy(0, Exact(np.array([1]), bits))[0]) for _ in range(200)}) > 3
    count, source = 200_000, SeededRandomness(1)
    for eighths in (-1, 0, 1, 4, 8):
        found = Exact(np.full(count, eighths), 3).blurred(0, ROUNDING_STD, source)
        off = found.astype(np.float64) - eighths / 8
        assert abs(off.mean()) < 5 * off.std() / count**0.5
        assert off.var() == pytest.approx(ROUNDING_STD**2 + 1 / 12, rel=5 * (2 / count) ** 0.5)


@pytest.mark.parametrize("norm", [0.357, 0.51, 1.0])
def test_rows_beyond_a_sheets_norm_fill_no_range(norm: float) -> None:
    """They were cut at the next power of two, and the sums of large owners at the range."""
    model = replace(MODEL, row_norm=norm, weight=(0, 2.0**25, 1.0), clusters=False)
    x, y = np.ones((50, 2)), np.ones((50, 1))
    assert np.abs(model.exact_sum(x, y, "a").values).max() <= 50 * model.most("q") * SLACK
    units, bits = added(lambda rows: x[rows] * norm, 50, 2, norm / 1.9)
    assert np.ldexp(units.astype(float), -bits) == pytest.approx(50 * norm / 1.9)


def test_a_state_that_is_kept_no_more_is_over(tmp_path: Path) -> None:
    """A copy from before passed for the latest: what came after it was not counted."""
    store = SessionStore(tmp_path / "state", Vault("pass phrase of a test"))
    store.count("run", 2)
    assert store.counted() == ("run", 2)

    def state() -> Any:
        raise PolicyError("in memory only")

    assert not store.save(SimpleNamespace(state=state, fingerprint=str, answered=0))  # type: ignore[arg-type]
    store.count("run", 3)
    assert store.counted() == ("", 0)
