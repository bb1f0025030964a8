"""Data for a simulation: read, hold out, split among parties, encode.

In a deployment every party brings its own table; nothing here runs there. Rows are not private
within a simulation, but messages still name columns and counts only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import check_kind
from ciphercohort.job.inputs import GIVEN, INFERRED, SchemaFrom
from ciphercohort.results.predict import raw_rows
from parties.reader import Problems
from parties.reader.arms import arm_of, arms_of, placed
from parties.reader.cells import numeric_cells, text_cells
from parties.reader.infer import REGRESSION_SCALING, infer_schema
from parties.reader.look import bounds_notes, clamped_targets, cohort_warnings
from parties.reader.schema import Label, Schema
from parties.reader.shard import Shard, encode_shard
from parties.reader.table import read_table
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.exchange.documents import shown, suggest
from protocols.models.registry import model_named

RowNumbers = NDArray[np.intp]
BUILTIN = ("breast_cancer", "diabetes", "iris")
SPLIT_FORMS = "even, by:COLUMN or dirichlet:ALPHA (such as dirichlet:0.5)"
ALPHA_RANGE = (1e-3, 1e6)
SCHEMAS = Path(__file__).parent / "schemas"
PLACE = "\0place"
"""Column with the position of a row in its table."""


@dataclass(frozen=True, kw_only=True)
class NoRows:
    """In place of test rows where every row is trained on; fields as of `Shard`, of no row."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    offset: NDArray[np.float64]

    @classmethod
    def of(cls, shard: Shard) -> NoRows:
        """Of the shapes of a shard's."""
        return cls(x=shard.x[:0], y=shard.y[:0], offset=shard.offset[:0])


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """shards by party name, encoded; test: encoded test rows, if any; notes: for the reader.

    raw, raw_test: training and test rows in the data's own units, see `raw_rows`; places: of each
    party's rows in the table, where it came from one; schema_from: whether the schema was read
    from these rows.
    """

    schema: Schema
    schema_from: SchemaFrom
    shards: dict[str, Shard]
    test: Shard | NoRows
    raw: NDArray[np.float64] = field(repr=False)
    raw_test: NDArray[np.float64] = field(repr=False)
    notes: tuple[str, ...]
    places: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> NDArray[np.float64]:
        """All training rows in the plan's order, shape (N, d)."""
        return np.concatenate([shard.x for shard in self.shards.values()])

    @property
    def labels(self) -> NDArray[np.float64]:
        """All training labels, shape (N,), or targets or one-hot classes, shape (N, c)."""
        return np.concatenate([shard.y for shard in self.shards.values()])

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """Of all training rows over their bound, shape (N,)."""
        return np.concatenate([shard.weight for shard in self.shards.values()])

    @property
    def offsets(self) -> NDArray[np.float64]:
        """Of all training rows' scores, shape (N,)."""
        return np.concatenate([shard.offset for shard in self.shards.values()])


def prepare(config: SimulationConfig, rng: np.random.Generator) -> PreparedData:
    """Read, hold out, infer a schema where none is given, split and encode.

    rng: of the hold-out and the split.

    Raises:
        SchemaError, DataError, ParameterError: name the column or option and the cure.
    """
    notes: list[str] = []
    problems = Problems()
    given = public_schema(config)
    if config.schema is not None and given is not None:
        config = with_outcome(config, given)
    frame, predicted = _table(config, problems)
    split_column = config.split.partition(":")[2] if config.split.startswith("by:") else None
    for name in config.exclude if given and config.data is not None else ():
        if name not in frame:
            raise SchemaError(
                f"exclude={name!r} is not a column{suggest(name, map(str, frame.columns))}"
            )
    # A bad cell is refused by its row in the file, wherever the hold-out and the split put it.
    try:
        whole = given or _schema(config, frame, predicted, split_column, [])
    except (SchemaError, DataError) as error:
        problems.add(str(error), type(error))
        problems.refuse()
        raise
    encode_shard(frame, whole, problems=problems)
    placed = frame.assign(**{PLACE: np.arange(len(frame))})
    train, test = _train_and_test(config, placed, predicted[0], rng)
    schema = given or _schema(config, train.drop(columns=PLACE), predicted, split_column, notes)
    if config.is_regression:
        require_spread(train, predicted, "the training rows")
    else:
        require_classes(train, predicted[0], "the training rows", _several(config))
    frames, names = split_rows(train, config.parties, config.split, predicted[0], rng)
    shards = {
        name: _encode(part, schema, config.strict, name)
        for name, part in zip(names, frames, strict=True)
    }
    tested: Shard | NoRows = NoRows.of(next(iter(shards.values())))
    if len(test):
        tested = _encode(test, schema, False, "the test rows")
        notes += clamped_targets(tested, schema)
    notes += cohort_warnings(shards, config.split)
    notes += bounds_notes(shards.values(), schema)
    return PreparedData(
        schema=schema,
        schema_from=GIVEN if given else INFERRED,
        shards=shards,
        test=tested,
        raw=np.concatenate([raw_rows(part, schema) for part in frames]),
        raw_test=raw_rows(test, schema) if len(test) else np.zeros((0, schema.num_features)),
        notes=tuple(notes),
        places={name: part[PLACE].to_numpy() for name, part in zip(names, frames, strict=True)},
    )


