r"""Private logistic regression of arXiv:2605.27782: rows, its three models, mini-batches.

**Rows.** The paper has numbers for categories and all columns on [-1, 1] (`plain_rows`); which
columns it keeps is not said. What decides without clipping of gradients is the rows' norm, so
private models get `short_folds`: numeric columns less a typical value over a spread, both to one
significant digit as somebody might know them beforehand, clamped to [-2, 2]; a column for each
category; a bias; then rows are divided by ROW_NORM and clipped to norm 1.

**Clipping under encryption** (Algorithm 4). A row's gradient is (p(z) - y) x, of norm
|p(z) - y| |x|, so clipping it to norm C is clipping the number u = (p(z) - y) |x| to [-C, C]:

    g / max(1, |g| / C) = clip(u) x / |x|.

Owners know |x| and x / |x| in plaintext. One odd polynomial of u stands in for the paper's norm,
square root, maximum and inverse (`ckks.circuits.clip`); the largest value that it takes is
what the noise pays for. Where rows are clipped in plaintext before they are encrypted, as here, the
sensitivity is bounded by 2 (1 + e_f) without any of it.

**Mini-batches.** b of N rows drawn without replacement by a curator whom everybody trusts, as the
paper does; Gaussian noise by the subsampled Renyi accountant of Wang, Balle, Kasiviswanathan
(arXiv:1808.00087), replace-one. Theorem 3 asks of the gradient only that its norm is at most
(1 + e_f) B and, at 0, B / 2, which a mean over any batch of fixed size meets; so the iterates are
certified as those of a full batch whose noise is as large: of N' rows, N' = b z_N / z_b, with the
noise multipliers z of full and of mini-batches.

NOT PRIVATE: noise is seeded float64, and typical values are taken from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from parties.kernel.integers import clip_rows
from protocols.ckks.circuits.clip import clip_polynomial, largest_value
from protocols.models.registry import model_named
from protocols.numerics.approximation import Polynomial
from protocols.privacy.certificates.barrier import BarrierSetting
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.search.search import find_setting
from protocols.updates.barrier import Barrier
from protocols.updates.momentum import GradientDescent
from sims.lab.audits.many_twins import train_many
from sims.lab.baselines import optimum, output_sensitivity
from sims.lab.papers.data import ADULT, ADULT_TEST, Need, fold_numbers
from sims.lab.papers.item import Settings

Floats = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-5
ROW_NORM = 3.0
TEST_SHARE, FOLDS = 0.3, 5
"""Of plain rows, Table 3's: its accuracies of adult are whole numbers of 14,653 rows."""
REPEATED = ["education", "age_cat"]
"""Of adult and compas: what education_num and age say."""
ORDERS = tuple(range(2, 65))
"""Of Renyi accounting: those of the moments accountant and as many more."""
CLIP = 1 / ROW_NORM
"""The paper's C = 1 for rows of norm 1 at most."""
CLIP_ROUNDS, CLIP_RATE = 100, 8.0
OUTPUT_RIDGE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """x: float64, shape (n, m), bias last; y: 0 or 1; of held-out rows too; seed: of the noise."""

    name: str
    x: Floats
    y: Floats
    test_x: Floats
    test_y: Floats
    seed: int = 0

    def figures(self, weights: Floats) -> tuple[Floats, Floats]:
        """Accuracy and area under the ROC curve of each run on the held-out rows, shape (runs,)."""
        model = model_named("logistic")
        found = [model.metrics(w, self.test_x, self.test_y) for w in weights]
        return np.array([f["accuracy"] for f in found]), np.array([f["auc"] for f in found])


def pooled(need: Need, settings: Settings) -> pd.DataFrame:
    """A table's rows; adult's two files, where both are there, are one.

    Raises:
        DataError: a file is missing, in the full setting.
    """
    both = need is ADULT and ADULT_TEST.found(settings.data_folder)
    parts = [settings.load(each) for each in ((ADULT, ADULT_TEST) if both else (need,))]
    return pd.concat(parts, ignore_index=True)


def short_folds(need: Need, settings: Settings) -> Iterator[Rows]:
    """See the module; each fifth held out in turn, quick: the first."""
    frame = pooled(need, settings)
    parts = fold_numbers(len(frame), FOLDS, np.random.default_rng(0))
    for seed, (train, test) in enumerate(islice(parts, 1 if settings.quick else None)):
        yield replace(short_rows(need, frame.iloc[train], frame.iloc[test]), seed=seed)


