"""The report needs nothing from elsewhere, escapes what it did not write, and hides no warning."""

from __future__ import annotations

import base64
import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ciphercohort.cli.console import closing_lines, stderr
from ciphercohort.cli.run import show
from ciphercohort.job.config import SimulationConfig
from ciphercohort.report import html as report_html
from ciphercohort.report.html import Html, fragment, section, table, tag
from ciphercohort.report.release_report import privacy_facts
from ciphercohort.report.report import confusion, render_report
from ciphercohort.results.documents import coefficients
from ciphercohort.results.result import Array, Figures, RunResult
from protocols import words
from protocols.plan import kinds
from protocols.plan.run_plan import PrivacyPlan
from sims.twin import score
from tests.protocols.gram import test_gram_plan
from tests.sims.document import Document
from tests.sims.fake_run import CERTIFICATE, NASTY, SCHEMA, make_frame, make_result
from tests.support.pictures import drawn


@pytest.fixture(scope="module")
def html() -> str:
    with drawn():
        return render_report(make_result())


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    page = Document(html)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & page.tags
    assert len(page.links) == 4 and all(link.startswith("data:image/svg") for link in page.links)
    assert "@import" not in html and "url(" not in html


def test_figures_are_whole_and_say_what_they_show(html: str) -> None:
    for data in re.findall(r"base64,([^\"]+)", html):
        picture = base64.b64decode(data)
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert b"<path" in picture and b"<image" not in picture and b"<script" not in picture
    assert len(re.findall(r'<img alt="[^"]{20,}"', html)) == 4


def test_names_are_escaped(html: str) -> None:
    page = Document(html)
    assert NASTY in page.text and "<script" not in html
    assert "<b>north</b>" in page.text and "a warning with <i>markup</i>" in page.text
    assert fragment('"<&', Html("<br>")) == "&#34;&lt;&amp;<br>"
    assert tag("p", "<", title='"') == '<p title="&#34;">&lt;</p>'
    whole = report_html.page("<t", [section("<s", tag("p", "<"), "<c")])
    assert "<title>&lt;t</title>" in whole
    assert "<section><h2>&lt;s</h2><p>&lt;</p>&lt;c</section>" in whole
    assert "&lt;x" in table(("<x",), [("<x",)]) and "<x" not in table(("<x",), [("<x",)])


def test_the_figures_that_matter_are_there() -> None:
    result = make_result()
    text = Document(render_report(result)).text
    for scores in (result.scores, result.twin, result.optimum):
        assert f"{100 * scores.accuracy:.1f} %" in text and f"{scores.auc:.4f}" in text
        for measure in result.model.measures:
            assert measure.title in text and measure.shown(scores[measure.key]) in text
    assert "no better than the base rate" not in text
    assert SCHEMA.row_norm and "odds ratio per unit of a column is stated" in text
    assert "Odds ratio [" not in text
    unclipped = replace(result, schema=replace(SCHEMA, row_norm=None))
    whole = Document(render_report(unclipped)).text
    coef, _ = coefficients(unclipped.schema, result.weights, "logistic")
    assert "Odds ratio [" in whole
    assert all(words.number(float(np.exp(value))) in whole for value in coef[0])
    assert "shows nothing before its end" in text
    assert f"{result.max_abs_diff_to_twin:.2g}" in text
    for found in (result.plan.digest(), result.transcript_head, result.plan.session, "No privacy"):
        assert found in text
    for fact in kinds.facts(result.plan):
        assert fact[1] in text and fact[2] in text
    assert "hospital-3" in text and "3 in age" in text


@pytest.mark.parametrize(("secure", "noise"), [(False, "none"), (True, "seeded (NOT PRIVATE)")])
def test_banners(secure: bool, noise: str) -> None:
    text = render_report(make_result(secure=secure, noise=noise))
    assert ("INSECURE" in text) != secure
    assert ("NOT PRIVATE" in text) == noise.startswith("seeded")
    title = text.partition("</title>")[0]
    assert ("INSECURE" in title) != secure
    # And one of exact sums.
    assert text.count('class="banner"') == 1 + (not secure) + noise.startswith("seeded")
    assert "EXACT SUMS" in text


def test_privacy_in_words_and_the_certificate() -> None:
    broken = {**CERTIFICATE["conditions"][1], "satisfied": False}
    certificate = {**CERTIFICATE, "conditions": [CERTIFICATE["conditions"][0], broken]}
    text = Document(render_report(make_result(privacy=True, certificate=certificate))).text
    assert "record level, replace-one" in text and "ε (epsilon) 1" in text
    assert "3 <= 3.5" in text and "holds" in text and "FAILS" in text
    assert CERTIFICATE["assumptions"][0] in text
    seeded = make_result(privacy=True, noise="seeded (NOT PRIVATE)")
    assert "can subtract it" in render_report(seeded)


