"""How results show themselves in a notebook: a sentence or two, and a table. No row is in it."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.words import count, duration, number, size
from sims.planning import Forecast
from sims.report import headline, score_table
from sims.report_html import Html, fragment, tag
from sims.result import RunResult


def result_html(result: RunResult) -> str:
    """What was trained and promised, and the scores of the four models that a run compares."""
    marks = {"INSECURE: toy ring": result.insecure, "NOT PRIVATE: seeded noise": result.seeded}
    head, rows = score_table(result)
    told = [
        *(tag("p", tag("b", mark)) for mark, is_so in marks.items() if is_so),
        tag("p", headline(result)),
        tag("p", promise(result)),
        _table([text for text, _ in head], ([text for text, _ in row] for row in rows)),
    ]
    return str(fragment(*told, *(tag("p", result.verdict) for _ in range(bool(result.verdict)))))


def promise(result: RunResult) -> str:
    """Epsilon and delta, and against how many owners."""
    privacy = result.plan.privacy
    if privacy is None:
        return "No privacy noise: nothing bounds what the model says about a single row."
    return (
        f"Differentially private: ε = {number(privacy.epsilon)}, δ = {privacy.delta:g}, against "
        f"the coordinator together with {count(privacy.colluders, 'party')}."
    )


def forecast_html(found: Forecast) -> str:
    """What a run would promise and cost; beside the other protocols where they are compared."""
    plan, epsilon = found.plan, found.epsilon_by_coalition
    seen = ", ".join(f"{k}: {number(value)}" for k, value in enumerate(epsilon))
    facts = [
        ("Protocol", plan.protocol),
        ("Owners", str(len(plan.members))),
        ("Rows", f"{plan.num_rows:,}"),
        ("Iterations", str(plan.rounds)),
        ("ε by number of colluding owners", seen or "none: no privacy noise"),
        ("Seconds, one process", duration(found.seconds.total) if found.seconds else "not timed"),
        ("Traffic per owner", size(sum(found.bytes_per_party.values()))),
    ]
    reason = found.comparison.reason if found.comparison else ""
    return str(fragment(_table((), facts), *(tag("p", reason) for _ in range(bool(reason)))))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Html:
    top = [tag("th", name, scope="col") for name in head]
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", *(tag("thead", tag("tr", *top)) for _ in range(bool(top))), *body)
