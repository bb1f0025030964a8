"""Plots: nothing is clipped, every axis has a unit, no line hides another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.figures import Line, Plot, axis_label, draw
from sims.studies.noise.gallery import plots_of
from sims.studies.noise.grid import Grid, cells_of
from sims.studies.noise.tables import tidy
from tests.sims.studies.noise.test_report_browser import GRID, made_up


def test_scores_are_judged_beside_the_optimum_and_the_base_rate() -> None:
    """A line each, at its height, named in the legend."""
    levels = {"optimum without privacy": 86.0, "base rate": 76.2}
    figure = draw(plot([80.0] * 8, "accuracy", log_y=False, levels=levels))
    (axes,) = figure.axes
    flat = [float(y[0]) for line in axes.lines if len(set(y := list(line.get_ydata()))) == 1]
    assert {86.0, 76.2} <= set(flat)
    low, high = axes.get_ylim()
    assert low < 76.2 < 86.0 < high
    assert {"optimum without privacy", "base rate"} <= {
        text.get_text() for legend in figure.legends for text in legend.get_texts()
    }


@pytest.mark.parametrize("positive", ["0", "1"])
def test_levels_are_those_of_scikit_learn(positive: str) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from sims.studies.noise.source import Source, levels, open_pool

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


X = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]


def plot(values: list[float], component: str = "privacy_noise", **changes: object) -> Plot:
    line = Line.plain("t = P - 1", X, values)
    made = Plot(
        name="p",
        caption="",
        x_label="number of clients P",
        y_label=axis_label(component),
        lines=[line],
    )
    return replace(made, **changes)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_label_is_clipped(component: str) -> None:
    """Of whatever may stand beside an axis."""
    figure = draw(plot([0.1 * x for x in X], component))
    assert clipped(figure) == []
    assert "[" in figure.axes[0].get_ylabel(), "no unit"


def test_a_clipped_label_is_noticed() -> None:
    assert clipped(draw(plot(X, y_label="far too long a label " * 4))) != []


def test_no_plot_of_a_study_is_clipped_or_crowded() -> None:
    plots = plots_of(tidy(made_up()), [GRID])
    names = {p.name for p in plots}
    assert {"privacy_ratio_fixed", "accuracy_by_rounds", "noise_of_keys"} <= names
    for each in plots:
        assert clipped(draw(each)) == [], each.name
        assert each.unit and len(each.lines) <= 6, each.name


def test_equal_lines_are_apart_and_formulas_show() -> None:
    twice = plot(X, apart=True)
    points = twice.lines[0].points.assign(formula=X)
    line = replace(twice.lines[0], points=points, relation="=")
    figure = draw(replace(twice, lines=[line, line]))
    first, dashes, second, _ = figure.axes[0].get_lines()
    assert all(a < b for a, b in zip(first.get_xdata(), second.get_xdata(), strict=True))
    assert dashes.get_linestyle() == "--"
    assert sum(to_rgb(dashes.get_color())) < 0.5 * sum(to_rgb(first.get_color()))
    assert [t.get_text() for t in figure.legends[0].get_texts()][-1] == "formula"


def test_coalitions_keep_their_order() -> None:
    ratio = next(p for p in plots_of(tidy(made_up()), [GRID]) if p.name == "privacy_ratio_fixed")
    assert [line.label for line in ratio.lines] == ["t = 0", "t = 1", "t = P / 2", "t = P - 1"]


def test_grids_of_one_protocol_are_kept_apart() -> None:
    other = Grid(parties=(2, 5), colluders=("0",))
    assert set(cells_of([other], 32_000)) <= set(cells_of([GRID], 32_000))
    plots = plots_of(tidy(made_up()), [GRID, other])
    second = next(p for p in plots if p.name == "2_privacy_ratio_fixed")
    assert all(list(line.points.index) == [2.0, 5.0] for line in second.lines)
