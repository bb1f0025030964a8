"""The commands `cohort audit …`: does what was promised hold up?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals, tell

if TYPE_CHECKING:
    from coordinator.replay import Replayed
    from protocols.plan.run_plan import RunPlan

TRANSCRIPT_EXAMPLE = """Example:

cohort simulate --iterations 3 --out runs/demo --keep-messages

cohort audit transcript runs/demo"""

audit_app = typer.Typer(
    no_args_is_help=True,
    help="Try to refute what a certificate or a transcript says.",
)


@audit_app.command(epilog=TRANSCRIPT_EXAMPLE)
def transcript(
    folder: Annotated[
        Path, typer.Argument(metavar="RUNDIR", help="A run folder with its messages.")
    ],
    statement: Annotated[
        list[Path] | None,
        typer.Option(help="Of a party whose last replies were lost (cohort party statement)."),
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Run the coordinator's arithmetic again on the recorded replies, and compare all it asked.

    It needs no secret, and about the time that the coordinator took. Parties: compare the keys
    shown under signatures with your own; the plan could name others.
    """
    with refusals(debug) as console:
        from ciphercohort.cli.progress import reporting
        from ciphercohort.job.layout import release_of
        from ciphercohort.verify.folder import Check
        from coordinator.replay import replay

        with reporting(console) as reporter:

            def on_step(step: str, done: int, total: int) -> None:
                if done == 0:
                    reporter.begin("run the steps again")
                reporter.step(done, total)

            log = release_of(folder)
            replayed = replay(log, on_step, [path.read_bytes() for path in statement or ()])
        checks = [Check(check.name, check.passed, check.detail) for check in replayed.checks]
        if replayed.passed:
            problems = list(_folder_problems(log, replayed))
            words = "; ".join(problems) or "plan.json and model.json are what was agreed and sent"
            checks.append(Check("run folder", not problems, words))
        tell(checks, str(folder), "the coordinator did as agreed", as_json)


def _folder_problems(folder: Path, replayed: Replayed) -> Iterator[str]:
    """Where plan.json and model.json differ from the messages, and the model from its release."""
    import json

    from ciphercohort.job.layout import MODEL, PLAN

    plan = replayed.plan
    if plan is None:  # `replayed` passed
        raise AssertionError("a re-execution passed without a plan")
    agreed = {**plan.to_dict(), "digest": plan.digest()}
    sent = {"released": replayed.weights, "plan": plan.digest()}
    for name, expected in ((PLAN, agreed), (MODEL, sent)):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            yield f"{name} cannot be read ({type(error).__name__})"
            continue
        for field, value in json.loads(json.dumps(expected)).items():
            if not isinstance(found, dict) or found.get(field) != value:
                yield f"{name}, field {field}: not as in the messages"
        if name == MODEL:
            yield from _model_problems(found, plan)


def _model_problems(model: Any, plan: RunPlan) -> Iterator[str]:
    """Where a model is not what follows from its release, whatever the file holds."""
    from ciphercohort.verify.figures import model_problems
    from ciphercohort.verify.folder import MALFORMED
    from protocols.errors import CohortError

    try:
        yield from model_problems(model, plan)
    except CohortError as error:
        yield f"model.json: {error}"
    except MALFORMED as error:
        yield f"model.json has another shape than it should ({type(error).__name__})"
