"""How good a model is on the rows of several simulated parties, by one secure sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parties.data.encode import encode_shard
from parties.data.schema import Schema
from parties.data.shard import Shard
from parties.data.table import Table, read_table
from protocols.errors import DataError, ParameterError, PrivacyError, SchemaError
from protocols.evaluation.figures import LEAST, figures, target_figures
from protocols.evaluation.objective import EvaluationObjective
from protocols.privacy.calibrate.one_sum import whole_mu
from sims.config import DEFAULT_DELTA, DEFAULT_PARTIES, SimulationConfig
from sims.datasets import split_rows
from sims.documents import to_json
from sims.inference import Inference, infer
from sims.inference_rows import encoded, with_shards
from sims.options import FilePath
from sims.party_process import PartySpec
from sims.predict import ReleasedModel, load_model
from sims.result import Array, Figures, targets_of
from sims.run_folder import TABLE, write_text
from sims.simulation import noise_root, party_specs
from sims.sums import Opened, Sums, sums_wanted

BINS, PRIVATE_BINS = 4096, 64
"""Exact counts cost nothing but bytes; each noisy one adds to the error."""
REACH, PRIVATE_REACH = 16.0, 6.0
"""Largest distance of a bin's edge from the threshold [log-odds]."""
FILE, TRANSCRIPTS = "evaluation.json", "sums"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """figures: of all rows, see `protocols.evaluation.figures`; sites: of parties that consented.

    small: parties whose table is not opened, for they have fewer than `least` rows, or a single
    party's rows would be the difference; opened: the sum; rows_by_party; noise: as of a run;
    inference: where it was asked for; notes: sentences.
    """

    model: ReleasedModel = field(repr=False)
    figures: Figures
    sites: Mapping[str, Figures]
    small: tuple[str, ...]
    opened: Opened = field(repr=False)
    rows_by_party: Mapping[str, int]
    noise: str
    least: int = LEAST
    inference: Inference | None = None
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """One JSON object."""
        plan = self.opened.plan
        promise, mechanism = plan.privacy, self.opened.mechanism
        body = {
            **self.figures,
            "model": self.model.model,
            "trained_in": self.model.session,
            "parties": len(self.rows_by_party),
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
            "certificate": mechanism.certificate.to_dict() if mechanism else None,
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


def evaluate(
    model: ReleasedModel | FilePath,
    data: Table,
    *,
    parties: int | None = None,
    split: str = "even",
    epsilon: float | None = None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    threshold: float = 0.5,
    bins: int | None = None,
    sites: tuple[str, ...] | str = (),
    least: int = LEAST,
    inference: bool = False,
    ledger: FilePath | None = None,
    seed: int | None = None,
    out: FilePath | None = None,
) -> Evaluation:
    """Judge a model on rows that it was not trained on, without pooling them.

    model: a model.json, or what `load_model` gives. data: rows with the model's columns and its
    label or targets. parties, split: who has which rows, as of `simulate`. epsilon: None: sums are
    exact, and tell the coordinator how many rows have which score. threshold: probability above
    which a row counts as positive in the confusion matrix. bins: of the scores. sites: parties that
    consented to a table of their own, or "all". least: rows below which a cell or a party's table
    is left out. inference: a table of coefficients, too; the budget is divided. ledger, seed, out:
    as of `simulate`; out: folder that evaluation.json goes to.

    Raises:
        CohortError: an option, the model or the data are refused; the message says why.
    """
    known = model if isinstance(model, ReleasedModel) else load_model(Path(model))
    by_column = split.startswith("by:")
    names = known.schema.label.names
    outcome: dict[str, Any] = {"label": names[0]}
    if known.fitted.numeric:
        outcome = {"model": "linear", "targets": names}
    config = SimulationConfig(
        **outcome,
        data=data,
        parties=parties or (None if by_column else DEFAULT_PARTIES),
        split=split,
        epsilon=epsilon,
        delta=delta,
        colluders=colluders,
        ledger=Path(ledger) if ledger else None,
        seed=seed,
        out=Path(out) if out else None,
    )
    if not 0 < threshold < 1:
        raise ParameterError(f"threshold={threshold} is outside (0, 1)")
    if config.out is not None:
        _check_folder(config.out)
    root = noise_root(config)
    frames = split_frames(known.schema, data, config.parties, split, root)
    shards = {name: encode_shard(frame, known.schema) for name, frame in frames.items()}
    chosen = tuple(shards) if sites == "all" else tuple(sites)
    strangers = [name for name in chosen if name not in shards]
    if strangers:
        raise ParameterError(
            f"sites={', '.join(strangers)} are not among the parties {', '.join(shards)}"
        )
    small = tuple(name for name in chosen if shards[name].rows < least)
    shown = tuple(name for name in chosen if name not in small)
    if shown and len(shown) == len(shards) - 1:
        # All rows less all other tables would be the last party's.
        least_rows = min(shown, key=lambda name: shards[name].rows)
        small = (*small, least_rows)
        shown = tuple(name for name in shown if name != least_rows)
    if sum(shard.rows for shard in shards.values()) < least:
        raise DataError(f"the table has fewer than {least} rows: figures would tell of single rows")
    wanted = sums_wanted(epsilon, delta, colluders)
    specs = specs_of(config, shards, root, shown)
    folder = config.out / TRANSCRIPTS if config.out else None
    sums = Sums(specs=specs, schema=known.schema, wanted=wanted, folder=folder)
    private = epsilon is not None
    task = objective(known, private=private, threshold=threshold, bins=bins, sites=shown)
    share = math.sqrt(0.5) if inference else 1.0
    opened = sums.open(task, share * whole_mu(wanted) if private else None)
    sizes = {name: shard.rows for name, shard in shards.items()}
    found, tables = read_tables(known, task, opened.values, opened.noise_std, sizes, least)
    about, notes = None, []
    if inference:
        try:
            about = infer(
                with_shards(specs, encoded(frames, known.schema, private=private)),
                known.schema,
                known.weights,
                known.model,
                wanted,
                spent=tuple(each.mechanism for each in sums.done if each.mechanism),
                folder=folder,
            )
        except (PrivacyError, ParameterError) as error:
            # The evaluation has been made and paid for.
            notes.append(f"no standard errors: {error}")
    if private and "auc" in found and not found.auc_noise_std <= LOUD:
        # nan, too: noise has left no row of one label.
        notes.append(
            f"noise is large beside {sum(sizes.values()):,} rows (std "
            f"{found.auc_noise_std:.2g} of the area under ROC): every figure may be far off; take "
            "more rows or a larger epsilon"
        )
    result = Evaluation(
        model=known,
        figures=found,
        sites=tables,
        small=small,
        opened=opened,
        rows_by_party=sizes,
        noise="none" if epsilon is None else "system" if seed is None else "seeded (NOT PRIVATE)",
        least=least,
        inference=about,
        notes=tuple(notes),
    )
    if config.out is not None:
        config.out.mkdir(parents=True, exist_ok=True)
        write_text(config.out / FILE, to_json(result.summary()))
        if about:
            write_text(config.out / TABLE, about.latex())
    return result


LOUD = 0.1
"""Of the area under ROC: a larger standard deviation of noise is told of."""


def _check_folder(out: Path) -> None:
    """A folder of a run stays as it was checked; an earlier evaluation gives way."""
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / FILE).is_file()):
        raise ParameterError(f"out={str(out)!r} holds something else: give a new folder")


