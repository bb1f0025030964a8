"""Which plots a study has, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.figures import Label, Line, Number, Plot, axis_label, lines_of, parties_of
from sims.studies.noise.grid import VARIED, Grid, coalition_words
from sims.studies.noise.measurement import Measurement

CLIENTS = "number of clients P"
TWIN_PLOTS = {
    "privacy_ratio": "All clients' noise on a round's mean gradient, over the sigma that the "
    "promise needs: sqrt(P / (P - t)).",
    "left_ratio": "What a coalition of t cannot subtract. At 1 the promise holds exactly.",
    "privacy_noise": "All clients' noise in gradient units: sqrt(P / (P - t)) sigma.",
    "model_noise": "How far the noise moves the model.",
    "accuracy": "Accuracy of the model on the test rows.",
    "auc": "Area under the ROC curve on the test rows.",
    "largest_iterate": "Largest |w| of a run; dots: R of the certificate, where there is one.",
    "bytes_party": "Payload of the busiest party, as computed from the plan.",
}
LINEAR = ("accuracy", "auc", "left_ratio", "bytes_party")
MODES = {"fixed": "All rows shared out", "growing": "Every client brings its own rows"}
KEYS = {
    "secret": "secret",
    "rotation_key": "rotation key",
    "public_key": "public key",
}
CIPHERTEXTS = {
    "refresh": "added by a refresh",
    "encryption": "one fresh encryption",
    "relinearisation_key": "relinearisation key",
    "encryption_sum": "sum of encryptions",
}
MODEL = {"first_iterate": "first iterate, without drift", "iterate": "last iterate"}
RELEASE = {"circuit": "model before decryption", "flooding": "added by joint decryption"}
SUMS = {"opened": "opened sum", "opening_key": "opening key"}
FIELD_LABELS = {
    "epsilon": "epsilon",
    "rounds": "iterations T",
    "norm": "row norm bound [scaled units]",
}
_VALUES: dict[str, Callable[[Any], str]] = {
    "rounds": lambda v: "T certified" if v is None else f"T = {v}",
    "norm": lambda v: "schema norm" if v is None else f"norm {v:g}",
    "noise": lambda v: "sigma / sqrt(P - t) each" if v == "honest" else "sigma each",
    "epsilon": lambda v: "no privacy" if v is None else f"epsilon {v:g}",
    "split": lambda v: v.replace("dirichlet:", "Dirichlet "),
}
_FIELDS = {
    "rounds": "number of iterations",
    "norm": "row norm bound",
    "noise": "what each client adds",
    "split": "split of the rows",
    "weights": "weights of the clients",
    "update": "update rule",
}


def plots_of(measurements: Sequence[Measurement], grids: Sequence[Grid]) -> list[Plot]:
    """Everything that there are data for, grid by grid."""
    good = [m for m in measurements if not m.refusal]
    plots = []
    for number, grid in enumerate(grids):
        mine = [m for m in good if m.cell.protocol == grid.protocol]
        base = grid.settings()[0]
        twins = [m for m in mine if m.cell.kind == "twin" and m.cell.parties in grid.parties]
        runs = [m for m in mine if m.cell.kind == "encrypted" and _at_base(m, base)]
        runs = [m for m in runs if m.cell.parties in grid.encrypted]
        made = [*_twin_plots(twins, grid), *_varied_plots(twins, grid), *_run_plots(runs)]
        if len(grids) > 1:
            made = [
                replace(p, name=f"{number + 1}_{p.name}", part=f"Grid {number + 1}. {p.part}")
                for p in made
            ]
        plots += made
    return [plot for plot in plots if any(len(line.x) + len(line.formula) for line in plot.lines)]


def _at_base(m: Measurement, base: Mapping[str, object], but: str = "") -> bool:
    return all(getattr(m.cell, name) == value for name, value in base.items() if name != but)


def _coalition(m: Measurement) -> str:
    return coalition_words(m.cell.coalition)


def _part(words: str, measurements: Sequence[Measurement]) -> str:
    """Heading: what all its plots have in common."""
    c = measurements[0].cell
    common = (
        c.protocol,
        c.update,
        "" if c.split == "even" else _VALUES["split"](c.split),
        "" if c.weights == "rows" else f"{c.weights} weights",
        _VALUES["epsilon"](c.epsilon),
        _rounds(measurements),
    )
    return f"{words}: {', '.join(text for text in common if text)}"


def _rounds(measurements: Sequence[Measurement]) -> str:
    found = sorted({int(m.facts["T"]) for m in measurements if "T" in m.facts})
    if not found:
        return ""
    if len(found) == 1:
        return f"T = {found[0]}"
    return f"T as certified for each P and t, {found[0]} to {found[-1]}"


def _twin_plots(twins: Sequence[Measurement], grid: Grid) -> Iterator[Plot]:
    base, order = grid.settings()[0], grid.colluders
    ordered = [m for c in order for m in twins if m.cell.coalition == c]
    for mode, words in MODES.items():
        mine = [m for m in ordered if m.cell.mode == mode and _at_base(m, base, but="mode")]
        if len({m.cell.parties for m in mine}) < 2:
            continue
        for component, caption in TWIN_PLOTS.items():
            yield Plot(
                name=f"{component}_{mode}",
                caption=caption,
                x_label=CLIENTS,
                y_label=axis_label(component),
                lines=lines_of(mine, component, _coalition),
                log_y=component not in LINEAR,
                part=_part(words, mine),
                apart=True,
            )


def _varied_plots(twins: Sequence[Measurement], grid: Grid) -> Iterator[Plot]:
    """Each field that has several values: against P by value, or against the field itself."""
    base = [m for m in twins if _at_base(m, grid.settings()[0])] or twins
    part = _part("One change at a time, from", base) if base else ""
    for listed, name in VARIED.items():
        values = getattr(grid, listed)
        mine = [m for m in twins if _at_base(m, grid.settings()[0], but=name)]
        mine = [m for m in mine if getattr(m.cell, name) in values]
        if len(values) < 2 or name == "mode" or not mine:
            continue
        if len({m.cell.parties for m in mine}) < 2 and name in FIELD_LABELS:
            shown = [m for m in mine if isinstance(getattr(m.cell, name), int | float)]
            label: Label = _coalition
            x: Number = partial(_field, name)
            x_label = FIELD_LABELS[name]
            where = f"P = {mine[0].cell.parties}"
        else:
            # Everyone adding all makes all coalitions alike: one of them is enough.
            ends = dict.fromkeys((grid.colluders[0], grid.colluders[-1]))
            ends = dict.fromkeys([grid.colluders[0]]) if name == "noise" else ends
            shown = [m for m in mine if m.cell.coalition in ends]
            shown.sort(key=partial(_rank, name, values, list(ends)))
            label, x, x_label = partial(_value, name, len(ends) > 1), parties_of, CLIENTS
            where = " and ".join(map(coalition_words, ends))
        for component in ("privacy_noise", "accuracy"):
            if shown:
                yield Plot(
                    name=f"{component}_by_{name}",
                    caption=f"{_sentence(component)} by {_FIELDS.get(name, name)}; {where}.",
                    x_label=x_label,
                    y_label=axis_label(component),
                    lines=lines_of(shown, component, label, x),
                    log_y=component != "accuracy",
                    part=part,
                    apart=True,
                )


def _sentence(component: str) -> str:
    title = COMPONENTS[component].title
    return title[0].upper() + title[1:]


def _rank(name: str, values: Sequence[object], ends: Sequence[str], m: Measurement) -> Any:
    return values.index(getattr(m.cell, name)), ends.index(m.cell.coalition)


def _field(name: str, m: Measurement) -> float:
    return float(getattr(m.cell, name))


def _value(name: str, coalition: bool, m: Measurement) -> str:
    words = _VALUES.get(name, str)(getattr(m.cell, name))
    return f"{words}, {_coalition(m)}" if coalition else words


def _run_plots(runs: Sequence[Measurement]) -> Iterator[Plot]:
    """Of the first coalition: encryption does not know what the others add."""
    if not runs:
        return
    first = [m for m in runs if m.cell.coalition == runs[0].cell.coalition]
    unit = "noise per coefficient\n[integer units, rms]"
    at_slots = "error of the weights\n[integer units per slot, rms]"
    seconds, traffic = "own work on this machine [s]", "traffic, both ways [B]"
    for name, caption, parts, label in (
        ("noise_of_keys", "Joint secret and joint keys.", KEYS, unit),
        ("noise_of_ciphertexts", "Encryptions, and what is added to them.", CIPHERTEXTS, unit),
        ("noise_of_model", "Encrypted iterates against the twin.", MODEL, at_slots),
        ("noise_of_release", "Model before its decryption, and flooding.", RELEASE, unit),
        ("model_deviation", "Released model against the twin.", _one("release"), ""),
        ("noise_of_sums", "Error of opened sums.", SUMS, unit),
        ("seconds_by_role", "Own work by role, waiting left out.", _roles("seconds"), seconds),
        ("bytes_by_role", "Payload by role.", _roles("bytes"), traffic),
    ):
        lines = _lines(first, parts)
        part = _part("Encrypted runs", first)
        y_label = label or axis_label(next(iter(parts)))
        yield Plot(
            name=name, caption=caption, x_label=CLIENTS, y_label=y_label, lines=lines, part=part
        )
    for name, component in (("iterate_course", "iterate"), ("opened_course", "opened")):
        yield Plot(
            name=name,
            caption=f"{_sentence(component)}, along the run.",
            x_label="iteration",
            y_label=at_slots if component == "iterate" else axis_label(component),
            lines=_courses(first, component),
            log_x=False,
            part=_part("Encrypted runs", first),
        )


def _one(component: str) -> dict[str, str]:
    return {component: "deviation"}


def _roles(what: str) -> dict[str, str]:
    return {f"{what}_party": "busiest party", f"{what}_coordinator": "coordinator"}


def _lines(runs: Sequence[Measurement], parts: Mapping[str, str]) -> list[Line]:
    return [
        line
        for part, words in parts.items()
        for line in lines_of(runs, part, _coalition, name=words)
        if line.x
    ]


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
