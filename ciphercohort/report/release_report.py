"""The report of a run that can be mailed: one HTML file, made of what the coordinator has.

Security: `render_release` is given a `Release` and nothing else, and a run folder's is made of the
files in its `release/` half alone. So no figure of rows can be in it that is not in those files.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from ciphercohort.after.inference_table import caption, cell_table, ratio_of
from ciphercohort.after.judged import measures, shown
from ciphercohort.after.judged import title as evaluation_title
from ciphercohort.job.inputs import CONDITION
from ciphercohort.report import plots
from ciphercohort.report.html import bar, fragment, noted, render, tag
from ciphercohort.report.release import Release
from ciphercohort.results.coefficients import beyond, ratio_at
from ciphercohort.results.documents import coefficients
from ciphercohort.results.exact_sums import exact_words, marks
from ciphercohort.results.plan_figures import coalitions_of, composed_of
from ciphercohort.results.result import Figures
from coordinator.costs import Costs
from protocols.plan import kinds
from protocols.plan.run_plan import PrivacyPlan, RunPlan
from protocols.privacy.loss import epsilon_for_mu, mu_for_epsilon
from protocols.words import HOLDS, Fact, count, duration, number, size

MOST_COEFFICIENTS = 20
PHASES = {
    "agree": "agree on the plan and on a joint seed",
    "keys": "make the joint keys; no one holds the secret key",
    "encrypt": "each party encrypts its rows, or sums of them, once",
    "train": "the coordinator iterates on ciphertexts",
    "refresh": "parties jointly renew the encrypted weights",
    "decrypt": "parties jointly decrypt the final model",
}
NO_NOISE = (
    "No privacy noise: what was released is as exact as plain training would make it, and nothing "
    "bounds what it says about a single row."
)
SEEDED = (
    "The noise came from a seed, so whoever knows the seed can subtract it: the figures below say "
    "what the same run without a seed would promise."
)
PROMISE = (
    "Differential privacy at record level, replace-one: the released model would be almost as "
    "likely if any one row were exchanged for another. In a simulation one process draws all "
    "noise, so that the twin can repeat it; in a deployment each party draws its own."
)


def render_release(release: Release) -> str:
    """The whole document. Every text from data, plan or parties is escaped."""
    return render("release.html", **shared(release))


def shared(release: Release) -> dict[str, Any]:
    """What the template of every report of a run takes."""
    plan, table = release.plan, release.inference
    costs = cost_table(release.costs) if release.costs else None
    own = marks(insecure=release.insecure, seeded=release.seeded, exact=release.exact_sums)
    title = f"Joint model for {release.schema.label.name}"
    return {
        "title": " · ".join([*own, title]),
        "body": (),
        "release": release,
        "numeric": release.model.numeric,
        "exact_sums": exact_words(release.exact_sums),
        "unmet": release.unmet,
        "headline": release_headline(release),
        "coefficients": coefficient_table(release),
        "costs": costs,
        "total": costs["total"] if costs else "",
        "held_out": held_out_table(release.evaluation) if release.evaluation else None,
        "inference": inference_table(table["rows"], table["about"]) if table else None,
        "plan_facts": list(kinds.facts(plan)),
        "privacy": privacy(release),
        "parties": [(member.name, f"{member.rows:,}") for member in plan.members],
        "warnings": release.notes,
        "digests": {
            "Session": plan.session,
            "Plan digest (SHA-256)": plan.digest(),
            "Schema digest (SHA-256)": release.schema.digest(),
            "Transcript head (SHA-256 chain)": release.transcript_head,
        },
        "facts_of_run": {"Noise": release.noise, "Software": software()},
    }


def release_headline(release: Release) -> str:
    """What happened, in one paragraph; no score."""
    plan, costs = release.plan, release.costs
    took = f" took {duration(sum(costs.whole_seconds))}" if costs else ""
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a {release.model.title} for "
        f"{release.outcome} on {count(plan.num_rows, 'row')}, of which only encrypted "
        f"{plan.gathered} left their owners{opened_words(plan)}; "
        f"{count(plan.rounds, 'iteration')}{took}."
    )


def opened_words(plan: RunPlan) -> str:
    """That sums over rows were no secret in the end; empty where they were, or have noise."""
    opened = plan.opens_exact_sums and plan.opens_rounds
    return " and were opened, as exact sums over all of them" if opened else ""


def inference_table(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """Caption, head and rows, and notes, of standard errors."""
    head, cells = cell_table(rows, about, ratio_of(about["model"]))
    return {"caption": caption(about), "head": head, "rows": cells, "notes": about["notes"]}


def privacy(release: Release) -> dict[str, Any]:
    """The promise in words and figures, and the conditions that it stands on."""
    seeded = SEEDED if release.seeded else PROMISE
    return {
        "statement": seeded if release.plan.privacy else NO_NOISE,
        "facts": list(privacy_facts(release)),
        "conditions": list(_conditions(release.certificate or {})),
    }


def coefficient_table(release: Release) -> dict[str, Any]:
    """The features with the largest effect on any output, in the data's own units."""
    coef, intercept = coefficients(release.encoding, release.weights, release.plan.model)
    names, many = release.schema.expanded_names, bool(release.outputs)
    # Of a step of a column before `row_norm` divides the row, shape (features, outputs).
    own, projection = release.weights[:-1], release.encoding.projection
    own = own if projection is None else projection.undone(own.T)[0].T
    effects = own.reshape(len(names), -1) / (release.encoding.row_norm or 1)
    # Of a label: of rows that are shortened, or of a corrected score, nothing is per unit.
    per_unit = many or (release.encoding.row_norm is None and release.scaling is None)
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
        ratio = ratio_at(coef[0, k])
        of_units = (*cells, beyond(ratio) or number(ratio)) if per_unit else ()
        rows.append((fragment(names[k], drawn), *of_units, number(effect)))
    blank = [] if many else ["", ""]
    rows += [("Intercept", *map(number, intercept), *blank)] if per_unit else []
    head = ["Feature", *release.outputs]
    if not many:
        towards = getattr(release.schema.label, "positive", "")
        head = [
            f"Feature, and its effect as a bar (blue: towards {towards}, orange: away)",
            *(
                [
                    "Coefficient [log-odds per unit of the column]",
                    "Odds ratio [per unit of the column]",
                ]
                if per_unit
                else []
            ),
            "Effect [log-odds per step]",
        ]
    shown = few if len(order) < len(names) else "all of them"
    return {"head": head, "rows": rows, "shown": shown, "per_unit": per_unit}


