"""Curves with noise: the attack stays below the claim, and finds out noise that is too little."""

from __future__ import annotations

from dataclasses import replace

from scipy.stats import binom

from sims.lab.studies.curves import attack, cover, plan_of

STUDIES = 60
# Of two arms and up to eight times, dependent: as one of each study at worst.
LOW = binom.ppf(1e-4, STUDIES, 0.95) / STUDIES


def test_an_attack_finds_less_than_is_claimed_and_too_little_noise_out() -> None:
    plan = plan_of(500, 20, 0, 4.0)
    found = attack(plan, 20_000)
    assert 0.6 * found["claimed"] < found["attacked"] < found["dp_accounting"] <= found["claimed"]
    quiet = replace(plan, noise_scales=(plan.noise_scales[0] * 0.7,))
    assert attack(quiet, 20_000, certified=False)["attacked"] > found["claimed"]


def test_bands_hold_the_truth_and_greenwoods_alone_do_not() -> None:
    found = cover(1000, 50, 1.0, STUDIES)
    assert min(found["bands"], found["restricted_means"]) >= LOW > found["greenwood_alone"]
    assert found["log_rank_size"] <= 0.05 + (0.95 - LOW)


def test_stated_errors_are_the_true_ones_of_few_rows() -> None:
    """Noise that monotone counts no longer hold is in none: to first order they would be 1.3."""
    assert 0.85 < cover(300, 50, 1.0, STUDIES)["stated_over_error"] < 1.2
