"""The laboratory's commands: `cohort reproduce`, `cohort study`, `cohort audit privacy`."""

from __future__ import annotations

import typer

from ciphercohort.cli.audit import audit_app
from ciphercohort.cli.brief import FEW
from sims.lab.commands import privacy
from sims.lab.commands.reproduce import EXAMPLES, reproduce
from sims.lab.commands.study import study_app


def register(app: typer.Typer) -> None:
    """Add them to the command `cohort`, which finds this function where the laboratory is."""
    of_data = ("out", "data", "label", "schema", "protocol", "parties", "colluders", "epsilon")
    FEW["study noise"] = (*of_data, "seeds", "profile")
    FEW["study accuracy"] = (*of_data, "seeds", "update")
    FEW["audit privacy"] = (
        *("rows", "features", "parties", "colluders", "epsilon", "update", "iterations", "runs"),
        *("coalition", "as_json"),
    )
    app.add_typer(study_app, name="study")
    app.command(epilog=EXAMPLES)(reproduce)
    audit_app.command(epilog=privacy.EXAMPLE)(privacy.privacy)
    (audit,) = (group for group in app.registered_groups if group.name == "audit")
    audit.hidden = False
