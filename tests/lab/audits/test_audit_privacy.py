"""The empirical audit: never above the claim, and implementations with too little noise caught."""

from __future__ import annotations

import json
import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.job.config import SimulationConfig
from protocols.errors import ParameterError
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.privacy.calibrate.rows import RowsChoice, choose_rows
from protocols.privacy.calibrate.whitened import RULES
from protocols.rows.training import PlainGradient, train_plain
from sims.lab.audits.many_twins import train_many
from sims.lab.audits.privacy import PrivacyAudit, _rates, audit_privacy, worst_neighbours
from sims.lab.audits.whitened import Pair, both_runs

ROWS, FEATURES, ROUNDS, RUNS = 1000, 5, 10, 200_000
# About sqrt(3) of the noise is missing where a coalition of 4 of 6 meets a split by P.
PARTIES, COLLUDERS = 6, 4
SATURATING = "quadratic-gd, saturating"
"""On few rows."""


@lru_cache
def _setting(update: str, delta: float = 1e-5, rounds: int = ROUNDS) -> RowsChoice | Pair:
    few, update = update == SATURATING, "quadratic-gd" if update == SATURATING else update
    config = SimulationConfig(
        parties=PARTIES, colluders=COLLUDERS, epsilon=1.0, delta=delta, update=update, rounds=rounds
    )
    wanted = config.wanted()
    if update in RULES:
        rows = 500 if few else 4 * ROWS
        figures = PublicFigures.even(rows=rows, features=FEATURES - 1, parties=PARTIES)
        pair = both_runs(figures, wanted, np.random.default_rng(2))
        assert pair.plan.signed == few
        return pair
    figures = PublicFigures.even(rows=ROWS, features=FEATURES - 1, parties=PARTIES)
    return choose_rows(figures, wanted)


def _audit(
    setting: RowsChoice | Pair,
    *,
    runs: int = RUNS,
    coalition: int = COLLUDERS,
    share_of_sigma: float | None = None,
    seed: int = 3,
) -> PrivacyAudit:
    certificate = setting.certificate
    assert certificate is not None
    return audit_privacy(
        certificate,
        setting.rule,
        coalition=coalition,
        runs=runs,
        rng=np.random.default_rng(seed),
        share_std=None if share_of_sigma is None else share_of_sigma * certificate.setting.sigma,
    )


@pytest.mark.parametrize(
    ("update", "delta"),
    [("barrier", 1e-2), ("quadratic-gd", 1e-2), (SATURATING, 1e-2), ("gd", 1e-5)],
)
def test_the_truth_is_not_refuted(update: str, delta: float) -> None:
    found = _audit(_setting(update, delta))
    assert not found.refuted, found.verdict
    assert 0.25 * found.claimed < found.lower_bound <= found.claimed
    assert found.largest_move <= found.sensitivity
    assert found.escaped == 0


def test_a_larger_coalition_sees_more() -> None:
    setting = _setting("gd", 1e-2)
    bounds = [_audit(setting, coalition=k) for k in (0, 2, 4)]
    assert [b.lower_bound for b in bounds] == sorted(b.lower_bound for b in bounds)
    assert all(not b.refuted for b in bounds)


HALVED, BY_P = 0.5 / math.sqrt(PARTIES - COLLUDERS), 1 / math.sqrt(PARTIES)


@pytest.mark.parametrize(
    ("update", "share_of_sigma"),
    [("barrier", BY_P), ("gd", HALVED), ("quadratic-gd", BY_P), (SATURATING, HALVED)],
)
def test_too_little_noise_is_caught(update: str, share_of_sigma: float) -> None:
    """Sigma halved, or split by P instead of P - t.

    By the direct bound too, which assumes nothing about the mechanism.
    """
    found = _audit(_setting(update, 1e-2), share_of_sigma=share_of_sigma)
    assert found.refuted and found.direct > found.claimed


def test_a_split_by_p_is_harmless_without_colluders() -> None:
    """The same implementation against nobody: P shares of sigma^2 / P are sigma^2."""
    found = _audit(_setting("gd", 1e-2), coalition=0, share_of_sigma=1 / math.sqrt(PARTIES))
    assert found.lower_bound < 1.0


