"""A share of `python -m tests.boundaries --only read`: every format, and every kind of schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boundaries.explore import explore
from tests.boundaries.formats import FORMATS
from tests.boundaries.reading import Reading
from tests.boundaries.tables import KINDS, pairs

EACH = 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS)
def test_a_row_is_in_company_what_it_is_alone(form: str, tmp_path: Path) -> None:
    chosen, taken = FORMATS[form], 0
    for kind in KINDS:
        if chosen.kinds and kind.name not in chosen.kinds:
            continue
        reading = Reading(chosen, kind, tmp_path)
        found = explore(kind.name, reading.check, pairs(kind, chosen.cells), EACH, by=1)
        assert not found.failures, found.least
        taken += reading.taken
    assert taken > EACH
