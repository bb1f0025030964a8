"""Evaluation by one secure sum: scikit-learn's figures, the ledger's epsilon, owners' consent."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    d2_tweedie_score,
    log_loss,
    mean_absolute_error,
    mean_poisson_deviance,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)

from ciphercohort.after.judged import Evaluation, shown
from ciphercohort.after.judging import objective, objective_at
from ciphercohort.results.documents import model_fields
from ciphercohort.results.predict import ReleasedModel
from parties.kernel.sums.tables import Bins
from parties.reader.schema import Targets
from parties.reader.shard import encode_shard
from protocols.errors import CohortError, DataError, ParameterError, PrivacyError, SchemaError
from protocols.models.probabilities import probability_figures
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.statistics.evaluation.figures import figures, target_figures
from protocols.statistics.evaluation.noise import foreseen
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.sums.objectives import objective_from_dict
from sims.evaluation import evaluate
from tests.sims.evaluation_tables import COSTED, COUNTED, MODEL, SCHEMA, table
from tests.sims.model_runs import cohort

FRAME = table()
Y = (FRAME.died == "yes").to_numpy()
Z = encode_shard(FRAME, SCHEMA).x @ MODEL.weights
P = 1 / (1 + np.exp(-Z))
NO_THRESHOLDS = (0.0, -0.0, 1.0, -1.0, 2.0, math.nan, math.inf, -math.inf)
NAMES = {
    *("auc", "log_loss", "brier", "calibration_slope", "calibration_intercept"),
    *("base_rate_log_loss", "confusion", "accuracy", "base_rate", "roc", "calibration", "sites"),
}


@pytest.fixture(scope="module")
def exact() -> Evaluation:
    return evaluate(MODEL, FRAME, split="by:site", sites="all", seed=1)


def of_counts(task: EvaluationObjective, threshold: float = 0.5) -> dict[str, Any]:
    x = encode_shard(FRAME, SCHEMA).x
    sites = np.array_split(np.arange(len(x)), 3)
    tables = sum(task.of_rows(x[own], Y[own].astype(float), "a") for own in sites)
    return figures(task, np.asarray(tables), rows=len(x))


def agrees(found: dict[str, Any], threshold: float = 0.5) -> bool:
    """The outside truth: scikit-learn on pooled rows."""
    cells = confusion_matrix(Y, threshold < P)
    return (
        abs(found["auc"] - roc_auc_score(Y, P)) <= found["auc_error_bound"] <= 0.002
        and abs(found["log_loss"] - log_loss(Y, P)) < 1e-5
        and abs(found["brier"] - brier_score_loss(Y, P)) < 1e-6
        and list(found["confusion"].values())
        == [cells[0, 0], cells[1, 0], cells[0, 1], cells[1, 1]]
    )


def test_figures_are_scikit_learns(exact: Evaluation) -> None:
    assert agrees(exact.figures)
    truth = probability_figures(Z, Y)
    for key in ("base_rate_log_loss", "calibration_slope", "calibration_intercept"):
        assert exact.figures[key] == pytest.approx(truth[key], abs=2e-4)
    assert exact.figures.accuracy == np.mean((Z > 0) == Y)
    assert exact.figures.base_rate == Y.mean() and exact.figures.rows == len(Y)
    decile = np.minimum((P * 10).astype(int), 9)
    for k, point in enumerate(exact.figures.calibration):
        own = decile == k
        if own.sum() >= 10:
            assert point["rows"] == own.sum()
            assert point["predicted"] == pytest.approx(P[own].mean(), abs=1e-6)
            assert point["observed"] == pytest.approx(Y[own].mean(), abs=1e-9)
        else:
            assert point["predicted"] is None and point["rows"] in (None, 0.0)
    assert len(exact.figures.calibration) == 10


@pytest.mark.parametrize("threshold", [0.2, 0.83])
def test_any_threshold_is_an_edge(threshold: float) -> None:
    assert agrees(of_counts(objective(MODEL, private=False, threshold=threshold)), threshold)


OF_A_THRESHOLD = {"threshold", "accuracy", "confusion"}
STRANGE = [1e-307, 1e-9, 0.0025, 0.05, 0.4999999, 0.6, 0.9, 0.9975, 0.9999, 1 - 2**-53]
"""From about the least to the largest that a double has; far from any score, and amid them."""
WEAK = replace(MODEL, weights=np.asarray(MODEL.weights) / 40)


@pytest.mark.parametrize("model", [MODEL, WEAK], ids=["model", "weak"])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("threshold", STRANGE)
def test_a_threshold_moves_no_figure_but_its_own(
    threshold: float, private: bool, model: ReleasedModel
) -> None:
    """To the last bit: every other figure is of bins that follow from the model alone."""
    usual, task = (objective(model, private=private, threshold=t) for t in (0.5, threshold))
    assert (task.bins, task.width) == (usual.bins, usual.width)
    found, due = of_counts(task), of_counts(usual)
    own = {name: value for name, value in found.items() if name not in OF_A_THRESHOLD}
    assert own == {name: due[name] for name in own} and len(own) > 10
    said = 1 / (1 + np.exp(-encode_shard(FRAME, SCHEMA).x @ model.weights))
    assert found["accuracy"] == np.mean((threshold < said) == Y)
    cells = confusion_matrix(Y, threshold < said, labels=[False, True]).T.ravel()
    shown = [None if 0 < each < 10 else each for each in cells]
    assert [*found["confusion"].values()] == shown
    assert found["threshold"] == pytest.approx(threshold, rel=1e-12)


def test_figures_without_a_threshold_are_near_the_truth() -> None:
    """Of counts by bin, without their noise: beyond 6 log-odds a score is told of as 6."""
    found = of_counts(objective(MODEL, private=True))
    assert found["log_loss"] == pytest.approx(log_loss(Y, P), abs=2e-3)
    assert found["brier"] == pytest.approx(brier_score_loss(Y, P), abs=2e-3)
    assert found["auc"] == pytest.approx(roc_auc_score(Y, P), abs=found["auc_error_bound"])


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("bins", [2, 8, 64])
def test_a_cut_on_an_edge_or_between_two(bins: int, private: bool) -> None:
    """Whatever the centre that a plan states, in log-odds; a score on the cut is not above it."""
    usual = objective(MODEL, private=private, bins=bins)
    due, edges = of_counts(usual), usual.of_scores.edges
    for centre in (*edges[:: bins // 2], edges[1] + usual.width / 3, float(Z[7]), -36.0, 36.0):
        found = of_counts(objective_at(MODEL, float(centre), private=private, bins=bins))
        assert found["accuracy"] == np.mean((centre < Z) == Y)
        own = {name: value for name, value in found.items() if name not in OF_A_THRESHOLD}
        assert own == {name: due[name] for name in own}


@pytest.mark.parametrize("centre", [37.5, -750.0, 391.44, 1e100, -1e100, math.inf, math.nan])
def test_a_centre_is_that_of_a_probability(centre: float) -> None:
    """A plan that states another is none: owners and replays read it by the same class."""
    task = objective(MODEL, private=True)
    with pytest.raises(ParameterError, match="centre"):
        replace(task, centre=centre)
    with pytest.raises(ParameterError, match="centre"):
        objective_from_dict({**task.to_dict(), "centre": centre})
    with pytest.raises(ParameterError, match="centre"):
        objective_at(MODEL, centre, private=True)


def test_no_threshold_is_of_a_model_that_has_none() -> None:
    """Whoever chose where its bins lie would choose its figures."""
    for schema, model in ((COSTED, "linear"), (COUNTED, "poisson")):
        known = ReleasedModel(schema=schema, model=model, weights=np.ones((6, 1)))
        with pytest.raises(ParameterError, match="numbers are predicted; leave it out"):
            objective(known, private=True, threshold=0.2)
        task = objective(known, private=True)
        with pytest.raises(ParameterError, match="has no threshold"):
            replace(task, centre=6.0)


def test_bins_that_are_shifted_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_up(self: Bins, z: Any) -> Any:
        return np.minimum(np.searchsorted(self.edges[1:-1], z) + 40, self.count - 1)

    monkeypatch.setattr(Bins, "of", one_up)
    assert not agrees(of_counts(objective(MODEL, private=False)))


def test_sites_have_tables_of_their_own_and_small_ones_none(exact: Evaluation) -> None:
    sizes = FRAME.site.value_counts()
    # Of three: with both tables of the large ones the difference would be that of the small one.
    assert sizes["west"] < 10 and exact.small == ("west", "south")
    assert set(exact.sites) == {"north"}
    for name, own in exact.sites.items():
        mine = (FRAME.site == name).to_numpy()
        assert own.rows == sizes[name]
        assert own.auc == pytest.approx(roc_auc_score(Y[mine], P[mine]), abs=own.auc_error_bound)
        assert own.log_loss == pytest.approx(log_loss(Y[mine], P[mine]), abs=1e-5)
    assert exact.summary()["suppressed"] == {"below": 10, "sites": ["west", "south"]}


def test_a_figure_that_does_not_exist_is_a_dash() -> None:
    assert shown(math.nan) == shown([None]) == "–"
    assert shown([0.25, math.nan]) == "0.25, –"


def test_small_cells_are_not_shown() -> None:
    task = objective(MODEL, private=False, threshold=0.02)
    found = of_counts(task)
    assert (P <= 0.02).sum() + 1 > 0 and found["confusion"]["false_negative"] in (None, 0.0)
    for one, two in zip(found["roc"], found["roc"][1:], strict=False):
        assert (two["true"] - one["true"]) * Y.sum() + (two["false"] - one["false"]) * (
            ~Y
        ).sum() >= 9.999


def test_without_consent_the_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sims.evaluation as module

    own = module.party_specs

    def but_one(*given: Any) -> Any:
        specs = own(*given)
        last = [*specs][-1]
        policy = replace(specs[last].policy, site_tables=False)
        return {**specs, last: replace(specs[last], policy=policy)}

    monkeypatch.setattr(module, "party_specs", but_one)
    with pytest.raises(CohortError, match="site_tables"):
        evaluate(MODEL, FRAME, split="by:site", sites="all", least=2, seed=1)


def test_the_opened_table_is_the_sum_and_the_parties_noise() -> None:
    found = evaluate(MODEL, FRAME, epsilon=1.0, colluders=1, seed=5)
    plan = found.opened.plan
    task: Any = plan.task
    x = encode_shard(FRAME, SCHEMA).x
    clear = task.of_rows(x, Y.astype(float), "")
    drawn = sum(
        plan.draw_noise(0, plan.randomness(SeededRandomness(5, name))) for name in plan.names
    )
    np.testing.assert_allclose(
        found.opened.values,
        clear / len(x) - drawn,
        atol=2 * plan.cipher.error_bound + plan.grid(0).unit * 3,
    )
    # Two honest parties of three leave the promise; all three add half as much again.
    sigma = plan.noise_scales[0] * math.sqrt(3 / 2) * len(x)
    assert found.opened.noise_std * len(x) == pytest.approx(sigma)
    assert found.figures.auc_noise_std > 0
    assert abs(found.figures.auc - roc_auc_score(Y, P)) < 5 * (
        found.figures.auc_noise_std + found.figures.auc_error_bound
    )
    certificate = found.summary()["certificate"]
    assert certificate["satisfied"]
    assert found.summary()["privacy"]["epsilon"] == pytest.approx(1.0)


def test_the_noise_of_a_cell_is_at_most_what_is_stated() -> None:
    task, std = objective(MODEL, private=True, threshold=0.9), 3.0
    clear, source, x = task.of_scores, np.random.default_rng(4), encode_shard(FRAME, SCHEMA).x
    table = np.full(2 * clear.size, 1000.0)
    noisy = (table + std * source.standard_normal(table.shape) for _ in range(400))
    found = [figures(task, each, rows=len(x), noise_std=std) for each in noisy]
    cells = np.array([[*each["confusion"].values()] for each in found]).std(axis=0)
    stated = found[0]["confusion_noise_std"]
    assert cells.max() == pytest.approx(stated, rel=0.2) and task.below > clear.size / 2
    assert cells[0] == pytest.approx(std * math.sqrt(task.below), rel=0.2)
    assert cells[3] == pytest.approx(std * math.sqrt(clear.size - task.below), rel=0.2)


def draws(
    task: EvaluationObjective, std: float, count: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Figures without noise, with what they say of it, and those of many draws."""
    shard, rng = encode_shard(FRAME, SCHEMA if not task.numeric else COSTED), np.random.default_rng
    clear, source = task.of_rows(shard.x, shard.y, ""), rng(0)
    label, rows = shard.schema.label, len(shard.x)

    def read(table: Any) -> dict[str, Any]:
        if isinstance(label, Targets):
            return target_figures(table, rows=rows, low=label.low, width=label.width, noise_std=std)
        return figures(task, table, rows=rows, noise_std=std)

    noisy = (clear + std * source.standard_normal(len(clear)) for _ in range(count))
    return read(clear), [read(table) for table in noisy]