@pytest.mark.parametrize("update", ["barrier", "gd", "quadratic-gd", SATURATING])
def test_many_runs_are_the_twins_runs(update: str) -> None:
    """One run of `train_many` against `train_plain` on the rows written out."""
    setting = _setting(update, 1e-2)
    assert setting.certificate is not None
    pair = worst_neighbours(setting.certificate, setting.rule)
    noise = np.random.default_rng(1).normal(0, 0.02, (ROUNDS, FEATURES))
    counts = pair.counts.astype(int)
    positive = np.rint(pair.counts * pair.labels).astype(int)
    x = np.concatenate([np.repeat(pair.common, counts, axis=0), pair.own[None]])
    y = [np.arange(n) < k for n, k in zip(counts, positive, strict=True)]
    y = np.append(np.concatenate(y).astype(float), 0.0)
    assert len(x) == pair.rows and np.linalg.norm(x, axis=1).max() <= 1 + 1e-12
    if update == SATURATING:
        x, y = x * (2 * y - 1)[:, None], np.ones_like(y)
    twin = train_plain(setting.rule, PlainGradient(x, y, noise, pair.link), FEATURES)
    many = train_many(
        setting.rule,
        lambda t, w: (pair.shared(w) + pair.last(w, pair.own)) / pair.rows + noise[t],
        runs=3,
        features=FEATURES,
    )
    assert np.abs(many - twin).max() < 1e-12


def test_rates_are_bounded_by_clopper_and_pearson() -> None:
    """As scipy has them, of no, some and all scores beyond a threshold."""
    yes, no, thresholds = np.arange(40.0), np.arange(40.0) - 25, np.array([-99.0, 10.5, 38.0, 99.0])
    low, high = _rates(yes, no, thresholds, 0.01)
    for k, threshold in enumerate(thresholds):
        for scores, end, found in ((yes, "low", low[k]), (no, "high", high[k])):
            beyond = binomtest(int((scores > threshold).sum()), 40)
            exact = beyond.proportion_ci(1 - 2 * 0.01, method="exact")
            assert found == pytest.approx(getattr(exact, end), rel=1e-9)


def test_impossible_arguments_are_refused() -> None:
    setting = _setting("gd")
    with pytest.raises(ParameterError, match="coalition=6"):
        _audit(setting, coalition=PARTIES)
    with pytest.raises(ParameterError, match="runs=10"):
        _audit(setting, runs=10)


def test_the_command() -> None:
    flags = ["--rows", "800", "--features", "4", "--parties", "5", "--colluders", "4"]
    flags += ["--iterations", "5", "--runs", "20000", "--seed", "1", "--update", "gd"]
    result = CliRunner().invoke(app, ["audit", "privacy", *flags, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["lower_bound"] <= found["claimed"] == pytest.approx(1.0, rel=1e-6)
    assert found["runs"] == 20_000
    words = CliRunner().invoke(app, ["audit", "privacy", *flags, "--coalition", "0"])
    assert "no contradiction" in words.stdout
    assert CliRunner().invoke(app, ["audit", "privacy", *flags, "--coalition", "5"]).exit_code == 2


def test_a_second_moment_is_told_along_the_difference() -> None:
    """|x x^T - y y^T| / (N sigma) by hand, of rows 2 phi apart: sqrt(2) sin(2 phi) B^2."""
    setting = _setting("quadratic-gd", 1e-2)
    assert isinstance(setting, Pair) and setting.certificate is not None
    pair = worst_neighbours(setting.certificate, setting.rule)
    whitening = setting.plan.whitening
    assert whitening is not None
    first, second = (
        np.linalg.solve(np.array(whitening.matrix), row) for row in (pair.own, pair.other)
    )
    first, second = first / np.linalg.norm(first), second / np.linalg.norm(second)
    moved = math.sqrt(2) * math.sqrt(1 - float(first @ second) ** 2)
    assert pair.released == pytest.approx(moved / (pair.rows * whitening.sigma), rel=1e-9)
    assert 0.3 * math.sqrt(2) < moved <= math.sqrt(2)
