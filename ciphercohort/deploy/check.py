"""What a consortium should know of its data before a training: empty cells, by one secure sum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.after.sums import SumSeries, sums_wanted
from ciphercohort.deploy.inference import DeployedSums, Drive
from ciphercohort.job.layout import MISSING
from ciphercohort.results.documents import to_json, write_text
from ciphercohort.results.exact_sums import exact_fields
from coordinator.settings import SCHEMA, Settings
from parties.reader.look import told
from parties.reader.schema import Schema
from parties.reader.views import missing_schema
from protocols.privacy.calibrate.figures import Wanted
from protocols.statistics.evaluation.figures import LEAST
from protocols.sums.missing_cells import MissingObjective

CHECK = "check"
"""What its plan states as its study."""


def missing_by(sums: SumSeries, least: int = LEAST) -> dict[str, Any]:
    """Empty cells by column; sums: over rows of `missing_schema`.

    missing: counts, None below `least` and above N - `least`; noise_std: of each.

    Raises:
        CohortError: the sum is refused, or aborted.
    """
    names = [column.name for column in sums.schema.columns]
    opened = sums.open(MissingObjective(columns=len(names), exact=sums.wanted.epsilon is None))
    found = np.clip(np.rint(opened.values * sums.rows), 0, sums.rows).astype(int).tolist()
    counts = dict(zip(names, found, strict=True))
    promise = opened.plan.privacy
    return {
        **exact_fields(opened.plan.opens_exact_sums),
        "rows": sums.rows,
        "missing": told(counts, sums.rows, least),
        "suppressed": {"below": least},
        "noise_std": opened.noise_std * sums.rows,
        "privacy": {"epsilon": promise.epsilon, "delta": promise.delta} if promise else None,
        "session": opened.plan.session,
        "plan": opened.plan.digest(),
    }


def asked_for(wanted: Wanted) -> dict[str, Any]:
    """Of a count of missing cells, as its plan states it."""
    promise = {name: getattr(wanted, name) for name in ("epsilon", "delta", "colluders")}
    return {"study": CHECK, "options": {}, "columns": [], **promise}


def check_deployed(
    settings: Settings,
    drive: Drive,
    *,
    epsilon: float | None,
    delta: float,
    colluders: int,
    first: str | None = None,
) -> tuple[Path, Mapping[str, Any]]:
    """Empty cells by column over the rows of all admitted parties; missing.json of the session.

    Raises:
        ParameterError: the schema fills nothing in. ProtocolError: the sum was aborted.
    """
    own = missing_schema(Schema.load(settings.folder / SCHEMA))
    wanted = sums_wanted(epsilon, delta, colluders)
    sums = DeployedSums.of(settings, drive, own, wanted, first, asked=asked_for(wanted))
    found = missing_by(sums)
    path = settings.session_folder(sums.sessions[0]) / MISSING
    write_text(path, to_json(found))
    return path, found
