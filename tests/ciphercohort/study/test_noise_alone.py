"""Studies of which noise has left nothing: every document says so, or they are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.after.sums import SumSeries
from ciphercohort.results.coefficients import MOST_RATIO
from ciphercohort.results.documents import to_json
from ciphercohort.study import description
from ciphercohort.study.asked import CoxOptions, CurveOptions, DescribeOptions
from ciphercohort.study.description import Description, describe_by
from ciphercohort.study.pictures import forest_picture
from ciphercohort.study.private_cox import hazards_by
from ciphercohort.study.stays import with_stays
from ciphercohort.study.survival import survival_by
from ciphercohort.study.tables import Tabled
from parties.reader.schema import Schema
from parties.reader.views import by_range, cells_schema
from protocols.errors import CohortError
from protocols.statistics.study.curves import Curve
from sims.prepare import inferred
from sims.study import survival
from tests.ciphercohort.study.test_pictures import ARM, table
from tests.sims.noise_alone import Alone, Make, opened, strictly, unsaid

ROWS = table().assign(entry=lambda rows: np.floor(rows.months / 3))
ROWS["stage"] = np.random.default_rng(0).choice(["i", "ii", "iii"], len(ROWS), p=[0.9, 0.07, 0.03])
ROWS.loc[::9, "age"] = np.nan
OWN: dict[str, Any] = {"exclude": ("site",), "missing": "indicator"}


def described(asked: DescribeOptions, make: Make) -> Tabled:
    rows = ROWS.drop(columns=["entry", "died"])
    own = cells_schema(inferred(rows, ["months"], [], **OWN))
    return describe_by(Alone.of(rows, own, make, 1.0), asked)


def stays(late: bool, rows: pd.DataFrame) -> Schema:
    names = ["months", "died", *["entry"] * late]
    return by_range(with_stays(inferred(rows, names, [], **OWN), rows))


def curves(late: bool, asked: CurveOptions, make: Make) -> Tabled:
    rows = ROWS if late else ROWS.drop(columns="entry")
    return survival_by(Alone.of(rows, stays(late, rows), make, 1.0), asked)


def hazards(late: bool, asked: CoxOptions, make: Make) -> Tabled:
    rows = pd.concat([ROWS] * 20, ignore_index=True).drop(columns="stage")
    rows = rows if late else rows.drop(columns="entry")
    sums: SumSeries = Alone.of(rows, stays(late, rows), make, 8.0)
    return hazards_by(sums, asked)


KINDS: dict[str, tuple[Callable[[Make], Tabled], int]] = {
    "table": (lambda make: described(DescribeOptions(by=ARM), make), 1),
    "table by site": (
        lambda make: described(DescribeOptions(by="stage", sites=("p", "q"), bins=3), make),
        1,
    ),
    "curve": (lambda make: curves(False, CurveOptions(), make), 3),
    "curves": (lambda make: curves(True, CurveOptions(by=ARM), make), 2),
    "few times": (lambda make: curves(False, CurveOptions(by="stage", bins=4), make), 2),
    "hazards": (lambda make: hazards(False, CoxOptions(), make), 1),
    "late hazards": (lambda make: hazards(True, CoxOptions(), make), 1),
}


def documents(found: Tabled) -> str:
    assert to_json(found.released())
    texts = [each.text() for each in found.tables()]
    return "\n".join([*texts, found._repr_html_(), *(text for _, text in found.documents())])


@pytest.mark.parametrize("kind", KINDS)
def test_every_document_of_noise_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "DRAWS", 10)
    find, draws = KINDS[kind]
    came: Counter[str] = Counter()
    for make in opened(draws):
        try:
            text = strictly(lambda make=make: documents(find(make)))
        except CohortError as error:
            came["refused"] += 1
            text = str(error)
        else:
            came["found"] += 1
        assert not unsaid(text)
    assert came["found"] and (came["refused"] or kind.startswith("table"))


def test_a_share_of_no_rows_is_drawn_as_the_table_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bar of thousands of percent, and a note."""
    monkeypatch.setattr(description, "DRAWS", 10)
    drowned = [*opened(1)][-1]
    found = described(DescribeOptions(by="stage"), drowned)
    assert isinstance(found, Description)
    none = [name for name, each in found.groups.items() if _has_none(each)]
    (note,) = (each for each in found.tables()[0].notes if "counts without shares" in each)
    assert none and all(name in note for name in none)
    svg = found.pictures()["table-1"][0]
    told = [float(each) for each in re.findall(r"<!-- (\d+) -->", svg)]
    assert told and max(told) <= 100
    for group in found.groups.values():
        assert all((own["n"] or 0) >= 0 for own in group["columns"].values())


def _has_none(group: dict[str, Any]) -> bool:
    return any(
        own["n"] is None or own.get("median") != own.get("median")
        for own in group["columns"].values()
    )


def test_ratios_of_any_size_are_drawn() -> None:
    ends = 1 / MOST_RATIO, 1.0, MOST_RATIO
    for ratios in ([ends[1], ends[0], ends[2]], *([end] * 3 for end in ends)):
        assert strictly(lambda ratios=ratios: forest_picture({"age": tuple(ratios)}))


def test_a_curve_in_which_no_time_passes_is_none() -> None:
    """Nearly all leave at time 0: too few are left to be told."""
    rows = pd.DataFrame({"months": [0] * 90 + [*range(5)] * 1 + [59], "died": 1, "age": 1.0})
    rows["age"] += np.arange(len(rows))
    asked: dict[str, Any] = {"time": "months", "event": "died", "parties": 2}
    found = survival(rows, **asked)
    assert isinstance(found.curves["all"], Curve) and not found.curves["all"].known
    text = strictly(lambda: documents(found))
    assert "no curve, no median and no mean" in text
