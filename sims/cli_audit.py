"""The commands `cohort audit …`: does what was promised hold up?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sims import cli_options as options
from sims.console import FAILED, refusals, say, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from sims.audit_privacy import PrivacyAudit

DEFAULT_ROWS, DEFAULT_FEATURES, DEFAULT_RUNS = 1000, 9, 1_000_000

audit_app = typer.Typer(
    no_args_is_help=True,
    help="Try to refute what a certificate or a transcript says.",
)


@audit_app.callback()
def _group() -> None:
    """Keep `privacy` a sub-command even while it is the only one."""


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

    The coalition sees every round's noisy gradient, subtracts its own noise and knows all rows but
    one. A lower bound above the certificate's epsilon refutes it: exit code 1.
    """
    with refusals(debug) as console:
        import numpy as np

        from sims.audit_privacy import audit_privacy
        from sims.config import SimulationConfig
        from sims.documents import to_json
        from sims.setting import choose_setting

        config = SimulationConfig(
            parties=options.DEFAULT_PARTIES if parties is None else parties,
            colluders=colluders or 0,
            epsilon=options.DEFAULT_EPSILON if epsilon is None else epsilon,
            delta=options.DEFAULT_DELTA if delta is None else delta,
            update=update,
            rounds=iterations,
        )
        owners = config.parties or options.DEFAULT_PARTIES
        setting = choose_setting(
            config, rows=rows, num_features=features, norm_bound=1.0, parties=owners
        )
        certificate = setting.certificate
        if certificate is None:  # the settings above always carry noise
            raise AssertionError("a private setting came without a certificate")
        say(console, f"{runs:,} runs of {setting.rule.rounds} iterations", "dim")
        found = audit_privacy(
            certificate,
            setting.rule,
            coalition=config.colluders if coalition is None else coalition,
            runs=runs,
            rng=np.random.default_rng(seed),
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
