"""The report of a simulation for whoever holds all its rows: one HTML file that needs nothing else.

It is in the private half of the run folder; `release_report` makes the one that is mailed, and
what both show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from ciphercohort.report import plots
from ciphercohort.report.html import noted, render
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import inference_table, opened_words, shared
from ciphercohort.results.result import RunResult, classes_of, label_of, targets_of
from protocols.models.model import Classifier
from protocols.models.registry import model_of
from protocols.words import count, duration

MOST_PICTURES = 6
NO_TEST = (
    "No row was left to test on: every row was trained on. cohort evaluate judges the model on "
    "other rows"
)
Noted = tuple[str, str]


def render_report(result: RunResult) -> str:
    """The whole document. Every text from data, plan or parties is escaped."""
    release = Release.of(result)
    table = result.inference
    return render(
        "report.html",
        **{
            **shared(release),
            "result": result,
            "headline": headline(result),
            "quality": _quality(result),
            "pictures": list(_pictures(result)),
            "inference": inference_table(table.rows(), table.about()) if table else None,
            "parties": [
                (name, f"{amount:,}", clamp_words(dict(result.clamped.get(name, {}))))
                for name, amount in result.rows_by_party.items()
            ],
            "total": duration(result.total_seconds),
            "warnings": result.warnings,
        },
    )


def headline(result: RunResult) -> str:
    """What happened, in one paragraph."""
    plan = result.plan
    rows = count(len(result.test_y), "test row")
    said = f"On {rows}: {result.scores_words}" if result.tested else NO_TEST
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a {result.model.title} for "
        f"{result.outcome} on {count(plan.num_rows, 'row')}, of which only encrypted "
        f"{plan.gathered} left their owners{opened_words(plan)}; "
        f"{count(plan.rounds, 'iteration')} took "
        f"{duration(sum(result.costs.whole_seconds))}. {said}."
    )


def score_table(result: RunResult) -> tuple[list[Noted], list[list[Noted]]]:
    """Head and rows of (text, meaning): of a label by measure, of targets by target and model."""
    shown = [m for m in result.model.measures if not m.overall]
    titles = [(m.title, "") for m in shown]
    if not result.model.numeric:
        names = [(name.removeprefix("jointly "), meaning) for name, meaning, _ in result.models]
        return [("Measure", ""), *names], [
            [(m.title, ""), *((m.shown(scores[m.key]), "") for *_, scores in result.models)]
            for m in shown
        ]
    return [("Target and model", ""), *titles], [
        [(f"{output}: {name}", meaning), *((m.shown(scores[m.key][k]), "") for m in shown)]
        for k, output in enumerate(result.outputs)
        for name, meaning, scores in result.models
    ]


def confusion(result: RunResult) -> NDArray[np.int64]:
    """Test rows by true and by predicted class, in the order of the label's values."""
    model = model_of(Classifier, result.plan.model)
    found: NDArray[np.int64] = confusion_matrix(
        model.code_of(result.test_y),
        model.called(result.own_scores()),
        labels=range(len(class_names(result))),
    )
    return found


def class_names(result: RunResult) -> tuple[str, ...]:
    """Values of the label."""
    several = result.model.several
    return (classes_of(result.schema) if several else label_of(result.schema)).values


def overall_lines(result: RunResult) -> Iterator[str]:
    """Measures of all targets together, in sentences; and why an optimum is not the best."""
    if not result.tested:
        yield f"{NO_TEST}."
        return
    for m in result.model.measures:
        if m.overall:
            each = (f"{m.shown(s[m.key])} {name}" for name, _, s in result.models)
            yield f"{m.title}: {', '.join(each)}."
    if result.scores.get("log_loss", math.inf) < result.optimum.get("log_loss", 0.0) - 5e-5:
        yield (
            f"The {result.models[2][0]} fits the training rows as closely as they allow, with no "
            "penalty, and so may be too sure of others: here the joint model, which stops "
            "earlier, has the smaller log loss on test rows."
        )


def _quality(result: RunResult) -> dict[str, Any]:
    if not result.tested:
        return {"head": (), "rows": (), "overall": list(overall_lines(result)), "confusion": ()}
    head, rows = score_table(result)

    def cells(pairs: list[Noted]) -> list[object]:
        return [noted(text, meaning) if meaning else text for text, meaning in pairs]

    return {
        "head": cells(head),
        "rows": [cells(row) for row in rows],
        "overall": list(overall_lines(result)),
        "confusion": () if result.model.numeric else _confusion(result),
    }


def _confusion(result: RunResult) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the confusion matrix."""
    name, classes = result.schema.label.name, class_names(result)
    rows = [
        [f"{name} is {true}", *(f"{amount:,}" for amount in amounts)]
        for true, amounts in zip(classes, confusion(result).tolist(), strict=True)
    ]
    return ["Test rows", *(f"called {name}" for name in classes)], rows


def _pictures(result: RunResult) -> Iterator[tuple[str | None, str, str]]:
    """(SVG, for those who cannot see it, caption); no SVG: the caption says why."""
    last, numeric = result.iterations[-1], result.model.numeric
    if not numeric:
        yield (
            plots.loss_figure(result),
            f"Loss of the twin by iteration, ending at {last.loss:.4f}",
            "Loss by iteration. Only the twin can draw it: it takes all training rows in clear.",
        )
    if not result.tested:
        yield None, "", f"{NO_TEST}."
        return
    key, _ = result.model.drawn
    measure = next(m for m in result.model.measures if m.key == key)
    yield (
        plots.course_figure(result),
        f"{measure.title} by iteration, ending at {measure.shown(last[key])}",
        f"{measure.title} by iteration. The decrypted model is the one point at the end.",
    )
    if result.model.several:
        return
    if not numeric:
        roc = plots.roc_figure(result)
        yield (
            roc,
            f"ROC curve; area under the decrypted model's {result.scores.auc:.4f}",
            "ROC curve on the test rows: each point is one threshold for calling a row positive. "
            "The closer to the upper left, the better."
            if roc
            else "No ROC curve: the test rows are of one class only.",
        )
        yield (
            plots.calibration_figure(result),
            "Calibration curve: share of positive test rows by predicted probability",
            "Calibration on the test rows: each point is a tenth of them, by predicted "
            "probability. On the line, as many are positive as were predicted.",
        )
        return
    numbered = "; ".join(f"{k + 1}: {name}" for k, name in enumerate(result.outputs))
    yield (
        plots.outputs_figure(result),
        f"Error by target of the decrypted model, its twin and the {result.models[2][0]}",
        f"Error by target ({numbered}).",
    )
    targets = targets_of(result.schema.label)
    decoded = result.model.decode(result.own_scores())
    predicted, true = targets.to_data_units(decoded), targets.to_data_units(result.test_y)
    for k, name in enumerate(result.outputs[:MOST_PICTURES]):
        yield (
            plots.predicted_figure(true[:, k], predicted[:, k]),
            f"Predicted against true values of {name}; R² {result.scores.r2[k]:.3f}",
            f"{name}: predicted against true, test rows. On the line, both are the same.",
        )


def clamp_words(entry: dict[str, Any]) -> str:
    """One party's clamped values, in words."""
    words: list[str] = []
    for key, value in entry.items():
        if isinstance(value, (list, tuple)):
            words += map(str, value)
        elif value:
            words.append(f"{key}: {value}")
    return "; ".join(words) or "none"
