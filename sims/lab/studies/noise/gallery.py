"""Which plots a study has, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sims.lab.studies.noise.components import COMPONENTS, WORDS
from sims.lab.studies.noise.figures import Line, Plot, axis_label, levels_of, lines_of
from sims.lab.studies.noise.grid import VARIED, Grid, coalition_words, ring_words

CLIENTS = "number of clients P"
LINEAR = ("accuracy", "auc", "log_loss", "left_ratio", "bytes_party")
MODES = {"fixed": "All rows shared out", "growing": "Every client brings its own rows"}
_AT_SLOTS = "error of the weights\n[integer units per slot, rms]"
# Field of a cell -> column of the table, where they differ.
_COLUMN = {"rounds": "T_asked", "norm": "row_norm"}
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


def plots_of(frame: pd.DataFrame, grids: Sequence[Grid]) -> list[Plot]:
    """Everything that there are data for, grid by grid."""
    good, plots = frame[frame.refusal.isna()], []
    for number, grid in enumerate(grids, start=1):
        mine = good[good.protocol == grid.protocol]
        twins = mine[(mine.kind == "twin") & mine.parties.isin(grid.parties)]
        ring = mine.ring == ring_words(grid.profile, grid.ring_dim)
        runs = mine[(mine.kind == "encrypted") & mine.parties.isin(grid.encrypted) & ring]
        runs = at_base(runs, grid)
        made = [*_twin_plots(twins, grid), *_varied_plots(twins, grid)]
        made += _run_plots(runs, at_base(twins, grid))
        if len(grids) > 1:
            made = [
                replace(p, name=f"{number}_{p.name}", part=f"Grid {number}. {p.part}") for p in made
            ]
        plots += made
    return [plot for plot in plots if any(len(line.points) for line in plot.lines)]


def at_base(frame: pd.DataFrame, grid: Grid, **but: Any) -> pd.DataFrame:
    """Rows of a grid's base; but: other values of some fields, or a list of them."""
    for name, value in {**grid.settings()[0], **but}.items():
        allowed = value if isinstance(value, list | tuple) else [value]
        frame = frame[np.array([v in allowed for v in frame[_COLUMN.get(name, name)]], bool)]
    return frame


def _part(words: str, frame: pd.DataFrame) -> str:
    """Heading: what all its plots have in common."""
    c, found = frame.iloc[0], sorted(set(frame.rounds.dropna().astype(int)))
    rounds = f"T as certified for each P and t, {found[0]} to {found[-1]}" if found else ""
    common = (
        c.protocol,
        c["update"],
        "" if c.split == "even" else _VALUES["split"](c.split),
        "" if c.weights == "rows" else f"{c.weights} weights",
        _VALUES["epsilon"](c.epsilon),
        f"T = {found[0]}" if len(found) == 1 else rounds,
        c.ring,
    )
    return f"{words}: {', '.join(filter(None, common))}"


def _in_order(frame: pd.DataFrame, column: str, values: Sequence[Any]) -> pd.DataFrame:
    """Rows with these values, in their order."""
    ranks = frame[column].map(lambda value: values.index(value) if value in values else None)
    return frame.loc[ranks.dropna().sort_values(kind="stable").index]


def _twin_plots(twins: pd.DataFrame, grid: Grid) -> Iterator[Plot]:
    ordered = _in_order(twins, "coalition", grid.colluders)
    for mode, words in MODES.items():
        mine = at_base(ordered, grid, mode=mode)
        if mine.parties.nunique() < 2:
            continue
        for component, caption in WORDS["twin_plots"].items():
            yield Plot(
                name=f"{component}_{mode}",
                caption=caption,
                x_label=CLIENTS,
                y_label=axis_label(component),
                lines=lines_of(mine, component, mine.who),
                log_y=component not in LINEAR,
                part=_part(words, mine),
                apart=True,
                levels=levels_of(mine, component),
            )


def _varied_plots(twins: pd.DataFrame, grid: Grid) -> Iterator[Plot]:
    """Each field that has several values: against P by value, or against the field itself."""
    for listed, name in VARIED.items():
        values, x = getattr(grid, listed), _COLUMN.get(name, name)
        mine = at_base(twins, grid, **{name: values})
        if len(values) < 2 or name == "mode" or mine.empty:
            continue
        base = at_base(twins, grid)
        part = _part("One change at a time, from", twins if base.empty else base)
        if mine.parties.nunique() < 2 and name in FIELD_LABELS:
            shown = mine[mine[x].notna()]
            label, x_label, where = shown.who, FIELD_LABELS[name], f"P = {mine.parties.iloc[0]}"
        else:
            # Everyone adding all makes all coalitions alike: one of them is enough.
            ends = (grid.colluders[0], grid.colluders[-1])[: 1 if name == "noise" else 2]
            ends = tuple(dict.fromkeys(ends))
            shown = _in_order(_in_order(mine, "coalition", ends), x, values)
            words = shown[x].map(lambda v, name=name: _VALUES.get(name, str)(v))
            label = words + ", " + shown.who if len(ends) > 1 else words
            x, x_label, where = "parties", CLIENTS, " and ".join(map(coalition_words, ends))
        for component in ("privacy_noise", "accuracy", "log_loss") if len(shown) else ():
            yield Plot(
                name=f"{component}_by_{name}",
                caption=f"{_sentence(component)} by {_FIELDS.get(name, name)}; {where}.",
                x_label=x_label,
                y_label=axis_label(component),
                lines=lines_of(shown, component, label, x),
                log_y=component not in LINEAR,
                part=part,
                apart=True,
                levels=levels_of(shown, component),
            )


def _sentence(component: str) -> str:
    title = COMPONENTS[component].title
    return title[0].upper() + title[1:]


def _run_plots(runs: pd.DataFrame, twins: pd.DataFrame) -> Iterator[Plot]:
    """Of the first coalition: encryption does not know what the others add.

    twins: at the base, whose model's noise stands beside encryption's error.
    """
    if runs.empty:
        return
    first = runs[runs.coalition == runs.coalition.iloc[0]]
    part = _part("Encrypted runs", first)
    noise = twins[(twins.component == "model_noise") & (twins.coalition == first.coalition.iloc[0])]
    released = pd.concat([first, noise])
    common: Mapping[str, Any] = {"part": part, "x_label": CLIENTS}
    for plot in WORDS["run_plots"]:
        parts = plot["lines"].items()
        lines = [line for part, words in parts for line in lines_of(released, part, words)]
        shown = {"lines": [line for line in lines if len(line.measured)], **common}
        yield Plot(**{"y_label": axis_label(next(iter(plot["lines"]))), **plot, **shown})
    for name, component in (("iterate_course", "iterate"), ("opened_course", "opened")):
        yield Plot(
            name=name,
            caption=f"{_sentence(component)}, along the run.",
            y_label=_AT_SLOTS if component == "iterate" else axis_label(component),
            lines=_courses(first[(first.component == component) & first.step.notna()]),
            log_x=False,
            **{**common, "x_label": "iteration"},
        )


def _courses(steps: pd.DataFrame) -> list[Line]:
    """Of the first seed of every P."""
    return [
        Line.plain(f"P = {parties}", list(run.step), list(run.value))
        for parties, group in steps.groupby("parties")
        for run in [group[group.seed == group.seed.min()]]
    ]
