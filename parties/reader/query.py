"""Rows that a hospital keeps in a database: a connection and a query, both without a password.

Security: the description is part of what an owner consents to and may be shown; a password is not
in it. It comes from an environment variable or a file, is used for the connection, and is in no
message, log or representation. A library's exception, which may quote the address or a cell, is
never chained: only its SQLSTATE code, of five characters, is told.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from parties.reader.delimited import frame_of
from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import Checked, Text, load_toml

_EXTRA = "needs the extra sql (pip install 'ciphercohort[sql]')"
_DUCKDB = "duckdb:"
_CREDENTIALS = r"://[^/@]*:[^@]*@|(?:[?&;\s]|%3B)\w*(?:pass|pwd|token|secret)\w*\s*(?:=|%3D)"
"""Of user:password@, also with a slash in it, and of parameters, ODBC's quoted ones included."""
_CAUSES = {
    "08": "the database does not answer: check host, port and network",
    "28": "the database refuses the user or the password",
    "3D": "there is no such database",
    "22": "a value cannot be computed as the query asks: check its casts and divisions",
    "25": "the query would change the database, and may only read it",
    "42": "the query is not understood: check its words, tables and columns, and the user's rights",
    "57": "the database ended the query",
}
"""By the first two characters of SQLSTATE (PostgreSQL's manual, appendix A)."""


class Query(Checked, frozen=True):
    """[data] of party.toml, or a .toml file that stands in a table's place.

    connection: SQLAlchemy's address of a database, without a password, such as
        "postgresql://reader@db.clinic.example/records"; or "duckdb:", which reads files, or
        "duckdb:FILE".
    query: one SELECT with an ORDER BY, so that rows come in the same order after a restart.
    password_env: environment variable with the password; password_file: or a file with it that
        nobody else can read, its path relative to the folder. Neither where the database asks for
        none, as for users of the same machine.

    Raises:
        ParameterError: a field is missing, or the address holds a password.
    """

    connection: Any  # a text: the words about another type would show it
    query: Text
    password_env: str = ""
    password_file: str = ""

    def __post_init__(self) -> None:
        """Check the fields; no message repeats the address, in which a password may be."""
        if not isinstance(self.connection, str) or not self.connection:
            raise ParameterError("connection must be a text: put it into quotes")
        Checked.__post_init__(self)
        if re.search(_CREDENTIALS, self.connection, re.IGNORECASE):
            raise ParameterError(
                "connection holds a password, and whoever reads the file would see it: take it "
                "out, change it, and name password_env or password_file"
            )
        if self.password_env and self.password_file:
            raise ParameterError("password_env and password_file are both given: leave one out")
        if not re.match(r"\s*(select|with|from)\b", self.query, re.IGNORECASE):
            raise ParameterError("query does not begin with SELECT or WITH: it may only read")
        if ";" in self.query.rstrip().removesuffix(";"):
            raise ParameterError("query has a semicolon inside: give one SELECT")
        if not re.search(r"\border\s+by\b", self.query, re.IGNORECASE):
            raise ParameterError(
                "query has no ORDER BY: add a key, so that rows come in the same order each time"
            )

    @classmethod
    def load(cls, path: Path) -> Query:
        """Read a .toml file.

        Raises:
            ParameterError: it is malformed or has other fields.
        """
        found: Query = load_toml(path, cls)
        return found

    def read(self, folder: Path) -> pd.DataFrame:
        """All rows; see `batches`."""
        (found,) = self.batches(folder)
        return found

    def batches(self, folder: Path, rows: int | None = None) -> Iterator[pd.DataFrame]:
        """Run the query in a transaction that can only read; folder: of the relative paths.

        rows: fetched at a time, about; None: all.

        Raises:
            DataError: there is no password, no answer, or no table in it; said without any value.
        """
        password = self._password(folder)
        try:
            if self.connection.startswith(_DUCKDB):
                from parties.reader.duck import from_duckdb

                yield from from_duckdb(self.connection[len(_DUCKDB) :], self.query, folder, rows)
            else:
                yield from _from_sqlalchemy(self.connection, self.query, password, rows)
        except ImportError:
            raise DataError(_EXTRA) from None

    def _password(self, folder: Path) -> str | None:
        if self.password_env:
            found = os.environ.get(self.password_env)
            if found is None:
                raise DataError(
                    f"needs the environment variable {self.password_env!r}, which is not set"
                )
            return found
        if not self.password_file:
            return None
        path = folder / self.password_file
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            words = f"needs the password file {str(path)!r}, which cannot be read"
            raise DataError(words) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise DataError(f"has a password file that others can use: chmod 600 {path}")
        return text.rstrip("\r\n")


def _from_sqlalchemy(
    connection: str, query: str, password: str | None, rows: int | None
) -> Iterator[pd.DataFrame]:
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    problem, words = "its connection is not an address that SQLAlchemy understands", ""
    try:
        url = sqlalchemy.make_url(connection)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if password is not None:
            url = url.set(password=password)
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, hide_parameters=True)
        is_postgres = engine.dialect.name == "postgresql"
        options: dict[str, Any] = {"postgresql_readonly": True} if is_postgres else {}
        options["no_parameters"] = True  # % and : are the query's own
        options["stream_results"] = rows is not None
        problem = "the database does not answer, or refuses user or password"
        with engine.connect().execution_options(**options) as open_connection:
            problem = "the query failed"
            found = open_connection.exec_driver_sql(query)
            names = [str(name) for name in found.keys()]  # noqa: SIM118
            fetched = found.fetchmany(rows) if rows else found.fetchall()
            while True:
                yield frame_of(names, fetched)
                if not rows or not (fetched := found.fetchmany(rows)):
                    break
    except (SQLAlchemyError, UnicodeError, ValueError, TypeError) as error:
        code = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
        words = _CAUSES.get(code[:2], problem) + (f" (SQLSTATE {code})" if code else "")
    _refuse(words)


def _refuse(words: str) -> None:
    """Outside a handler: the database's own words, which may quote a cell, are no context of it."""
    if words:
        raise DataError(f"gives no rows: {words}")