def test_noise_on_gram_sums_is_called_that() -> None:
    """It is drawn once, not on the gradient of every iteration."""
    noise = PrivacyPlan(
        epsilon=1.0, delta=1e-5, colluders=0, sigma=0.2, share_std=0.2 / 2**0.5, sensitivity=4.0
    )
    plan = test_gram_plan.make_plan(privacy=noise, ridge=9.0)
    release: Any = SimpleNamespace(plan=plan, promise=None, certificate=None)
    told = " ".join(fact[-1] for fact in privacy_facts(release))
    assert "mean of x xᵀ and x yᵀ over all rows, once" in told and "gradient" not in told


def test_one_class_has_no_roc_curve() -> None:
    result = make_result()
    ones = np.ones_like(result.test_y)
    scores = score(result.weights, result.test_x, ones)
    text = render_report(make_result(test_y=ones, scores=scores))
    assert "No ROC curve" in text and text.count("<img") == 3
    assert not re.search(r"\bnan\b", Document(text).text)


def test_the_confusion_matrix_counts_every_test_row() -> None:
    result = make_result()
    (kept, alarms), (missed, found) = confusion(result)
    y, called = result.test_y == 1, result.test_x @ result.weights > 0
    assert (found, missed) == ((y & called).sum(), (y & ~called).sum())
    assert (kept, alarms) == ((~y & ~called).sum(), (~y & called).sum())
    html = render_report(result)
    assert f"<td>died is no</td><td>{kept}</td><td>{alarms}</td>" in html
    assert f"<td>died is yes</td><td>{missed}</td><td>{found}</td>" in html
    assert any(f"{found} of {found + missed} positive rows" in x for x in closing_lines(result))


def judged(weights: Array, **changes: Any) -> RunResult:
    """The fake run with other weights, scored."""
    result = make_result(**changes)
    y = changes.get("test_y", result.test_y)
    scores = score(weights, result.test_x, y)
    return replace(result, weights=weights, scores=scores)


@pytest.mark.parametrize(("factor", "privacy"), [(0.0, False), (-1.0, True), (1.0, True)])
def test_the_first_line_says_when_the_base_rate_is_as_good(factor: float, privacy: bool) -> None:
    """Weights 0, reversed, and a good model's."""
    result = judged(factor * make_result().clipped_optimum_weights, privacy=privacy)
    warnings, html = result.summary()["warnings"], render_report(result)
    with redirect_stdout(io.StringIO()) as out:
        show(stderr(), SimulationConfig(data=make_frame(3), label="died"), result, as_json=False)
    first = out.getvalue().splitlines()[0]
    if factor == 1.0:
        assert result.verdict == "" and warnings == list(result.warnings)
        assert "no better than" not in html + out.getvalue()
        return
    loss, base = result.scores.log_loss, result.scores.base_rate_log_loss
    assert loss > base and warnings == [result.verdict, *result.warnings]
    assert f"{loss:.4f}" in result.verdict and f"{base:.4f}" in result.verdict
    assert ("larger epsilon" in result.verdict) == privacy and "more rows" in result.verdict
    assert first == f"warning: {result.verdict}"
    header = html.partition("<header>")[2].partition("</header>")[0]
    assert header.index("no better than the base rate") < header.index("trained a")


def test_a_tie_with_the_base_rate_is_no_better_and_one_class_has_none() -> None:
    result = make_result()
    base = result.scores.base_rate_log_loss
    for loss, silent in ((base, False), (base - 1e-12, False), (base - 1e-6, True)):
        tied = replace(result, scores=Figures(result.scores, log_loss=loss))
        assert (tied.verdict == "") == silent
    assert "is inf," in replace(result, scores=Figures(result.scores, log_loss=np.inf)).verdict
    assert judged(result.weights, test_y=np.ones_like(result.test_y)).verdict == ""


def test_an_effect_is_its_coefficient_times_the_step() -> None:
    """The step of `age` is its spread; that of a category is having it."""
    html = render_report(replace(make_result(), schema=replace(SCHEMA, row_norm=None)))
    for feature, step in {"age": 10.0, "ward=A": 1.0, "ward=B": 1.0, "ward=C": 1.0}.items():
        row = html.partition(f"<td>{feature}<")[2].partition("</tr>")[0].replace("−", "-")
        coefficient, _, effect = map(float, re.findall(r"<td>([^<]*)</td>", row))
        assert effect == pytest.approx(coefficient * step, rel=5e-3)
