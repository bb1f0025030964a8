"""What a hospital has of a finished run: the documents of the centre that follow from its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ciphercohort.deploy.deployed import release_of, write_documents
from ciphercohort.job.layout import PLAN
from parties.agent.settings import OUTCOME, RESULTS, SCHEMA
from parties.reader.schema import Schema
from protocols.plan.kinds import plan_from_dict
from protocols.sums.one_sum import OneSum


def party_results(folder: Path) -> Iterator[Path]:
    """Write them into sessions/ID of a party's folder, and give each session's folder.

    plan.json, model.json, certificate.json, report.html, as of a coordinator, from the plan that
    this party signed and the weights that it was told; of trainings alone. What is there stays.
    """
    schema = Schema.load(folder / SCHEMA)
    for path in sorted((folder / RESULTS).glob(f"*/{OUTCOME}"), key=lambda p: p.stat().st_mtime):
        held = json.loads(path.read_text(encoding="utf-8"))
        plan = plan_from_dict(held["plan"])
        if isinstance(getattr(plan, "task", None), OneSum):
            continue
        if not (path.parent / PLAN).exists():
            released = np.array(held["weights"], np.float64)
            write_documents(
                path.parent, release_of(plan, released, schema, str(held["transcript"]))
            )
        yield path.parent
