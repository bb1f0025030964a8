"""Standard errors and intervals of a model over the rows of several parties.

Rows are encoded anew, by the schema's ranges alone: see `parties.reader.views`, docs/inference.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.after.inference_cost import check_rows, reach_of
from ciphercohort.after.inference_rows import first_categories, in_data_units, to_ranges
from ciphercohort.after.inference_table import (
    caption,
    cell_table,
    latex_table,
    ratio_of,
    text_table,
)
from ciphercohort.after.sums import SumSeries
from ciphercohort.job.config import WITH_INFERENCE
from ciphercohort.results.coefficients import LEVEL, coefficient, left_out
from ciphercohort.results.documents import coefficients
from ciphercohort.results.exact_sums import insecure_fields
from ciphercohort.results.result import Array, outcome_words, targets_of
from ciphercohort.results.shown import Shown
from parties.reader.schema import CategoricalColumn, Schema, Targets
from parties.reader.views import by_range, row_norm
from protocols.errors import ParameterError, PrivacyError
from protocols.models.poisson import Poisson
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss.accounting import GaussianEvent, compose
from protocols.statistics.inference.budget import left_mu
from protocols.statistics.inference.estimate import (
    CONVERGED,
    SEPARATED,
    Estimate,
    Newton,
    Noisy,
    UnclearError,
    exact,
    least_squares,
    left_by_others,
    noisy_least_squares,
    private_steps,
)
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.sums.one_sum import OneSum

PROJECTED = (
    "inference of a model of components (projection in the schema): no column's coefficient is "
    "fitted by itself, and so none has a standard error; leave inference out"
)
MOST_ROUNDS = 30
NAMED = 0.3
"""Columns whose entry in a unit vector is larger are named as what it is of."""
LONG = 3.0
"""Times that the result is as far from the first point that counts as noise explains: told of."""


@dataclass(frozen=True, kw_only=True)
class Inference(Shown):
    """A table of coefficients in the data's own units.

    model; outcome: see `outcome_words`; names: "intercept" first; outputs: of targets, one table
    each, else one empty text;
    coef, se: shape (outputs, names), NaN where the others determine a column; added: what privacy
    adds to the variance, the same shape; freedom: of the t distribution, inf for the normal; rows:
    N; rounds: secure sums; budget: epsilon and delta in all, None without privacy; mechanisms: of
    the sums; weights: the same model on rows of `by_range`, bias last, shape (d,) or (d, outputs),
    0 where a column is left out; notes: sentences for the reader; kept: others, which tell of
    rows, and which only a simulation can say; insecure: at a model of a toy ring.
    """

    model: str
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    coef: Array
    se: Array
    added: Array
    freedom: float
    num_rows: int
    rounds: int
    budget: tuple[float, float] | None
    mechanisms: tuple[Mechanism, ...] = field(repr=False)
    weights: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    notes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    outcome: str = ""
    insecure: bool = False

    @property
    def ratio(self) -> str:
        """What exp(coef) is called; empty: nothing."""
        return ratio_of(self.model)

    @property
    def epsilon(self) -> float | None:
        """Of its sums alone, at the delta of everything; None without privacy."""
        if self.budget is None:
            return None
        events = [event for each in self.mechanisms for event in each.events]
        return compose(events, delta=MECHANISM_SHARE * self.budget[1])

    def rows(self) -> list[dict[str, Any]]:
        """name, coef, se, z, p, low, high; target or ratio where there is one; privacy's share."""
        found = []
        for k, output in enumerate(self.outputs):
            for j, name in enumerate(self.names):
                coef, se = float(self.coef[k, j]), float(self.se[k, j])
                row: dict[str, Any] = {"target": output} if output else {}
                row |= coefficient(name, coef, se, self.freedom, self.ratio)
                if self.budget:
                    row["privacy_share"] = float(self.added[k, j] / se**2) if se > 0 else math.nan
                found.append(row)
        return found

    def about(self) -> dict[str, Any]:
        """What the table rests on."""
        return {
            "model": self.model,
            "outcome": self.outcome,
            "rows": self.num_rows,
            "level": LEVEL,
            "rounds": self.rounds,
            "freedom": self.freedom,
            "exact_sums": self.budget is None,
            **insecure_fields(self.insecure),
            "epsilon": self.epsilon,
            "epsilon_in_all": self.budget[0] if self.budget else None,
            "delta_in_all": self.budget[1] if self.budget else None,
            "mu_of_rounds": [
                math.sqrt(sum(e.mu**2 for e in m.events if isinstance(e, GaussianEvent)))
                for m in self.mechanisms
            ],
            "notes": [*self.kept, *self.notes],
        }

    def released(self) -> dict[str, Any]:
        """{rows, about}: what the coordinator of the sums has, and nothing beside it."""
        return {"rows": self.rows(), "about": replace(self, kept=()).about()}

    def text(self, marked: bool = True) -> str:
        """For a terminal, after the manner of statsmodels; marked: says where sums were exact."""
        about = self.about() | ({} if marked else {"exact_sums": False})
        return text_table(self.rows(), about, self.ratio)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows, for a page."""
        return cell_table(self.rows(), self.about(), self.ratio)

    @property
    def caption(self) -> str:
        """What the table is of."""
        return caption(self.about())

    def latex(self) -> str:
        """A table for a paper: of what is released, where there is an epsilon."""
        about = self.about() if self.budget is None else replace(self, kept=()).about()
        return latex_table(self.rows(), about, self.ratio)


# -- the sums -------------------------------------------------------------------------------------


def infer_by(
    sums: SumSeries,
    schema: Schema,
    weights: Array,
    model: str,
    *,
    spent: tuple[Mechanism, ...] = (),
    share: float = 1.0,
    insecure: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> Inference:
    """A table of coefficients at a model, by sums over rows of `by_range`, within their promise.

    schema: that the model was trained by; weights: on its scaled rows, bias last, shape (d,) or
    (d, outputs); spent: what the promise has paid for before; share: of what is left of it, in
    mu^2; insecure: the model was trained on a toy ring; tell: see `check_sums`.

    Raises:
        ParameterError: the model has no standard errors, or no maximum; or a projection.
        PrivacyError: too few rows, or noise leaves no interval. CohortError: a sum is refused, or
            aborted.
    """
    if model not in WITH_INFERENCE:
        raise ParameterError(
            f"model={model!r}: standard errors are known of {', '.join(WITH_INFERENCE)}"
        )
    if schema.projection is not None:
        raise ParameterError(PROJECTED)
    own, wanted, mu = sums.schema, sums.wanted, None
    if wanted.epsilon is not None:
        mu = math.sqrt(share) * left_mu(wanted.epsilon, wanted.delta, spent)
    bound, notes = row_norm(schema), list[str]()
    named = (*own.feature_names, "intercept")
    if mu is not None:
        check_sums(sums, schema, model, mu, tell=tell)
    freedom = math.inf
    if model != "logistic":
        notes += _ends(targets_of(schema.label))
    if model == "linear":
        with naming(named):
            estimates = _linear(sums, bound, targets_of(schema.label).outputs, mu)
        if mu is None:
            kept = int(np.isfinite(estimates[0].theta).sum())
            freedom = float(max(sums.rows - kept, 1))
    else:
        start = weights[:, 0] if weights.ndim == 2 else weights
        theta = to_ranges(schema, own, start, model)
        high = 1.0
        if model == "poisson":
            label = targets_of(schema.label)
            high = float(label.low[0] + label.width[0])
        with naming(named):
            found = (
                _newton(sums, model, theta, bound, high)
                if mu is None
                else _private(sums, model, theta, bound, mu, high, notes)
            )
        estimates = [found]
    numeric = model != "logistic"
    lows = targets_of(schema.label).low if numeric else np.zeros(1)
    widths = targets_of(schema.label).width if numeric else np.ones(1)
    tables = [
        in_data_units(own, each, float(low), float(width), model)
        for each, low, width in zip(estimates, lows, widths, strict=True)
    ]
    names = ("intercept", *schema.feature_names)
    place = [names.index(name) for name in ("intercept", *own.feature_names)]
    coef, se, added = (np.full((len(tables), len(names)), np.nan) for _ in range(3))
    fitted = _weights(schema, own, estimates, model)
    slopes, constants = coefficients(by_range(schema), fitted, model)
    for k, table in enumerate(tables):
        coef[k, place], se[k, place], added[k, place] = table
    # To the last bit those of a model.json with these weights.
    coef[:] = np.where(np.isnan(coef), np.nan, np.column_stack([constants, slopes]))
    notes += _left_out(schema, [names[k] for k in np.flatnonzero(np.isnan(coef[0]))])
    return Inference(
        model=model,
        outcome=outcome_words(schema),
        insecure=insecure,
        names=names,
        outputs=schema.label.names if numeric else ("",),
        coef=coef,
        se=se,
        added=added,
        freedom=freedom,
        num_rows=sums.rows,
        rounds=len(sums.done),
        budget=None if wanted.epsilon is None else (wanted.epsilon, wanted.delta),
        mechanisms=sums.mechanisms,
        weights=fitted,
        notes=tuple(notes),
        kept=tuple(sums.notes),
    )


@contextmanager
def naming(names: Sequence[str], columns: Array | None = None) -> Iterator[None]:
    """A refusal for noise names the columns of which least is known: opened with that noise.

    names: one may stand for several columns; columns: of what was opened, shape (its coordinates,
    names); None: each is a column.
    """
    try:
        yield
    except UnclearError as error:
        direction = error.direction if columns is None else error.direction @ columns
        squares = dict.fromkeys(names, 0.0)
        for name, share in zip(names, direction**2 / (direction**2).sum(), strict=True):
            squares[name] += float(share)
        most = sorted(squares, key=lambda name: -squares[name])
        few = [name for name in most if squares[name] > NAMED**2] or most[:1]
        raise PrivacyError(f"{error}. Least is known of {', '.join(few)}") from None


def _left_out(schema: Schema, gone: Sequence[str]) -> list[str]:
    """Notes: what categories are compared with, and what else the others determine."""
    rest, compared = set(gone), []
    for column in schema.columns:
        first, *others = column.features
        is_category = isinstance(column, CategoricalColumn)
        if is_category and first in rest and others and not rest.intersection(others):
            rest.remove(first)
            compared.append(first.replace("=", " ", 1))
    notes = [f"reference: {', '.join(compared)}"] if compared else []
    return notes + left_out([name for name in gone if name in rest])


def _ends(targets: Targets) -> list[str]:
    """What tables of numeric outcomes rest on, for a paper: public, whether a value lies beyond."""
    return [
        f"{column.name}: values below {column.low:g} count as {column.low:g}, above "
        f"{column.high:g} as {column.high:g}"
        for column in targets.columns
    ]


def check_sums(
    sums: SumSeries,
    schema: Schema,
    model: str,
    mu: float,
    *,
    tell: Callable[[str], None] = lambda words: None,
) -> None:
    """Before any is opened: see `check_rows`; mu: of all of them.

    Sums that were begun are gone on with, whatever the noise: what opened is spent.
    """
    bound, epsilon = row_norm(schema), sums.wanted.epsilon
    first: OneSum
    if model == "linear":
        outputs = targets_of(schema.label).outputs
        first = ProductsObjective(row_norm=bound, outputs=outputs, epsilon_in_all=epsilon)
    else:
        start = (0.0,) * sums.schema.num_features
        first = InformationObjective(
            model=model, theta=start, row_norm=bound, epsilon_in_all=epsilon
        )
    reached = reach_of(sums.plan(first, mu), model)
    check_rows(reached, sums.figures, tell, however_noisy=sums.however_noisy or sums.begun)


def _weights(schema: Schema, own: Schema, estimates: Sequence[Estimate], model: str) -> Array:
    """On rows of all columns of `by_range`; own: of the estimates."""
    names = schema.feature_names
    places = [*(names.index(name) for name in own.feature_names), len(names)]
    found: Array = np.zeros((len(names) + 1, len(estimates)))
    found[places] = np.nan_to_num([each.theta for each in estimates]).T
    if model == "poisson":
        found[-1] += Poisson().radius
    return found[:, 0] if model == "logistic" else found


def _newton(sums: SumSeries, model: str, theta: Array, bound: float, high: float) -> Estimate:
    """Until the maximum. high: of counts, 1 of a label: information of counts is so much larger."""
    kept: NDArray[np.bool_] = np.ones(len(theta), dtype=bool)
    largest: Array = np.zeros((2, len(theta)))
    newton = Newton()
    names = np.array([*sums.schema.feature_names, "intercept"])
    last = first_categories(sums.schema)
    for k in range(MOST_ROUNDS):
        task = InformationObjective(model=model, theta=tuple(theta.tolist()), row_norm=bound)
        score, information = task.read(sums.open(task).values, sums.rows)
        found = np.stack([np.diag(information), left_by_others(information, last)])
        if not k:
            kept = found[1] > 0
        largest = np.maximum(largest, found)
        alone, beside = kept & (found < SEPARATED * largest)
        try:
            theta, decrement = newton.step(theta, score, information, kept)
        except np.linalg.LinAlgError:
            raise ParameterError("the information is singular: leave out columns") from None
        done = decrement * high <= CONVERGED
        # Several columns together may separate them, too.
        gone = alone | beside if done else alone
        if gone.any():
            raise ParameterError(
                f"there is no maximum: {', '.join(names[gone])} separates the labels; leave it "
                "out, or merge rare categories"
            )
        if done:
            return exact(theta, information, kept, np.asarray(1 / high))
    raise ParameterError(f"Newton's method finds no maximum in {MOST_ROUNDS} steps")


def _private(
    sums: SumSeries,
    model: str,
    theta: Array,
    bound: float,
    mu: float,
    high: float,
    notes: list[str],
) -> Estimate:
    def ask(point: Array, cost: float) -> Noisy:
        task = InformationObjective(
            model=model,
            theta=tuple(point.tolist()),
            row_norm=bound,
            epsilon_in_all=sums.wanted.epsilon,
        )
        opened = sums.open(task, cost)
        sigma = opened.noise_std * sums.rows
        return Noisy(
            point, *task.read(opened.values, sums.rows), sigma, sigma / task.row_function.kappa
        )

    found, length = private_steps(theta, mu, ask, 1 / high)
    if length > LONG:
        notes.append(
            f"the result is {length:.1f} times as far from the first point that counts as noise "
            "explains: that point was not near the maximum, and the intervals may be too narrow"
        )
    return found


def _linear(sums: SumSeries, bound: float, outputs: int, mu: float | None) -> list[Estimate]:
    epsilon = sums.wanted.epsilon
    task = ProductsObjective(row_norm=bound, outputs=outputs, epsilon_in_all=epsilon)
    opened = sums.open(task, mu)
    products = task.read(opened.values, sums.rows)
    if mu is None:
        return least_squares(products, outputs, sums.rows, first_categories(sums.schema))
    return noisy_least_squares(products, outputs, sums.rows, opened.noise_std * sums.rows)