OF_LABEL = ("auc", "accuracy", "log_loss", "brier", "base_rate")
COST = ReleasedModel(schema=COSTED, weights=np.full((COSTED.num_features, 1), 0.1), model="linear")


@pytest.mark.parametrize(
    ("task", "names", "std"),
    [
        (objective(MODEL, private=True), OF_LABEL, 2.0),
        (objective(MODEL, private=True, threshold=0.7), OF_LABEL, 2.0),
        (objective(MODEL, private=True, threshold=0.3, bins=2), OF_LABEL, 2.0),
        (objective(COST, private=True), ("mse", "mae", "relative_mse"), 2.0),
        (objective(COST, private=True), ("r2",), 0.1),  # to first order
    ],
)
def test_the_stated_noise_is_that_of_many_draws(
    task: EvaluationObjective, names: tuple[str, ...], std: float
) -> None:
    """Two of three counts are of the bin that is cut, where there are two bins."""
    clear, found = draws(task, std, 400)
    for name in names:
        stated = np.ravel(clear[f"{name}_noise_std"])
        spread = np.std([np.ravel(each[name]) for each in found], axis=0)
        # The std of 400 draws is within 12 % of the truth, but for one time in a thousand.
        assert spread == pytest.approx(stated, rel=0.2), name
        assert not any(name in each["out_of_range"] for each in found)


