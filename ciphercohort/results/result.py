"""What a simulation returns, whatever the model, and its one-object JSON summary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.job.inputs import SchemaFrom, stated
from ciphercohort.results.caveats import Caveats
from ciphercohort.results.exact_sums import exact_fields, insecure_fields, marks
from ciphercohort.results.plan_figures import plan_figures, run_words
from ciphercohort.results.promise import WHOLE, Promise
from ciphercohort.results.shown import Shown
from ciphercohort.results.verdict import no_better
from coordinator.costs import Costs
from parties.reader.look import filled_words
from parties.reader.schema import Classes, Label, Schema, Targets
from parties.reader.views import by_range
from protocols.errors import SchemaError
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.names import RANGES_VIEW
from protocols.plan.run_plan import RunPlan
from protocols.privacy.search.rescale import Scaling
from protocols.statistics.evaluation.figures import LEAST
from protocols.words import count

if TYPE_CHECKING:
    from ciphercohort.after.inference import Inference
    from ciphercohort.after.judged import Evaluation

Array = NDArray[np.float64]
UNCONVERGED, FAR = "training has not converged", "coefficients are not at the maximum"
"""How warnings of that begin: by what training minimises, and in standard errors."""


class Figures(dict[str, Any]):
    """Figures by name, also as attributes: `scores.accuracy`; see `Model.metrics`."""

    def __getattr__(self, name: str) -> Any:
        """A figure."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no figure {name!r}") from None


def label_of(schema: Schema) -> Label:
    """The label of two values.

    Raises:
        SchemaError: the schema has classes or targets.
    """
    if not isinstance(schema.label, Label):
        raise SchemaError(
            f"the schema has targets or classes ({schema.label.name}) where a label of two values "
            "is due"
        )
    return schema.label


def outcome_words(schema: Schema) -> str:
    """What is predicted: `died = yes`, of a label the value that counts as 1; else names."""
    label = schema.label
    return (
        f"{label.name} = {label.positive}" if isinstance(label, Label) else ", ".join(label.names)
    )


def classes_of(schema: Schema) -> Classes:
    """The label of several classes.

    Raises:
        SchemaError: the schema has another label, or targets.
    """
    if not isinstance(schema.label, Classes):
        raise SchemaError(f"the schema has no classes of {schema.label.name}, which are due")
    return schema.label


def targets_of(label: object) -> Targets:
    """The numeric targets.

    Raises:
        SchemaError: the schema has a label.
    """
    if not isinstance(label, Targets):
        raise SchemaError("the schema has a label of two values where targets are due")
    return label


def encoding_of(schema: Schema, view: str) -> Schema:
    """By which rows of a view are encoded; empty: as the schema scales them.

    Raises:
        SchemaError: there is no such view.
    """
    if view not in ("", RANGES_VIEW):
        raise SchemaError(f"view={view!r} of a model is not {RANGES_VIEW!r}: take a newer release")
    return by_range(schema) if view else schema


def shifted(x: Array, offset: Array) -> Array:
    """Rows with their offset as one more column; see `with_offset`."""
    return np.column_stack([x, offset]) if offset.any() else x


def with_offset(weights: Array, x: Array) -> Array:
    """Weights of `shifted` rows: scores are x w + offset."""
    beside = x.shape[1] - len(weights)
    return np.concatenate([weights, np.ones((beside, *weights.shape[1:]))]) if beside else weights


def scored(
    model: Model,
    weights: Array,
    x: Array,
    y: Array,
    schema: Schema,
    offset: Array | None = None,
) -> Figures:
    """Metrics of a model on encoded rows, each once; errors in the units of the schema's targets.

    offset: of each row's score, shape (rows,). Without rows every figure is NaN.
    """
    width = targets_of(schema.label).width if model.numeric else 1.0
    if not len(y):
        x, y = np.zeros((1, x.shape[1])), np.zeros((1, *y.shape[1:]))
        found = model.metrics(weights, x, y, width)
        return Figures(blank(found, found))
    x = x if offset is None else shifted(x, offset)
    return Figures(model.metrics(with_offset(weights, x), x, y, width))