def held_out_table(found: Mapping[str, Any]) -> dict[str, Any]:
    """Figures and pictures of the rows that owners held back; found: as of evaluation.json."""
    promise, pictures = found["privacy"], list[tuple[str, str, str]]()
    if "roc" in found:
        roc, curve = plots.held_out_figures(Figures(found))
        pictures = [
            (roc, f"ROC curve; area under it {shown(found['auc'])}", "ROC curve."),
            (curve, "Share of positives by predicted probability", "Calibration, by deciles."),
        ]
    noise = "no noise was added"
    if promise:
        noise = f"its own epsilon is {number(promise['epsilon'])}, part of that of the whole run"
    told = evaluation_title(int(found["rows"]), found["parties"], found["rows_of"])
    return {
        "title": f"{told}; {noise}",
        "rows": [
            (name, noted(value, errors) if errors else value)
            for name, value, errors in measures(found, private=promise is not None)
        ],
        "pictures": pictures,
        "notes": found["warnings"],
    }


def cost_table(costs: Costs) -> dict[str, Any]:
    """Rows by phase, and the median seconds of an iteration."""
    seconds, traffic = costs.seconds, costs.bytes_per_party
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
    for by_party in costs.traffic.values():
        totals.update(by_party)
    busiest = size(max(totals.values(), default=0))
    everything = ("all phases", duration(sum(seconds.values())), busiest)
    rows.append(tuple(tag("b", text) for text in everything))
    median = float(np.median(costs.whole_seconds)) if costs.whole_seconds else 0.0
    total = duration(sum(seconds.values()))
    return {"rows": rows, "median": duration(median), "total": total}


def privacy_facts(release: Release) -> Iterator[Fact]:
    """The privacy promise; nothing without one."""
    privacy = release.plan.privacy
    if privacy is None:
        return
    if release.promise is not None:
        yield from release.promise.facts()
    parties, sums = len(release.plan.members), release.plan.kind == "gram"
    yield (
        "ε (epsilon)",
        number(privacy.epsilon),
        "exchanging one row changes the odds of any conclusion from the model by a factor of "
        f"{number(math.exp(privacy.epsilon))} at most",
    )
    composed = composed_of(release.certificate, privacy.colluders)
    if composed is not None:
        yield "ε of all rounds composed", number(composed), HOLDS
    by_coalition = coalitions_of(release.certificate)
    if len(by_coalition) > 1:
        yield (
            "ε towards one other owner",
            number(by_coalition[1]),
            "the same promise against one that subtracts its own noise",
        )
    yield from _split_facts(release, privacy)
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


def _split_facts(release: Release, privacy: PrivacyPlan) -> Iterator[Fact]:
    """Of whitened rows: what each of the two runs costs; their mu add up in squares."""
    plan: Any = release.plan
    if not plan.whitens:
        return
    share = {"epsilon": privacy.epsilon, "delta": privacy.delta}
    first = plan.whitening.spent(
        plan.split, rows=plan.num_rows, norm_bound=release.schema.norm_bound
    )
    second = math.sqrt(max(mu_for_epsilon(**share) ** 2 - first**2, 0.0))
    parts = [epsilon_for_mu(mu=mu, delta=privacy.delta) for mu in (first, second)]
    yield (
        "ε of the two runs",
        " and ".join(map(number, parts)),
        "what the second moment of the columns would cost alone, and what training would; together "
        "they cost ε, less than their sum",
    )


def _conditions(certificate: Mapping[str, Any]) -> Iterator[tuple[object, object]]:
    for told in certificate.get("unmet", ()):
        inequality = tag("span", "schema: inferred", cls="nowrap")
        yield noted(CONDITION, told), noted(inequality, "FAILS", "no")
    for each in certificate.get("conditions", ()):
        sides = f"{each['left']:.5g} {each['relation']} {each['right']:.5g}"
        verdict = ("holds", "yes") if each["satisfied"] else ("FAILS", "no")
        inequality = tag("span", sides, cls="nowrap")
        yield noted(each["name"], each["meaning"]), noted(inequality, *verdict)


def software() -> str:
    """Versions of what a run is built on."""
    parts = [f"Python {platform.python_version()}"]
    for name in ("ciphercohort", "openfhe", "flwr"):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(parts)
