"""Slopes: exact on made-up data, covered as often as stated, and a wrong noise share is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from protocols.privacy.shares import NoiseSplit
from sims.studies.noise import findings as sentences
from sims.studies.noise import slopes as fitted
from sims.studies.noise.grid import Cell, Grid
from sims.studies.noise.slopes import Slope, least_squares, random_ones
from sims.studies.noise.source import Source
from sims.studies.noise.store import Measurement
from sims.studies.noise.tables import tidy
from sims.studies.noise.twins import measure_twin

PARTIES = (1, 2, 5, 10, 20)


def fit_slopes(measurements: list[Measurement]) -> list[Slope]:
    return fitted.fit_slopes(tidy(measurements))


def findings(measurements: list[Measurement], grid: Grid) -> str:
    frame = tidy(measurements)
    return "\n".join(sentences.findings(frame, fitted.fit_slopes(frame), [grid]))


def made_up(component: str, slope: float, noise: float, seeds: int, rng: np.random.Generator):
    """value = P^slope 2^noise, predicted sqrt(P)."""
    return [
        Measurement(
            cell=Cell(parties=p, kind="twin"),
            seed=seed,
            values={component: p**slope * 2 ** (noise * rng.standard_normal())},
            predicted={component: math.sqrt(p)},
        )
        for p in PARTIES
        for seed in range(seeds)
    ]


def only(slopes: list[Slope]) -> Slope:
    assert len(slopes) == 1
    return slopes[0]


@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5, 1.5])
def test_a_known_slope_is_found_exactly(slope: float) -> None:
    rng = np.random.default_rng(1)
    found = only(fit_slopes(made_up("refresh", slope, 0.0, 1, rng)))
    assert found.slope == pytest.approx(slope, abs=1e-12)
    assert found.predicted == pytest.approx(0.5, abs=1e-12)
    assert found.agrees is (slope == 0.5)


def test_intervals_cover_as_often_as_they_say() -> None:
    """Of 1000 intervals at 95 %, 950 +- 28 (4 standard deviations) contain the slope."""
    rng = np.random.default_rng(2)
    x = np.log2(PARTIES).repeat(3)
    hits = 0
    for _ in range(1000):
        slope, half = least_squares(x, 0.7 * x + 0.1 * rng.standard_normal(len(x)))
        hits += abs(slope - 0.7) <= half
    assert abs(hits - 950) <= 28


def test_least_squares_is_numpys() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(20), rng.standard_normal(20)
    assert least_squares(x, y)[0] == pytest.approx(np.polyfit(x, y, 1)[0])
    with pytest.raises(ValueError, match="identical"):
        least_squares([1.0, 1.0], [0.0, 1.0])
    assert math.isnan(least_squares([0.0, 1.0], [0.0, 1.0])[1])


def test_a_bound_is_judged_by_its_largest_ratio() -> None:
    rng = np.random.default_rng(4)
    below = made_up("largest_iterate", 0.4, 0.0, 1, rng)
    assert only(fit_slopes(below)).agrees is True
    above = only(fit_slopes(made_up("largest_iterate", 0.6, 0.0, 1, rng)))
    assert above.agrees is False
    assert f"{0.1 * math.log2(20):.2f} bits" in above.explanation


def test_a_miss_by_chance_is_called_so() -> None:
    """One interval in twenty misses; the explanation is computed, not assumed."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        found = only(fit_slopes(made_up("refresh", 0.5, 0.1, 3, rng)))
        if found.agrees is False:
            assert "no mean differs" in found.explanation
            break
    else:
        pytest.fail("200 intervals at 95 % all covered")
    wrong = only(fit_slopes(made_up("refresh", 0.9, 0.01, 3, rng)))
    assert wrong.agrees is False
    assert "chance" not in wrong.explanation
    assert "unexplained" in wrong.explanation


def test_only_what_may_miss_by_chance_is_counted() -> None:
    """Not bytes, which are the formula; not what t = 0 colluders leave: that is the total again."""
    rng = np.random.default_rng(6)
    bytes_ = fit_slopes(made_up("bytes_party", 0.5, 0.0, 3, rng))
    assert only(bytes_).agrees is True
    assert only(bytes_).exact
    assert random_ones(bytes_) == []
    left = fit_slopes(made_up("left_ratio", 0.5, 0.1, 3, rng))
    assert only(left).agrees is None
    assert random_ones(left) == []
    total = fit_slopes(made_up("privacy_ratio", 0.5, 0.1, 3, rng))
    assert random_ones(total) == total