def blank(figures: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The figures, those of these names NaN."""
    none = {k: [math.nan] * len(v) if isinstance(v, list) else math.nan for k, v in figures.items()}
    return {**figures, **{name: none[name] for name in names}}


class Course:
    """Figures of the twin after every iteration (the encrypted run shows nothing before its end).

    model: whose; train, test: (x, y), x encoded and `shifted`; every row counts once. Of a label
    {iteration, loss, accuracy, auc, weight_norm, largest_logit}: loss: mean on the training rows;
    largest_logit: max |score| seen so far on them. Of targets {iteration, training_mse,
    relative_mse, mean_relative_mse, weight_norm}; see `TargetModel.metrics`; of counts also loss
    and largest_logit. Without test rows their figures are NaN.
    """

    TRAINING = ("loss", "training_mse")

    def __init__(self, model: Model, train: tuple[Array, Array], test: tuple[Array, Array]) -> None:
        self._model, self._train, self._test, self._largest = model, train, test, 0.0
        self.metrics: list[Figures] = []

    def record(self, t: int, weights: Array, largest: float | None = None) -> None:
        """After iteration t, counted from 0; largest: |score| so far, of a label if None: here."""
        whole = with_offset(weights, self._train[0])
        tested = bool(len(self._test[1]))
        course = self._model.course(whole, self._train, self._test if tested else self._train)
        if not tested:
            course = blank(course, course.keys() - self.TRAINING)
        found = Figures(iteration=t + 1, **course)
        found["weight_norm"] = float(np.linalg.norm(weights))
        if largest is None and not self._model.numeric:
            largest = float(np.abs(self._train[0] @ whole).max(initial=0.0))
        if largest is not None:
            self._largest = max(self._largest, largest)
            found["largest_logit"] = self._largest
        self.metrics.append(found)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(Caveats, Shown):
    """A finished simulation, whatever the model.

    schema_from: whether the schema was read from these rows.

    weights: of the model that is released, scaled units, bias last, shape (d,), of targets and
    of several classes (d, c), on rows of `view`, their known bias taken out by `scaling`, None:
    none is known; trained: weights and scores as trained, where the model is that of a table;
    released: as decrypted; twin_weights: of the plaintext twin with the same noise and
    polynomial, in the same way; optimum_weights: what plain training on the same rows gives, as
    they are and in the data's own units, see `Model.reference`; clipped_optimum_weights: on
    rows as owners encrypt them; scores, twin, optimum, clipped_optimum: on the test rows;
    iterations: the twin's course, see `Course`; test_x, test_y: encoded test rows, own_x: the
    same as such a model scores them, test_raw: in their own units, bias last (for plots);
    test_offset: of their scores; clamped: rows and values clamped, by party; warnings:
    sentences for the reader; public_warnings: those of them that follow from public figures
    alone; noise: "none", "system" or "seeded (NOT PRIVATE)"; missing: parties that others stood
    in for; inference: standard errors, evaluation: on rows that were held back, where they were
    asked for; promise: of training and these together, None without privacy; filled: empty
    cells that the schema fills in, by column, None where few rows have or lack one; exact_sums:
    whether sums over rows were opened without noise.
    """

    plan: RunPlan
    schema: Schema
    schema_from: SchemaFrom
    weights: Array
    released: Array
    scaling: Scaling | None
    twin_weights: Array
    optimum_weights: Array
    clipped_optimum_weights: Array
    scores: Figures
    twin: Figures
    optimum: Figures
    clipped_optimum: Figures
    iterations: tuple[Figures, ...]
    costs: Costs
    rows_by_party: dict[str, int]
    test_x: Array = field(repr=False)
    test_raw: Array = field(repr=False)
    test_y: Array = field(repr=False)
    clamped: dict[str, dict[str, Any]]
    warnings: tuple[str, ...]
    noise: str
    peak_memory_mb: float
    total_seconds: float
    transcript_head: str
    certificate: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    test_offset: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    inference: Inference | None = field(default=None, repr=False)
    evaluation: Evaluation | None = field(default=None, repr=False)
    promise: Promise | None = None
    public_warnings: tuple[str, ...] = ()
    filled: dict[str, int | None] = field(default_factory=dict)
    exact_sums: bool = False
    view: str = ""
    trained: tuple[Array, Figures] | None = field(default=None, repr=False)
    own_x: Array | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """One line for a person; no rows, no weights."""
        own = marks(insecure=self.insecure, seeded=self.seeded, exact=self.exact_sums)
        told = [run_words(self.plan), self.scores_words, *own]
        return f"RunResult({', '.join(told)})"

    @property
    def model(self) -> Model:
        """Of the plan."""
        return model_named(self.plan.model)

    @property
    def encoding(self) -> Schema:
        """By which rows are scaled before the released model scores them."""
        return encoding_of(self.schema, self.view)

    def own_scores(self) -> Array:
        """Of the test rows, by the released model."""
        x = shifted(self.test_x if self.own_x is None else self.own_x, self.test_offset)
        scores: Array = x @ with_offset(self.weights, x)
        return scores

    @property
    def as_trained(self) -> tuple[Array, Figures]:
        """Weights, on rows as they were trained on, and scores."""
        return self.trained or (self.weights, self.scores)

    def test_scores(self, weights: Array, raw: bool = False) -> Array:
        """Of the test rows; raw: weights are of rows in the data's own units."""
        x = shifted(self.test_raw if raw else self.test_x, self.test_offset)
        scores: Array = x @ with_offset(weights, x)
        return scores

    @property
    def tested(self) -> bool:
        """Whether there are test rows."""
        return bool(len(self.test_y))

    @property
    def scores_words(self) -> str:
        """Figures of the test rows in a line, or that there are none."""
        return self.model.words(self.scores, self.outputs) if self.tested else "no test rows"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the targets, or of the classes; none of a label of two values."""
        if self.model.several:
            return classes_of(self.schema).classes
        return self.schema.label.names if self.model.numeric else ()

    @property
    def outcome(self) -> str:
        """What is predicted, in words."""
        if self.model.numeric:
            return self.schema.label.name
        if self.model.several:
            classes = classes_of(self.schema)
            return f"“{classes.name}” of {classes.outputs} classes"
        label = label_of(self.schema)
        return f"“{label.name} = {label.positive}”"

    @property
    def models(self) -> tuple[tuple[str, str, Figures], ...]:
        """(name, meaning, scores) of the four models that a run compares."""
        name, meaning = model_named(self.model.reference).optimum
        own = ("jointly decrypted model", "trained on ciphertexts")
        if self.view:
            ends = "the maximum likelihood" if self.plan.privacy is None else "noisy estimates"
            own = ("released model", f"{ends}, by secure sums at the jointly decrypted model")
        return (
            (*own, self.scores),
            (
                "plaintext twin",
                "the same iterations, polynomial and noise, without encryption; only a simulation "
                "can compute it",
                self.twin,
            ),
            (name, meaning, self.optimum),
            (
                "optimum of clipped rows",
                "the same on rows as owners encrypt them: scaled, clamped and clipped",
                self.clipped_optimum,
            ),
        )

    @property
    def verdict(self) -> str:
        """A sentence where the model is no better than a constant; see `no_better`."""
        if not self.tested:
            return ""
        more = "a larger epsilon" if self.plan.privacy else "more iterations"
        constant = f"share of positives ({np.mean(self.test_y):.3f})"
        if self.model.several:
            constant = "classes’ shares"
        told = no_better(self.scores, count(len(self.test_y), "test row"), self.outputs, constant)
        cure = f"more rows, {more} or fewer columns may help, if the columns tell of it at all"
        return told and f"{told}; {cure}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict, if there is one, and all warnings."""
        return (*filter(None, [self.verdict]), *self.warnings)

    @property
    def max_abs_diff_to_twin(self) -> float:
        """Largest difference of a weight to the twin's, scaled units."""
        return float(np.abs(self.as_trained[0] - self.twin_weights).max())

    @property
    def filled_words(self) -> str:
        """A sentence on empty cells; empty where there were none."""
        return filled_words(self.filled, sum(self.rows_by_party.values()), LEAST)

    def summary(self) -> dict[str, Any]:
        """One JSON object: scores, figures and costs."""
        body: dict[str, Any] = {
            **insecure_fields(self.insecure),
            **exact_fields(self.exact_sums),
            **plan_figures(self.plan),
            **self.scores,
            "twin": dict(self.twin),
            "optimum": dict(self.optimum),
            "clipped_optimum": dict(self.clipped_optimum),
            "max_abs_diff_to_twin": self.max_abs_diff_to_twin,
            "seconds_per_iteration": float(np.median(self.costs.iteration_seconds)),
            "seconds_per_iteration_all": float(np.median(self.costs.whole_seconds)),
            "seconds_per_iteration_path": float(np.median(self.costs.path_seconds)),
            "seconds": {k: round(v, 4) for k, v in self.costs.seconds.items()},
            "bytes_per_party": self.costs.bytes_per_party,
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "total_seconds": round(self.total_seconds, 3),
            "noise": self.noise,
            "missing": list(self.missing),
            "missing_cells": dict(self.filled),
            "inputs": stated(self.schema_from),
            "unmet": list(self.unmet),
            "warnings": list(self.notes),
        }
        if self.inference is not None:
            body["inference"] = self.inference.rows()
            body["inference_about"] = self.inference.about()
        if self.evaluation is not None:
            body["evaluation"] = self.evaluation.summary()
        if self.promise is not None:
            body[WHOLE] = self.promise.to_dict()
        return body
