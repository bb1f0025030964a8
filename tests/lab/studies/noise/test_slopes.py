"""Slopes: exact on made-up data, covered as often as stated, and a wrong noise share is seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from protocols.privacy.laws.shares import NoiseSplit
from sims.lab.studies.noise import slopes as fitted
from sims.lab.studies.noise.findings import findings
from sims.lab.studies.noise.grid import Cell, Grid
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.slopes import Slope, least_squares, random_ones
from sims.lab.studies.noise.source import Source
from sims.lab.studies.noise.tables import tidy
from sims.lab.studies.noise.twins import measure_twin

PARTIES = (1, 2, 5, 10, 20)
RNG = np.random.default_rng(5)


def made_up(component: str, slope: float, noise: float = 0.0, seeds: int = 1) -> list[Measurement]:
    """value = P^slope 2^noise, predicted sqrt(P)."""
    return [
        Measurement(
            cell=Cell(parties=p, kind="twin"),
            seed=seed,
            values={component: p**slope * 2 ** (noise * RNG.standard_normal())},
            predicted={component: math.sqrt(p)},
        )
        for p in PARTIES
        for seed in range(seeds)
    ]


def fit_slopes(measurements: list[Measurement]) -> list[Slope]:
    return fitted.fit_slopes(tidy(measurements))


def fit(*made: Any) -> Slope:
    (slope,) = fit_slopes(made_up(*made))
    return slope


def sentences(measurements: list[Measurement]) -> str:
    frame, grid = tidy(measurements), Grid(parties=PARTIES, colluders=("0",))
    return "\n".join(findings(frame, fitted.fit_slopes(frame), [grid]))


@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5, 1.5])
def test_a_known_slope_is_found_exactly(slope: float) -> None:
    found = fit("refresh", slope)
    assert found.slope == pytest.approx(slope, abs=1e-12)
    assert found.predicted == pytest.approx(0.5, abs=1e-12)
    assert found.agrees is (slope == 0.5)


def test_intervals_cover_as_often_as_they_say() -> None:
    """Of 1000 intervals at 95 %, 950 +- 28 (4 standard deviations) contain the slope."""
    rng, x, hits = np.random.default_rng(2), np.log2(PARTIES).repeat(3), 0
    for _ in range(1000):
        slope, half = least_squares(x, 0.7 * x + 0.1 * rng.standard_normal(len(x)))
        hits += abs(slope - 0.7) <= half
    assert abs(hits - 950) <= 28
    with pytest.raises(ValueError, match="identical"):
        least_squares([1.0, 1.0], [0.0, 1.0])
    assert math.isnan(least_squares([0.0, 1.0], [0.0, 1.0])[1])


def test_a_bound_is_judged_by_its_largest_ratio() -> None:
    assert fit("largest_iterate", 0.4).agrees is True
    above = fit("largest_iterate", 0.6)
    assert above.agrees is False
    assert f"{0.1 * math.log2(20):.2f} bits" in above.explanation


def test_a_miss_by_chance_is_called_so() -> None:
    """One interval in twenty misses; the explanation is computed, not assumed."""
    tried = (fit("refresh", 0.5, 0.1, 3) for _ in range(200))
    missed = next(found for found in tried if found.agrees is False)
    assert "no mean differs" in missed.explanation
    wrong = fit("refresh", 0.9, 0.01, 3)
    assert wrong.agrees is False
    assert "chance" not in wrong.explanation and "unexplained" in wrong.explanation


def test_only_what_may_miss_by_chance_is_counted() -> None:
    """Not bytes, which are the formula; not what t = 0 colluders leave: that is the total again."""
    bytes_, left = fit("bytes_party", 0.5, 0.0, 3), fit("left_ratio", 0.5, 0.1, 3)
    assert bytes_.agrees is True and bytes_.exact
    assert left.agrees is None
    total = fit("privacy_ratio", 0.5, 0.1, 3)
    assert random_ones([bytes_, left, total]) == [total]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            ("privacy_ratio", 0.9, 0.01, 3),
            ("0 of 1 fitted", "Missed: total privacy", "predicted 0.500", "unexplained", "(t = 0)"),
        ),
        (("release", 0.5, 1.0, 1), ("Too wide to say much",)),
        (("circuit", 0.6, 0.0, 1), ("Passed: encrypted model",)),
    ],
)
def test_findings_say_what_was_missed(made: tuple[Any, ...], said: tuple[str, ...]) -> None:
    """A wrong slope is named with its numbers; a wide interval is not sold as agreement."""
    text = sentences(made_up(*made))
    assert all(words in text for words in said)


# -- the noise split, measured ------------------------------------------------------------------


def measured(
    coalition: str, parties: tuple[int, ...], seeds: int, **cell: Any
) -> list[Measurement]:
    return [
        found
        for p in parties
        for found in measure_twin(
            Cell(protocol="secure-aggregation", parties=p, coalition=coalition, **cell),
            Source(),
            range(seeds),
        )
    ]


def slope_of(measurements: list[Measurement], component: str) -> Slope:
    return next(s for s in fit_slopes(measurements) if s.component == component)


def shared(coalition: str) -> list[Measurement]:
    return measured(coalition, (2, 4, 8, 16), 8, rounds=30)


@pytest.mark.parametrize(("coalition", "order"), [("0", 0.0), ("half", 0.0), ("all-but-one", 0.5)])
def test_measured_noise_follows_the_split(coalition: str, order: float) -> None:
    """sqrt(P / (P - t)) sigma to 1 %.

    Power: 8 seeds x 30 rounds x 31 columns are 7440 normal values a cell, standard deviation of
    their rms 0.8 %; the mean over four cells is off by 2 % with probability 1e-6.
    """
    found = shared(coalition)
    slope = slope_of(found, "privacy_ratio")
    assert slope.predicted == pytest.approx(order, abs=1e-12)
    assert abs(slope.slope - order) < 0.02
    assert slope.offset is not None and abs(slope.offset) < math.log2(1.02)
    left = slope_of(found, "left_ratio")
    assert abs(left.slope) < 0.02 * (16 if coalition == "all-but-one" else 2)


def test_a_share_by_all_parties_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant sigma / sqrt(P): total noise stays flat where it must grow, and a coalition's
    rest shrinks below the promise.
    """
    monkeypatch.setattr(NoiseSplit, "share_std", lambda self, sigma: sigma / self.parties**0.5)
    slope = slope_of(shared("all-but-one"), "privacy_ratio")
    assert slope.agrees is False
    assert slope.slope == pytest.approx(0.0, abs=0.03)
    assert slope.predicted == pytest.approx(0.5)
    assert "chance" not in slope.explanation
    assert slope_of(shared("half"), "left_ratio").offset == pytest.approx(-0.5, abs=0.05)


def test_growing_data_lower_the_noise_as_one_over_n() -> None:
    """Every client brings 20 rows: sigma falls as 1 / P, all clients' noise as 1 / sqrt(P)."""
    growing: dict[str, Any] = {"mode": "growing", "rows_per_party": 20, "rounds": 10}
    found = measured("all-but-one", (2, 5, 10, 20), 2, **growing)
    assert {m.facts["rows"] for m in found} == {40, 100, 200, 400}
    assert slope_of(found, "sigma").slope == pytest.approx(-1.0, abs=1e-6)
    assert slope_of(found, "privacy_noise").slope == pytest.approx(-0.5, abs=0.05)
