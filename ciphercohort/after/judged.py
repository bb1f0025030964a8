"""What an evaluation found, whoever ran it: one sum, read once, one set of fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from ciphercohort.after.inference import Inference
from ciphercohort.after.sums import Opened
from ciphercohort.job.inputs import GIVEN, SchemaFrom, with_inputs
from ciphercohort.job.layout import EVALUATION, TABLE
from ciphercohort.results.documents import to_json, write_text
from ciphercohort.results.exact_sums import exact_fields, insecure_fields
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import Array, Figures, targets_of
from ciphercohort.results.shown import Shown
from ciphercohort.results.verdict import no_better
from protocols.errors import ParameterError
from protocols.statistics.evaluation.class_figures import class_figures
from protocols.statistics.evaluation.figures import LEAST, figures, target_figures
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.words import NONE

LOUD = 0.1
"""Of the area under ROC: a larger standard deviation of noise is told of."""
ALL, HELD_OUT = "all", "held-out"
"""Rows that a model is judged on."""
WORDS = {
    "auc": "area under ROC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "base_rate_log_loss": "log loss of the base rate",
    "brier": "Brier score",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration intercept",
    "base_rate": "share of positives",
    "mean": "mean",
    "mean_prediction": "mean prediction",
    "deviance": "mean deviance",
    "d2": "D²",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "relative_mse": "squared error over range²",
    "r2": "R²",
}


@dataclass(frozen=True, kw_only=True)
class Evaluation(Shown):
    """figures: of all rows, see `statistics.evaluation.figures`; sites: of parties that consented.

    small: parties whose table is not opened, for they have fewer than `least` rows, or a single
    party's rows would be the difference; opened: the sum; noise: as of a run; inference: where it
    was asked for; notes: sentences.
    """

    model: ReleasedModel = field(repr=False)
    figures: Figures
    sites: Mapping[str, Figures]
    small: tuple[str, ...]
    opened: Opened = field(repr=False)
    noise: str
    least: int = LEAST
    inference: Inference | None = None
    notes: tuple[str, ...] = ()

    @property
    def rows_by_party(self) -> dict[str, int]:
        """Rows that the model was judged on."""
        return {member.name: member.rows for member in self.opened.plan.members}

    @property
    def rows_of(self) -> str:
        """Which rows: `ALL` or `HELD_OUT`."""
        return HELD_OUT if self.opened.plan.held_out else ALL

    @property
    def exact_sums(self) -> bool:
        """Whether it was opened without noise."""
        return self.opened.plan.opens_exact_sums

    @property
    def schema_from(self) -> SchemaFrom:
        """Whether the schema was read from rows that the model is judged on."""
        return self.model.schema_from if self.rows_of == HELD_OUT else GIVEN

    def summary(self) -> dict[str, Any]:
        """One JSON object; the same fields wherever the parties are."""
        plan = self.opened.plan
        promise, mechanism, held_out = plan.privacy, self.opened.mechanism, plan.held_out
        body = {
            **insecure_fields(self.model.insecure),
            **exact_fields(self.exact_sums),
            **self.figures,
            "model": self.model.model,
            "trained_in": self.model.session,
            "view": self.model.view,
            "rows_of": self.rows_of,
            "held_out": {"share": held_out.share, "draw": held_out.draw} if held_out else None,
            "parties": len(plan.members),
            "sites": dict(self.sites),
            "suppressed": {"below": self.least, "sites": list(self.small)},
            "privacy": {
                "epsilon": promise.epsilon,
                "delta": promise.delta,
                "colluders": promise.colluders,
                "noise_std_of_a_count": self.opened.noise_std * plan.num_rows,
            }
            if promise
            else None,
            "certificate": with_inputs(
                mechanism.certificate.to_dict() if mechanism else None,
                self.schema_from,
                private=promise is not None,
            ),
            "noise": self.noise,
            "warnings": list(self.notes),
            "session": plan.session,
            "plan": plan.digest(),
            "transcript": self.opened.head,
        }
        if self.inference:
            body["inference"] = self.inference.rows()
            body["inference_about"] = self.inference.about()
        return body

    def released(self) -> dict[str, Any]:
        """The same, without what only a simulation can say of the rows."""
        table = replace(self.inference, kept=()) if self.inference else None
        return replace(self, inference=table).summary()

    def write(self, folder: Path) -> Path:
        """evaluation.json, and the table of coefficients where there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / EVALUATION, to_json(self.released()))
        if self.inference:
            write_text(folder / TABLE, self.inference.latex())
        return folder / EVALUATION

    @property
    def title(self) -> str:
        """Which rows of whom, in words."""
        sizes = self.rows_by_party
        return title(sum(sizes.values()), len(sizes), self.rows_of)

    def measures(self) -> Iterator[tuple[str, str, str]]:
        """(name, value, what may be off) for a reader."""
        return measures(self.figures, private=self.opened.plan.privacy is not None)


def title(rows: int, parties: int, rows_of: str) -> str:
    """Which rows of whom, in words."""
    which = "rows that were held back by" if rows_of == HELD_OUT else "rows of"
    return f"{rows:,} {which} {parties} parties, by one secure sum"


