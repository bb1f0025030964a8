"""`cohort audit privacy`: an attack on many twin runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import FAILED, refusals, say, stdout
from ciphercohort.job.config import DEFAULT_DELTA, DEFAULT_EPSILON, DEFAULT_PARTIES

if TYPE_CHECKING:
    from rich.table import Table

    from sims.lab.audits.privacy import PrivacyAudit

DEFAULT_ROWS, DEFAULT_FEATURES, DEFAULT_RUNS = 1000, 9, 1_000_000
EXAMPLE = "Example:  cohort audit privacy --parties 10 --colluders 3 --epsilon 1 --update gd"


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

        from ciphercohort.job.config import SimulationConfig
        from ciphercohort.results.documents import to_json
        from protocols.privacy.calibrate.figures import PublicFigures
        from protocols.privacy.calibrate.rows import choose_rows
        from protocols.privacy.calibrate.whitened import RULES
        from sims.lab.audits.privacy import audit_privacy
        from sims.lab.audits.whitened import both_runs

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
