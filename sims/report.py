"""The report of a run: one HTML file that needs nothing else and can be printed or mailed."""

from __future__ import annotations

import math
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from protocols.models.model import Classifier
from protocols.models.registry import model_of
from protocols.plan import PrivacyPlan
from protocols.privacy.gdp import epsilon_for_mu, mu_for_epsilon
from protocols.words import Fact, count, duration, number, size
from sims import plots
from sims.documents import coefficients
from sims.report_html import bar, fragment, noted, render, tag
from sims.result import RunResult, classes_of, label_of, targets_of

if TYPE_CHECKING:
    from sims.judged import Evaluation

MOST_PICTURES, MOST_COEFFICIENTS = 6, 20
LARGEST_LOG = math.log(sys.float_info.max)
Noted = tuple[str, str]
PHASES = {
    "agree": "agree on the plan and on a joint seed",
    "keys": "make the joint keys; no one holds the secret key",
    "encrypt": "each party encrypts its rows, or sums of them, once",
    "train": "the coordinator iterates on ciphertexts",
    "refresh": "parties jointly renew the encrypted weights",
    "decrypt": "parties jointly decrypt the final model",
}
NO_NOISE = (
    "No privacy noise: the rows stayed encrypted, but the released model is as exact as plain "
    "training would make it, and nothing bounds what it says about a single row."
)
SEEDED = (
    "The noise came from a seed, so whoever knows the seed can subtract it: the figures below say "
    "what the same run without a seed would promise."
)
PROMISE = (
    "Differential privacy at record level, replace-one: the released model would be almost as "
    "likely if any one row were exchanged for another. In this simulation one process drew all "
    "noise, so that the twin could repeat it; in a deployment each party draws its own."
)


def render_report(result: RunResult) -> str:
    """The whole document. Every text from data, plan or parties is escaped."""
    plan = result.plan
    marks = {"INSECURE": result.insecure, "NOT PRIVATE": result.seeded}
    title = f"Joint model for {result.schema.label.name}"
    return render(
        "report.html",
        title=" · ".join([*(mark for mark, is_so in marks.items() if is_so), title]),
        body=(),
        result=result,
        headline=headline(result),
        quality=_quality(result),
        pictures=list(_pictures(result)),
        coefficients=_coefficients(result),
        costs=_costs(result),
        held_out=_held_out(result.evaluation) if result.evaluation else None,
        plan_facts=list(plan.facts()),
        privacy={
            "statement": NO_NOISE if not plan.privacy else SEEDED if result.seeded else PROMISE,
            "facts": list(privacy_facts(result)),
            "conditions": list(_conditions(result.certificate or {})),
        },
        parties=[
            (name, f"{amount:,}", clamp_words(dict(result.clamped.get(name, {}))))
            for name, amount in result.rows_by_party.items()
        ],
        digests={
            "Session": plan.session,
            "Plan digest (SHA-256)": plan.digest(),
            "Schema digest (SHA-256)": result.schema.digest(),
            "Transcript head (SHA-256 chain)": result.transcript_head,
        },
        facts_of_run={
            "Noise": result.noise,
            "Written": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
            "Software": _software(),
        },
    )


def headline(result: RunResult) -> str:
    """What happened, in one paragraph."""
    plan = result.plan
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a {result.model.title} for "
        f"{result.outcome} on {count(plan.num_rows, 'row')}, of which only encrypted "
        f"{plan.gathered} left their owners; {count(plan.rounds, 'iteration')} took "
        f"{duration(sum(result.costs.iteration_seconds))}. On "
        f"{count(len(result.test_y), 'test row')}: "
        f"{result.model.words(result.scores, result.outputs)}."
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
        model.called(result.test_scores(result.weights)),
        labels=range(len(class_names(result))),
    )
    return found


def class_names(result: RunResult) -> tuple[str, ...]:
    """Values of the label."""
    several = result.model.several
    return (classes_of(result.schema) if several else label_of(result.schema)).values


