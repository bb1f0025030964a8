"""Models with standard errors x privacy x outputs: the same figures everywhere, statsmodels'."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from ciphercohort.after.inference_table import _number, _probability
from ciphercohort.cli.console import stderr
from ciphercohort.cli.run import show
from ciphercohort.job.config import WITH_INFERENCE, configured
from ciphercohort.job.layout import TABLE
from ciphercohort.results.coefficients import ratio_texts, with_ends
from ciphercohort.results.result import RunResult
from protocols.errors import CohortError
from protocols.models.registry import MODELS
from sims.api import simulate
from tests.sims.document import Document
from tests.sims.evaluation_tables import table
from tests.sims.model_runs import cohort

FRAME = table(1200).assign(days=lambda frame: 10 - frame.cost / 40 + 2 * frame.dose)
OUTCOMES = {"died", "visits", "cost", "days"}
SUMS: dict[str, Any] = {"protocol": "secure-aggregation"}
TOY: dict[str, Any] = {"profile": "fast-insecure"}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "died": ("logistic", {"label": "died", **SUMS}),
    "cost": ("linear", {"target": "cost", **SUMS}),
    "cost,days": ("linear", {"target": "cost,days", **TOY}),
    "visits": ("poisson", {"target": "visits", **TOY}),
}
RATIOS = {"logistic": "odds_ratio", "poisson": "rate_ratio"}
CASES = [(asked, private) for asked in ASKED for private in (False, True)]
CASES.remove(("visits", True))  # refused: no certificate of its training


def options(asked: str, private: bool) -> dict[str, Any]:
    model, own = ASKED[asked]
    left_out = sorted(OUTCOMES - set(asked.split(",")))
    promise: dict[str, Any] = {"epsilon": 12.0} if private else {"no_privacy": True}
    if private and model == "logistic":
        promise["update"] = "nag"  # takes no search
    common = {"data": FRAME, "split": "by:site", "exclude": left_out, "seed": 2, "inference": True}
    return {"model": model, **common, **own, **promise}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of a case, and its folder, beside which its rows are; each is made once."""

    @cache
    def of(asked: str, private: bool) -> tuple[RunResult, Path]:
        folder = tmp_path_factory.mktemp("asked")
        FRAME.to_csv(folder / "rows.csv", index=False)
        FRAME[:200].to_csv(folder / "test.csv", index=False)
        rows = {"data": folder / "rows.csv", "test": folder / "test.csv"}
        return simulate(**{**options(asked, private), **rows}, out=folder / "run"), folder

    return of


def printed(rows: list[dict[str, Any]], ratio: str, page: bool = False) -> list[list[str]]:
    """Name and figures of each row, as every output has to print them; pages: ratios' ends too."""
    if page and ratio:
        ends = [with_ends(row, ratio) for row in rows]
        return [[*line, end] for line, end in zip(printed(rows, ""), ends, strict=True)]
    found = []
    for row in rows:
        if row["coef"] != row["coef"]:  # others are compared with it
            found.append([str(row["name"]), *[""] * (7 if ratio else 6)])
            continue
        # Four decimals of an error below 1, none of one in thousands.
        digits = len(str(int(row["se"]))) if row["se"] > 1 else 0
        ends = [*(_number(row[key], 3, digits) for key in ("low", "high"))]
        ends += [ratio_texts(row, ratio)[0]] if ratio else []
        cells = [*(_number(row[key], 4, digits) for key in ("coef", "se")), _number(row["z"], 3)]
        found.append([str(row["name"]), *cells, _probability(row["p"]), *ends])
    return found


def without_empty(rows: list[list[str]]) -> list[list[str]]:
    """As a terminal shows cells."""
    return [[cell for cell in row if cell] for row in rows]


def in_text(text: str, names: set[str]) -> list[list[str]]:
    lines = [line.split() for line in text[text.index(" rows, 95 % intervals") :].splitlines()]
    return [line for line in lines if line and line[0] in names]


def in_latex(text: str, names: set[str]) -> list[list[str]]:
    lines = [re.split(" & ", line.removesuffix(r" \\")) for line in text.splitlines()]
    return [
        [line[0], *(as_printed(cell) for cell in line[1:])] for line in lines if line[0] in names
    ]


def as_printed(cell: str) -> str:
    """What Python prints in place of a cell of LaTeX."""
    power = re.compile(r" \\times 10\^\{(-?\d+)\}")
    return power.sub(lambda m: f"e{int(m[1]):+03d}", cell.strip("$").replace("--", "–"))