def short_rows(need: Need, train: pd.DataFrame, test: pd.DataFrame) -> Rows:
    """Both encoded by what is typical of the training rows."""
    label = need.labels[0]
    numeric = [c for c in train.columns if c != label and train[c].dtype != object]
    typical, spread = (_one_digit(train[numeric].agg(f)) for f in ("mean", "std"))

    def features(frame: pd.DataFrame) -> pd.DataFrame:
        scaled = ((frame[numeric] - typical) / spread).clip(-2, 2)
        words = frame.drop(columns=[*numeric, label])
        parts = [pd.get_dummies(words, dtype=float)] if words.size else []
        return pd.concat([scaled, *parts], axis=1)

    first = features(train)
    other = features(test).reindex(columns=first.columns, fill_value=0.0)
    return _rows(need, first, other, train[label], test[label], ROW_NORM)


def plain_rows(need: Need, settings: Settings, by_label: bool = False) -> Rows:
    """Numbers for categories, every column on [-1, 1] by its extremes; norms up to sqrt(m).

    Columns that repeat another, and that the paper's smoothness does not count, are left out.

    by_label: categories in the order of the label's mean over training rows, not of the alphabet.
    """
    frame = pooled(need, settings)
    label, order = need.labels[0], np.random.default_rng(0).permutation(len(frame))
    columns = frame.drop(columns=label).drop(columns=REPEATED, errors="ignore")
    test, train = np.split(order, [round(TEST_SHARE * len(frame))])
    labels = frame[label].astype("category").cat.codes.iloc[train]

    def numbers(column: pd.Series) -> pd.Series:
        if column.dtype != object:
            return column
        if not by_label:
            return column.astype("category").cat.codes
        ranks = labels.groupby(column.iloc[train]).mean().rank()
        return column.map(ranks).fillna(ranks.median())

    codes = columns.apply(numbers)
    low, high = codes.min(), codes.max()
    scaled = 2 * (codes - low) / (high - low).where(high > low, 1.0) - 1
    x, y = scaled.iloc, frame[label].iloc
    return _rows(need, x[train], x[test], y[train], y[test], None)


def _one_digit(values: pd.Series) -> pd.Series:
    return values.map(lambda v: float(f"{v:.0e}") or 1.0)


def _rows(
    need: Need, x: Any, test_x: Any, y: pd.Series, test_y: pd.Series, norm: float | None
) -> Rows:
    positive = sorted(y.unique())[-1]

    def matrix(part: pd.DataFrame) -> Floats:
        rows = np.column_stack([part.to_numpy(dtype=np.float64), np.ones(len(part))])
        return rows if norm is None else clip_rows(rows, norm)[0]

    return Rows(
        name=need.name,
        x=matrix(x),
        y=(y == positive).to_numpy(dtype=np.float64),
        test_x=matrix(test_x),
        test_y=(test_y == positive).to_numpy(dtype=np.float64),
    )


# -- models on rows of norm 1 ---------------------------------------------------------------------

Gradient = Callable[[Floats, Floats, Floats], Floats]
"""(margins (n, runs), labels, rows) -> mean gradients, shape (runs, m)."""


def polynomial_gradient(link: Callable[[Floats], Floats]) -> Gradient:
    """Mean of (p(z) - y) x."""
    return lambda z, y, x: (link(z) - y[:, None]).T @ x / len(x)


def clipped_gradient(
    link: Callable[[Floats], Floats], clip: Callable[[Floats], Floats]
) -> Gradient:
    """Mean of clip(u) x / |x|, u = (p(z) - y) |x|."""

    def gradient(z: Floats, y: Floats, x: Floats) -> Floats:
        lengths = np.linalg.norm(x, axis=1)[:, None]
        pushed = clip((link(z) - y[:, None]) * lengths)
        return np.asarray((pushed / lengths).T @ x / len(x))

    return gradient


@dataclass(frozen=True, kw_only=True)
class Noise:
    """std: on a round's mean gradient; batch: rows drawn in every round, None for all."""

    std: float
    batch: int | None = None


