"""A budget takes the best setting that fits, against all settings one by one."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from ciphercohort.job.config import SimulationConfig, configured
from ciphercohort.job.limits import Limits, asked
from ciphercohort.planning import within
from ciphercohort.planning.expected import expected_loss
from ciphercohort.planning.within import LADDER, WORTH, choose
from protocols.errors import ParameterError, PrivacyError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import kinds
from protocols.privacy.calibrate.figures import PublicFigures, Wanted

FIGURES = PublicFigures.even(rows=3000, features=5, parties=3)


def test_budgets_in_words() -> None:
    assert Limits.of("90s") == Limits(seconds=90)
    assert Limits.of("10m") == Limits.of("10min") == Limits(seconds=600)
    assert Limits.of("1.5h, 2GB") == Limits.of("2gb,90m") == Limits(5400, 2e9)
    assert Limits.of("500MB") == Limits(num_bytes=5e8)
    assert Limits.of(asked(61.2, 3_000_001, Limits(1, 1))) == Limits(62, 4e6)
    assert asked(61.2, 3e6, Limits(seconds=1)) == "62s"


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10x", "-5m", "0s", "10m,20m", "1GB,1GB", "10m;1GB"]
)
def test_what_is_no_budget_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ParameterError, match="within=.* is no budget: give a time"):
        SimulationConfig(within=text)


# -- the choice ------------------------------------------------------------------------------------


def made(wanted: Wanted) -> Any:
    """A setting that costs 10 s an iteration and 1 MB; a tenth of that by secure aggregation."""
    sums = wanted.protocol == SECURE_AGGREGATION
    if sums and wanted.rounds == 6:
        raise PrivacyError("this one is not certified")
    plan = SimpleNamespace(
        protocol=wanted.protocol,
        rounds=wanted.rounds,
        privacy=None,
        kind="rows",
        # Noise makes long runs worse; sums lag behind; a high degree is worth a hundredth.
        loss=1 / wanted.rounds + wanted.rounds / 2500 + 0.1 * sums - (wanted.degree == 15) / 100,
        cost=(
            wanted.rounds * (1.0 if sums else 10.0) + (wanted.degree or 0),
            wanted.rounds * 10**6,
        ),
        figures=lambda: {"update": wanted.update, "degree": wanted.degree or 7},
    )
    return SimpleNamespace(template=plan, certificate=None, notes=())


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(within, "calibrate", lambda figures, wanted: made(wanted))
    monkeypatch.setattr(within, "expected_loss", lambda found, figures: found.template.loss)
    monkeypatch.setattr(kinds, "figures", lambda plan: plan.figures())


def chosen(**options: Any) -> within.Choice:
    def costs(found: Any) -> tuple[float, int]:
        cost: tuple[float, int] = found.template.cost
        return cost

    return choose(configured(**options), FIGURES, costs, costs)


def everything(limits: Limits) -> list[Any]:
    """Every setting that fits, one by one."""
    plans = []
    for rounds in LADDER:
        for degree in (None, 15):
            plans.append(made(Wanted(rounds=rounds, degree=degree)).template)
        if rounds != 6:
            plans.append(made(Wanted(protocol=SECURE_AGGREGATION, rounds=rounds)).template)
    return [p for p in plans if p.cost[0] <= limits.seconds and p.cost[1] <= limits.num_bytes]


@pytest.mark.parametrize("budget", ["5s", "45s", "10m,15MB", "300MB", "2h"])
def test_the_least_loss_that_fits_is_taken(budget: str) -> None:
    found, fitting = chosen(within=budget), everything(Limits.of(budget))
    least = min(plan.loss for plan in fitting)
    best = found.best.found.template
    assert best.loss < least + WORTH
    limits = Limits.of(budget)
    assert best.cost[0] <= limits.seconds and best.cost[1] <= limits.num_bytes
    near = [plan for plan in fitting if plan.loss < least + WORTH]
    assert best.cost[0] == min(plan.cost[0] for plan in near)


def test_more_time_buys_the_next_better_setting() -> None:
    found = chosen(within="150s")
    better = found.better
    assert better is not None
    assert better.found.template.loss < found.best.found.template.loss - WORTH
    assert better.seconds > 150
    told = list(found.lines)
    assert "15 iterations, degree 7" in told[0] and "within 0.001 of the best" in told[0]
    assert f"--within {math.ceil(better.seconds)}s" in told[1]
    # What is advised is what a run with it takes.
    again = chosen(within=f"{math.ceil(better.seconds)}s").best
    assert again.found.template.loss <= better.found.template.loss
    assert chosen(within="2h").better is None
    assert "would lower it by less than 0.001" in list(chosen(within="2h").lines)[1]


def test_a_budget_in_which_nothing_fits_is_refused_with_the_least_that_would() -> None:
    with pytest.raises(ParameterError, match=r"too little.*--within 4s,4MB$"):
        chosen(within="3s,1GB")
    assert chosen(within="4s,4MB").best.found.template.rounds == 4
    with pytest.raises(ParameterError, match="--within 40s$"):
        chosen(within="3s", protocol=ENCRYPTED_ROWS)


def test_what_was_given_stays() -> None:
    found = chosen(within="2h", protocol=ENCRYPTED_ROWS, iterations=6, degree=5).best.config
    assert (found.protocol, found.rounds, found.degree) == (ENCRYPTED_ROWS, 6, 5)
    assert not found.update  # chosen with the plan
    # An option of one protocol alone settles which.
    assert chosen(within="2h", clip=0.5).best.config.protocol == SECURE_AGGREGATION
    assert chosen(within="2h", cover=2, parties=4).best.config.protocol == ENCRYPTED_ROWS
    with pytest.raises(ParameterError, match="is an option of"):
        configured(within="2h", clip=0.5, cover=2, parties=4)


def test_a_protocol_is_left_open_by_a_budget_alone() -> None:
    with pytest.raises(ParameterError, match="protocol='any' needs a budget"):
        configured(protocol="any")
    assert configured().protocol == ENCRYPTED_ROWS
    assert configured(within="1m").protocol == "any"


def test_expected_losses_compare_both_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one model: without noise more iterations are better, with it there is a best number."""
    from protocols.privacy.calibrate.calibration import calibrate

    def loss(**wanted: Any) -> float:
        found = expected_loss(calibrate(FIGURES, Wanted(**wanted)), FIGURES)
        assert found is not None
        return found

    sums: dict[str, Any] = {"protocol": SECURE_AGGREGATION, "update": "gd"}
    quiet = [loss(rounds=t, **sums) for t in (2, 8, 32, 128)]
    assert quiet == sorted(quiet, reverse=True)
    # At one rate and T, the polynomial of rows is no better than the sigmoid itself.
    rows = loss(update="gd", rounds=8, degree=15, learning_rate=3.8)
    assert rows == pytest.approx(loss(rounds=8, learning_rate=3.8, **sums), abs=0.01)
    noisy = [loss(rounds=t, epsilon=0.3, **sums) for t in (2, 8, 32, 128)]
    assert all(a >= b for a, b in zip(noisy, quiet, strict=True))
    strict = [loss(rounds=8, epsilon=e, **sums) for e in (0.1, 1.0, 10.0)]
    assert strict == sorted(strict, reverse=True)
    certified = loss(rounds=8, degree=7, epsilon=1.0)
    assert math.isfinite(certified)
