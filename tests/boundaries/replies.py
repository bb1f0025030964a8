"""Boundary out: what an owner says, beside blobs, is the same for tables that differ in one row.

Whole runs on INSECURE toy rings, their coins and noise from tapes, so that D and D' meet the same.
What is compared of every reply: step, length, metadata, lengths of blobs; of a run: its ledger's
lines, how it ends, and how many coins were tossed.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import strategies as st

from parties.account import Account
from parties.kernel import ephemeral_key
from parties.kernel.private import closed
from parties.reader.schema import Classes, Label, NumericColumn, Offset, Targets, Weight
from parties.reader.shard import ClampCounts, Shard
from protocols.aggregate.choice import choose
from protocols.errors import CohortError
from protocols.exchange.messages import Body
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.loss.ledger import Ledger
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.sums.missing_cells import MissingObjective
from protocols.sums.objectives import MomentObjective, RowObjective, objective_from_dict
from protocols.sums.plan import GradientPlan
from protocols.updates.momentum import GradientDescent
from protocols.updates.registry import rule_from_dict
from tests.boundaries.reading import BoundaryError
from tests.protocols.model import test_linear_at_home as at_home
from tests.support import helpers, sessions
from tests.support.helpers import NOISE, Session, make_data, open_session
from tests.support.plans import dual_objective, dual_rule
from tests.support.sessions import NAG, VICTIM, Vanishing, altered, reply_of

COINS_OF_RUN = 7
DATASET = "table"


# -- tapes ----------------------------------------------------------------------------------------


class Tape:
    """NOT RANDOM: bytes in place of the operating system's; read: how many so far."""

    def __init__(self, name: str) -> None:
        self._name, self.read, self._block = name, 0, 0

    def __call__(self, count: int) -> bytes:
        self.read, self._block = self.read + count, self._block + 1
        return hashlib.shake_256(f"{self._name}/{self._block}".encode()).digest(count)


class _Keys:
    """X25519 keys from the tape."""

    @staticmethod
    def generate() -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(secrets.token_bytes(32))

    from_private_bytes = X25519PrivateKey.from_private_bytes


@contextmanager
def taped(name: str) -> Iterator[Tape]:
    """The operating system's coins are those of a tape, as far as Python asks for them."""
    tape = Tape(name)
    with (
        patch("os.urandom", tape),
        patch.object(secrets, "token_bytes", tape),
        patch.object(secrets, "token_hex", lambda count: tape(count).hex()),
        patch.object(ephemeral_key, "X25519PrivateKey", _Keys),
        patch.object(helpers, "new_signing_key", lambda: helpers.identity(tape(8).hex())),
    ):
        yield tape


