"""The command `cohort plan`: what a run would promise and cost, before any key and without data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocols.errors import ParameterError
from sims import cli_options as options
from sims.cli_run import party_count, privacy_fields
from sims.console import INSECURE, refusals, say, stdout

if TYPE_CHECKING:
    from sims.config import SimulationConfig
    from sims.planning import Forecast, Shape

SHAPE = "Shape of the data, in place of a file"
EXAMPLES = """Examples:

cohort plan --rows 30000 --features 23 --parties 10 --colluders 3 --epsilon 1

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
NoTiming = Annotated[
    bool,
    typer.Option(
        "--no-timing", help="Predict no seconds, time nothing.", rich_help_panel=options.OUTPUT
    ),
]


def plan(
    rows: Rows = None,
    features: Features = None,
    norm_bound: NormBound = None,
    data: options.Data = None,
    label: options.Label = None,
    positive: options.Positive = None,
    schema: options.SchemaFile = None,
    test: options.TestFile = None,
    holdout: options.Holdout = None,
    exclude: options.Exclude = None,
    strict: options.Strict = False,
    parties: options.Parties = None,
    split: options.Split = "even",
    update: options.Update = "barrier",
    iterations: options.Iterations = None,
    degree: options.Degree = None,
    learning_rate: options.LearningRate = None,
    interval: options.Interval = None,
    seed: options.Seed = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    colluders: options.Colluders = None,
    no_privacy: options.NoPrivacy = False,
    profile: options.Profile = "secure",
    ring_dim: options.RingDim = None,
    no_timing: NoTiming = False,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show what a run would promise and cost: every condition, epsilon, ring, seconds, bytes.

    Takes the shape of the data from --rows and --features, or from --data. Nothing is encrypted.
    """
    with refusals(debug) as console:
        from sims.config import SimulationConfig
        from sims.documents import to_json
        from sims.planning import forecast

        _check_source(data is not None, label, rows, features, norm_bound)
        if test is not None and holdout is not None:
            raise ParameterError("test and holdout are both given: choose one of them")
        config = SimulationConfig(
            data=data,
            label=label,
            positive=positive,
            schema=schema,
            test=test,
            holdout=options.DEFAULT_HOLDOUT if holdout is None else holdout,
            exclude=tuple(exclude or ()),
            parties=party_count(parties, split),
            split=split,
            update=update,
            rounds=iterations,
            degree=degree,
            learning_rate=learning_rate,
            radius=interval,
            **privacy_fields(no_privacy, epsilon, delta, colluders),
            seed=seed,
            profile=profile,
            ring_dim=ring_dim,
            strict=strict,
        )
        config, shape = _shape(config, rows, features, norm_bound)
        if profile != "secure":
            say(console, INSECURE, "bold red")
        found = forecast(config, shape, timing=not no_timing)
        if as_json:
            sys.stdout.write(to_json(found.to_dict(), indent=None))
        else:
            _show(found)


def _check_source(
    has_data: bool,
    label: str | None,
    rows: int | None,
    features: int | None,
    norm_bound: float | None,
) -> None:
    given = {"rows": rows, "features": features, "norm-bound": norm_bound}
    if has_data:
        extra = ", ".join(name for name, value in given.items() if value is not None)
        if extra:
            raise ParameterError(f"{extra} and data are both given: the data fix them")
        return
    if rows is None or features is None:
        raise ParameterError(
            "the shape of the data is missing: give --rows and --features, or --data FILE"
        )
    if label is not None:
        raise ParameterError(f"label={label!r} is given without data: add --data FILE")


def _shape(
    config: SimulationConfig, rows: int | None, features: int | None, norm_bound: float | None
) -> tuple[SimulationConfig, Shape]:
    from sims.planning import Shape, shape_of_data

    if rows is None or features is None:
        return shape_of_data(config)
    if config.split != "even" or config.parties is None:
        raise ParameterError(f"split={config.split!r} needs data: add --data FILE, or leave it out")
    bound = 1.0 if norm_bound is None else norm_bound
    shape = Shape.even(rows=rows, features=features, parties=config.parties, norm_bound=bound)
    return config, shape


# -- for a person ---------------------------------------------------------------------------------


def _show(found: Forecast) -> None:
    from rich.table import Table
    from rich.text import Text

    screen, body = stdout(), found.to_dict()
    say(
        screen,
        f"{body['rows']:,} rows of {body['parties']} parties, {body['features']} columns and the "
        f"bias, every row's norm at most {body['norm_bound']:g}",
    )
    say(screen, _update_line(body))
    if body["conditions"]:
        table = Table(title=Text(f"Conditions; the tightest is {body['binding']}"))
        for name in ("", "Condition", "Left", "", "Right", "Meaning"):
            table.add_column(name, overflow="fold")
        for each in body["conditions"]:
            mark = Text("ok", style="green") if each["satisfied"] else Text("FAILED", style="red")
            sides = (f"{each['left']:.6g}", each["relation"], f"{each['right']:.6g}")
            cells = [Text(cell) for cell in (each["name"], *sides, each["meaning"])]
            table.add_row(mark, *cells)
        screen.print(table)
    for line in (*_privacy_lines(body), *_encryption_lines(body), *body["notes"]):
        say(screen, line)
    screen.print(_cost_table(body))
    for line in _cost_lines(body):
        say(screen, line)


def _update_line(body: dict[str, Any]) -> str:
    fields = {k: v for k, v in body["update"].items() if isinstance(v, float) and k != "unit"}
    words = ", ".join(f"{name} {value:.5g}" for name, value in fields.items())
    return (
        f"update {body['update']['kind']}: {body['iterations']} iterations, {words}; sigmoid of "
        f"degree {body['degree']} on [-{body['interval']:.4g}, {body['interval']:.4g}]"
    )


def _privacy_lines(body: dict[str, Any]) -> list[str]:
    privacy = body["privacy"]
    if privacy is None:
        return ["privacy: no noise; the model may say something about single rows"]
    seen = ", ".join(f"{k}: {value:.3g}" for k, value in enumerate(body["epsilon"]))
    return [
        f"privacy: epsilon={privacy['epsilon']:g}, delta={privacy['delta']:g} against "
        f"{privacy['colluders']} colluding parties; sigma {privacy['sigma']:.4g} on the mean "
        f"gradient, of which each party adds {privacy['share_std']:.4g}",
        f"epsilon by number of colluding parties: {seen}",
    ]


def _encryption_lines(body: dict[str, Any]) -> list[str]:
    ckks, released = body["ckks"], body["decryption"]
    security = f"{ckks['security_bits']}-bit security" if ckks["security_bits"] else INSECURE
    return [
        f"encryption: ring dimension {ckks['ring_dim']}, depth {ckks['depth']}, log2(QP) "
        f"{ckks['log_qp']} of at most {ckks['max_log_qp']} bits, {security}; "
        f"{ckks['rotation_keys']} rotation keys, {ckks['data_ciphertexts']} data ciphertexts",
        f"decryption: flooded to {released['flooding_bits']} bits; the released weights are off "
        f"by {released['release_error_std']:.2g} (standard deviation)",
    ]


def _cost_lines(body: dict[str, Any]) -> list[str]:
    sizes = ", ".join(f"{role} {size:,} MB" for role, size in body["peak_memory_mb"].items())
    lines = [f"peak memory (an estimate): {sizes}"]
    if body["seconds"]:
        lines.append(
            f"predicted seconds: {body['seconds_per_iteration']:.2f} of the coordinator per "
            f"iteration, {body['waiting_seconds_per_iteration']:.2f} waiting for the parties; "
            f"{body['total_seconds']:,.0f} in all, every role on this machine in turn"
        )
    return lines


def _cost_table(body: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    sizes, lasts = body["bytes_per_party"], body["seconds"] or {}
    table = Table(title=Text("Predicted cost"))
    table.add_column("Phase")
    table.add_column("MB per party", justify="right")
    table.add_column("Seconds", justify="right")
    rows = [(phase, size, lasts.get(phase)) for phase, size in sizes.items()]
    rows.append(("total", sum(sizes.values()), body["total_seconds"]))
    for phase, size, seconds in rows:
        style = "bold" if phase == "total" else ""
        shown = "" if seconds is None else f"{seconds:,.1f}"
        table.add_row(phase, f"{size / 1e6:,.2f}", shown, style=style)
    return table