def public_schema(config: SimulationConfig) -> Schema | None:
    """The schema that was given, or that of the package for what scikit-learn ships.

    None: it has to be inferred; also of shipped data where another column is predicted.

    Raises:
        SchemaError: the file cannot be read, or columns are chosen beside it.
    """
    if config.schema is not None:
        return chosen_schema(config.schema, exclude=config.exclude, include=config.include)
    if config.data is not None:
        return None
    schema = Schema.load(SCHEMAS / f"{_builtin(config)}.json")
    label, wanted = schema.label, config.targets or (config.label or schema.label.names[0],)
    if tuple(wanted) != label.names or config.split.startswith("by:"):
        return None
    if isinstance(label, Label) and config.positive not in (None, label.positive):
        if config.positive != label.negative:
            return None
        label = Label(name=label.name, positive=label.negative, negative=label.positive)
    names = {column.name for column in schema.columns}
    if not {*config.exclude, *config.include} <= names:
        return None
    chosen = {*(config.include or names)} - {*config.exclude}
    kept = tuple(column for column in schema.columns if column.name in chosen)
    norm = None if config.is_unclipped else schema.row_norm
    return replace(schema, columns=kept, label=label, row_norm=norm) if kept else None


def chosen_schema(
    path: str | Path,
    *,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    reference: Sequence[str] = (),
    needed: Iterable[str | None] = (),
) -> Schema:
    """The schema of a file, which the columns that are chosen beside it do not contradict.

    needed: columns that are used, whether included or not.

    Raises:
        SchemaError: it cannot be read, or says otherwise.
    """
    schema = Schema.load(path)
    names = {column.name for column in schema.columns}
    chosen = {*include} | names & {*needed}
    for each in reference:
        try:
            arm_of(placed(schema), "reference", each, alone=False)
        except ParameterError as error:
            raise SchemaError(str(error)) from None
    firsts = {f"{column.name}={arms[0]}" for column in schema.columns if (arms := arms_of(column))}
    for name, given, wrong in (
        ("exclude", exclude, names & {*exclude}),
        ("include", include, include and names ^ (chosen - {*schema.label.names})),
        ("reference", reference, {*reference} - firsts),
    ):
        if wrong:
            raise SchemaError(
                f"{name}={', '.join(given)}, and schema={path} says otherwise of "
                f"{sorted(wrong)[0]!r}: leave {name} out, or make the schema with it (cohort "
                f"schema init --{name})"
            )
    return schema


def _builtin(config: SimulationConfig) -> str:
    """Which data set stands in where none is given."""
    if config.is_regression:
        return "diabetes"
    return "iris" if _several(config) else "breast_cancer"


