"""The command `cohort plan`: what a run would promise and cost, before any key and without data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals, say, say_marks, stdout
from ciphercohort.job.config import PLAN, configured
from ciphercohort.planning.words import (
    cost_lines,
    cost_table,
    encryption_lines,
    privacy_lines,
    update_line,
)
from ciphercohort.results.exact_sums import SECURE
from protocols.errors import ParameterError

if TYPE_CHECKING:
    from ciphercohort.planning.forecast import Forecast

SHAPE = "Shape of the data, in place of a file"
EXAMPLES = """Examples:

cohort plan --rows 30000 --features 23 --parties 10 --colluders 3 --epsilon 1

cohort plan --rows 30000 --features 23 --parties 10 --within 10m,2GB

cohort plan --rows 100000 --features 20 --no-privacy --bandwidth 100 --latency 20

cohort plan --rows 600 --features 12 --model linear --target Y1,Y2 --no-privacy

cohort plan --data patients.csv --label died --split by:hospital --json"""

Rows = Annotated[
    int | None,
    typer.Option(help="Training rows of all parties together.", rich_help_panel=SHAPE),
]
Features = Annotated[
    int | None,
    typer.Option(help="Columns after encoding, bias NOT counted.", rich_help_panel=SHAPE),
]
NormBound = Annotated[
    float | None,
    typer.Option(
        help="Public bound on every row's norm, bias included; owners clip to it. Default: 1.",
        rich_help_panel=SHAPE,
    ),
]
Classes = Annotated[
    int | None,
    typer.Option(
        help="Of the label, of models softmax and one-vs-rest.", min=3, rich_help_panel=SHAPE
    ),
]
NoTiming = Annotated[
    bool,
    typer.Option(
        "--no-timing",
        help="Rehearse nothing: seconds, bytes and memory only where they are known.",
        rich_help_panel=options.OUTPUT,
    ),
]

Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Rehearse again, whatever is known of this machine.",
        rich_help_panel=options.OUTPUT,
    ),
]


@options.takes(*PLAN)
def plan(
    rows: Rows = None,
    features: Features = None,
    norm_bound: NormBound = None,
    classes: Classes = None,
    no_privacy: options.NoPrivacy = False,
    no_timing: NoTiming = False,
    rehearse: Rehearse = False,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
    **given: Any,
) -> None:
    """Show what a run would promise and cost: every condition, epsilon, ring, seconds, bytes.

    Takes the shape of the data from --rows and --features, or from --data. What it costs is
    measured in a rehearsal: a few rounds on made-up rows, which are kept for this machine.
    Of logistic models, all protocols stand beside one another, and one is recommended.
    """
    with refusals(debug) as console:
        from ciphercohort.planning.forecast import forecast
        from ciphercohort.results.documents import to_json
        from sims.shape import shape_asked

        config = configured("plan", no_privacy=no_privacy, **given)
        config, shape = shape_asked(config, rows, features, norm_bound, classes)
        say_marks(console, insecure=config.profile != SECURE)
        if rehearse and no_timing:
            raise ParameterError("rehearse and no_timing are both given: leave one out")
        if config.within is not None and no_timing:
            raise ParameterError("within and no_timing are both given: a budget needs times")
        found = forecast(config, shape, timing=not no_timing, again=rehearse, told=True)
        if as_json:
            sys.stdout.write(to_json(found.to_dict(), indent=None))
            return
        _show(found)


# -- for a person ---------------------------------------------------------------------------------


def _show(found: Forecast) -> None:
    from rich.table import Table
    from rich.text import Text

    from ciphercohort.after.inference_cost import inference_line
    from ciphercohort.planning.comparison import lines, table

    screen, body = stdout(), found.to_dict()
    say(
        screen,
        f"{body['rows']:,} rows of {body['parties']} parties, {body['features']} columns and the "
        f"bias, every row's norm at most {body['norm_bound']:g}",
    )
    for line in body.get("within", ()):
        say(screen, line)
    say(screen, update_line(body))
    if body["conditions"]:
        conditions = Table(title=Text(f"Conditions; the tightest is {body['binding']}"))
        for name in ("", "Condition", "Left", "", "Right", "Meaning"):
            conditions.add_column(name, overflow="fold")
        for each in body["conditions"]:
            mark = Text("ok", style="green") if each["satisfied"] else Text("FAILED", style="red")
            sides = (f"{each['left']:.6g}", each["relation"], f"{each['right']:.6g}")
            cells = [Text(cell) for cell in (each["name"], *sides, each["meaning"])]
            conditions.add_row(mark, *cells)
        screen.print(conditions)
    for line in (*privacy_lines(body), *encryption_lines(body), *body["notes"]):
        say(screen, line)
    if found.inference:
        say(screen, inference_line(found.inference))
    if found.predicted:
        screen.print(cost_table(body))
    for line in cost_lines(body):
        say(screen, line)
    if found.comparison:
        screen.print(table(found.comparison))
        for line in lines(found.comparison):
            say(screen, line)
