"""Which plots a study has, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.figures import Line, Plot, axis_label, lines_of
from sims.studies.noise.grid import VARIED, Grid
from sims.studies.noise.measurement import Measurement

CLIENTS = "number of clients P"
TWIN_PLOTS = {
    "privacy_ratio": "All clients' noise on a round's mean gradient, over the sigma that the "
    "promise needs. Dashed: sqrt(P / (P - t)).",
    "left_ratio": "What a coalition of t cannot subtract. At 1 the promise holds exactly.",
    "privacy_noise": "The same noise in gradient units.",
    "model_noise": "How far the noise moves the model.",
    "accuracy": "Accuracy of the model on the test rows.",
    "auc": "Area under the ROC curve.",
    "largest_iterate": "Largest |w| of a run; dashed, where there is one: the certified bound R.",
    "bytes_party": "Predicted payload of the busiest party.",
}
LINEAR = ("accuracy", "auc", "left_ratio", "bytes_party")
STAGES = {
    "public_key": "joint public key",
    "rotation_key": "rotation key",
    "relinearisation_key": "relinearisation key",
    "encryption": "one fresh encryption",
    "encryption_sum": "sum of encryptions",
    "refresh": "added by a refresh",
    "iterate": "iterate, last refresh",
    "first_iterate": "first one without drift",
    "circuit": "model before release",
}
RELEASE = {"flooding": "joint decryption", "circuit": "model before it"}
SUMS = {"opened": "opened sum", "opening_key": "opening key"}
FIELD_LABELS = {
    "epsilon": "epsilon",
    "rounds": "iterations T",
    "norm": "row norm bound [scaled units]",
}


def plots_of(measurements: Sequence[Measurement], grids: Sequence[Grid]) -> list[Plot]:
    """Everything that there are data for, grid by grid."""
    good = [m for m in measurements if not m.refusal]
    plots = []
    for number, grid in enumerate(grids):
        mine = [m for m in good if m.cell.protocol == grid.protocol]
        base = grid.settings()[0]
        twins = [m for m in mine if m.cell.kind == "twin"]
        runs = [m for m in mine if m.cell.kind == "encrypted" and _at_base(m, base)]
        made = [*_twin_plots(twins, base), *_varied_plots(twins, grid), *_run_plots(runs)]
        if len(grids) > 1:
            words = f"{grid.protocol}, {base['update']}: "
            made = [
                replace(p, name=f"{number + 1}_{p.name}", caption=words + p.caption) for p in made
            ]
        plots += made
    return [plot for plot in plots if any(len(line.x) + len(line.formula) for line in plot.lines)]


def _at_base(m: Measurement, base: Mapping[str, object], but: str = "") -> bool:
    return all(getattr(m.cell, name) == value for name, value in base.items() if name != but)


def _coalition(m: Measurement) -> str:
    return f"t = {m.cell.coalition}" if m.cell.coalition.isdecimal() else m.cell.coalition


def _twin_plots(twins: Sequence[Measurement], base: Mapping[str, object]) -> Iterator[Plot]:
    for mode in ("fixed", "growing"):
        mine = [m for m in twins if m.cell.mode == mode and _at_base(m, base, but="mode")]
        if len({m.cell.parties for m in mine}) < 2:
            continue
        words = "All rows shared out." if mode == "fixed" else "Every client brings rows."
        for component, caption in TWIN_PLOTS.items():
            yield Plot(
                name=f"{component}_{mode}",
                caption=f"{caption} {words}",
                x_label=CLIENTS,
                y_label=axis_label(component),
                lines=lines_of(mine, component, _coalition),
                log_y=component not in LINEAR,
            )


def _varied_plots(twins: Sequence[Measurement], grid: Grid) -> Iterator[Plot]:
    """Each field that has several values: against P by value, or against the field itself."""
    for listed, name in VARIED.items():
        values = getattr(grid, listed)
        mine = [m for m in twins if _at_base(m, grid.settings()[0], but=name)]
        if len(values) < 2 or name == "mode" or not mine:
            continue
        if len({m.cell.parties for m in mine}) < 2 and name in FIELD_LABELS:
            numbers = [m for m in mine if isinstance(getattr(m.cell, name), int | float)]
            group, label = partial(_by_coalition, name, numbers), FIELD_LABELS[name]
            where = f"P = {mine[0].cell.parties}"
        else:
            first = [m for m in mine if m.cell.coalition == grid.colluders[0]]
            first.sort(key=lambda m, of=name, all=values: all.index(getattr(m.cell, of)))  # type: ignore[misc]
            group, label = partial(_by_value, name, first), CLIENTS
            where = _coalition(first[0]) if first else ""
        for component in ("privacy_noise", "accuracy"):
            yield Plot(
                name=f"{component}_by_{name}",
                caption=f"{COMPONENTS[component].title}, {where}, by {name}.",
                x_label=label,
                y_label=axis_label(component),
                lines=group(component),
                log_y=component != "accuracy",
            )


def _by_coalition(name: str, measurements: Sequence[Measurement], component: str) -> list[Line]:
    return lines_of(measurements, component, _coalition, _field(name))


def _by_value(name: str, measurements: Sequence[Measurement], component: str) -> list[Line]:
    return lines_of(measurements, component, partial(_value, name))


def _field(name: str) -> Callable[[Measurement], float]:
    return lambda m: float(getattr(m.cell, name))


def _value(name: str, m: Measurement) -> str:
    value = getattr(m.cell, name)
    return f"{name} {'default' if value is None else value}"


def _run_plots(runs: Sequence[Measurement]) -> Iterator[Plot]:
    if not runs:
        return
    first = [m for m in runs if m.cell.coalition == runs[0].cell.coalition]
    unit = "noise per coefficient\n[integer units, rms]"
    yield _stages("noise_by_stage", "noise of every stage", first, STAGES, unit)
    yield _stages("noise_of_release", "flooding of the joint decryption", first, RELEASE, unit)
    deviation = {"release": "deviation, rms"}
    label = axis_label("release")
    yield _stages("model_deviation", "released model against the twin", first, deviation, label)
    yield _stages("noise_of_sums", "error of an opened sum", first, SUMS, unit)
    for name, component in (("iterate_course", "iterate"), ("opened_course", "opened")):
        yield Plot(
            name=name,
            caption=f"{COMPONENTS[component].title}, along the run.",
            x_label="iteration",
            y_label=axis_label(component),
            lines=_courses(first, component),
            log_x=False,
        )
    for what, label in (("seconds", "own work on this machine [s]"), ("bytes", "traffic [B]")):
        roles = {f"{what}_party": "busiest party", f"{what}_coordinator": "coordinator"}
        yield _stages(f"{what}_by_role", f"{what} by role", first, roles, label)


def _stages(
    name: str, caption: str, runs: Sequence[Measurement], parts: Mapping[str, str], y_label: str
) -> Plot:
    lines = [
        line
        for part, words in parts.items()
        for line in lines_of(runs, part, _coalition, name=words)
        if line.x
    ]
    return Plot(
        name=name,
        caption=f"Encrypted runs: {caption}. Dashed: formulas and bounds.",
        x_label=CLIENTS,
        y_label=y_label,
        lines=lines,
    )


def _courses(runs: Sequence[Measurement], component: str) -> list[Line]:
    found: dict[int, Line] = {}
    for m in sorted(runs, key=lambda m: (m.cell.parties, m.seed)):
        course = m.courses.get(component, [])
        if course and m.cell.parties not in found:
            steps = [float(k + 1) for k in range(len(course))]
            found[m.cell.parties] = Line(
                label=f"P = {m.cell.parties}", x=steps, middle=course, low=course, high=course
            )
    return list(found.values())