def with_outcome(config: SimulationConfig, schema: Schema) -> SimulationConfig:
    """The configuration that names what its schema does.

    Raises:
        SchemaError: it names something else, or its model does not go with the schema.
    """
    check_kind(schema, config.model)
    given, names = config.targets or (config.label,), schema.label.names
    what = "target" if config.is_regression else "label"
    if given != names and given != (None,):
        raise SchemaError(
            f"{what}={','.join(map(str, given))!r} is not the schema's {','.join(names)!r}: leave "
            f"{what} out, or give another schema"
        )
    positive = getattr(schema.label, "positive", None)
    if config.positive not in (None, positive):
        raise SchemaError(
            f"positive={config.positive!r} is not the schema's {positive!r}: leave it out, or give "
            "another schema"
        )
    if config.is_regression:
        return replace(config, targets=names)
    return replace(config, label=schema.label.name)


def _table(config: SimulationConfig, problems: Problems) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table, and what is predicted of it; problems of single lines go to `problems`."""
    if config.data is None:
        frame, label = builtin_dataset(_builtin(config))
        return frame, config.targets or (config.label or label,)
    predicted = config.targets or (config.label or "y",)
    frame = read_table(config.data, label=predicted[0], problems=problems)
    for name in predicted:
        if name not in frame.columns:
            what = "target" if config.is_regression else "label"
            raise SchemaError(
                f"{what}={name!r} is not a column; the columns are "
                f"{', '.join(map(str, frame.columns))}{suggest(name, map(str, frame.columns))}"
            )
    return frame, predicted


def _train_and_test(
    config: SimulationConfig, frame: pd.DataFrame, label: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if config.test is not None:
        return frame, read_table(config.test, label=label)
    if not config.test_share:
        return _take(frame, rng.permutation(len(frame))), frame[:0]
    stratified = None if config.is_regression else label
    return holdout(frame, config.test_share, rng, stratified, _several(config))


def _several(config: SimulationConfig) -> bool:
    """Whether a label of several classes is predicted."""
    return model_named(config.model).several


def _schema(
    config: SimulationConfig,
    train: pd.DataFrame,
    predicted: tuple[str, ...],
    split_column: str | None,
    notes: list[str],
) -> Schema:
    chosen: dict[str, Any] = {"exclude": list(config.exclude)}
    chosen["include"] = config.include or None
    if split_column is not None and split_column in train.columns:
        chosen["exclude"].append(split_column)
    if config.is_regression:
        return inferred(train, predicted, notes, **chosen)
    several = _several(config)
    return inferred(
        train,
        predicted[0],
        notes,
        positive=config.positive,
        several=several,
        row_norm=None if config.is_unclipped else "auto",
        **chosen,
    )


def inferred(
    table: pd.DataFrame, label: str | Sequence[str], notes: list[str], **options: Any
) -> Schema:
    """`infer_schema`; label: or a list of targets; what would be warnings is added to the notes."""
    scaling: dict[str, Any] = {} if isinstance(label, str) else REGRESSION_SCALING
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = infer_schema(table, label, **scaling, **options)
    notes += [str(warning.message) for warning in caught]
    return schema


def _encode(frame: pd.DataFrame, schema: Schema, strict: bool, whose: str) -> Shard:
    try:
        return encode_shard(frame, schema, strict)
    except DataError as error:
        raise DataError(f"{whose}: {error}") from None


def builtin_dataset(name: str = "breast_cancer") -> tuple[pd.DataFrame, str]:
    """Return a table that scikit-learn ships, and the name of its label.

    "breast_cancer": Wisconsin diagnostic data, 569 rows, 30 numeric columns, label "target" with
    1 for benign. "diabetes": 442 rows, 10 numeric columns, target "progression" after one year.
    "iris": 150 rows, 4 numeric columns, label "species" of three classes.

    Raises:
        ParameterError: an unknown name.
    """
    if name not in BUILTIN:
        raise ParameterError(
            f"data set {shown(name)} is not built in: choose {' or '.join(BUILTIN)}, or give a file"
        )
    frame: pd.DataFrame
    if name == "diabetes":
        frame = load_diabetes(as_frame=True, scaled=False).frame
        return frame.rename(columns={"target": "progression"}), "progression"
    if name == "iris":
        found = load_iris(as_frame=True)
        species = found.target_names[found.target.to_numpy()]
        return found.data.assign(species=species), "species"
    frame = load_breast_cancer(as_frame=True).frame
    return frame.copy(), "target"


# -- parts of a table ------------------------------------------------------------------------------


def split_rows(
    frame: pd.DataFrame,
    parties: int | None,
    how: str,
    label: str,
    rng: np.random.Generator,
) -> tuple[list[pd.DataFrame], list[str]]:
    """Share the rows of a table out to parties; every row goes to exactly one.

    parties: number of parties, at least 1; None for "by:COLUMN" takes one per value.
    how: "even" (sizes differ by at most one row), "by:COLUMN" (one party per value; the column is
        dropped) or "dirichlet:ALPHA" (each label value is shared out by proportions drawn from a
        symmetric Dirichlet distribution: the smaller alpha, the more skewed; no party is empty).
    label: name of the label column.
    rng: source of the shuffle; rows come in random order within each party.

    Returns: one frame per party with a fresh index, and the parties' names: "party-1".. or the
    values of the column.

    Raises:
        ParameterError: ``how`` has another form, alpha is outside [1e-3, 1e6], or ``parties`` does
            not fit the rows or the values.
        SchemaError: a column is not in the table.
        DataError: no rows; missing cells in the column to split by, or in the label.
    """
    kind, _, argument = how.partition(":")
    alpha = _alpha(argument) if kind == "dirichlet" else 0.0
    valid = {"even": how == "even", "by": bool(argument), "dirichlet": alpha > 0}
    if not valid.get(kind, False):
        raise ParameterError(f"split {shown(how)} is not of a known form: use {SPLIT_FORMS}")
    _check_column(frame, label)
    if kind == "by":
        return _split_by(frame, parties, argument, label, rng)
    count = _check_parties(parties, how, len(frame))
    if kind == "even":
        groups = np.array_split(rng.permutation(len(frame)), count)
    else:
        groups = _dirichlet_groups(_values(frame, label)[0], count, alpha, rng)
    return [_take(frame, rows) for rows in groups], [f"party-{k + 1}" for k in range(count)]


def _alpha(text: str) -> float:
    """Return alpha, or 0.0 if the text is no number."""
    try:
        alpha = float(text)
    except ValueError:
        return 0.0
    low, high = ALPHA_RANGE
    if not low <= alpha <= high:
        raise ParameterError(
            f"alpha={shown(text)} of the split is not within [{low:g}, {high:g}]: "
            "0.1 is very skewed, 100 nearly even"
        )
    return alpha


def _check_parties(parties: int | None, how: str, rows: int) -> int:
    if parties is None:
        raise ParameterError(f"split {shown(how)} needs a number of parties: give it")
    if not 1 <= parties <= rows:
        raise ParameterError(
            f"parties={parties} is not within [1, {rows}], the number of rows: "
            "every party needs at least 1 row"
        )
    return parties


def _check_column(frame: pd.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise SchemaError(
            f"column {shown(name)} is not in the table"
            f"{suggest(name, map(str, frame.columns))}: check the name"
        )
    if len(frame) == 0:
        raise DataError("the table has 0 rows: at least 1 is needed")


def _values(frame: pd.DataFrame, name: str) -> tuple[RowNumbers, list[str]]:
    """Return a code per row and the texts that the codes index, sorted and distinct."""
    try:
        codes, texts = text_cells(frame[name])
    except TypeError:
        raise DataError(f"column {shown(name)} holds objects, not texts or numbers") from None
    missing = int((codes < 0).sum())
    if missing:
        raise DataError(
            f"column {shown(name)} is missing in {missing} of {len(frame)} rows: drop these rows"
        )
    values = sorted(set(texts))
    position = {text: k for k, text in enumerate(values)}
    return np.array([position[text] for text in texts], dtype=np.intp)[codes], values


def _take(frame: pd.DataFrame, rows: RowNumbers) -> pd.DataFrame:
    return frame.iloc[rows].reset_index(drop=True)


def _split_by(
    frame: pd.DataFrame, parties: int | None, column: str, label: str, rng: np.random.Generator
) -> tuple[list[pd.DataFrame], list[str]]:
    _check_column(frame, column)
    if column == label:
        raise ParameterError(
            f"split 'by:{column}' names the label, so every party would have one class only: "
            "choose another column"
        )
    codes, values = _values(frame, column)
    if parties is not None and parties != len(values):
        raise ParameterError(
            f"parties={parties} does not equal the {len(values)} different values of column "
            f"{shown(column)}: leave the number out, or choose another column"
        )
    order = rng.permutation(len(frame))
    groups = [order[codes[order] == k] for k in range(len(values))]
    frame = frame.drop(columns=column)
    return [_take(frame, rows) for rows in groups], values


def _dirichlet_groups(
    codes: RowNumbers, parties: int, alpha: float, rng: np.random.Generator
) -> list[RowNumbers]:
    """Return the row numbers of each party, none empty."""
    pieces: list[list[RowNumbers]] = [[] for _ in range(parties)]
    for value in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == value))
        shares = rng.dirichlet(np.full(parties, alpha))
        ends = np.floor(np.cumsum(shares)[:-1] * rows.size + 0.5).astype(np.intp)
        for piece, part in zip(pieces, np.split(rows, ends), strict=True):
            piece.append(part)
    groups = [rng.permutation(np.concatenate(piece)) for piece in pieces]
    for k in range(parties):
        if groups[k].size == 0:  # an empty party takes one row of the largest
            largest = max(range(parties), key=lambda j: groups[j].size)
            groups[k], groups[largest] = groups[largest][:1], groups[largest][1:]
    return groups


def holdout(
    frame: pd.DataFrame,
    fraction: float,
    rng: np.random.Generator,
    label: str | None,
    several: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split a table into a training and a test part; label: with the same share of each class.

    fraction: share of the test part, in (0, 1). label: None: whatever its rows hold. several: of
    three classes or more.

    Returns: (training, test), with a row of each class at least, in random order, fresh index.

    Raises:
        ParameterError: ``fraction`` is not in (0, 1).
        SchemaError: the label is not in the table.
        DataError: too few rows, a missing label, another number of classes, or one class with a
            single row.
    """
    if not 0 < fraction < 1:
        raise ParameterError(
            f"test_share={fraction} is not within (0, 1): give a share such as 0.2"
        )
    if label is None:
        groups: list[RowNumbers] = [np.arange(len(frame))]
        what = f"the table has {len(frame)} rows"
    else:
        require_classes(frame, label, "the table", several)
        codes, values = _values(frame, label)
        groups = [np.flatnonzero(codes == value) for value in range(len(values))]
        what = f"one class of label {shown(label)} has a single row"
    train, test = [], []
    for rows in groups:
        if rows.size < 2:
            raise DataError(
                f"{what}: training and test part need one each, so add rows or give a test file"
            )
        order = rng.permutation(rows)
        held = min(max(round(fraction * rows.size), 1), rows.size - 1)
        test.append(order[:held])
        train.append(order[held:])
    if label is None:
        return _take(frame, train[0]), _take(frame, test[0])
    training, testing = (_take(frame, rng.permutation(np.concatenate(p))) for p in (train, test))
    return training, testing


