"""The report's sections about the model: how good it is, how training went, its coefficients."""

from __future__ import annotations

import numpy as np

from sims import plots
from sims.report_html import Html, bar, fragment, picture, section, table, tag
from sims.result import RunResult
from sims.words import number, percent

MOST_COEFFICIENTS = 20
CLIPPED = (
    "Rows longer than the schema’s row norm are shortened to it, in training as in cohort predict; "
    "their predicted label stays, but the probability is less extreme than these coefficients "
    "alone would give."
)


def quality(result: RunResult) -> Html:
    """The headline table."""
    models = (
        ("Jointly decrypted model", "trained on ciphertexts", result.scores),
        (
            "Plaintext twin",
            "the same iterations, polynomial and noise, without encryption; only a simulation "
            "can compute it",
            result.twin,
        ),
        ("Non-private optimum", "best fit to all rows, no noise, in clear", result.optimum),
    )
    rows = [
        (
            fragment(name, tag("small", meaning)),
            percent(scores.accuracy),
            "–" if np.isnan(scores.auc) else f"{scores.auc:.4f}",
        )
        for name, meaning, scores in models
    ]
    head = ("Model", "Accuracy [% of test rows]", "Area under ROC curve [0 to 1]")
    difference = (
        "Largest difference of a weight between the decrypted model and its twin: "
        f"{result.max_abs_diff_to_twin:.2g} (scaled units). This is what encryption cost."
    )
    return section(
        "How good is the model",
        table(head, rows, cls="numbers headline"),
        tag("p", difference),
    )


def course(result: RunResult) -> Html:
    """Loss, accuracy and ROC curve."""
    last = result.iterations[-1]
    pictures = [
        picture(
            plots.loss_figure(result.iterations),
            f"Loss of the twin by iteration, ending at {last.loss:.4f}",
            "Loss by iteration. Only the twin can draw it: it takes all training rows in clear.",
        ),
        picture(
            plots.accuracy_figure(result.iterations, result.scores, result.optimum),
            f"Accuracy by iteration, ending at {percent(last.accuracy)}",
            "Accuracy by iteration. The decrypted model is the one point at the end.",
        ),
    ]
    models = {
        "decrypted": result.weights,
        "twin": result.twin_weights,
        "optimum": result.optimum_weights,
    }
    logits = {name: result.test_x @ weights for name, weights in models.items()}
    roc = plots.roc_figure(logits, result.test_y)
    if roc:
        pictures.append(
            picture(
                roc,
                f"ROC curve; area under the decrypted model's {result.scores.auc:.4f}",
                "ROC curve on the test rows: each point is one threshold for calling a row "
                "positive. The closer to the upper left, the better.",
            )
        )
    return section(
        "How training went",
        tag(
            "p",
            "The encrypted run shows nothing before its end: no one can see a loss, an accuracy "
            "or a weight until all parties decrypt the final model together. The curves are the "
            "plaintext twin's.",
        ),
        tag("div", *pictures, cls="columns"),
        *([] if roc else [tag("p", "No ROC curve: the test rows are of one class only.")]),
    )


def coefficients(result: RunResult) -> Html:
    """The largest coefficients in the data's own units."""
    coef, intercept = result.schema.model_in_data_units(result.weights)
    _, scale = result.schema.affine()
    effects = coef * scale  # log-odds for one step of the scaled column
    order = np.argsort(-np.abs(effects), kind="stable")[:MOST_COEFFICIENTS]
    largest = float(np.abs(effects).max()) or 1.0
    rows = [
        (
            fragment(
                result.schema.feature_names[k],
                bar(abs(effects[k]) / largest, negative=bool(effects[k] < 0)),
            ),
            number(coef[k]),
            number(effects[k]),
        )
        for k in order
    ]
    label = result.label
    step = "one spread" if result.schema.scaling == "standard" else "half of its range"
    shown = (
        f"the {len(rows)} with the largest effect of {len(coef)}; all are in model.json"
        if len(rows) < len(coef)
        else "all of them"
    )
    head = (
        f"Feature, and its effect as a bar (blue: towards {label.positive}, orange: away)",
        "Coefficient [log-odds per unit of the column]",
        "Effect [log-odds per step]",
    )
    return section(
        "Coefficients",
        tag(
            "p",
            f"Log-odds of “{label.name} = {label.positive}” in the data’s own units ({shown}). "
            f"A step is {step} of a numeric column as declared in the schema, or having the "
            f"category. Intercept: {number(intercept)}.",
        ),
        table(head, rows, cls="numbers bars"),
        *([] if result.schema.row_norm is None else [tag("p", CLIPPED, cls="soft")]),
    )
