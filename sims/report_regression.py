"""The report's sections about a regression: errors by output, how training went, coefficients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocols.models.linear import Linear
from protocols.models.regression_models import regression_model
from sims import plots_regression as plots
from sims.model_fields import LINKS, coefficients
from sims.regression_result import RegressionResult
from sims.regression_twin import predict
from sims.report_html import Html, fragment, picture, section, table, tag
from sims.result import Array
from sims.words import count, duration, number

MOST_PICTURES, MOST_COEFFICIENTS = 6, 20
MODELS = {
    "linear": "linear regression",
    "improved-lffr": "regression with a sigmoid link, fitted on logits (improved LFFR)",
    "lffr": "regression with a sigmoid link, fitted by squared error (LFFR)",
}


def headline(result: RegressionResult) -> str:
    """What happened, in one paragraph."""
    plan, scores = result.plan, result.scores
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a "
        f"{MODELS[plan.model]} for {result.targets.name} on {count(plan.num_rows, 'row')}, of "
        f"which only encrypted {'copies' if plan.kind == 'lffr' else 'sums'} left their "
        "owners; "
        f"{count(plan.rounds, 'iteration')} took "
        f"{duration(sum(result.costs.iteration_seconds))}. On "
        f"{count(len(result.test_y), 'test row')}: {scores.words()}."
    )


def quality(result: RegressionResult) -> Html:
    """Errors by output, of all three models."""
    models = (
        ("jointly decrypted model", "trained on ciphertexts", result.scores),
        ("plaintext twin", "the same iterations and noise, not encrypted", result.twin),
        ("least squares", "linear, all rows in clear, no noise (scikit-learn)", result.optimum),
    )
    rows = [
        (
            fragment(f"{name}: {model}", tag("small", meaning)),
            number(scores.mse[k]),
            f"{100 * scores.relative_mse[k]:.3f} %",
            "–" if np.isnan(scores.r2[k]) else f"{scores.r2[k]:.4f}",
        )
        for k, name in enumerate(result.targets.names)
        for model, meaning, scores in models
    ]
    head = (
        "Target and model",
        "Mean squared error [target’s unit, squared]",
        "relative to the range squared",
        "R² [1 is perfect, 0 the mean]",
    )
    relative = [scores.mean_relative_mse for _, _, scores in models]
    return section(
        "How good is the model",
        table(head, rows, cls="numbers"),
        tag(
            "p",
            "Mean over the targets of the squared error relative to the range squared: "
            f"{number(relative[0])} decrypted, {number(relative[1])} twin, "
            f"{number(relative[2])} least squares. Largest difference of a weight between the "
            f"decrypted model and its twin: {result.max_abs_diff_to_twin:.2g} (scaled units). "
            "This is what encryption cost.",
        ),
    )


def course(result: RegressionResult) -> Html:
    """Error by iteration and by output, predicted against true values."""
    names, last = result.targets.names, result.iterations[-1]
    numbered = "; ".join(f"{k + 1}: {name}" for k, name in enumerate(names))
    pictures = [
        picture(
            plots.error_figure(result.iterations, result.scores, result.optimum),
            f"Error by iteration, ending at {number(last.mean_relative_mse)}",
            "Mean squared error by iteration, relative to the range squared, mean over the "
            "targets. The decrypted model is the one point at the end.",
        ),
        picture(
            plots.outputs_figure(result.scores, result.twin, result.optimum),
            "Error by target of the decrypted model, its twin and least squares",
            f"Error by target ({numbered}).",
        ),
        *_scatters(result),
    ]
    return section(
        "How training went",
        tag(
            "p",
            "The encrypted run shows nothing before its end: no one can see an error or a weight "
            "until all parties decrypt the final model together. The curve is the plaintext "
            "twin's. True values of test rows are shown because this is a simulation.",
        ),
        tag("div", *pictures, cls="columns"),
    )


def _scatters(result: RegressionResult) -> Iterator[Html]:
    predicted = _in_data_units(result)
    true = result.targets.to_data_units(result.test_y)
    for k, name in enumerate(result.targets.names[:MOST_PICTURES]):
        yield picture(
            plots.predicted_figure(true[:, k], predicted[:, k]),
            f"Predicted against true values of {name}; R² {result.scores.r2[k]:.3f}",
            f"{name}: predicted against true, test rows. On the line, both are the same.",
        )


def _in_data_units(result: RegressionResult) -> Array:
    scaled = predict(regression_model(result.plan.model), result.weights, result.test_x)
    return result.targets.to_data_units(scaled)


def model_coefficients(result: RegressionResult) -> Html:
    """The features with the largest effect on any output, in the data's own units."""
    coef, intercept = coefficients(result.schema, result.weights, result.plan.model)
    names, features = result.targets.names, result.schema.feature_names
    effects = np.abs(result.weights[:-1]).max(axis=1)
    order = np.argsort(-effects, kind="stable")[:MOST_COEFFICIENTS]
    rows = [(features[k], *(number(value) for value in coef[:, k])) for k in order]
    rows.append(("Intercept", *(number(value) for value in intercept)))
    linear = result.plan.model == Linear.name
    unit = "target’s unit per unit of the column" if linear else "score per unit of the column"
    shown = (
        f"the {len(order)} with the largest effect of {len(features)}; all are in model.json"
        if len(order) < len(features)
        else "all of them"
    )
    return section(
        "Coefficients",
        tag("p", f"In {unit} ({shown}). {LINKS[result.plan.model].capitalize()}."),
        table(("Feature", *names), rows, cls="numbers"),
    )
