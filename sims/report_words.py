"""The report's sentences: figures with their units, and what each of them means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from protocols.gram_plan import GramPlan
from protocols.plan import RunPlan
from sims.report_facts import Fact
from sims.result import AnyRun, RunResult
from sims.words import count, duration, number, percent

PHASES = {
    "agree": "agree on the plan and on a joint seed",
    "keys": "make the joint keys; no one holds the secret key",
    "encrypt": "each party encrypts its rows, or sums of them, once",
    "train": "the coordinator iterates on ciphertexts",
    "refresh": "parties jointly renew the encrypted weights",
    "decrypt": "parties jointly decrypt the final model",
}


def headline(result: RunResult) -> str:
    """What happened, in one paragraph."""
    plan, label = result.plan, result.label
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a logistic regression for "
        f"“{label.name} = {label.positive}” on {count(plan.num_rows, 'row')} that left "
        f"their owners encrypted only; {count(plan.rounds, 'iteration')} took "
        f"{duration(sum(result.costs.iteration_seconds))}. On "
        f"{count(len(result.test_y), 'test row')} the jointly decrypted model is right in "
        f"{percent(result.scores.accuracy)} of cases."
    )


def privacy_facts(plan: RunPlan) -> Iterator[Fact]:
    """The privacy promise; nothing without one."""
    privacy = plan.privacy
    if privacy is None:
        return
    parties, noisy, summed = len(plan.members), *_noisy(plan)
    yield (
        "ε (epsilon)",
        number(privacy.epsilon),
        "exchanging one row changes the odds of any conclusion from the model by a factor of "
        f"{number(math.exp(privacy.epsilon))} at most",
    )
    yield "δ (delta)", f"{privacy.delta:g}", "except with about this probability"
    yield (
        "Colluders",
        str(privacy.colluders),
        "the promise holds even if the coordinator and this many parties pool all they see",
    )
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
    yield (
        "Sensitivity",
        number(privacy.sensitivity),
        f"how far one row can move the {summed}",
    )


def _noisy(plan: RunPlan) -> tuple[str, str]:
    """What the noise is on, and what one row moves."""
    if isinstance(plan, GramPlan):
        return "mean of x xᵀ and x yᵀ over all rows, once", "sums of x xᵀ and x yᵀ"
    return "mean gradient, per coordinate and iteration", "summed gradient"


def privacy_statement(result: AnyRun) -> str:
    """The promise, or plainly that there is none."""
    privacy = result.plan.privacy
    if privacy is None:
        return (
            "No privacy noise: the rows stayed encrypted, but the released model is as exact as "
            "plain training would make it, and nothing bounds what it says about a single row."
        )
    if "NOT PRIVATE" in result.noise:
        return (
            "The noise came from a seed, so whoever knows the seed can subtract it: the figures "
            "below say what the same run without a seed would promise."
        )
    return (
        "Differential privacy at record level, replace-one: the released model would be almost as "
        "likely if any one row were exchanged for another. In this simulation one process drew all "
        "noise, so that the twin could repeat it; in a deployment each party draws its own."
    )


def clamp_words(entry: dict[str, Any]) -> str:
    """One party's clamped values, in words."""
    words = []
    for key, value in entry.items():
        if isinstance(value, (list, tuple)):
            words += [str(item) for item in value]
        elif value:
            words.append(f"{key}: {value}")
    return "; ".join(words) or "none"
