"""The commands `cohort audit …`: does what was promised hold up?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sims import cli_options as options
from sims.config import DEFAULT_DELTA, DEFAULT_EPSILON, DEFAULT_PARTIES
from sims.console import FAILED, refusals, say, stdout, tell

if TYPE_CHECKING:
    from rich.table import Table

    from coordinator.replay import Replayed
    from protocols.plan import RunPlan
    from sims.audit_privacy import PrivacyAudit

DEFAULT_ROWS, DEFAULT_FEATURES, DEFAULT_RUNS = 1000, 9, 1_000_000

TRANSCRIPT_EXAMPLE = """Example:

cohort simulate --iterations 3 --out runs/demo --keep-messages

cohort audit transcript runs/demo"""

audit_app = typer.Typer(
    no_args_is_help=True,
    help="Try to refute what a certificate or a transcript says.",
)


@audit_app.command(
    epilog="Example:  cohort audit privacy --parties 10 --colluders 3 --epsilon 1 --update gd"
)
def privacy(
    rows: Annotated[int, typer.Option(help="N, all parties' rows together.")] = DEFAULT_ROWS,
    features: Annotated[
        int, typer.Option(help="Columns of an encoded row, the bias included.")
    ] = DEFAULT_FEATURES,
    parties: options.Parties = None,
    colluders: options.Colluders = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    update: options.Update = "barrier",
    iterations: options.Iterations = None,
    runs: Annotated[
        int, typer.Option(help="Plaintext-twin runs, both tables together.")
    ] = DEFAULT_RUNS,
    coalition: Annotated[
        int | None,
        typer.Option(help="Parties that subtract their own noise. Default: as --colluders."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeatable noise of the audit.")] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Bound epsilon from below by telling two neighbouring tables apart, run after run.

    The coalition sees every round's noisy gradient, of whitened rows their noisy second moment as
    well, subtracts its own noise and knows all rows but one. A lower bound above the certificate's
    epsilon refutes it: exit code 1.
    """
    with refusals(debug) as console:
        import numpy as np

        from protocols.privacy.calibrate.figures import PublicFigures
        from protocols.privacy.calibrate.rows import choose_rows
        from protocols.privacy.calibrate.whitened import RULES
        from sims.audit_privacy import audit_privacy
        from sims.audit_whitened import both_runs
        from sims.config import SimulationConfig
        from sims.documents import to_json

        config = SimulationConfig(
            parties=DEFAULT_PARTIES if parties is None else parties,
            colluders=colluders or 0,
            epsilon=DEFAULT_EPSILON if epsilon is None else epsilon,
            delta=DEFAULT_DELTA if delta is None else delta,
            update=update,
            rounds=iterations,
        )
        shape = PublicFigures.even(
            rows=rows, features=features - 1, parties=config.parties or DEFAULT_PARTIES
        )
        rng, wanted = np.random.default_rng(seed), config.wanted()
        whitens = wanted.update in RULES
        setting = both_runs(shape, wanted, rng) if whitens else choose_rows(shape, wanted)
        certificate = setting.certificate
        if certificate is None:  # the settings above always carry noise
            raise AssertionError("a private setting came without a certificate")
        say(console, f"{runs:,} runs of {setting.rule.rounds} iterations", "dim")
        found = audit_privacy(
            certificate,
            setting.rule,
            coalition=config.colluders if coalition is None else coalition,
            runs=runs,
            rng=rng,
        )
        if as_json:
            sys.stdout.write(to_json(found.to_dict(), indent=None))
        else:
            stdout().print(_table(found))
            say(stdout(), found.verdict, "bold red" if found.refuted else "green")
        if found.refuted:
            raise typer.Exit(FAILED)


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
        from coordinator.replay import replay
        from sims.layout import release_of
        from sims.progress import reporting
        from sims.verify import Check

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

    from sims.layout import MODEL, PLAN

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
    from protocols.errors import CohortError
    from sims.verify import MALFORMED
    from sims.verify_figures import model_problems

    try:
        yield from model_problems(model, plan)
    except CohortError as error:
        yield f"model.json: {error}"
    except MALFORMED as error:
        yield f"model.json has another shape than it should ({type(error).__name__})"


def _table(found: PrivacyAudit) -> Table:
    from rich.table import Table

    table = Table(
        title=f"{found.runs:,} runs, {found.coalition} of {found.parties} parties collude"
    )
    table.add_column("")
    table.add_column("epsilon", justify="right")
    sure = f"{100 * found.confidence:g} % confidence"
    table.add_row(f"claimed, delta = {found.delta:.3g}", f"{found.claimed:.4f}")
    table.add_row(f"lower bound, direct, {sure}", f"{found.direct:.4f}")
    table.add_row(f"lower bound, Gaussian trade-off, {sure}", f"{found.gaussian:.4f}")
    return table