# -- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A run, of which one owner's rows differ.

    open: makes it; it has to be the same each time. lost: parties that vanish, by step; far: the
    coordinator asks for a round at a point where numbers overflow. charged: the owner has a ledger.
    """

    name: str
    open: Callable[[], Session]
    lost: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    far: bool = False
    charged: bool = False

    @property
    def masks(self) -> re.Pattern[str]:
        """Hexadecimals of a reply that may follow from rows: what is masked, or all but lengths.

        The tape reaches everything of a secure sum; keys of ciphertexts have coins of their own.
        """
        return _SEALED if self.name.startswith("sums") else _HEX


Said = tuple[Any, ...]
_HEX = re.compile(r"[0-9a-f]{32,}")
# A signature over rows under their owner's key (`Run.row_seal`).
_SEALED = re.compile(r'(?<="rows": ")[0-9a-f]{64}')


def _masked(text: str, masks: re.Pattern[str]) -> str:
    return masks.sub(lambda found: f"<{len(found[0])} hexadecimal>", text)


def observe(case: Case, change: Callable[[Shard], Shard], folder: Path) -> list[Said]:
    """What an owner says in a run, and what is left of it; change: of its rows."""
    with taped(case.name) as tape, _named(case):
        session = case.open()
        party = session.parties[VICTIM]
        # A shard, but for the views that follow from it.
        party.run.rows = closed(change(party.run.rows._value))
        ledger = folder / "ledger.jsonl"
        for each in folder.glob(f"{ledger.name}*"):
            each.unlink()
        if case.charged:
            account = Account(Ledger(path=ledger, epsilon=1e6, delta=0.5), DATASET)
            party.run.account = account
        if case.far:
            _ask_far(session)
        transport = Vanishing(session.ask, case.lost) if case.lost else session.ask
        said: list[Said] = []
        try:
            session.run(transport)
        except CohortError as error:
            said.append(("the run ends", type(error).__name__, _masked(str(error), case.masks)))
        for step, name, _, reply in session.recorded:
            if name == VICTIM:
                body = reply_of(session, name, reply).body
                sizes = tuple(map(len, body.blobs))
                said.append(
                    (step, len(reply), _masked(json.dumps(dict(body.meta)), case.masks), sizes)
                )
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        said += [("ledger", _masked(re.sub(r'"time": "[^"]*"', "", line), _HEX)) for line in lines]
        said.append(("coins", tape.read))
    return said


@contextmanager
def _named(case: Case) -> Iterator[None]:
    """A secure sum's session has the same name in every run; OpenFHE's keys are by the name."""
    name = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="5" * 32))
    with patch.object(helpers, "uuid", name if case.masks is _SEALED else uuid):
        yield


def _ask_far(session: Session) -> None:
    """The coordinator asks for the first round at the end of the numbers."""

    def far(body: Body) -> Body:
        (point,) = body.blobs
        return Body(body.meta, (np.full(len(point) // 8, 1.7e308).tobytes(),))

    honest = session.coordinator.protocol
    deviate = altered("round/0", far, *session.parties)
    session.coordinator.protocol = lambda: deviate(honest())  # type: ignore[method-assign]


# -- one row --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One row becomes another, and rows change places.

    at: which, as a share of all; cells: on [-1, 1], repeated over the columns; outcome: of a label
    or target, on [0, 1]; weight, offset: over their bounds; order: seed of the permutation;
    None: rows keep their places.
    """

    at: float
    cells: tuple[float, ...]
    outcome: float
    weight: float
    offset: float
    order: int | None

    def __call__(self, shard: Shard) -> Shard:
        """Other rows, within the bounds of the same schema."""
        x, y, weight, offset = (
            np.array(part) for part in (shard.x, shard.y, shard.weight, shard.offset)
        )
        k = int(self.at * (len(x) - 1))
        x[k, :-1] = np.resize(self.cells, x.shape[1] - 1)
        label = shard.schema.label
        if isinstance(label, Classes):
            y[k] = np.eye(label.outputs)[int(self.outcome * (label.outputs - 1))]
        else:
            y[k] = round(self.outcome) if isinstance(label, Label) else self.outcome
        beside = {}
        if shard.schema.weight:
            weight[k] = self.weight
            beside["weight"] = weight
        if shard.schema.offset:
            offset[k] = (2 * self.offset - 1) * shard.schema.offset.reach
            beside["offset"] = offset
        order: Any = np.arange(len(x))
        if self.order is not None:
            order = np.random.default_rng(self.order).permutation(order)
        rows: dict[str, Any] = {"x": x, "y": y, **beside}
        return replace(shard, **{name: part[order] for name, part in rows.items()})


_unit = st.sampled_from((0.0, 1.0, 0.5, 5e-324, 1 - 2**-53)) | st.floats(0, 1)
_cell = st.sampled_from((-1.0, 1.0, 0.0, -0.0, 5e-324, -5e-324, 1e-200)) | st.floats(-1, 1)
changes = st.builds(
    Change,
    at=_unit,
    cells=st.lists(_cell, min_size=1, max_size=4).map(tuple),
    outcome=_unit,
    weight=_unit,
    offset=_unit,
    order=st.integers(0, 2**16),
)


