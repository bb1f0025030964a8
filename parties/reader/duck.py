"""A query by DuckDB, over its own tables, Parquet and text files; values come one at a time.

DuckDB guesses types, separators and quotation marks of a text file from all of its cells, and a
quotation mark takes the rows below into its cell. Hence text files of a query are read by
`delimited`, which gives DuckDB texts, and DuckDB itself may open no file but its own database and
the Parquet files that the query names, whatever the query, a view or a macro asks for.

Security: as `query`: no message quotes a cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow

from parties.reader import TEXT_ROWS, Problems
from parties.reader.delimited import frame_of, read_delimited
from protocols.errors import DataError

_TEXT = re.compile(r".*\.(csv|tsv)(\.gz)?", re.IGNORECASE | re.DOTALL)
_PARQUET = re.compile(r".*\.parquet", re.IGNORECASE | re.DOTALL)
_PATTERN = r"[*?\[]"
_CSV = ("read_csv", "read_csv_auto")
_ARROW = ("read_parquet", "parquet_scan")
_READ_ROWS = 8192
_WORDS = {
    "Parser": "the query is not understood",
    "Binder": "the query names a column that is not there, or mixes kinds",
    "Catalog": "the query names a table or function that is not there",
    "IO": "a file or the database is not there or cannot be read",
    "Conversion": "a value cannot be computed as the query asks: check its casts and divisions",
    "InvalidInput": "the query's kinds do not fit together",
    "Permission": "it reads a file whose kinds DuckDB would guess, or that is not named in FROM: "
    "write FROM 'x.csv', .tsv or .parquet",
}


def from_duckdb(path: str, query: str, folder: Path, rows: int | None) -> Iterator[pd.DataFrame]:
    """What a query gives; path: of a database, empty: none; folder: of relative paths.

    Raises:
        ImportError: DuckDB is not there. DataError: the query fails, or would guess.
    """
    import duckdb

    where, words = str(folder / path) if path else ":memory:", ""
    try:
        with duckdb.connect(where, read_only=bool(path)) as connection:
            tree = _Tree(connection, query, folder)
            connection.execute("SET python_enable_replacements = false")
            connection.execute("SET allowed_paths = ?", [tree.parquet])
            connection.execute("SET enable_external_access = false")
            statement = _quoted(json.dumps(tree.statement))
            found = connection.execute(f"PRAGMA json_execute_serialized_sql({statement})")
            names = [str(column[0]) for column in found.description]
            start, last = 0, False
            while not last:
                cells = found.fetchmany(rows) if rows else found.fetchall()
                last = not rows or len(cells) < rows
                index = pd.RangeIndex(start + 1, start + 1 + len(cells), name=TEXT_ROWS)
                if cells or not start:
                    yield frame_of(names, cells, index if tree.has_texts else None)
                start += len(cells)
    except duckdb.Error as error:
        words = _WORDS.get(type(error).__name__.removesuffix("Exception"), "the query failed")
    if words:
        raise DataError(f"gives no rows: {words}")


class _Tree:
    """A query as DuckDB understands it, its files in place of their names.

    has_texts: whether there are text files, which are tables of the connection now; parquet: paths
    of the Parquet files.
    """

    def __init__(self, connection: Any, query: str, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        self._tables: dict[tuple[str, str], str] = {}
        self.parquet: list[str] = []
        self.statement = self._checked(self._parsed(query))

    @property
    def has_texts(self) -> bool:
        return bool(self._tables)

    def _parsed(self, query: str) -> Any:
        (text,) = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
        found = json.loads(text)
        if found.get("error"):
            raise DataError(f"gives no rows: {_WORDS['Parser']}")
        return found

    def _checked(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._checked(each) for each in node]
        if not isinstance(node, dict):
            return node
        found = {key: self._checked(value) for key, value in node.items()}
        if found.get("type") == "BASE_TABLE":
            return self._table(found)
        if found.get("type") == "TABLE_FUNCTION":
            return self._function(found)
        return found

    def _table(self, node: dict[str, Any]) -> Any:
        name = str(node["table_name"])
        alias = node["alias"] or Path(name).name.split(".")[0]
        if _TEXT.fullmatch(name):
            return self._in_place(node, alias, self._text(name, None))
        if _PARQUET.fullmatch(name):
            return self._in_place(node, alias, self._of_parquet([name]))
        return node

    def _function(self, node: dict[str, Any]) -> Any:
        function = node["function"]
        name, children = str(function["function_name"]).lower(), function["children"]
        alias = node["alias"] or name
        if name in _ARROW:
            source = self._of_parquet(_texts_of(children[0])) if children else ""
            made = self._in_place(node, alias, source)
            made["function"]["children"] += children[1:]
            return made
        if name not in _CSV:
            return node
        paths = [child for child in children if child.get("type") != "COMPARE_EQUAL"]
        given = {
            str(child["left"]["column_names"][0]).lower(): _texts_of(child["right"])
            for child in children
            if child.get("type") == "COMPARE_EQUAL"
        }
        delim = given.pop("delim", None) or given.pop("sep", None)
        if given:
            raise DataError(
                f"gives {name} the option {next(iter(given))}: only delim is taken, since every "
                "text file is read by the same rules"
            )
        names = [each for path in paths for each in _texts_of(path)]
        if len(names) != 1 or (delim is not None and len(delim) != 1):
            raise DataError(f"calls {name} with other than one file and one delim: write each out")
        return self._in_place(node, alias, self._text(names[0], delim[0] if delim else None))

    def _in_place(self, node: dict[str, Any], alias: str, source: str) -> Any:
        made = self._parsed(f"FROM {source}")["statements"][0]["node"]["from_table"]
        return {**made, "alias": alias} | {k: node[k] for k in ("sample", "column_name_alias")}

    def _of_parquet(self, names: list[str]) -> str:
        """The call that reads these files, of which each may be a pattern."""
        found = []
        for name in names:
            path = self._folder.resolve() / name
            is_pattern = re.search(_PATTERN, name) and not path.exists()
            parts = str(path.relative_to(path.anchor))
            found += sorted(map(str, Path(path.anchor).glob(parts))) if is_pattern else [str(path)]
        if not found:
            raise DataError(f"gives no rows: {_WORDS['IO']}")
        self.parquet += found
        return f"read_parquet([{', '.join(map(_quoted, found))}])"

    def _text(self, name: str, delim: str | None) -> str:
        """The table with a file's cells as they stand there, empty ones NULL."""
        separator = delim or ("\t" if name.lower().removesuffix(".gz").endswith(".tsv") else ",")
        if len(separator) != 1 or separator in '"\r\n ':
            raise DataError(f"has the delim {separator!r}: give one character")
        if re.search(_PATTERN, name) and not (self._folder / name).exists():
            raise DataError(f"reads several files, {name!r}: join them by UNION ALL")
        key = (name, separator)
        if key not in self._tables:
            table, problems = f"text file {len(self._tables)}", Problems(f"reads {name!r}")
            try:
                frames = read_delimited(self._folder / name, problems, _READ_ROWS, separator)
                found = [_arrow(frame) for frame in frames]
            except OSError:
                raise DataError(f"gives no rows: {_WORDS['IO']}") from None
            except DataError as error:
                raise DataError(f"reads {name!r}, which {error}") from None
            problems.refuse()
            self._connection.register(table, pyarrow.Table.from_batches(found))
            self._tables[key] = table
        return f'"{self._tables[key]}"'


def _arrow(frame: pd.DataFrame) -> pyarrow.RecordBatch:
    columns = [frame.iloc[:, k].tolist() for k in range(frame.shape[1])]
    cells = [pyarrow.array([c or None for c in column], pyarrow.string()) for column in columns]
    return pyarrow.record_batch(cells, [str(name) for name in frame.columns])


def _texts_of(node: Any) -> list[str]:
    """The texts of a constant, or of a list of them."""
    if node.get("type") == "VALUE_CONSTANT":
        return [str(node["value"].get("value"))]
    return [text for child in node.get("children", []) for text in _texts_of(child)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
