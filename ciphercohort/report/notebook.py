"""How results show themselves in a notebook: a sentence or two, and a table. No row is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from ciphercohort.after.evaluation_words import more
from ciphercohort.after.inference import Inference
from ciphercohort.after.inference_table import caption, cell_table, ratio_of
from ciphercohort.after.judged import Evaluation
from ciphercohort.report.html import Html, fragment, tag
from ciphercohort.report.report import headline, overall_lines, score_table
from ciphercohort.results.exact_sums import TOY, marks
from ciphercohort.results.plan_figures import coalitions_of, composed_of, run_words
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import RunResult
from protocols.plan.run_plan import RunPlan
from protocols.words import HOLDS, count, duration, number, size, towards_one

if TYPE_CHECKING:
    from ciphercohort.deploy.deployed import DeployedRun
    from ciphercohort.planning.forecast import Forecast


def html_of(shown: Any) -> str:
    """The page of what shows itself (`ciphercohort.results.shown`), by its kind."""
    return PAGES[type(shown).__name__](shown)


def result_html(result: RunResult) -> str:
    """What was trained and promised, scores, intervals, what was judged, and whatever is noted."""
    own = marks(insecure=result.insecure, seeded=result.seeded, exact=result.exact_sums)
    top, rows = score_table(result)
    told = [
        *marked(own),
        tag("p", headline(result)),
        *(tag("p", tag("b", words)) for words in result.unmet),
        tag("p", promise(result.plan, result.certificate)),
        *(tag("p", words) for words in (result.promise.lines() if result.promise else ())),
    ]
    if result.tested:
        told += [_table([text for text, _ in top], ([text for text, _ in row] for row in rows))]
    told += [tag("p", words) for words in (*overall_lines(result), *result.notes)]
    if result.inference:
        told += inference_tags(result.inference.rows(), result.inference.about(), own)
    if result.evaluation:
        told += _judged(result.evaluation)
    return str(fragment(*told))


def deployed_html(run: DeployedRun) -> str:
    """What was trained and promised, and the table of coefficients; or these, in data units."""
    own = marks(insecure=run.insecure, exact=run.plan.opens_exact_sums)
    if run.inference:
        shown = inference_tags(run.inference["rows"], run.inference["about"], own)
    else:
        shown = [_coefficients(run.model)]
    told = marked(own)
    told += [tag("p", f"{run_words(run.plan)}."), tag("p", promise(run.plan)), *shown]
    return str(fragment(*told))


def inference_html(found: Inference) -> str:
    """A table of coefficients."""
    return str(fragment(*inference_tags(found.rows(), found.about())))


def marked(found: Mapping[str, str], above: Mapping[str, str] | None = None) -> list[Html]:
    """Sentences of marks, see `exact_sums.marks`, but for those that stand above."""
    return [tag("p", tag("b", words)) for mark, words in found.items() if mark not in (above or {})]


def inference_tags(
    rows: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
    above: Mapping[str, str] | None = None,
) -> list[Html]:
    """What a table is of, its cells, and its notes; above: marks that are told there."""
    own = marks(insecure=TOY in about, exact=about["exact_sums"])
    told = [
        *marked(own, above),
        tag("p", f"{caption(about)}."),
        _table(*cell_table(rows, about, ratio_of(about["model"]))),
    ]
    return [*told, *(tag("p", note) for note in about["notes"])]


def _coefficients(model: ReleasedModel) -> Html:
    coefficients, constant = model.coefficients, model.intercept
    if isinstance(coefficients, pd.Series):
        coefficients, constant = coefficients.to_frame(), pd.Series([constant], ["coefficient"])
    columns = ["", *map(str, coefficients.columns)]
    rows = [
        [str(name), *(number(float(each)) for each in row)]
        for name, row in [*coefficients.iterrows(), ("intercept", constant)]
    ]
    return _table(columns, rows)


def model_html(model: ReleasedModel) -> str:
    """What is predicted, and its coefficients in the data's own units."""
    told = [*marked(marks(insecure=model.insecure)), tag("p", f"{model!r}")]
    return str(fragment(*told, _coefficients(model)))


def evaluation_html(found: Evaluation) -> str:
    """How good a model is, on whose rows, and at which promise."""
    told = marked(marks(insecure=found.model.insecure, exact=found.exact_sums))
    told += [tag("p", note) for note in found.notes]
    return str(fragment(*told, *_judged(found)))


def _judged(found: Evaluation) -> list[Html]:
    words = (tag("p", each) for each in more(found))
    return [tag("p", f"{found.title}."), _table((), found.measures()), *words]


def promise(plan: RunPlan, certificate: Mapping[str, Any] | None = None) -> str:
    """Epsilon and delta, and against how many owners; of all rounds composed by certificate."""
    privacy = plan.privacy
    if privacy is None:
        return "No privacy noise: nothing bounds what the model says about a single row."
    composed = composed_of(certificate, privacy.colluders)
    rounds = "" if composed is None else f" All rounds composed: ε = {number(composed)}; {HOLDS}."
    whom = f" together with {count(privacy.colluders, 'other owner')}" * (privacy.colluders > 0)
    one = towards_one(coalitions_of(certificate))
    return (
        f"Differentially private: ε = {number(privacy.epsilon)}, δ = {privacy.delta:g}, against "
        f"the coordinator{whom}.{f' {one.capitalize()}.' * bool(one)}{rounds}"
    )


def forecast_html(found: Forecast) -> str:
    """What a run would promise and cost; beside the other protocols where they are compared."""
    plan, epsilon = found.plan, found.epsilon_by_coalition
    lasts = duration(found.seconds.total) if found.seconds else "not rehearsed"
    traffic = size(sum(found.bytes_per_party.values())) if found.predicted else "not rehearsed"
    seen = ", ".join(f"{k}: {number(value)}" for k, value in enumerate(epsilon))
    facts = [
        ("Protocol", plan.protocol),
        ("Owners", str(len(plan.members))),
        ("Rows", f"{plan.num_rows:,}"),
        ("Iterations", str(plan.rounds)),
        ("ε by number of colluding owners", seen or "none: no privacy noise"),
        ("Seconds, one process", lasts),
        ("Traffic per owner", traffic),
    ]
    reason = found.comparison.reason if found.comparison else ""
    return str(fragment(_table((), facts), *(tag("p", reason) for _ in range(bool(reason)))))


PAGES: Mapping[str, Callable[[Any], str]] = {
    "RunResult": result_html,
    "DeployedRun": deployed_html,
    "Evaluation": evaluation_html,
    "ReleasedModel": model_html,
    "Inference": inference_html,
    "Forecast": forecast_html,
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Html:
    top = [tag("th", name, scope="col") for name in head]
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", *(tag("thead", tag("tr", *top)) for _ in range(bool(top))), *body)