class Runs:
    """Compares runs of one case; the run of D is made once."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._case, self._folder = case, folder
        self._of_d: list[Said] | None = None

    def check(self, change: Change) -> bool:
        """True; raises BoundaryError."""
        if self._of_d is None:
            self._of_d = observe(self._case, lambda shard: shard, self._folder)
        other = observe(self._case, change, self._folder)
        for one, two in zip(self._of_d, other, strict=False):
            if one != two:
                raise BoundaryError(f"{one} where D' has {two}")
        if len(self._of_d) != len(other):
            raise BoundaryError(f"{len(self._of_d)} things are said where D' has {len(other)}")
        return True


# -- cases ----------------------------------------------------------------------------------------

OWNERS, EACH, FEATURES = 3, 4, 3


def _sums(
    objective: Any, label: Any = None, outputs: int = 1, update: Any = None, **changes: Any
) -> Session:
    """Encrypted sums of toy size; label: of the schema, two values by default."""
    fields: dict[str, Any] = {
        "privacy": None,
        "profile": "fast-insecure",
        "cipher": choose(parties=OWNERS, largest_sum=100.0, precision=2.0**-20),
        "objective": objective.to_dict(),
        "update": (update or GradientDescent(rounds=2, learning_rate=0.5)).to_dict(),
        "length": FEATURES * outputs,
    }
    return open_session(
        lambda common: GradientPlan(**(common | fields | changes)), _shards(label), label
    )


def _shards(label: Any = None) -> list[Any]:
    data = make_data([EACH] * OWNERS, FEATURES, 1)
    if isinstance(label, Classes):
        return [(x, np.eye(label.outputs)[np.arange(len(x)) % label.outputs]) for x, _ in data]
    if isinstance(label, Targets):
        return [(x, np.stack([0.2 + 0.5 * y] * label.outputs, axis=1)) for x, y in data]
    return data


def _figures() -> PublicFigures:
    return PublicFigures.even(
        rows=EACH * OWNERS, features=FEATURES - 1, parties=OWNERS, norm_bound=FEATURES**0.5
    )


_PROMISE = Wanted(update="gd", epsilon=1.0, delta=1e-6, colluders=1)


def _one_sum(task: Any, wanted: Wanted = _PROMISE, label: Any = None) -> Session:
    template = plan_sum(_figures(), wanted, task)
    make = lambda common: replace(template, profile="fast-insecure", **common)  # noqa: E731
    return open_session(make, _shards(label), label)


def _calibrated(label: Any = None, **wanted: Any) -> Session:
    """A training by sums as it is promised."""
    outputs = 1 if label is None else label.outputs
    template = _template(outputs, tuple(sorted(wanted.items())))
    make = lambda common: replace(template, profile="fast-insecure", **common)  # noqa: E731
    return open_session(make, _shards(label), label)


@cache
def _template(outputs: int, wanted: tuple[tuple[str, Any], ...]) -> Any:
    fields = {"protocol": "secure-aggregation", "epsilon": 3.0, "update": "gd", "rounds": 2}
    asked = Wanted(**(fields | dict(wanted)))  # type: ignore[arg-type]
    return calibrate(replace(_figures(), outputs=outputs), asked).template


def _holding(session: Session) -> Session:
    for party in session.parties.values():
        party._policy = replace(party._policy, min_rows_apart=0)
    return sessions.holding(session)


def _with_sites(session: Session) -> Session:
    for party in session.parties.values():
        party._policy = replace(party._policy, site_tables=True)
        party.run.terms = party._policy.terms()
    return session


def _with_terms(session: Session) -> Session:
    """Rows with weights and offsets."""
    for party in session.parties.values():
        old = party.run.rows._value
        schema = replace(
            old.schema, weight=Weight(name="w", bound=4.0), offset=Offset("o", -1.0, 1.0)
        )
        beside: Any = np.linspace(0.1, 1.0, old.rows)
        counts = ClampCounts(rows=old.rows)
        own: Any = {"weight": beside, "offset": beside - 0.5}
        party.run.rows = closed(Shard(x=old.x, y=old.y, counts=counts, schema=schema, **own))
    terms = {"digest": schema.digest(), **schema.row_terms}
    make = session.coordinator._make_plan

    def stated(members: Any) -> Any:
        plan: Any = make(members)
        session.plan = replace(plan, schema={**plan.schema, **terms})
        return session.plan

    session.coordinator._make_plan = stated
    return session


CLASSES = Classes(name="y", classes=("a", "b", "c"))
TARGET = Targets(columns=(NumericColumn(name="y0", low=0.0, high=1.0),))
ROWS = RowObjective(kind="logistic", clip=1.0)
TABLE = EvaluationObjective(
    model="logistic",
    weights=((0.5, -1.0, 0.2),),
    bins=8,
    width=0.5,
    centre=0.0,
    exact=False,
    row_norm=3**0.5,
)

INFORMATION = InformationObjective(
    model="logistic", theta=(0.4, -2.0, 1.0), row_norm=3**0.5, epsilon_in_all=2.0
)
PRODUCTS = ProductsObjective(row_norm=3**0.5, outputs=1, epsilon_in_all=2.0)
MOMENT = MomentObjective(row_norm=3**0.5, epsilon_in_all=2.0)
EMPTY = MissingObjective(columns=2, exact=False)
SQUARED = replace(ROWS, kind="squared")
BY_SITE = replace(TABLE, sites=(VICTIM,))
OF_TARGETS = replace(TABLE, model="linear")
SEVERAL = replace(TABLE, model="softmax", weights=((0.5, -1.0, 0.2), (0.1, 0.0, 0.3), (0.0,) * 3))


def _of_classes(kind: str) -> RowObjective:
    return RowObjective(kind=kind, clip=1.0, outputs=3)


def _dual(**changes: Any) -> Session:
    task = objective_from_dict(dual_objective(ridge=0.5, row_scale=3**0.5, **changes))
    return _sums(task, update=rule_from_dict(dual_rule()))


_CASES = (
    Case("rows, gd", lambda: sessions.small(rounds=2)),
    Case("rows, nag", lambda: sessions.small(**NAG, rounds=2)),
    Case("rows, barrier", lambda: sessions.small(update="barrier-1", degree=5)),
    Case("rows, noise", lambda: sessions.small(rounds=2, update="ridge", privacy=NOISE)),
    Case("rows, quadratic", sessions.quadratic_session),
    Case("rows, held out", lambda: _holding(sessions.small(rounds=1, rows=8))),
    Case("rows, cover", lambda: sessions.small(**NAG | {"parties": 4}, cover=2)),
    Case(
        "rows, cover, one lost",
        lambda: sessions.small(**NAG | {"parties": 4}, cover=2),
        lost={"refresh/0": ("hospital-3",)},
    ),
    Case("rows, Gram sums", sessions.gram_session),
    Case("rows, LFFR", sessions.lffr_session),
    Case("model, gd", sessions.model_session),
    Case("model, nag", lambda: sessions.model_session(update="nag")),
    Case("model, noise", lambda: sessions.model_session(update="ridge", privacy=NOISE)),
    Case("model, batches", lambda: sessions.model_session(batches=2, rows=[70, 4, 9])),
    Case("model, held out", lambda: _holding(sessions.model_session(rows=8))),
    Case("model, LFFR", sessions.lffr_model_session),
    Case(
        "model, linear",
        lambda: at_home.session_of(
            [6, 5], 3, 2, {"kind": "gd", "rounds": 2, "learning_rate": 0.5}, 2
        ),
    ),
    Case("model, weights and offsets", lambda: _with_terms(sessions.model_session())),
    Case("sums, logistic", lambda: _sums(ROWS)),
    Case("sums, far point", lambda: _sums(ROWS), far=True),
    Case(
        "sums, quadratic",
        lambda: _sums(replace(ROWS, curvature_clip=0.5), update=sessions.quadratic_rule()),
    ),
    Case("sums, weights and offsets", lambda: _with_terms(_sums(ROWS))),
    Case("sums, weights, far point", lambda: _with_terms(_sums(ROWS)), far=True),
    Case("sums, linear", lambda: _sums(SQUARED, TARGET)),
    Case("sums, linear, far point", lambda: _sums(SQUARED, TARGET), far=True),
    Case("sums, softmax", lambda: _sums(_of_classes("softmax"), CLASSES, 3)),
    Case("sums, one-vs-rest", lambda: _sums(_of_classes("one-vs-rest"), CLASSES, 3)),
    Case("sums, held out", lambda: _holding(_sums(ROWS))),
    Case("sums, dual", _dual),
    Case("sums, dual, batches", lambda: _dual(batches=2)),
    Case("sums, dual, coins", lambda: _dual(batches=2, schedule="poisson")),
    Case("sums, dual, far point", _dual, far=True),
    Case("sums, noise", _calibrated, charged=True),
    Case("sums, weights, noise", lambda: _with_terms(_calibrated(update="nag")), charged=True),
    Case("sums, softmax, noise", lambda: _calibrated(CLASSES, model="softmax"), charged=True),
    Case(
        "sums, one-vs-rest",
        lambda: _calibrated(CLASSES, model="one-vs-rest"),
        charged=True,
    ),
    Case("sums, quadratic, noise", lambda: _calibrated(update="quadratic-nag"), charged=True),
    Case(
        "sums, dual, ridge, noise",
        lambda: _calibrated(TARGET, model="linear", update="scd"),
        charged=True,
    ),
    Case("sums, dual, noise", lambda: _calibrated(update="scd", batches=2), charged=True),
    Case(
        "sums, dual, coins, noise",
        lambda: _calibrated(update="scd", batches=2, schedule="poisson"),
        charged=True,
    ),
    Case("sums, second moment", lambda: _one_sum(MOMENT), charged=True),
    Case("sums, information", lambda: _one_sum(INFORMATION), charged=True),
    Case("sums, products", lambda: _one_sum(PRODUCTS, label=TARGET), charged=True),
    Case("sums, missing cells", lambda: _one_sum(EMPTY), charged=True),
    Case("sums, evaluation", lambda: _one_sum(TABLE), charged=True),
    Case("sums, evaluation by site", lambda: _with_sites(_one_sum(BY_SITE)), charged=True),
    Case("sums, evaluation of several", lambda: _one_sum(SEVERAL, label=CLASSES), charged=True),
    Case("sums, evaluation of targets", lambda: _one_sum(OF_TARGETS, label=TARGET), charged=True),
)
CASES = {case.name: case for case in _CASES}