def overall_lines(result: RunResult) -> Iterator[str]:
    """Measures of all targets together, in sentences; and why an optimum is not the best."""
    for m in result.model.measures:
        if m.overall:
            each = (f"{m.shown(s[m.key])} {name}" for name, _, s in result.models)
            yield f"{m.title}: {', '.join(each)}."
    if result.scores.get("log_loss", math.inf) < result.optimum.get("log_loss", 0.0):
        yield (
            f"The {result.models[2][0]} fits the training rows as closely as they allow, with no "
            "penalty, and so may be too sure of others: here the joint model, which stops "
            "earlier, has the smaller log loss on test rows."
        )


def _quality(result: RunResult) -> dict[str, Any]:
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
    decoded = result.model.decode(result.test_scores(result.weights))
    predicted, true = targets.to_data_units(decoded), targets.to_data_units(result.test_y)
    for k, name in enumerate(result.outputs[:MOST_PICTURES]):
        yield (
            plots.predicted_figure(true[:, k], predicted[:, k]),
            f"Predicted against true values of {name}; R² {result.scores.r2[k]:.3f}",
            f"{name}: predicted against true, test rows. On the line, both are the same.",
        )


def _coefficients(result: RunResult) -> dict[str, Any]:
    """The features with the largest effect on any output, in the data's own units."""
    coef, intercept = coefficients(result.schema, result.weights, result.plan.model)
    names, many = result.schema.feature_names, bool(result.outputs)
    # Of a step of a column before `row_norm` divides the row, shape (d - 1, outputs).
    effects = result.weights[:-1].reshape(len(names), -1) / (result.schema.row_norm or 1)
    largest = np.abs(effects).max(axis=1)
    order = np.argsort(-largest, kind="stable")[:MOST_COEFFICIENTS]
    few = f"the {len(order)} with the largest effect of {len(names)}; all are in model.json"
    rows: list[tuple[object, ...]] = []
    for k in order:
        cells = [number(value) for value in coef[:, k]]
        if many:
            rows.append((names[k], *cells))
            continue
        effect = float(effects[k, 0])
        drawn = bar(abs(effect) / (float(largest.max()) or 1.0), effect < 0)
        ratio = math.exp(min(coef[0, k], LARGEST_LOG))
        rows.append((fragment(names[k], drawn), *cells, number(ratio), number(effect)))
    rows.append(("Intercept", *map(number, intercept), *([] if many else ["", ""])))
    head = ["Feature", *result.outputs]
    if not many:
        towards = label_of(result.schema).positive
        head = [
            f"Feature, and its effect as a bar (blue: towards {towards}, orange: away)",
            "Coefficient [log-odds per unit of the column]",
            "Odds ratio [per unit of the column]",
            "Effect [log-odds per step]",
        ]
    return {"head": head, "rows": rows, "shown": few if len(order) < len(names) else "all of them"}


def _held_out(found: Evaluation) -> dict[str, Any]:
    """Figures and pictures of the rows that owners held back."""
    promise, pictures = found.opened.plan.privacy, list[tuple[str, str, str]]()
    if "roc" in found.figures:
        roc, curve = plots.held_out_figures(found.figures)
        pictures = [
            (roc, f"ROC curve; area under it {found.figures.auc:.4f}", "ROC curve."),
            (curve, "Share of positives by predicted probability", "Calibration, by deciles."),
        ]
    noise = "no noise was added"
    if promise:
        noise = f"its own epsilon is {number(promise.epsilon)}, part of that of the whole run"
    return {
        "title": f"{found.title}; {noise}",
        "rows": [
            (name, noted(value, errors) if errors else value)
            for name, value, errors in found.measures()
        ],
        "pictures": pictures,
        "notes": found.notes,
    }


def _costs(result: RunResult) -> dict[str, Any]:
    seconds, traffic = result.costs.seconds, result.costs.bytes_per_party
    slowest, heaviest = max(seconds.values()) or 1.0, max(traffic.values()) or 1
    rows: list[tuple[object, ...]] = [
        (
            noted(phase, PHASES.get(phase, "")),
            fragment(duration(seconds[phase]), bar(seconds[phase] / slowest)),
            fragment(size(traffic.get(phase, 0)), bar(traffic.get(phase, 0) / heaviest)),
        )
        for phase in seconds
    ]
    totals: Counter[str] = Counter()
    for by_party in result.costs.traffic.values():
        totals.update(by_party)
    busiest = size(max(totals.values(), default=0))
    everything = ("all phases", duration(sum(seconds.values())), busiest)
    rows.append(tuple(tag("b", text) for text in everything))
    median = float(np.median(result.costs.iteration_seconds))
    return {"rows": rows, "median": duration(median), "total": duration(result.total_seconds)}