@pytest.mark.parametrize(("model", "names"), [(MODEL, ("log_loss", "accuracy")), (COST, ("mse",))])
def test_noise_puts_no_figure_out_of_its_range(
    model: ReleasedModel, names: tuple[str, ...]
) -> None:
    """And what is shown instead is said to be the end of the range."""
    _, found = draws(objective(model, private=True), 900.0, 60)
    for name in names:
        values = np.array([np.ravel(each[name]) for each in found])
        out = np.array([name in each["out_of_range"] for each in found])
        assert (values >= 0).all() and out.any() and not out.all()
        ends = {0.0, float(values.max())}
        assert {float(v) for v in values[out].ravel()} == ends
        assert not ends & {float(v) for v in values[~out].ravel()}


def test_a_ledger_is_charged_and_refuses_an_overdraft(tmp_path: Path) -> None:
    run = {"epsilon": 1.0, "ledger": tmp_path, "seed": 1}
    evaluate(MODEL, FRAME, **run)
    from protocols.privacy.loss.ledger import Ledger

    ledger = Ledger(path=tmp_path / "party-1.jsonl", epsilon=1.0, delta=1e-5)
    assert 0.98 < ledger.spent("data in memory").epsilon <= 1.0
    with pytest.raises(CohortError, match="budget"):
        evaluate(MODEL, FRAME, **run)