def objective(
    model: ReleasedModel,
    *,
    private: bool,
    threshold: float = 0.5,
    bins: int | None = None,
    sites: tuple[str, ...] = (),
) -> EvaluationObjective:
    """What is summed to judge a model; its bins follow from public numbers alone.

    Raises:
        ParameterError: see `EvaluationObjective`.
    """
    weights = model.weights.T if model.fitted.numeric else model.weights[None]
    bound, centre = model.schema.norm_bound, math.log(threshold / (1 - threshold))
    reach = bound * float(np.linalg.norm(weights[0])) + abs(centre)
    reach = min(max(reach, 1e-6), PRIVATE_REACH if private else REACH)
    count = bins or (PRIVATE_BINS if private else BINS)
    return EvaluationObjective(
        model=model.model,
        weights=tuple(tuple(row) for row in weights.tolist()),
        bins=count,
        width=2 * reach / count,
        centre=centre,
        exact=not private,
        row_norm=bound,
        sites=sites,
    )


def split_frames(
    schema: Schema, data: Table, parties: int | None, split: str, root: int
) -> dict[str, pd.DataFrame]:
    """Rows by party.

    Raises:
        SchemaError, DataError: a column is missing, or cells that cannot be used.
    """
    frame = read_table(data, label=schema.label.name)
    for name in schema.label.names:
        if name not in frame.columns:
            raise SchemaError(f"{name!r}, which the model predicts, is not in the table: add it")
    rng = np.random.default_rng(root)
    frames, names = split_rows(frame, parties, split, schema.label.names[0], rng)
    if len(names) < 2:
        raise ParameterError(f"split={split!r} gives one party: a secure sum needs two or more")
    return dict(zip(names, frames, strict=True))


def specs_of(
    config: SimulationConfig, shards: Mapping[str, Shard], root: int, sites: tuple[str, ...]
) -> dict[str, PartySpec]:
    """Parties that consent to the promise, and those of `sites` to a table of their own."""
    return {
        name: replace(spec, policy=replace(spec.policy, site_tables=name in sites))
        for name, spec in party_specs(config, shards, root, "").items()
    }


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
    found = []
    for table, size in zip(tables, sizes, strict=True):
        if task.numeric:
            label = targets_of(model.schema.label)
            figure = target_figures(table, rows=size, low=label.low, width=label.width)
        else:
            noise = noise_std * total
            figure = figures(task, table, rows=size, noise_std=noise, least=least)
        found.append(Figures(figure))
    return found[0], dict(zip(task.sites, found[1:], strict=True))