def privacy_facts(result: RunResult) -> Iterator[Fact]:
    """The privacy promise; nothing without one."""
    privacy = result.plan.privacy
    if privacy is None:
        return
    yield from _whole_facts(result)
    parties, sums = len(result.plan.members), result.plan.kind == "gram"
    yield (
        "ε (epsilon)",
        number(privacy.epsilon),
        "exchanging one row changes the odds of any conclusion from the model by a factor of "
        f"{number(math.exp(privacy.epsilon))} at most",
    )
    yield from _split_facts(result, privacy)
    yield "δ (delta)", f"{privacy.delta:g}", "except with about this probability"
    yield (
        "Colluders",
        str(privacy.colluders),
        "the promise holds even if the coordinator and this many parties pool all they see",
    )
    noisy = "mean gradient, per coordinate and iteration"
    noisy = "mean of x xᵀ and x yᵀ over all rows, once" if sums else noisy
    yield (
        "σ (sigma)",
        number(privacy.sigma),
        f"standard deviation of the noise on the {noisy}, that the honest parties alone guarantee",
    )
    yield (
        "Noise of one party",
        number(privacy.share_std),
        f"its standard deviation; {parties} parties together add "
        f"{number(privacy.share_std * math.sqrt(parties))}",
    )
    moved = "sums of x xᵀ and x yᵀ" if sums else "summed gradient"
    yield "Sensitivity", number(privacy.sensitivity), f"how far one row can move the {moved}"


def _whole_facts(result: RunResult) -> Iterator[Fact]:
    """Where something followed the training: what comes below is of the training alone."""
    if result.promise is None or not (result.inference or result.evaluation):
        return
    epsilon, delta = result.promise
    yield (
        "ε of the whole run",
        number(epsilon),
        f"training and all that followed, at δ = {delta:g}: this is what the run has cost",
    )
    if result.inference is not None and result.inference.epsilon is not None:
        yield (
            "ε of the standard errors",
            number(result.inference.epsilon),
            "what their secure sums alone would cost; all that follows is of the training alone",
        )


def _split_facts(result: RunResult, privacy: PrivacyPlan) -> Iterator[Fact]:
    """Of whitened rows: what each of the two runs costs; their mu add up in squares."""
    plan: Any = result.plan
    if not plan.whitens:
        return
    share = {"epsilon": privacy.epsilon, "delta": privacy.delta}
    first = plan.whitening.spent(
        plan.split, rows=plan.num_rows, norm_bound=result.schema.norm_bound
    )
    second = math.sqrt(max(mu_for_epsilon(**share) ** 2 - first**2, 0.0))
    parts = [epsilon_for_mu(mu=mu, delta=privacy.delta) for mu in (first, second)]
    yield (
        "ε of the two runs",
        " and ".join(map(number, parts)),
        "what the second moment of the columns would cost alone, and what training would; together "
        "they cost ε, less than their sum",
    )


def _conditions(certificate: dict[str, Any]) -> Iterator[tuple[object, object]]:
    for each in certificate.get("conditions", ()):
        sides = f"{each['left']:.5g} {each['relation']} {each['right']:.5g}"
        verdict = ("holds", "yes") if each["satisfied"] else ("FAILS", "no")
        inequality = tag("span", sides, cls="nowrap")
        yield noted(each["name"], each["meaning"]), noted(inequality, *verdict)


def clamp_words(entry: dict[str, Any]) -> str:
    """One party's clamped values, in words."""
    words: list[str] = []
    for key, value in entry.items():
        if isinstance(value, (list, tuple)):
            words += map(str, value)
        elif value:
            words.append(f"{key}: {value}")
    return "; ".join(words) or "none"


def _software() -> str:
    parts = [f"Python {platform.python_version()}"]
    for name in ("ciphercohort", "openfhe", "flwr"):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(parts)