def measures(figures: Mapping[str, Any], *, private: bool) -> Iterator[tuple[str, str, str]]:
    """(name, value, what may be off) of an evaluation's figures, for a reader."""
    for key, words in WORDS.items():
        if key in figures:
            mean = ", mean of the classes" * (key == "auc" and "by_class" in figures)
            yield words + mean, shown(figures[key]), ", ".join(_errors(figures, key, private))


def _errors(figures: Mapping[str, Any], key: str, private: bool) -> Iterator[str]:
    known = [*map(_exists, _listed(figures[key]))]
    if any(known):
        if key == "auc" and figures.get("auc_error_bound"):
            yield f"within {figures['auc_error_bound']:.1g} by its bins"
        noise = _listed(figures.get(f"{key}_noise_std")) if private else [0.0]
        if any(noise):
            yield f"noise of std {', '.join(f'{x:.2g}' if _exists(x) else NONE for x in noise)}"
        if key in figures.get("out_of_range", ()):
            yield "noise put it out of its range, this is the end of it"
    if private and not all(known):
        yield "noise has left none"


def shown(value: float | list[float | None] | None) -> str:
    """A figure with few digits; `NONE` where it does not exist, as no slope of labels apart."""
    form = "{:.4g}" if isinstance(value, list) else "{:.4f}"
    return ", ".join(form.format(x) if _exists(x) else NONE for x in _listed(value))


def _listed(value: float | list[float | None] | None) -> list[float | None]:
    return value if isinstance(value, list) else [value]


def _exists(value: float | None) -> TypeGuard[float]:
    """Whether it is a number: None in a document, NaN before it was written."""
    return value is not None and not math.isnan(value)


def judged(
    model: ReleasedModel,
    opened: Opened,
    *,
    noise: str,
    least: int = LEAST,
    small: tuple[str, ...] = (),
) -> Evaluation:
    """An evaluation of an opened sum; small, noise: as of `Evaluation`.

    Raises:
        ParameterError: the sum was no evaluation.
    """
    plan, task = opened.plan, opened.plan.task
    if not isinstance(task, EvaluationObjective):
        raise ParameterError(f"session {plan.session!r} was no evaluation")
    sizes = {member.name: member.rows for member in plan.members}
    found, tables = read_tables(model, task, opened.values, opened.noise_std, sizes, least)
    return Evaluation(
        model=model,
        figures=found,
        sites=tables,
        small=small,
        opened=opened,
        noise=noise,
        least=least,
        notes=(
            *_verdict(found, plan.num_rows, model),
            *(_remarks(found, plan.num_rows) if plan.privacy else ()),
        ),
    )


def _verdict(found: Figures, rows: int, model: ReleasedModel) -> Iterator[str]:
    """Whether a constant would do, unless noise has left figures that cannot be."""
    if not found.get("out_of_range"):
        constant = "classes’ shares"
        if "base_rate" in found and "by_class" not in found:
            constant = f"share of positives ({found.base_rate:.3f})"
        names = model.schema.label.names
        yield from filter(None, [no_better(found, f"{rows:,} rows", names, constant)])


def _remarks(found: Figures, rows: int) -> Iterator[str]:
    """What noise has done to figures."""
    if "auc" in found and not (found.auc_noise_std <= LOUD and _exists(found.auc)):
        std = (
            f"std {found.auc_noise_std:.2g} of" if _exists(found.auc) else "it has left nothing of"
        )
        yield (
            f"noise is large beside {rows:,} rows ({std} the area under ROC): every figure may "
            "be far off; take more rows or a larger epsilon"
        )
    if found.out_of_range:
        names = ", ".join(WORDS[name] for name in found.out_of_range)
        yield (
            f"noise has put {names} out of the possible range: what is shown is the end of the "
            "range, and says little"
        )


def read_tables(
    model: ReleasedModel,
    task: EvaluationObjective,
    values: Array,
    noise_std: float,
    rows: Mapping[str, int],
    least: int = LEAST,
) -> tuple[Figures, dict[str, Figures]]:
    """Figures of all rows and of the sites.

    values: as opened, divided by the number of rows; noise_std: of each; rows: by party.
    """
    total = sum(rows.values())
    tables = (values * total).reshape(1 + len(task.sites), task.block)
    sizes = (total, *(rows[name] for name in task.sites))
    noise, found = noise_std * total, []
    for table, size in zip(tables, sizes, strict=True):
        if task.numeric:
            label = targets_of(model.schema.label)
            figure = target_figures(
                table,
                rows=size,
                low=label.low,
                width=label.width,
                noise_std=noise,
                model=task.model,
            )
        elif task.several:
            figure = class_figures(
                task, table, rows=size, names=model.classes, noise_std=noise, least=least
            )
        else:
            figure = figures(task, table, rows=size, noise_std=noise, least=least)
        found.append(Figures(figure))
    return found[0], dict(zip(task.sites, found[1:], strict=True))