def require_spread(frame: pd.DataFrame, targets: Sequence[str], part: str) -> None:
    """Check that every numeric target has at least two different values.

    part: what the message calls the table.

    Raises:
        DataError: a target is constant.
    """
    for name in targets:
        _check_column(frame, name)
        values = numeric_cells(frame[name])[0]
        if len(np.unique(values[np.isfinite(values)])) == 1:
            raise DataError(
                f"target {shown(name)} has the same value in all of {part}: there is nothing to "
                "predict, so leave it out"
            )


def require_classes(
    frame: pd.DataFrame, label: str, part: str = "the training part", several: bool = False
) -> None:
    """Check that the label has exactly two different values, none missing.

    part: what the message calls the table. several: that it has three or more.

    Raises:
        SchemaError: the label is not in the table.
        DataError: no rows, a missing label, or another number of classes.
    """
    _check_column(frame, label)
    count = len(_values(frame, label)[1])
    if several and count < 3:
        raise DataError(
            f"label {shown(label)} has {count} different value{'s' if count != 1 else ''} in "
            f"{part} where 3 or more are needed: of two values is model logistic"
        )
    if not several and count != 2:
        raise DataError(
            f"label {shown(label)} has {count} different value{'s' if count != 1 else ''} in "
            f"{part} where 2 are needed: add rows of both classes, or choose another label"
        )
