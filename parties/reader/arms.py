"""Arms of a column: the groups that its cells make of rows, as every option names them.

A column of categories has these, in the schema's order; one of two numbers (`binary`) has the lower
and the upper. Missing cells that have an indicator are an arm more, the last. The first arm is the
reference. An option that takes groups names the column; one that takes an arm names "COLUMN=ARM",
and of two numbers the column alone is the upper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from parties.reader.cells import cell_text
from parties.reader.schema import CategoricalColumn, Column, NumericColumn, Schema, Targets
from protocols.errors import ParameterError
from protocols.exchange.documents import shown, suggest

OTHER = "(other)"
"""Group of rows whose cell is none of a column's arms."""
MISSING = "missing"
MOST_TOLD = 5


def arms_of(column: Column) -> tuple[str, ...]:
    """Names in order, without that of missing cells; none of a column of more numbers."""
    if isinstance(column, CategoricalColumn):
        return column.categories
    return (_text(column.low), _text(column.high)) if column.binary else ()


def _text(number: float) -> str:
    """As cells of the table are read."""
    return cell_text(float(number)) or ""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Of the rows, by a column.

    places: of features of which a row of a group has a one, the first of them where there are
    several; names: of these groups; rest: of the rows of none; ordered: names of all arms, as they
    are told, the rest's among them where it is one.
    """

    places: tuple[int, ...]
    names: tuple[str, ...]
    rest: str
    ordered: tuple[str, ...]

    @property
    def rest_is_arm(self) -> bool:
        """Whether each row is of a group, as of two numbers."""
        return len(self.ordered) > len(self.names)

    @property
    def order(self) -> list[int]:
        """Places in (*names, rest) of those that are told, the rest last where it is no arm."""
        if not self.rest_is_arm:
            return [*range(len(self.names) + 1)]
        return [(*self.names, self.rest).index(name) for name in self.ordered]

    @property
    def several(self) -> tuple[str, ...]:
        """In this order."""
        return self.ordered if self.rest_is_arm else (*self.ordered, self.rest)

    @classmethod
    def whole(cls, name: str) -> Groups:
        """One of all rows."""
        return cls(places=(), names=(), rest=name, ordered=())


def placed(schema: Schema, *, outcome: bool = False) -> Iterator[tuple[int, Column]]:
    """Each column and the place of its first feature; outcome: those that are predicted, too."""
    place = 0
    for column in schema.columns:
        yield place, column
        place += len(column.features)
    place += 1  # the bias
    label = schema.label
    if outcome and isinstance(label, Targets):
        yield from enumerate(label.columns, place)
    elif outcome:
        yield place, CategoricalColumn(label.names[0], label.values)  # type: ignore[union-attr]


def groups_of(
    columns: Iterable[tuple[int, Column]], what: str, name: str, rest: str = OTHER
) -> Groups:
    """Groups of the rows by the column of a name; columns: see `placed`; what: the option.

    rest: what rows are called whose cell is no category.

    Raises:
        ParameterError: there is no such column, or it has no arms.
    """
    columns = [*columns]
    for place, column in columns:
        if column.name != name or not arms_of(column):
            continue
        arms = arms_of(column)
        more = (MISSING,) * (column.missing == "indicator")
        if isinstance(column, CategoricalColumn):
            names = (*arms, *more)
            places = tuple(range(place, place + len(names)))
            while rest in names:
                rest = f"({rest})"
            return Groups(places=places, names=names, rest=rest, ordered=names)
        if column.missing == "typical":
            raise ParameterError(
                f"{what}={shown(name)}: missing cells of {shown(name)} are filled in with "
                f"{column.typical:g}, and would count as {' or '.join(arms)}: leave these rows "
                "out, or take missing: indicator in the schema, which makes them a group"
            )
        # What fills a missing cell in stands in the upper's place: the indicator comes first.
        names, places = (*more, arms[1]), (*range(place + len(more), place - 1, -1),)
        return Groups(places=places, names=names, rest=arms[0], ordered=(*arms, *more))
    for _, column in columns:
        if name in [f"{column.name}={arm}" for arm in arms_of(column)]:
            raise ParameterError(
                f"{what}={shown(name)} is one group of a column: name the column, "
                f"{shown(column.name)}"
            )
    raise no_arms([column for _, column in columns], what, name)


def arm_of(
    columns: Iterable[tuple[int, Column]], what: str, name: str, *, alone: bool = True
) -> tuple[int, Column, int]:
    """Place of the column's first feature, the column, and which of its arms a name is of.

    alone: whether a column of two numbers stands for its upper.

    Raises:
        ParameterError: there is no such arm.
    """
    columns = [*columns]
    for place, column in columns:
        arms = arms_of(column)
        named = [f"{column.name}={arm}" for arm in arms]
        if name in named:
            return place, column, named.index(name)
        if arms and name == column.name:
            if alone and isinstance(column, NumericColumn):
                return place, column, 1
            told = " or ".join(map(shown, named[:MOST_TOLD]))
            raise ParameterError(f"{what}={shown(name)} is a column: name one of its arms, {told}")
    raise no_arms([column for _, column in columns], what, name)


def no_arms(columns: Iterable[Column], what: str, name: str) -> ParameterError:
    """Words where a name is of no arm, or no column that has some."""
    columns = [*columns]
    own = max(
        (c for c in columns if c.name == name or name.startswith(f"{c.name}=")),
        key=lambda c: len(c.name),
        default=None,
    )
    told = "; ".join(f"{shown(c.name)}: {_told(arms_of(c))}" for c in columns if arms_of(c))
    known = f"; columns with groups are {told}" if told else "; no column has groups"
    begin = f"{what}={shown(name)}"
    if own is None:
        names = [c.name for c in columns if arms_of(c)]
        close = suggest(name.partition("=")[0] if "=" in name else name, names)
        return ParameterError(f"{begin}: there is no such column{close}{known}")
    if not arms_of(own):
        low, high = own.low, own.high  # type: ignore[union-attr]
        return ParameterError(
            f"{begin}: {shown(own.name)} has numbers from {low:g} to {high:g}, and no groups: make "
            f"categories of them in the table, or, where they are two, binary in the schema{known}"
        )
    arms = arms_of(own)
    close = suggest(name.removeprefix(f"{own.name}="), arms)
    return ParameterError(
        f"{begin}: {shown(own.name)} has {_told(arms)}, no other group: name one of these{close}"
    )


def _told(arms: tuple[str, ...]) -> str:
    more = f" and {len(arms) - MOST_TOLD} more" if len(arms) > MOST_TOLD else ""
    return ", ".join(map(shown, arms[:MOST_TOLD])) + more
