"""Options that name a column's groups, or one of them: one reader, whatever the column is.

The same groups stand in the rows as categories, as 0 and 1, and as 1 and 2. What an option finds by
any of them is the same, or it is refused before a sum, in words that say what the column has and
what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.reader.arms import arm_of, arms_of, groups_of, placed
from parties.reader.infer import infer_schema, with_references
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema
from protocols.errors import ParameterError, SchemaError
from tests.ciphercohort.study import test_every_option as every
from tests.ciphercohort.study.test_every_option import DEPLOYED, SIMULATED, Bench, Ran
from tests.ciphercohort.study.test_every_option import rows as other_rows

COLUMNS = {"tx": ("a", "b"), "zero": ("0", "1"), "one": ("1", "2")}
"""Of one treatment; groups in order."""
ROWS = 150


def rows(site: int) -> pd.DataFrame:
    own = other_rows(site).drop(columns=["arm", "site"]).fillna({"age": 60.0})
    second = np.random.default_rng(100 + site).random(len(own)) < 0.3 + own.age / 300
    coded = {"tx": np.where(second, "b", "a"), "zero": 1.0 * second, "one": 1.0 + second}
    return own.assign(**coded, many=own.age + second, site=every.SITES[site])


def schema(*targets: NumericColumn) -> Schema:
    old = every.schema(*targets)
    more = (
        CategoricalColumn("tx", ("a", "b")),
        NumericColumn("zero", 0.0, 1.0, binary=True),
        NumericColumn("one", 1.0, 2.0, binary=True),
        NumericColumn("many", 30.0, 91.0),
        CategoricalColumn("sex", ("f", "m")),
    )
    return replace(old, columns=(NumericColumn("age", 30.0, 90.0), *more), imputation=None)


@dataclass(frozen=True)
class Option:
    """Of a study; words: with {} for what names the groups."""

    study: str
    words: str
    of_arm: bool = False


OPTIONS = {
    "by of describe": Option("describe", "--by {}"),
    "by of curves": Option("curves", "--by {}"),
    "strata": Option("cox", "--strata {}"),
    "curves": Option("cox", "--curves {}"),
    "propensity": Option("glm", "--propensity {} --propensity-columns age,sex", of_arm=True),
    "target": Option("glm", "--target {}", of_arm=True),
    "reference": Option("cox", "--reference {}", of_arm=True),
    "reference of glm": Option("glm", "--reference {}", of_arm=True),
}
PLACES = [
    (where, name)
    for where in (SIMULATED, DEPLOYED)
    for name in OPTIONS
    if where == SIMULATED or "reference" not in name
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        stays = schema(every.MONTHS, every.DIED)
        costs = schema(*every.COSTS.label.columns)  # type: ignore[union-attr]
        own = {name: costs if name == "glm" else stays for name in every.SCHEMAS}
        patch.setattr(every, "rows", rows)
        patch.setattr(every, "ROWS", ROWS)
        patch.setattr(every, "STAYS", stays)
        patch.setattr(every, "COSTS", costs)
        patch.setattr(every, "SCHEMAS", own)
        yield Bench(tmp_path_factory.mktemp("bench"), patch)


def asked(option: Option, where: str, column: str, named: str) -> str:
    """One coding of the treatment, and an age beside it."""
    words = option.words.format(named)
    if option.study == "curves" and where == DEPLOYED:
        return words  # without covariates
    own = [column] if column in (*COLUMNS, "many") else []
    return f"{words} --include {','.join(('age', 'sex', *own))}"


def run(bench: Bench, where: str, name: str, column: str, arm: str | None) -> Ran:
    named = column if arm is None else f"{column}={arm}"
    option = OPTIONS[name]
    return bench.run(where, option.study, asked(option, where, column, named))


def figures(ran: Ran) -> list[Any]:
    """All numbers of a document in its order, whatever names they have."""
    found = ran.found
    # Of 1 and 2 it is that of a 0 which nobody has.
    found["inference"] = [r for r in found.get("inference", ()) if r["name"] != "intercept"]
    gone = ("session", "plan", "plans", "sessions", "asked", "rounds", "notes", "covariate_means")
    for name in gone:
        found.pop(name, None)
    told = list[Any]()

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            for key, value in item.items():
                walk({} if key == "rounds" else value)
        elif isinstance(item, list):
            for value in item:
                walk(value)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            told.append(float(item))

    walk(found)
    return told


@pytest.mark.parametrize(("where", "name"), PLACES)
def test_groups_are_those_of_categories(where: str, name: str, bench: Bench) -> None:
    option = OPTIONS[name]
    for place in (0, 1) if option.of_arm else (None,):
        arms = {c: None if place is None else each[place] for c, each in COLUMNS.items()}
        first, *others = (run(bench, where, name, c, arm) for c, arm in arms.items())
        expected = figures(first)
        assert len(expected) > 5
        for (column, arm), ran in zip([*arms.items()][1:], others, strict=True):
            if ran.code:  # the lower of two numbers
                assert name in ("propensity", "target") and place == 0, ran.stderr
                upper = f"'{column}={COLUMNS[column][1]}'"
                words = " ".join(ran.stderr.split())
                assert upper in words and "or make the two categories" in words
                assert not ran.plans and arm is not None
                continue
            np.testing.assert_allclose(figures(ran), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("where", "name"), PLACES)
def test_other_names_are_refused_with_a_cure(where: str, name: str, bench: Bench) -> None:
    option = OPTIONS[name]
    wrong = [("many", "40"), ("quince", "b"), ("tx", "quince"), ("zero", "2"), ("one", "0")]
    if not option.of_arm:
        wrong = [("many", None), ("quince", None), ("tx", "a"), ("zero", "1"), ("one", "1")]  # type: ignore[list-item]
    elif name == "propensity":
        wrong += [("tx", None), ("many", None)]  # type: ignore[list-item]
    for column, arm in wrong:
        ran = run(bench, where, name, column, arm)
        words = " ".join(ran.stderr.split())
        if (where, name, column) == (SIMULATED, "by of describe", "many"):
            # Read off the rows, each number is a class.
            assert ran.code == 0 and len(ran.found["groups"]) > 40
            continue
        assert ran.code == 2 and not ran.plans, (column, arm, words)
        assert column in words and re.search(
            "name one of|name the column|is not a column|no such column|and no groups: make|check "
            "the name|none of the columns",
            words,
        ), words
        if column in COLUMNS and arm != COLUMNS[column][0]:
            assert arm is not None or all(each in words for each in COLUMNS[column])


def test_of_two_numbers_that_miss_cells_these_are_a_group() -> None:
    number = NumericColumn("tx", 1.0, 2.0, binary=True, typical=2.0, missing="indicator")
    own = schema(every.MONTHS, every.DIED)
    own = replace(own, columns=(own.columns[0], number))
    found = groups_of(placed(own), "by", "tx")
    assert found.places == (2, 1) and found.names == ("missing", "2") and found.rest == "1"
    assert found.several == ("1", "2", "missing") and found.order == [2, 1, 0]
    filled = replace(own, columns=(replace_missing(number, "typical"),))
    with pytest.raises(ParameterError, match="filled in with 2, and would count as 1 or 2"):
        groups_of(placed(filled), "by", "tx")


def replace_missing(column: NumericColumn, missing: Any) -> NumericColumn:
    return NumericColumn(
        column.name,
        column.low,
        column.high,
        typical=column.typical,
        missing=missing,
        binary=column.binary,
    )


def test_groups_by_categories_have_the_others_last() -> None:
    own = CategoricalColumn("arm", ("b", "a"), missing="indicator")
    found = groups_of([(3, own)], "by", "arm")
    assert found.places == (3, 4, 5) and found.several == ("b", "a", "missing", "(other)")
    assert found.order == [0, 1, 2, 3]
    named = groups_of([(0, CategoricalColumn("arm", ("(other)", "a")))], "by", "arm")
    assert named.order == [0, 1, 2] and named.several == ("(other)", "a", "((other))")


def test_names_with_signs_are_of_the_longest_column() -> None:
    columns = [CategoricalColumn("a", ("b=c", "d")), CategoricalColumn("a=b", ("c", "e"))]
    assert arm_of(enumerate(columns), "target", "a=b=e")[1:] == (columns[1], 1)
    with pytest.raises(ParameterError, match="'a=b' has 'c', 'e', no other group"):
        arm_of(enumerate(columns), "target", "a=b=d")


def test_a_reference_of_two_numbers_makes_categories() -> None:
    number = NumericColumn("tx", 0.0, 1.0, typical=0.7, missing="typical", binary=True)
    (found,) = with_references([number], ["tx=1"])
    assert found == CategoricalColumn("tx", ("1", "0"), missing="typical", typical="1")
    big = NumericColumn("year", 1000000.0, 1000001.0, binary=True)
    assert arms_of(big) == ("1000000", "1000001")
    with pytest.raises(SchemaError, match="name one of its arms"):
        with_references([number], ["tx"])


def test_a_table_by_an_event_of_the_schema(bench: Bench) -> None:
    """What is predicted has groups, too."""
    ran = bench.run(DEPLOYED, "describe", "--by died")
    assert "numbers from 0 to 1" in " ".join(ran.stderr.split())  # not said to be binary
    frame = rows(0).assign(died=rows(0).died)
    own = infer_schema(frame, ["months", "died"], scaling="range", row_norm=None)
    assert groups_of(placed(own, outcome=True), "by", "died").several == ("0", "1")
