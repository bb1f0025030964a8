"""How good a model is on the rows of several simulated parties, by one secure sum."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ciphercohort.after.inference import check_sums, infer_by
from ciphercohort.after.judged import ALL, HELD_OUT, Evaluation, judged
from ciphercohort.after.judging import check_noise, objective
from ciphercohort.after.sums import sums_wanted, without_table
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_PARTIES, SimulationConfig
from ciphercohort.job.layout import EVALUATION, SUMS, read_status
from ciphercohort.job.options import FilePath
from ciphercohort.results.exact_sums import tell
from ciphercohort.results.predict import ReleasedModel, load_model
from parties.reader.look import undeclared
from parties.reader.schema import Schema
from parties.reader.shard import encode_shard
from parties.reader.table import Table, read_table
from parties.reader.views import by_range
from protocols.errors import DataError, ParameterError, PrivacyError, SchemaError
from protocols.privacy.calibrate.one_sum import whole_mu
from protocols.statistics.evaluation.figures import LEAST
from sims.held_out import HeldBack
from sims.prepare import split_rows
from sims.simulated_sums import Sums, encoded, with_shards
from sims.simulation import noise_root, party_specs

log = logging.getLogger(__name__)


def evaluate(
    model: ReleasedModel | FilePath,
    data: Table,
    *,
    rows: str = ALL,
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
    however_noisy: bool = False,
    ledger: FilePath | None = None,
    seed: int | None = None,
    out: FilePath | None = None,
) -> Evaluation:
    """Judge a model on rows that it was not trained on, without pooling them.

    model: a model.json, a run folder, or what `load_model` gives. data: rows with the model's
    columns and its label or targets. rows: "all" of them, or "held-out": those that the owners of
    the run folder `model` held back; `data` is the table that they trained on then, and the run
    says who has which rows. parties, split: who has which rows, as of `simulate`. epsilon: None:
    sums are exact, and tell the coordinator how many rows have which score. threshold: probability
    above which a row counts as positive in the confusion matrix. bins: of the scores. sites:
    parties that consented to a table of their own, or "all". least: rows below which a cell or a
    party's table is left out. inference: a table of coefficients, too; the budget is divided.
    however_noisy: also where noise will leave nothing of the figures, else refused. ledger, seed,
    out: as of `simulate`; out: folder that evaluation.json goes to.

    Raises:
        CohortError: an option, the model or the data are refused; the message says why.
    """
    known, run = _model(model)
    if rows not in (ALL, HELD_OUT):
        raise ParameterError(f"rows={rows!r} is not {ALL} or {HELD_OUT}")
    back = None
    if rows == HELD_OUT:
        back = _held_back(run, parties=parties, split=split, inference=inference)
        parties = len(back.owners)
    names = known.schema.label.names
    outcome: dict[str, Any] = {"label": names[0]}
    if known.fitted.numeric:
        outcome = {"model": "linear", "targets": names}
    config = SimulationConfig(
        **outcome,
        data=data,
        parties=parties or (None if split.startswith("by:") else DEFAULT_PARTIES),
        split=split,
        epsilon=epsilon,
        delta=delta,
        colluders=colluders,
        ledger=Path(ledger) if ledger else None,
        seed=seed,
        out=Path(out) if out else None,
    )
    if config.out is not None:
        _check_folder(config.out)
    root = noise_root(config)
    frames = (
        back.frames(_table(known.schema, data))
        if back
        else split_frames(known.schema, data, config.parties, split, root)
    )
    shards = {name: encode_shard(frame, known.encoding) for name, frame in frames.items()}
    for words in undeclared(shards.values()):
        log.warning("%s", words)
    held_out = back.judged if back else None
    sizes = {name: shard.rows for name, shard in shards.items()}
    if back:
        # Refused here, in words that a deployed owner would keep to itself.
        sizes = {n: len(back.coins(n).chosen(back.judged, s)) for n, s in shards.items()}
    shown, small = shown_sites(sizes, sites, least)
    private, wanted = epsilon is not None, sums_wanted(epsilon, delta, colluders)
    specs = party_specs(config, shards, root, "")
    if back:
        specs = {name: replace(spec, coins=back.coins(name)) for name, spec in specs.items()}
    folder = config.out / SUMS if config.out else None
    own = known.encoding
    sums = Sums(specs=specs, schema=own, wanted=wanted, held_out=held_out, folder=folder)
    task = objective(known, private=private, threshold=threshold, bins=bins, sites=shown)
    share = math.sqrt(0.5) if inference else 1.0
    mu = share * whole_mu(wanted) if private else None
    plan = sums.plan(task, mu)
    check_noise(plan, wanted, sizes, however_noisy=however_noisy)
    after = None
    if inference:
        after = Sums(
            specs=with_shards(specs, encoded(frames, known.schema, private=private)),
            schema=by_range(known.schema, private=private),
            wanted=wanted,
            folder=folder,
        )
        if mu is not None and not however_noisy:
            left = math.sqrt(1 - share**2) * whole_mu(wanted)
            check_sums(after, own, known.model, left)
        after = replace(after, however_noisy=True)  # as was decided here
    tell(plan.opens_exact_sums)
    opened = sums.open(task, mu)
    noise = "none" if not private else "system" if seed is None else "seeded (NOT PRIVATE)"
    result = judged(known, opened, noise=noise, least=least, small=small)
    if after is not None:
        try:
            about = infer_by(
                after,
                own,
                known.weights,
                known.model,
                spent=sums.mechanisms,
                insecure=known.insecure,
            )
            result = replace(result, inference=about)
        except (PrivacyError, ParameterError) as error:
            # The evaluation has been made and paid for.
            note = without_table(error, after)
            result = replace(result, notes=(note, *result.notes))
    if config.out is not None:
        result.write(config.out)
    return result


def _model(model: ReleasedModel | FilePath) -> tuple[ReleasedModel, Path | None]:
    """The model, and the run folder that it was given by, if it was."""
    if isinstance(model, ReleasedModel):
        return model, None
    path = Path(model)
    return load_model(path), path if path.is_dir() else None


def _held_back(run: Path | None, *, parties: int | None, split: str, inference: bool) -> HeldBack:
    """The record of the rows that were held back from a run.

    Raises:
        ParameterError: there is none, or options that the run has settled are given.
    """
    if run is None:
        raise ParameterError(
            f"rows={HELD_OUT} needs the folder of the run that held rows back: cohort evaluate RUN "
            f"--rows {HELD_OUT} --data TABLE"
        )
    for name, is_given in (("parties", parties), ("split", split != "even")):
        if is_given:
            raise ParameterError(f"{name} and rows={HELD_OUT}: the run says who has which rows")
    if inference:
        raise ParameterError(
            f"inference and rows={HELD_OUT}: standard errors are of the rows that were trained on "
            "(cohort simulate --inference)"
        )
    return HeldBack.load(run)


def shown_sites(
    sizes: Mapping[str, int], sites: tuple[str, ...] | str, least: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parties with a table of their own, and those that asked for one in vain.

    sizes: rows by party that the model is judged on.

    Raises:
        ParameterError: a stranger is asked for. DataError: fewer than `least` rows in all.
    """
    chosen = tuple(sizes) if sites == "all" else tuple(sites)
    strangers = [name for name in chosen if name not in sizes]
    if strangers:
        raise ParameterError(
            f"sites={', '.join(strangers)} are not among the parties {', '.join(sizes)}"
        )
    small = tuple(name for name in chosen if sizes[name] < least)
    shown = tuple(name for name in chosen if name not in small)
    if shown and len(shown) == len(sizes) - 1:
        # All rows less all other tables would be the last party's.
        least_rows = min(shown, key=lambda name: sizes[name])
        small = (*small, least_rows)
        shown = tuple(name for name in shown if name != least_rows)
    if sum(sizes.values()) < least:
        raise DataError(f"fewer than {least} rows: figures would tell of single ones")
    return shown, small