def train(rule: Any, rows: Rows, gradient: Gradient, noise: Noise, runs: int) -> Floats:
    """Weights of all runs, shape (runs, m)."""
    rng = np.random.default_rng(rows.seed)

    def oracle(t: int, weights: Floats) -> Floats:
        shaken = noise.std * rng.standard_normal(weights.shape)
        if noise.batch is None:
            return gradient(rows.x @ weights.T, rows.y, rows.x) + shaken
        for run, w in enumerate(weights):
            drawn = rng.choice(len(rows.x), noise.batch, replace=False, shuffle=False)
            x, y = rows.x[drawn], rows.y[drawn]
            shaken[run] += gradient((x @ w)[:, None], y, x)[0]
        return shaken

    return train_many(rule, oracle, runs=runs, features=rows.x.shape[1])


@lru_cache
def certified(rows: int, features: int, epsilon: float, quick: bool) -> Certificate:
    """A setting that Theorem 3 certifies, for rows of norm 1.

    Raises:
        PrivacyError: there is none.
    """
    return find_setting(
        rows=rows,
        features=features,
        norm_bound=1.0,
        epsilon=epsilon,
        delta=DELTA,
        parties=1,
        colluders=0,
        rounds=25 if quick else None,
        degree=5 if quick else None,
    )


def barrier_rule(setting: BarrierSetting) -> Barrier:
    """Algorithm 3 at a setting."""
    return Barrier(
        rounds=setting.rounds,
        learning_rate=setting.learning_rate,
        theta=setting.theta,
        weight=setting.lam,
        reciprocal=setting.reciprocal.polynomial,
    )


def train_barrier(rows: Rows, setting: BarrierSetting, noise: Noise, runs: int) -> Floats:
    """Model 2: no clipping of gradients."""
    gradient = polynomial_gradient(setting.sigmoid.polynomial)
    return train(barrier_rule(setting), rows, gradient, noise, runs)


def clip_noise(rows: int, rounds: int, epsilon: float, largest: float) -> float:
    """Std on the mean gradient whose rows add at most `largest`: exact, replace-one."""
    return 2 * largest / rows * full_multiplier(rounds, epsilon)


def train_clipped(
    rows: Rows, noise: Noise, runs: int, clip: Callable[[Floats], Floats], link: Any = expit
) -> Floats:
    """Model 1: gradient descent with clipped gradients."""
    rule = GradientDescent(rounds=CLIP_ROUNDS, learning_rate=CLIP_RATE)
    return train(rule, rows, clipped_gradient(link, clip), noise, runs)


def exact_clip(u: Floats) -> Floats:
    """[-C, C]."""
    return np.clip(u, -CLIP, CLIP)


def encrypted_clip(link_error: float) -> tuple[Polynomial, float]:
    """The odd polynomial in its place on |u| <= 1 + e_f, and its largest value."""
    found = clip_polynomial(CLIP, 1.0 + link_error)
    return found, largest_value(found)


def train_output(rows: Rows, runs: int, epsilon: float, count: int) -> Floats:
    """Model 3: the regularised optimum and one draw of noise; sensitivity 2 L / (lambda N)."""
    best = optimum("logistic", OUTPUT_RIDGE, rows.x, 2 * rows.y - 1)
    std = output_sensitivity("logistic", OUTPUT_RIDGE, count) * full_multiplier(1, epsilon)
    shaken = std * np.random.default_rng(rows.seed).standard_normal((runs, best.size))
    return np.asarray(best + shaken)


# -- mini-batches ---------------------------------------------------------------------------------


@lru_cache
def batch_multiplier(rows: int, batch: int, rounds: int, epsilon: float) -> float:
    """Noise std over the largest move of a batch's sum, by the subsampled Renyi accountant."""
    source = dp_accounting.SampledWithoutReplacementDpEvent

    def event(z: float) -> Any:
        once = source(rows, batch, dp_accounting.GaussianDpEvent(z))
        return dp_accounting.SelfComposedDpEvent(once, rounds)

    def accountant() -> Any:
        return dp_accounting.rdp.RdpAccountant(
            orders=ORDERS, neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )

    start = dp_accounting.LowerEndpointAndGuess(0.3, 1.0)
    found = dp_accounting.calibrate_dp_mechanism(accountant, event, epsilon, DELTA, start, tol=1e-3)
    return float(found)


def full_multiplier(rounds: int, epsilon: float) -> float:
    """The same without subsampling, exact."""
    return float(np.sqrt(rounds) / mu_for_epsilon(epsilon=epsilon, delta=DELTA))


def equivalent_rows(rows: int, batch: int, rounds: int, epsilon: float) -> int:
    """N' of a full batch whose noise is as large; see the module."""
    ratio = full_multiplier(rounds, epsilon) / batch_multiplier(rows, batch, rounds, epsilon)
    return int(batch * ratio)