@pytest.mark.parametrize("kind", ["label", "targets", "site"])
def test_what_noise_would_leave_nothing_of_is_refused_before_it_is_paid(
    kind: str, tmp_path: Path
) -> None:
    """With as many rows, or as large an epsilon, as the message says, it is not."""
    model, frame = (COST if kind == "targets" else MODEL), FRAME[FRAME.site != "west"][:92]
    asked: dict[str, Any] = {"epsilon": 1.0, "ledger": tmp_path, "seed": 1, "split": "by:site"}
    if kind == "site":
        many = pd.concat([FRAME] * 9, ignore_index=True)
        frame = many[(many.site != "south") | (many.index < 100)]
        asked["sites"] = ("south",)
    with pytest.raises(ParameterError, match="nothing was spent") as caught:
        evaluate(model, frame, **asked)
    assert not any(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))
    told = str(caught.value)
    found = re.search(r"take ([\d,]+) rows(?: or epsilon=([\d.]+))?, .*--however-noisy", told)
    assert found is not None
    rows, epsilon = int(found[1].replace(",", "")), float(found[2] or 0)
    if kind == "site":
        # No epsilon that noise is drawn for would do for so few.
        assert not epsilon and "leave south out of sites" in told
        asked["sites"], epsilon = (), 1.0
    evaluate(model, frame, **{**asked, "epsilon": epsilon, "ledger": None})
    if kind == "label":
        more = pd.concat([frame] * (1 + rows // len(frame)), ignore_index=True)
        evaluate(model, more[:rows], **asked)
        with pytest.raises(ParameterError, match="nothing was spent"):
            evaluate(model, more[: rows - 1], **{**asked, "ledger": None})


def test_the_foreseen_noise_is_near_what_is_met() -> None:
    """Of models with skill it is up to twice as much, or as little as half."""
    for epsilon in (2.0, 8.0):
        found = evaluate(MODEL, FRAME, epsilon=epsilon, seed=1)
        task: Any = found.opened.plan.task
        told = foreseen(task, len(FRAME), found.opened.noise_std * len(FRAME)).std
        assert told / 2 < found.figures.auc_noise_std < 2 * told


def test_figures_stay_where_standard_errors_are_refused() -> None:
    asked: dict[str, Any] = {"epsilon": 0.1, "seed": 1, "inference": True}
    with pytest.raises(PrivacyError, match="intervals: 9,000 rows .*nothing was spent on them"):
        evaluate(MODEL, pd.concat([FRAME] * 10, ignore_index=True), **asked)
    found = evaluate(MODEL, FRAME, **asked, however_noisy=True)
    assert any("every figure may be far off" in note for note in found.notes)
    assert found.inference is None and "no standard errors" in found.notes[0]
    assert found.summary()["warnings"] == list(found.notes) and found.figures.rows == len(Y)


def test_targets_are_scikit_learns() -> None:
    raw = encode_shard(FRAME, COSTED)
    fit = LinearRegression(fit_intercept=False).fit(raw.x[:300], raw.y[:300])
    model = ReleasedModel(schema=COSTED, weights=fit.coef_.T, model="linear")
    found = evaluate(model, FRAME, parties=2, seed=1).figures
    truth, said = FRAME.cost.to_numpy(), model.predict(FRAME).cost.to_numpy()
    assert found.mse[0] == pytest.approx(mean_squared_error(truth, said), rel=1e-4)
    assert found.mae[0] == pytest.approx(mean_absolute_error(truth, said), rel=1e-5)
    assert found.r2[0] == pytest.approx(r2_score(truth, said), abs=1e-4)
    slope, constant = np.polyfit(said, truth, 1)
    assert found.calibration_slope[0] == pytest.approx(slope, abs=1e-3)
    assert found.calibration_intercept[0] == pytest.approx(constant, abs=0.2)
    noisy = evaluate(model, FRAME, parties=2, seed=1, epsilon=20.0).figures
    assert noisy.mae[0] == pytest.approx(found.mae[0], rel=0.3)


def test_deviance_of_counts_is_scikit_learns() -> None:
    weights = np.array([[0.6], [-0.8], [0.0], [0.0], [0.1], [0.1]])
    model = ReleasedModel(schema=COUNTED, weights=weights, model="poisson")
    found = evaluate(model, FRAME, parties=2, seed=1).figures
    truth, said = FRAME.visits.to_numpy(), model.predict(FRAME).visits.to_numpy()
    assert found.deviance[0] == pytest.approx(mean_poisson_deviance(truth, said), rel=1e-4)
    assert found.d2[0] == pytest.approx(d2_tweedie_score(truth, said, power=1), abs=1e-4)
    assert found["mean"][0] == pytest.approx(truth.mean(), rel=1e-5)
    assert found.mean_prediction[0] == pytest.approx(said.mean(), rel=1e-5)
    many = pd.concat([FRAME] * 10, ignore_index=True)
    noisy = evaluate(model, many, parties=2, seed=1, epsilon=20.0).figures
    assert noisy.deviance[0] == pytest.approx(found.deviance[0], rel=0.3)
    assert noisy.deviance != found.deviance


@pytest.mark.parametrize(
    ("error", "options"),
    [
        *((ParameterError, {"threshold": each}) for each in NO_THRESHOLDS),
        (ParameterError, {"sites": ("east",)}),
        (ParameterError, {"bins": 3}),
        (SchemaError, {"data": FRAME.drop(columns="died")}),
        (DataError, {"data": FRAME[:8]}),
    ],
)
def test_what_makes_no_sense_is_refused(error: type[Exception], options: dict[str, Any]) -> None:
    data = options.pop("data", FRAME)
    with pytest.raises(error):
        evaluate(MODEL, data, **options)


def test_the_command(tmp_path: Path) -> None:
    model, data, out = tmp_path / "model.json", tmp_path / "new.csv", tmp_path / "out"
    FRAME.to_csv(data, index=False)
    fields = model_fields(SCHEMA, MODEL.weights, "logistic")
    fields |= {"weights": MODEL.weights.tolist(), "schema": SCHEMA.to_dict()}
    model.write_text(json.dumps(fields))
    asked = ("evaluate", "--model", model, "--data", data, "--split", "by:site")
    told = cohort(*asked, "--json", "--inference", "--sites", "north,south", "--out", out)
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    assert set(found) >= NAMES and agrees(found)
    assert [row["name"] for row in found["inference"]][:3] == ["intercept", "age", "dose"]
    assert json.loads((out / "evaluation.json").read_text()) == found
    said, table = (out / "inference.tex").read_text().split("\n", 1)
    assert said.startswith("% EXACT SUMS: ") and table.startswith(r"\begin{table}")
    assert cohort(*asked, "--out", out).exit_code == 0
    assert cohort(*asked, "--out", tmp_path).exit_code == 2
    told = cohort(*asked, "--epsilon", "2", "--seed", "1")
    assert "noise of std" in told.stdout and "epsilon=2" in told.stdout
    assert cohort(*asked, "--sites", "east").exit_code == 2
    for threshold in NO_THRESHOLDS:
        told = cohort(*asked, f"--threshold={threshold}")
        assert told.exit_code == 2 and "is outside (0, 1)" in told.stderr
    assert isinstance(pd.DataFrame(found["roc"]), pd.DataFrame)