def _check_folder(out: Path) -> None:
    """A folder of a run stays as it was checked; an earlier evaluation gives way."""
    if out.is_file() or (
        out.is_dir()
        and any(out.iterdir())
        and (read_status(out) is not None or not (out / EVALUATION).is_file())
    ):
        raise ParameterError(f"out={str(out)!r} holds something else: give a new folder")


def _table(schema: Schema, data: Table) -> pd.DataFrame:
    """A table with what the model predicts.

    Raises:
        SchemaError: it has not.
    """
    frame = read_table(data, label=schema.label.name)
    for name in schema.label.names:
        if name not in frame.columns:
            raise SchemaError(f"{name!r}, which the model predicts, is not in the table: add it")
    return frame


def split_frames(
    schema: Schema, data: Table, parties: int | None, split: str, root: int
) -> dict[str, pd.DataFrame]:
    """Rows by party.

    Raises:
        SchemaError, DataError: a column is missing, or cells that cannot be used.
    """
    frame, rng = _table(schema, data), np.random.default_rng(root)
    frames, names = split_rows(frame, parties, split, schema.label.names[0], rng)
    if len(names) < 2:
        raise ParameterError(f"split={split!r} gives one party: a secure sum needs two or more")
    return dict(zip(names, frames, strict=True))
