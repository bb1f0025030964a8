"""Plots: nothing is clipped, every axis has a unit, no line hides another."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from sims.lab.studies.noise.figures import draw
from sims.lab.studies.noise.gallery import plots_of
from sims.lab.studies.noise.grid import Grid, cells_of
from sims.lab.studies.noise.tables import tidy
from tests.lab.studies.noise.made_up import GRID, made_up


@pytest.mark.parametrize("positive", ["0", "1"])
def test_levels_are_those_of_scikit_learn(positive: str) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from sims.lab.studies.noise.source import Source, levels, open_pool

    source = Source(draw=3, positive=positive)
    pool, found = open_pool(source, None), levels(source)
    rows, y = pool.raw[:, :-1], pool.test.y
    penalty = 1e6 / len(rows)
    best = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=5000))
    guess = best.fit(rows, pool.labels).predict_proba(pool.raw_test[:, :-1])[:, 1]
    assert found["accuracy_optimum"] == pytest.approx(accuracy_score(y, guess > 0.5), abs=0.02)
    assert found["auc_optimum"] == pytest.approx(roc_auc_score(y, guess), abs=5e-3)
    dummy = DummyClassifier(strategy="prior").fit(pool.raw_test, y)
    prior = dummy.predict_proba(pool.raw_test)[:, 1]
    assert found["accuracy_majority"] == accuracy_score(y, dummy.predict(pool.raw_test))
    assert found["log_loss_majority"] == pytest.approx(log_loss(y, prior))


def clipped(figure: Figure) -> list[str]:
    """Texts that are drawn outside of the figure, after layout [pixels]."""
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    texts: list[Text] = [axes.xaxis.label, axes.yaxis.label]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    whole = figure.bbox.padded(0.5)
    return [
        text.get_text()
        for text in shown
        if not (
            whole.x0 <= (box := text.get_window_extent()).x0
            and whole.y0 <= box.y0
            and box.x1 <= whole.x1
            and box.y1 <= whole.y1
        )
    ]


def test_no_plot_of_a_study_is_clipped_or_crowded() -> None:
    plots = plots_of(tidy(made_up()), [GRID])
    names = {p.name for p in plots}
    assert {"privacy_ratio_fixed", "accuracy_by_rounds", "noise_of_keys"} <= names
    for each in plots:
        assert clipped(draw(each)) == [], each.name
        assert each.unit and len(each.lines) <= 6, each.name


def test_grids_of_one_protocol_are_kept_apart() -> None:
    other = Grid(parties=(2, 5), colluders=("0",))
    assert set(cells_of([other], 32_000)) <= set(cells_of([GRID], 32_000))
    plots = plots_of(tidy(made_up()), [GRID, other])
    second = next(p for p in plots if p.name == "2_privacy_ratio_fixed")
    assert all(list(line.points.index) == [2.0, 5.0] for line in second.lines)
