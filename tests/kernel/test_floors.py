"""Bounds below the schema's, offsets that no sheet names, a model after its end.

Each has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.kernel.model import session as model_session
from parties.kernel.private import Private, Terms
from parties.kernel.rows import session as rows_session
from protocols.errors import CohortError, PolicyError
from protocols.privacy.laws.seeded import SeededRandomness
from tests.kernel import test_model_session as model
from tests.kernel import test_rows_session as rows
from tests.kernel.mutants import mutant

NORM = 1.0  # of the schema


class Known:
    """Rows whose schema is public, which note when anything else of them is read."""

    def __init__(self, figures: Any, log: list[str]) -> None:
        self._figures, self._log = figures, log
        self.rows, self.num_features = figures.rows, figures.num_features
        self.schema = SimpleNamespace(norm_bound=NORM)

    def __getattr__(self, name: str) -> Any:
        if name not in ("x", "y", "weight", "offset"):
            raise AttributeError(name)
        self._log.append(name)
        return getattr(self._figures, name)


def opens(make: Callable[..., Any], sheet: Any, key: Any, booked: float, shard: Any) -> bool:
    """Whether a session of this sheet opens; no row is looked at either way."""
    log = list[str]()
    private = Private(SimpleNamespace(spend=lambda: log.append("spent")))
    keys = SimpleNamespace(context=model.joint().context)
    booking = {"colluders": 1, "booked": ("gaussian", booked)}
    private.terms = Terms(exact=False, keys=lambda: keys, **booking)  # type: ignore[arg-type]
    try:
        with private:
            make(sheet, "a", private.keep(Known(shard, log)), SeededRandomness(1), key)
    except PolicyError:
        return bool(log)
    return not log


def a_bound_of_rows_is_the_schemas(kernel: Any) -> bool:
    """Of a shorter one a refusal, where rows are open, would tell that one is longer."""
    shard = SimpleNamespace(rows=rows.ROWS, num_features=rows.D)

    def own(bound: float) -> bool:
        sheet = replace(rows.SHEET, bound=bound)
        return opens(kernel.RowsSession, sheet, rows.KEYS["a"], rows.BOOKED, shard)

    return own(NORM) and not own(0.999 * NORM)


def a_bound_of_a_model_is_the_schemas(kernel: Any) -> bool:
    def own(bound: float) -> bool:
        sheet = replace(model.SHEET, bound=bound)
        return opens(kernel.ModelSession, sheet, model.KEYS["a"], model.BOOKED, model.shard_of())

    return own(NORM) and not own(0.999 * NORM)


def an_offset_moves_nothing(t: int) -> Callable[[Any], bool]:
    """Where the sheet names none: what a row's part is bounded by does not know it."""

    def holds(kernel: Any) -> bool:
        found = []
        for offset in (0.0, 3.0):
            shard = model.shard_of()
            shard.offset = np.full(model.ROWS, offset)
            party = model.Watched(kernel=kernel, shard=shard).begin()
            *_, parts = [party.round(each) for each in range(t + 1)]
            found.append(model.opened(party, f"gradient/{t}", parts))
        return bool(np.abs(found[0] - found[1]).max() < 1e-3 * np.abs(found[0]).max() + 1e-4)

    return holds


def no_round_after_the_end(kernel: Any) -> bool:
    """Not the last one once more either: no row is read, nothing is spent, nothing encrypted."""
    party = model.Watched(kernel=kernel).begin()
    for t in range(model.ROUNDS):
        party.round(t)
    party.session.erase()
    with suppress(CohortError):
        party.session.take_keys(model.halves())
    before = list(party.log)
    for t in range(model.ROUNDS):
        for again in (False, True):
            if not model.fails(PolicyError, lambda t=t, a=again: party.round(t, again=a)):  # type: ignore[misc]
                return False
    return party.log == before


def no_pad_key_after_the_end(kernel: Any) -> bool:
    """A session that ended before it had shown one agrees with nobody."""
    party = model.Watched(kernel=kernel)
    party.session.erase()
    return model.fails(PolicyError, lambda: party.session.pad_key())


def no_pads_after_the_end(kernel: Any) -> bool:
    """What a pair agreed on is forgotten, and is not agreed on again."""
    party = model.Watched(kernel=kernel).begin()
    party.session.erase()
    pads = party.session._pads
    return model.fails(PolicyError, lambda: pads.pad("x", party.context.primes[:3], 4))


BOUND = "lambda: sheet.bound * LEEWAY >= longest(rows, sheet.matrix, held)"
FLOORS: dict[str, tuple[Any, str, str, Callable[[Any], bool]]] = {
    "bound of rows": (rows_session, BOUND, "lambda: True", a_bound_of_rows_is_the_schemas),
    "bound of a model": (model_session, BOUND, "lambda: True", a_bound_of_a_model_is_the_schemas),
    "offsets of label terms": (
        model_session, 'shard.offset if "offset" in sheet.terms else np.zeros(1)', "shard.offset",
        an_offset_moves_nothing(0),
    ),
    "offsets at a point": (
        model_session, 'offset=offset if "offset" in sheet.terms else None', "offset=offset",
        an_offset_moves_nothing(1),
    ),
    "a round after the end": (
        model_session, "if self._is_over or type(t) is not int", "if type(t) is not int",
        no_round_after_the_end,
    ),
    "a pad key after the end": (
        model_session, "        self._pads.erase()", "        pass", no_pad_key_after_the_end,
    ),
    "pads after the end": (
        model_session, "        self._pads.erase()", "        pass", no_pads_after_the_end,
    ),
}  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    module, old, new, holds = FLOORS[floor]
    assert holds(module)
    assert not holds(mutant(module, old, new))