def in_html(text: str, rows: list[dict[str, Any]], width: int) -> list[list[str]]:
    cells, found = Document(text).cells, []
    for row in rows:
        label = " ".join(filter(None, [row.get("target"), row["name"]]))
        starts = [k for k, cell in enumerate(cells) if cell == label]
        assert starts, label
        # Of several tables the last one with this label has the intervals.
        found.append([str(row["name"]), *cells[starts[-1] + 1 : starts[-1] + width]])
    return found


def numeric(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: np.nan if v is None else v for key, v in row.items()} for row in rows]


@pytest.mark.parametrize(("asked", "private"), CASES)
def test_every_output_has_the_same_figures(
    asked: str, private: bool, made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Console, JSON, LaTeX, report and notebook of a run, and of an evaluation of its model."""
    wanted = options(asked, private)
    result, tmp_path = made(asked, private)
    assert result.inference is not None
    model, ratio = str(wanted["model"]), RATIOS.get(str(wanted["model"]), "")
    body = json.loads(
        (tmp_path / "run/private/summary.json").read_text(), parse_constant=pytest.fail
    )
    rows = numeric(body["inference"])
    figures, names = printed(rows, ratio), {row["name"] for row in rows}
    on_pages = printed(rows, ratio, page=True)
    targets = ("",) if model == "logistic" else tuple(asked.split(","))
    names_in_order = ["intercept", "age", "dose", "ward=A", "ward=B", "ward=C"]
    assert [(row.get("target", ""), row["name"]) for row in rows] == [
        (target, name) for target in targets for name in names_in_order
    ]
    assert any("privacy_share" in row for row in rows) is private

    config = configured(out=tmp_path / "run", **wanted)
    show(stderr(), config, result, as_json=False)
    assert in_text(capsys.readouterr().out, names) == without_empty(figures)
    show(stderr(), config, result, as_json=True)
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told["inference"] == body["inference"]
    assert in_latex((tmp_path / "run/release" / TABLE).read_text(), names) == on_pages
    reports = [tmp_path / "run" / half / "report.html" for half in ("release", "private")]
    for page in (*(path.read_text() for path in reports), str(result._repr_html_())):
        assert in_html(page, rows, len(figures[0])) == on_pages

    how = ("--split", "by:site", "--inference", "--seed", 3, "--out", tmp_path / "judged")
    promise = ("--epsilon", 12, "--however-noisy") if private else ()
    judged = cohort(
        "evaluate", "--model", tmp_path / "run", "--data", tmp_path / "rows.csv",
        *how, *promise,
    )  # fmt: skip
    assert judged.exit_code == 0, judged.output
    again = json.loads((tmp_path / "judged" / "evaluation.json").read_text())
    rows = numeric(again["inference"])
    assert in_text(judged.stdout, names) == without_empty(printed(rows, ratio))
    on_pages = printed(rows, ratio, page=True)
    assert in_latex((tmp_path / "judged" / TABLE).read_text(), names) == on_pages


@pytest.mark.parametrize("asked", ASKED)
def test_without_privacy_they_are_those_of_statsmodels_on_pooled_rows(
    asked: str, made: Any
) -> None:
    found = made(asked, private=False)[0].inference
    assert found is not None and found.num_rows == len(FRAME)
    raw = np.column_stack(
        [np.ones(len(FRAME)), FRAME.age, FRAME.dose, FRAME.ward == "B", FRAME.ward == "C"]
    ).astype(float)
    fits = {
        "logistic": lambda y: sm.Logit(y == "yes", raw).fit(disp=0),
        "linear": lambda y: sm.OLS(y, raw).fit(),
        "poisson": lambda y: sm.GLM(y, raw, family=sm.families.Poisson()).fit(),
    }
    for k, name in enumerate(asked.split(",")):
        fit = fits[found.model](FRAME[name])
        bse, places = np.asarray(fit.bse), [0, 1, 2, 4, 5]
        assert (np.abs(found.coef[k, places] - np.asarray(fit.params)) < 2e-3 * bse).all()
        np.testing.assert_allclose(found.se[k, places], bse, rtol=2e-3)
        assert np.isnan(found.coef[k, 3])


@pytest.mark.parametrize("model", sorted(set(MODELS) - set(WITH_INFERENCE)))
@pytest.mark.parametrize("private", [False, True])
def test_the_others_are_refused_by_name_before_anything_is_read(model: str, private: bool) -> None:
    outcome = {"target": "cost"} if "lffr" in model else {"label": "ward", **SUMS}
    asked: dict[str, Any] = {**outcome, "epsilon": 12.0 if private else None}
    asked["no_privacy"] = not private
    with pytest.raises(CohortError, match=f"inference with model='{model}'"):
        simulate(data="no-such-file.csv", model=model, inference=True, **asked)
