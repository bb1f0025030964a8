"""Epsilon three times: what a certificate claims, what another accountant finds, what attacks show.

Question: does any setting that the product accepts claim less epsilon than it spends?

    python -m sims.lab.studies.epsilon [--runs 1000000] [--json]

A row of the table is one rule and schedule, with P = 3 owners of unequal size of whom
t = 1 colludes: the certificate's epsilon at its mechanism's delta; dp-accounting's, composed from
the plan's own words (`audits.second_accountant`), or from the measured moves of the worst pair if
these cost more; and a lower bound at 99.9 % from an attack on the worst pair (`lab.audits.sums`;
`lab.audits.privacy` for encrypted rows; `lab.audits.regression`). Claimed >= accounted >= attacked
must hold, the first to within 1e-6 of itself: distributions are discretised pessimistically. Exit
code 1 if it does not.

Clips are small, so that the worst pair moves every sum by its whole sensitivity.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, cast

import numpy as np
import typer

from ciphercohort.cli.console import FAILED, refusals, stdout
from ciphercohort.job.config import SimulationConfig
from protocols.errors import PrivacyError
from protocols.gram.plan import GramPlan
from protocols.lffr.plan import LffrPlan
from protocols.models.registry import REGRESSIONS, model_named
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import choose_rows
from protocols.privacy.calibrate.whitened import RULES as WHITENED
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.mechanism import KINDS as CERTIFIED
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.plan import GradientPlan
from protocols.updates.registry import UPDATES
from sims.lab.audits import regression as audit_regression
from sims.lab.audits import sums as audit_sums
from sims.lab.audits.privacy import audit_privacy
from sims.lab.audits.second_accountant import (
    TOLERANCE,
    circuit_epsilon,
    flooded,
    gaussian_epsilon,
    regression_epsilon,
    sums_epsilon,
    whitened_epsilon,
)
from sims.lab.audits.whitened import both_runs

PRIVATE_REGRESSIONS = tuple(name for name in REGRESSIONS if model_named(name).certified)
"""Regressions with a bound on what a row moves."""
ROWS = (1200, 900, 1500)
FEATURES, COLLUDERS, EPSILON, DELTA = 6, 1, 1.0, 1e-5
FIGURES = PublicFigures(rows_by_party=ROWS, num_features=FEATURES)
CONFIDENCE = 0.999


@dataclass(frozen=True, kw_only=True)
class Case:
    """One setting, and the options that differ.

    protocol: "secure-aggregation", "encrypted-rows", or "regression", whose update is the model.
    """

    protocol: str
    update: str
    schedule: str = "all rows"
    weights: str = "rows"

    @property
    def name(self) -> str:
        """For a table."""
        extra = ", equal weights" if self.weights == "equal" else ""
        return f"{self.protocol} {self.update} {self.schedule}{extra}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """Three times epsilon at `delta`."""

    case: Case
    claimed: float
    accounted: float
    attacked: float
    delta: float

    @property
    def holds(self) -> bool:
        """claimed >= accounted >= attacked."""
        return self.claimed * (1 + TOLERANCE) >= self.accounted >= self.attacked


def cases() -> Iterator[Case]:
    """Everything that is accepted with a promise of privacy."""
    for model in PRIVATE_REGRESSIONS:
        yield Case(protocol="regression", update=model)
    for update in UPDATES[ENCRYPTED_ROWS]:
        if update in WHITENED or f"rows/{update}" in CERTIFIED:
            yield Case(protocol=ENCRYPTED_ROWS, update=update)
    for update in UPDATES[SECURE_AGGREGATION]:
        for schedule in ("cyclic", "poisson") if update == "scd" else ("all rows",):
            yield Case(protocol=SECURE_AGGREGATION, update=update, schedule=schedule)
    yield Case(protocol=SECURE_AGGREGATION, update="gd", weights="equal")


def calibrated(**options: Any) -> Calibration:
    """What the product makes of these options for such owners, from public figures alone."""
    config = SimulationConfig(
        parties=len(ROWS), colluders=COLLUDERS, **{"epsilon": EPSILON, "delta": DELTA, **options}
    )
    return calibrate(FIGURES, config.wanted())


def plan_of(case: Case, *, epsilon: float = EPSILON, batches: int = 4) -> GradientPlan:
    """The plan of sums that the product makes for a case; batches: of scd."""
    dual = case.update == "scd"
    options: dict[str, Any] = {"batches": batches, "loss": "ridge"} if dual else {}
    if case.schedule != "all rows":
        options["schedule"] = case.schedule
    found = calibrated(
        protocol=SECURE_AGGREGATION,
        update=case.update,
        weights=case.weights,
        epsilon=epsilon,
        clip=0.01,
        rounds=10 if dual else 4,
        **options,
    )
    return cast(GradientPlan, found.plan("epsilon", owners()))


def certificate_of(plan: GradientPlan) -> Certificate:
    """Of sums, whose rows are clipped to the plan's own bound: that of the schema does not matter.

    Raises:
        PrivacyError: a condition fails.
    """
    return Mechanism.from_plan(plan, math.inf).certificate.require()


def owners() -> tuple[Member, ...]:
    """P of them, of unequal size."""
    return tuple(
        Member(name=f"p{k}", rows=n, verify_key="00" * 32, commitment="00" * 32)
        for k, n in enumerate(ROWS)
    )


def examine(case: Case, *, runs: int, rng: np.random.Generator) -> Found:
    """All three figures of a case."""
    if case.protocol == "regression":
        return examine_regression(case, regression(case.update), runs=runs, rng=rng)
    if case.protocol == ENCRYPTED_ROWS and case.update in WHITENED:
        return examine_whitened(case, runs=runs, rng=rng)
    if case.protocol == ENCRYPTED_ROWS:
        return _examine_rows(case, runs=runs, rng=rng)
    return examine_sums(case, plan_of(case), runs=runs, rng=rng)


def check_asked(case: Case, plan: GradientPlan) -> None:
    """Refuse a plan that says something else than was asked for.

    Raises:
        PrivacyError: an option was dropped on the way.
    """
    stated = {
        "schedule": (case.schedule, plan.objective.get("schedule", "all rows")),
    }
    for name, (asked, found) in stated.items():
        if asked != found:
            raise PrivacyError(f"{case.name}: {name}={asked!r} was asked for, not {found!r}")


def examine_sums(case: Case, plan: GradientPlan, *, runs: int, rng: np.random.Generator) -> Found:
    """All three figures of a plan of sums.

    Raises:
        PrivacyError: the plan is not certified or not what was asked for, or the attack does not
            apply to it.
    """
    check_asked(case, plan)
    certificate = certificate_of(plan)
    delta = certificate.figures["delta_mechanism"]
    pair = audit_sums.worst_pair(plan)
    if not audit_sums.steady(plan, pair):
        raise PrivacyError(f"{case.name}: the row does not move every run's sums alike: lower clip")
    accounted = max(
        sums_epsilon(json.loads(json.dumps(plan.to_dict())), delta=delta),
        audit_sums.pair_epsilon(plan, pair, delta=delta),
    )
    return Found(
        case=case,
        claimed=certificate.epsilon_by_coalition[COLLUDERS],
        accounted=accounted,
        attacked=audit_sums.attack(
            plan, pair, runs=runs, delta=delta, confidence=CONFIDENCE, rng=rng
        ),
        delta=delta,
    )


def _examine_rows(case: Case, *, runs: int, rng: np.random.Generator) -> Found:
    setting = choose_rows(FIGURES, wanted_rows(case, rounds=2 if case.update == "nag" else 10))
    certificate = setting.certificate
    if certificate is None:  # the settings above always carry noise
        raise AssertionError("a private setting came without a certificate")
    delta = certificate.figures["delta_mechanism"]
    audit = audit_privacy(
        certificate,
        setting.rule,
        coalition=COLLUDERS,
        runs=runs,
        rng=rng,
        confidence=CONFIDENCE,
    )
    return Found(
        case=case,
        claimed=audit.claimed,
        accounted=circuit_epsilon(
            json.loads(json.dumps(certificate.setting.to_dict())),
            radius=certificate.figures["R"],
            delta=delta,
        ),
        attacked=audit.lower_bound,
        delta=delta,
    )


def wanted_rows(case: Case, **options: Any) -> Wanted:
    """Of encrypted rows."""
    config = SimulationConfig(
        update=case.update,
        parties=len(ROWS),
        colluders=COLLUDERS,
        epsilon=EPSILON,
        delta=DELTA,
        **options,
    )
    return config.wanted()


def examine_whitened(case: Case, *, runs: int, rng: np.random.Generator) -> Found:
    """Of both runs together: the second moment, then training on whitened rows."""
    first, plan, certificate = both_runs(FIGURES, wanted_rows(case), rng)
    delta = certificate.figures["delta_mechanism"]
    audit = audit_privacy(
        certificate, plan.rule, coalition=COLLUDERS, runs=runs, rng=rng, confidence=CONFIDENCE
    )
    return Found(
        case=case,
        claimed=audit.claimed,
        accounted=whitened_epsilon(
            json.loads(json.dumps(first.to_dict())),
            json.loads(json.dumps(plan.to_dict())),
            delta=delta,
        ),
        attacked=audit.lower_bound,
        delta=delta,
    )


def regression(model: str, epsilon: float = EPSILON, **options: Any) -> Calibration:
    """How the product trains a regression of one output on such owners."""
    return calibrated(model=model, epsilon=epsilon, profile="fast-insecure", **options)


def examine_regression(
    case: Case, found: Calibration, *, runs: int, rng: np.random.Generator
) -> Found:
    """All three figures of a regression."""
    plan, certificate = found.plan("epsilon", owners()), found.certificate
    if certificate is None:  # the settings above always carry noise
        raise AssertionError("a private setting came without a certificate")
    figures = certificate.figures
    delta, error = figures["delta_mechanism"], (1 - CONFIDENCE) / 4
    # Certificates are of settings, before the ring is known.
    accounted = regression_epsilon(
        certificate.method,
        json.loads(json.dumps(certificate.setting.to_dict())),
        delta=delta,
    )
    if plan.kind == GramPlan.kind:
        ratio = audit_regression.gram_ratio(cast(GramPlan, plan), 1.0)
        accounted = max(accounted, gaussian_epsilon([ratio, flooded()], delta=delta))
        attacked = audit_regression.attack_gram(ratio, runs=runs, delta=delta, error=error, rng=rng)
    else:
        attacked = audit_regression.attack_lffr(
            cast(LffrPlan, plan),
            1.0,
            runs=runs,
            delta=delta,
            additive=figures["delta_norm_bound"],
            error=error,
            rng=rng,
        )
    return Found(
        case=case,
        claimed=certificate.epsilon_by_coalition[COLLUDERS],
        accounted=accounted,
        attacked=attacked,
        delta=delta,
    )


def main(
    runs: Annotated[int, typer.Option(help="Of both tables together, per setting.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the attacks' noise.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the table; exit code 1 if a claim is below what is spent."""
    with refusals(False):
        from rich.table import Table

        table = Table(title=f"{runs:,} runs each, P = {len(ROWS)}, t = {COLLUDERS}, 99.9 %")
        for heading in ("setting", "claimed", "dp-accounting", "attack", "holds"):
            table.add_column(heading, justify="left" if heading == "setting" else "right")
        passed = True
        for case in cases():
            found = examine(case, runs=runs, rng=np.random.default_rng(seed))
            passed &= found.holds
            figures = (found.claimed, found.accounted, found.attacked)
            if as_json:
                line = {**asdict(found), "holds": found.holds}
                sys.stdout.write(json.dumps(line) + "\n")
            table.add_row(case.name, *(f"{x:.4f}" for x in figures), str(found.holds))
        if not as_json:
            stdout().print(table)
        if not passed:
            raise typer.Exit(FAILED)


if __name__ == "__main__":
    typer.run(main)
