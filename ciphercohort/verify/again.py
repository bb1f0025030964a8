"""Where every message was kept: the coordinator's arithmetic once more, against what it asked.

It needs no secret, and about the time that the coordinator took. What it shows, and on whose word
it still rests: `coordinator.replay`. Parties compare the keys shown under `signatures` with their
own; the plan could name others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ciphercohort.deploy.deployed import is_sum
from ciphercohort.job.layout import MODEL, PLAN, TRANSCRIPT, UNREADABLE, read_file
from ciphercohort.verify.figures import model_problems
from coordinator.deployment import OUTCOME
from coordinator.replay import Check, OnStep, Replayed, replay
from protocols.errors import CohortError
from protocols.plan.protocol import FINISH
from protocols.plan.run_plan import RunPlan


def execute(folder: Path, statements: Sequence[bytes], on_step: OnStep) -> list[Check]:
    """Each of `replay`'s checks, and that plan and model in the folder are those of the messages.

    statements: of parties whose last replies were lost, see `protocols.plan.statement`.
    """
    replayed = replay(folder, on_step, statements)
    checks = list(replayed.checks)
    if replayed.passed:
        problems = list(_folder_problems(folder, replayed))
        words = "; ".join(problems) or "its plan and what was released are what was agreed and sent"
        checks.append(Check("run folder", not problems, words))
    return checks


def _folder_problems(folder: Path, replayed: Replayed) -> Iterator[str]:
    """Where documents differ from the messages, and the model from its release.

    Of a sum alone there are neither plan.json nor model.json.
    """
    plan = replayed.plan
    if plan is None:  # `replayed` passed
        raise AssertionError("a re-execution passed without a plan")
    agreed = {**plan.to_dict(), "digest": plan.digest()}
    sent = {"released": replayed.weights, "plan": plan.digest()}
    known = {} if is_sum(plan) else {PLAN: agreed, MODEL: sent}
    if (folder / OUTCOME).exists():
        told = {"plan": plan.to_dict(), "digest": plan.digest(), "weights": replayed.weights}
        known[OUTCOME] = {**told, "missing": _missing(folder, plan)}
    for name, expected in known.items():
        try:
            found = read_file(folder / name)
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            yield f"{name} cannot be read ({type(error).__name__})"
            continue
        except ValueError as error:
            yield f"{name} has another shape than it should: {error}"
            continue
        for field, value in json.loads(json.dumps(expected)).items():
            if found.get(field) != value:
                yield f"{name}, field {field}: not as in the messages"
        if name == MODEL:
            yield from _model_problems(found, plan)


def _missing(folder: Path, plan: RunPlan) -> list[str]:
    """Parties that were not told in the end, for others stood in for them."""
    asked = {line["recipient"] for line in read_file(folder / TRANSCRIPT) if line["step"] == FINISH}
    return [name for name in plan.names if name not in asked]


def _model_problems(model: Any, plan: RunPlan) -> Iterator[str]:
    """Where a model is not what follows from its release, whatever the file holds."""
    try:
        yield from model_problems(model, plan)
    except CohortError as error:
        yield f"{MODEL}: {error}"
    except UNREADABLE as error:
        yield f"{MODEL} has another shape than it should ({type(error).__name__})"
