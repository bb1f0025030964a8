"""What a run shows its coordinator: the model, what was agreed, promised and measured; no rows.

A `Release` has no field for anything else, and what is mailed is made from it alone. Fields of its
files that may differ where one row does follow from what the protocol opens, which is booked:
`OPENED`. Beside these only names of sessions, keys and ciphertexts differ, and seconds: `FRESH`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.after.inference_table import latex_table, ratio_of
from ciphercohort.job.inputs import SchemaFrom, stated
from ciphercohort.job.layout import (
    CERTIFICATE,
    EVALUATION,
    FACTS,
    INFERENCE,
    MODEL,
    PLAN,
    STATUS,
    TABLE,
    TRANSCRIPT,
    read_file,
)
from ciphercohort.results.caveats import Caveats
from ciphercohort.results.documents import model_fields, to_json
from ciphercohort.results.exact_sums import MARK, exact_fields, insecure_fields
from ciphercohort.results.plan_figures import privacy_figures
from ciphercohort.results.promise import WHOLE, Promise
from ciphercohort.results.result import encoding_of
from coordinator.costs import Costs
from parties.reader.schema import Classes, Label, Schema
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.plan.kinds import plan_from_dict, replicas
from protocols.plan.run_plan import RunPlan
from protocols.privacy.search.rescale import Scaling

if TYPE_CHECKING:
    from ciphercohort.results.result import RunResult

OPENED = {
    MODEL: (
        "coef",
        "intercept",
        "weights",
        "released",
        f"{WHOLE}.after",
        f"{WHOLE}.without_result",
    ),
    CERTIFICATE: (f"{WHOLE}.after", f"{WHOLE}.without_result"),
    FACTS: ("promise.after", "promise.without_result"),
    INFERENCE: ("rows", "about.notes", "about.freedom", "about.rounds", "about.mu_of_rounds"),
    EVALUATION: ("*",),
}
"""Fields that depend on rows, through what the protocol opens (JSON files; `report.html` and
`inference.tex` show the same)."""
WHITENED = {
    PLAN: ("whitening", "moment_plan", "slot_bound", "update.learning_rate"),
    CERTIFICATE: (
        *("setting.spectrum", "setting.whitening", "setting.learning_rate", "conditions.left"),
        *(
            "conditions.right",
            "figures.reached",
            "figures.Lambda",
            "figures.expected_log_loss",
            "figures.M",
        ),
    ),
    FACTS: ("bytes_per_party.agree", "traffic.agree"),
}
"""Those of runs whose plan follows from an opened second moment."""
IN_DIGITS = ("agree",)
"""Steps whose messages hold opened numbers as text, so that their bytes vary: where a plan follows
from what an earlier one opened."""
FRESH = {
    PLAN: ("session", "members.verify_key", "members.commitment", "held_out.draw", "digest"),
    MODEL: ("session", "plan", "transcript"),
    FACTS: ("seconds", "iteration_seconds", "whole_seconds", "path_seconds"),
    STATUS: ("started", "updated", "pid", "files"),
    TRANSCRIPT: ("message", "chain"),
}
"""Fields that no two runs share, on whichever rows."""


@dataclass(frozen=True, kw_only=True)
class Release(Caveats):
    """A finished run as its coordinator knows it.

    plan, schema: agreed; schema_from: whether the schema was read from the private rows; weights:
    scaled units, bias last, shape (d,), of several outputs (d, c), their known bias taken out by
    `scaling`, None: none is known; released: as decrypted; transcript_head; noise: "none", "system"
    or "seeded (NOT PRIVATE)"; certificate: as certificate.json has it, None without; costs: None
    where they are not kept; promise: of all that the run opened; missing: parties that
    others stood in for; notes: sentences that follow from public figures; inference: {rows,
    about}; evaluation: as evaluation.json has it; exact_sums: whether sums over rows were
    opened without noise; view: of the rows that the weights are for, see `encoding_of`.
    """

    plan: RunPlan
    schema: Schema
    schema_from: SchemaFrom
    weights: NDArray[np.float64]
    released: NDArray[np.float64]
    scaling: Scaling | None
    transcript_head: str
    noise: str
    certificate: Mapping[str, Any] | None = None
    costs: Costs | None = None
    promise: Promise | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inference: Mapping[str, Any] | None = field(default=None, repr=False)
    evaluation: Mapping[str, Any] | None = field(default=None, repr=False)
    exact_sums: bool = False
    view: str = ""

    @property
    def encoding(self) -> Schema:
        """By which rows are scaled before the model scores them."""
        return encoding_of(self.schema, self.view)

    @property
    def model(self) -> Model:
        """Of the plan."""
        return model_named(self.plan.model)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the targets, or of the classes; none of a label of two values."""
        label = self.schema.label
        if isinstance(label, Classes):
            return label.classes
        return label.names if self.model.numeric else ()

    @property
    def outcome(self) -> str:
        """What is predicted, in words."""
        label = self.schema.label
        if isinstance(label, Classes):
            return f"“{label.name}” of {label.outputs} classes"
        if isinstance(label, Label):
            return f"“{label.name} = {label.positive}”"
        return label.name

    def model_document(self) -> dict[str, Any]:
        """What model.json holds: all that prediction needs, readable by scikit-learn users.

        features, coef, intercept: log-odds of `positive`, in the data's own units; of several
        classes and of a regression one row and one number per class or target, see `link`; weights:
        the same model on scaled rows, bias last; released: the weights as decrypted, from which
        these follow by `scaling`, see `protocols.plan.published`; schema: how rows are scaled.
        """
        return {
            "version": 1,
            **insecure_fields(self.insecure),
            **exact_fields(self.exact_sums),
            **model_fields(self.encoding, self.weights, self.plan.model),
            "weights": self.weights.tolist(),
            **({"view": self.view} if self.view else {}),
            "released": self.released.tolist(),
            "scaling": asdict(self.scaling) if self.scaling else None,
            "schema": self.schema.to_dict(),
            "session": self.plan.session,
            "plan": self.plan.digest(),
            "transcript": self.transcript_head,
            "security_bits": self.plan.security_bits,
            "privacy": privacy_figures(self.plan),
            **self._moment(),
            **self._whole(),
            "inputs": stated(self.schema_from),
            "unmet": list(self.unmet),
            "noise": self.noise,
        }

    def _moment(self) -> dict[str, Any]:
        """Promise of the sum that whitened the rows of a run without privacy."""
        moment = getattr(self.plan, "moment_privacy", None)
        fields = ("epsilon", "delta", "colluders")
        return {"second_moment": {f: getattr(moment, f) for f in fields}} if moment else {}

    def _certified(self) -> dict[str, Any]:
        """The certificate, the promise in all, and how each owner checks the coordinator."""
        return {**(self.certificate or {}), **self._whole(), "replicas": replicas(self.plan)}

    def _whole(self) -> dict[str, Any]:
        return {WHOLE: self.promise.to_dict()} if self.promise else {}

    def facts_document(self) -> dict[str, Any]:
        """What run.json holds: seconds and bytes as of `Costs`, the whole promise, and notes."""
        costs = self.costs or Costs()
        return {
            **insecure_fields(self.insecure),
            "seconds": costs.seconds,
            "iteration_seconds": costs.iteration_seconds,
            "whole_seconds": costs.whole_seconds,
            "path_seconds": costs.path_seconds,
            "bytes_per_party": costs.bytes_per_party,
            "traffic": costs.traffic,
            "missing": list(self.missing),
            "promise": self.promise.to_dict() if self.promise else None,
            "notes": list(self.notes),
        }

    def documents(self) -> dict[str, str]:
        """Text by file name."""
        found: dict[str, Any] = {
            PLAN: {**self.plan.to_dict(), "digest": self.plan.digest()},
            MODEL: self.model_document(),
            CERTIFICATE: self._certified() if self.certificate else None,
            FACTS: self.facts_document() if self.costs else None,
            INFERENCE: self.inference,
            EVALUATION: self.evaluation,
        }
        texts = {name: to_json(value) for name, value in found.items() if value is not None}
        if self.inference:
            rows, about = self.inference["rows"], self.inference["about"]
            texts[TABLE] = latex_table(rows, about, ratio_of(self.plan.model))
        return texts

    @classmethod
    def of(cls, result: RunResult) -> Release:
        """Of a simulation: what is named here, and nothing beside it."""
        table, found = result.inference, result.evaluation
        return cls(
            plan=result.plan,
            schema=result.schema,
            schema_from=result.schema_from,
            weights=result.weights,
            released=result.released,
            scaling=result.scaling,
            transcript_head=result.transcript_head,
            noise=result.noise,
            certificate=result.certificate,
            costs=result.costs,
            promise=result.promise,
            missing=result.missing,
            notes=result.public_warnings,
            exact_sums=result.exact_sums,
            view=result.view,
            inference=table.released() if table else None,
            evaluation=found.released() if found else None,
        )

    @classmethod
    def load(cls, folder: Path) -> Release:
        """Of the files in a release folder.

        Raises:
            OSError, ValueError, LookupError, TypeError, CohortError: a file is missing or is not
                as `documents` gives it.
        """
        plan, model, facts = (read_file(folder / name) for name in (PLAN, MODEL, FACTS))
        certificate, inference, evaluation = (
            read_file(folder / name) if (folder / name).exists() else None
            for name in (CERTIFICATE, INFERENCE, EVALUATION)
        )
        names = ("seconds", "iteration_seconds", "whole_seconds", "path_seconds", "traffic")
        return cls(
            plan=plan_from_dict({k: v for k, v in plan.items() if k != "digest"}),
            schema=Schema.from_dict(model["schema"]),
            schema_from=model["inputs"]["schema"],
            weights=np.array(model["weights"], np.float64),
            released=np.array(model["released"], np.float64),
            scaling=Scaling(**model["scaling"]) if model["scaling"] else None,
            transcript_head=model["transcript"],
            noise=model["noise"],
            certificate=certificate,
            costs=Costs(**{name: facts[name] for name in names}),
            promise=Promise.from_dict(facts["promise"]) if facts["promise"] else None,
            missing=tuple(facts["missing"]),
            notes=tuple(facts["notes"]),
            exact_sums=MARK in model,
            view=model.get("view", ""),
            inference=with_limits(inference) if inference else None,
            evaluation=evaluation,
        )


def with_limits(table: dict[str, Any]) -> dict[str, Any]:
    """Figures that JSON has no number for: of rows that were left out, and of the normal."""
    rows = [{k: math.nan if v is None else v for k, v in row.items()} for row in table["rows"]]
    freedom = table["about"]["freedom"]
    return {"rows": rows, "about": {**table["about"], "freedom": freedom or math.inf}}