def test_findings_say_what_was_missed() -> None:
    """A wrong slope is named with its numbers; a wide interval is not sold as agreement."""
    rng = np.random.default_rng(7)
    grid = Grid(parties=PARTIES, colluders=("0",))
    wrong = made_up("privacy_ratio", 0.9, 0.01, 3, rng)
    text = findings(wrong, grid)
    assert "0 of 1 fitted slopes" in text
    assert "Missed: total privacy noise" in text
    assert "predicted 0.500" in text
    assert "unexplained" in text
    assert "(t = 0)" in text
    wide = made_up("release", 0.5, 1.0, 1, rng)
    assert "Too wide to say much" in findings(wide, grid)
    above = made_up("circuit", 0.6, 0.0, 1, rng)
    assert "Passed: encrypted model" in findings(above, grid)


def test_steps_of_t_are_told() -> None:
    """sigma = sqrt(T) S / (N mu): with T chosen by a search, its slope is not one of P alone."""
    found = [
        Measurement(
            cell=Cell(parties=p),
            seed=0,
            values={"sigma": math.sqrt(t) / 1000 * (1.0 if p < 10 else 2**0.25)},
            facts={"T": t, "rows": 1000},
        )
        for p, t in zip(PARTIES, (400, 400, 200, 100, 50), strict=True)
    ]
    text = findings(found, Grid(parties=PARTIES))
    assert "between 50 and 400" in text
    assert "varies by only 0.25 bits" in text
    same = [m for m in found if m.facts["T"] == 400]
    assert "searched" not in findings(same, Grid(parties=PARTIES))


# -- the noise split, measured ------------------------------------------------------------------

SEEDS = 8


def measured(coalition: str) -> list[Measurement]:
    found = []
    for parties in (2, 4, 8, 16):
        cell = Cell(
            protocol="secure-aggregation",
            parties=parties,
            coalition=coalition,
            rounds=30,
            epsilon=1.0,
        )
        found += measure_twin(cell, Source(), range(SEEDS))
    return found


def ratio_slope(measurements: list[Measurement], component: str = "privacy_ratio") -> Slope:
    return next(s for s in fit_slopes(measurements) if s.component == component)


@pytest.mark.parametrize(("coalition", "order"), [("0", 0.0), ("half", 0.0), ("all-but-one", 0.5)])
def test_measured_noise_follows_the_split(coalition: str, order: float) -> None:
    """sqrt(P / (P - t)) sigma to 1 %.

    Power: 8 seeds x 30 rounds x 31 columns are 7440 normal values a cell, standard deviation of
    their rms 0.8 %; the mean over four cells is off by 2 % with probability 1e-6.
    """
    found = measured(coalition)
    slope = ratio_slope(found)
    assert slope.predicted == pytest.approx(order, abs=1e-12)
    assert abs(slope.slope - order) < 0.02
    assert slope.offset is not None
    assert abs(slope.offset) < math.log2(1.02)
    left = ratio_slope(found, "left_ratio")
    assert abs(left.slope) < 0.02 * (16 if coalition == "all-but-one" else 2)


def test_a_share_by_all_parties_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant sigma / sqrt(P): total noise stays flat where it must grow, and a coalition's
    rest shrinks below the promise.
    """
    monkeypatch.setattr(NoiseSplit, "share_std", lambda self, sigma: sigma / self.parties**0.5)
    slope = ratio_slope(measured("all-but-one"))
    assert slope.agrees is False
    assert slope.slope == pytest.approx(0.0, abs=0.03)
    assert slope.predicted == pytest.approx(0.5)
    assert "chance" not in slope.explanation
    left = ratio_slope(measured("half"), "left_ratio")
    assert left.offset == pytest.approx(-0.5, abs=0.05)


def test_growing_data_lower_the_noise_as_one_over_n() -> None:
    """Every client brings 20 rows: sigma falls as 1 / P, all clients' noise as 1 / sqrt(P)."""
    found = []
    for parties in (2, 5, 10, 20):
        cell = Cell(
            protocol="secure-aggregation",
            parties=parties,
            coalition="all-but-one",
            mode="growing",
            rows_per_party=20,
            rounds=10,
        )
        found += measure_twin(cell, Source(), range(2))
    assert {m.facts["rows"] for m in found} == {40, 100, 200, 400}
    assert ratio_slope(found, "sigma").slope == pytest.approx(-1.0, abs=1e-6)
    assert ratio_slope(found, "privacy_noise").slope == pytest.approx(-0.5, abs=0.05)
