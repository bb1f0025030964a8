"""The report's sentences: figures with their units, and what each of them means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from protocols.approximation import error_bound
from protocols.plan import RunPlan
from sims.result import RunResult

Fact = tuple[str, str, str]  # name, value, meaning

PHASES = {
    "agree": "agree on the plan and on a joint seed",
    "keys": "make the joint keys; no one holds the secret key",
    "encrypt": "each party encrypts its rows, once",
    "train": "the coordinator iterates on ciphertexts",
    "refresh": "parties jointly renew the encrypted weights",
    "decrypt": "parties jointly decrypt the final model",
}
UPDATES = {
    "barrier": "gradient descent with a barrier that keeps the weights within a ball",
    "gd": "plain gradient descent",
    "nag": "Nesterov's accelerated gradient descent",
}


def percent(share: float) -> str:
    """0.8833 as "88.3 %"; a dash where there is no figure."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def size(num_bytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def number(value: float) -> str:
    """Four significant digits, no trailing zeros."""
    return f"{value:.4g}".replace("-", "−")


def count(amount: int, noun: str) -> str:
    """1 row, 2 rows, 3 parties."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{amount:,} {noun if amount == 1 else plural}"


def headline(result: RunResult) -> str:
    """What happened, in one paragraph."""
    plan, label = result.plan, result.schema.label
    return (
        f"{count(len(plan.members), 'party').capitalize()} trained a logistic regression for "
        f"“{label.name} = {label.positive}” on {count(plan.layout.num_rows, 'row')} that left "
        f"their owners encrypted only; {count(plan.rounds, 'iteration')} took "
        f"{duration(sum(result.costs.iteration_seconds))}. On "
        f"{count(len(result.test_y), 'test row')} the jointly decrypted model is right in "
        f"{percent(result.scores.accuracy)} of cases."
    )


def crypto_facts(plan: RunPlan) -> Iterator[Fact]:
    """The encryption, one sentence each."""
    ckks = plan.ckks
    security = (
        "the best known attack takes about 2^128 operations (HomomorphicEncryption.org tables)"
        if ckks.security_bits
        else "INSECURE: no security at all; whoever sees a ciphertext may read it"
    )
    bound = ckks.max_log_qp
    modulus = (
        f"security at this ring allows {bound} bits at most"
        if bound
        else "no secure bound is tabled for a ring this small"
    )
    yield "Security", f"{ckks.security_bits} bits", security
    yield (
        "Ring dimension n",
        f"{ckks.ring_dim:,}",
        f"a ciphertext packs n/2 = {ckks.num_slots:,} numbers; larger is safer and slower",
    )
    yield (
        "Depth",
        f"{ckks.depth} levels",
        "multiplications in a row before an encrypted number has to be refreshed",
    )
    digits = math.floor(ckks.scale_bits * math.log10(2))
    yield (
        "Scale",
        f"2^{ckks.scale_bits}",
        f"numbers are stored as multiples of 2^-{ckks.scale_bits}, some {digits} decimal places",
    )
    yield "log₂ QP", f"{ckks.log_qp} bits", f"size of the largest modulus; {modulus}"


def model_facts(plan: RunPlan) -> Iterator[Fact]:
    """The iteration and its polynomial, one sentence each."""
    link, update = plan.link, plan.update
    kind = str(update["kind"])
    yield (
        "Update",
        f"{kind}, {count(plan.rounds, 'iteration')}",
        f"{UPDATES[kind]}; learning rate {number(update['learning_rate'])}",
    )
    if kind == "barrier":
        yield (
            "Ball radius",
            number(math.sqrt(update["theta"])),
            f"the barrier (weight {number(update['weight'])}) keeps the norm of the scaled "
            "weights below it",
        )
    yield (
        "Polynomial degree",
        str(link.degree),
        "encrypted numbers can only be added and multiplied, so a polynomial replaces the sigmoid",
    )
    yield (
        "Interval",
        f"[{number(link.low)}, {number(link.high)}]",
        "the range of scores (log-odds) on which that polynomial is meant to be used",
    )
    error = error_bound(link, "sigmoid", link.low, link.high)
    yield (
        "Largest error",
        number(error),
        "certified bound on its distance to the sigmoid on the interval, as a probability",
    )
    yield (
        "Features",
        f"{plan.num_features} per row",
        "columns after expanding categories, and a constant one for the intercept",
    )


def privacy_facts(plan: RunPlan) -> Iterator[Fact]:
    """The privacy promise; nothing without one."""
    privacy = plan.privacy
    if privacy is None:
        return
    parties = len(plan.members)
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
        "standard deviation of the noise on the mean gradient, per coordinate and iteration, that "
        "the honest parties alone guarantee",
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
        f"how far one row can move the summed gradient; accounting: {privacy.accounting}",
    )


def privacy_statement(result: RunResult) -> str:
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
