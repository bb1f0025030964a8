"""Rows by a query: PostgreSQL of Debian, DuckDB over files; the password is nowhere."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from parties.agent.settings import Settings
from parties.agent.setup import _query, init_party
from parties.reader.query import Query
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.shard import encode_shard
from parties.reader.table import read_table
from protocols.errors import CohortError, DataError, ParameterError
from protocols.exchange.cards import Invitation
from tests.parties.reader import postgres
from tests.parties.reader.postgres import PASSWORD, Server

SCHEMA = Schema(
    columns=(
        NumericColumn(name="age", low=0, high=120),
        CategoricalColumn(name="ward", categories=("A", "B")),
    ),
    label=Label(name="died", positive="True", negative="False"),
    scaling="range",
)
ROWS = 40
SELECT = "SELECT age, ward, died FROM visits ORDER BY id"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Forty visits, and a user who may read them."""
    if why := postgres.missing():
        pytest.skip(why)
    # Not pytest's folder: a socket's path has at most 107 bytes, and the server is another user.
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        Path(name).chmod(0o755)
        with postgres.running(Path(name)) as found:
            found.run("CREATE DATABASE clinic", "postgres")
            found.run(f"CREATE USER reader PASSWORD '{PASSWORD}'")
            found.run("CREATE TABLE visits (id int, age numeric, ward text, died boolean)")
            found.run(
                "INSERT INTO visits SELECT k, 40.5 + k, CASE WHEN k % 2 = 0 THEN 'A' ELSE 'B' END, "
                f"k % 3 = 0 FROM generate_series(1, {ROWS}) AS k"
            )
            found.run("GRANT SELECT ON visits TO reader")
            yield found


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLINIC_PASSWORD", PASSWORD)


def query(server: Server, sql: str = SELECT, **changes: Any) -> Query:
    fields = {"connection": server.url(), "query": sql, "password_env": "CLINIC_PASSWORD"}
    return Query(**(fields | changes))


def as_toml(found: Query) -> str:
    return "".join(f"{n} = '''{getattr(found, n)}'''\n" for n in found.__struct_fields__)


def refused(found: Query, folder: Path) -> str:
    """The message; neither it nor anything that it came from has the password."""
    with pytest.raises(DataError) as caught:
        found.read(folder)
    error: BaseException | None = caught.value
    while error is not None:
        assert PASSWORD not in f"{error} {error.args!r}"
        error = error.__cause__ or error.__context__
    return str(caught.value)


def test_a_refusal_has_no_cell_even_as_its_context(tmp_path: Path) -> None:
    """DuckDB's own words are "Could not convert string 'Zaphod7741' to INT32"."""
    sql = "SELECT CAST('Zaphod7741' AS INTEGER) AS age ORDER BY 1"
    with pytest.raises(DataError, match="gives no rows: .*cannot be computed") as caught:
        Query(connection="duckdb:", query=sql).read(tmp_path)
    assert caught.value.__context__ is None and caught.value.__cause__ is None


@pytest.mark.usefixtures("password")
def test_rows_of_postgresql_are_those_of_a_file(server: Server, tmp_path: Path) -> None:
    """Decimals, texts and booleans give the same encoded rows as the exported table."""
    k = np.arange(1, ROWS + 1)
    exported = {"age": 40.5 + k, "ward": np.where(k % 2 == 0, "A", "B"), "died": k % 3 == 0}
    pd.DataFrame(exported).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "rows.toml").write_text(as_toml(query(server)))
    asked, given = (encode_shard(tmp_path / f"rows.{end}", SCHEMA) for end in ("toml", "csv"))
    np.testing.assert_array_equal(asked.x, given.x)
    np.testing.assert_array_equal(asked.y, given.y)
    assert asked.fingerprint() == given.fingerprint()


def test_a_password_file(server: Server, tmp_path: Path) -> None:
    found = query(server, password_env="", password_file="secret")
    assert "secret', which cannot be read" in refused(found, tmp_path)
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    (tmp_path / "secret").chmod(0o644)
    assert "chmod 600" in refused(found, tmp_path)
    (tmp_path / "secret").chmod(0o600)
    assert len(found.read(tmp_path)) == ROWS


@pytest.mark.usefixtures("password")
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT agee FROM visits ORDER BY id", "not understood.*SQLSTATE 42703"),
        ("SELECT * FROM visit ORDER BY 1", "not understood.*SQLSTATE 42P01"),
        ("SELECT ward::int FROM visits ORDER BY id", "cannot be computed.*SQLSTATE 22P02"),
        ("SELECT 1 / 0 ORDER BY 1", "cannot be computed.*SQLSTATE 22012"),
        ("SELECT rolpassword FROM pg_authid ORDER BY 1", "user's rights.*SQLSTATE 42501"),
        ("WITH a AS (DELETE FROM visits RETURNING id) SELECT id FROM a ORDER BY id", "25006|42501"),
        ("SELECT '50 %' AS a, ':b' AS b, age FROM visits WHERE age < 0 ORDER BY 1", ""),
    ],
)
def test_what_a_database_refuses(server: Server, tmp_path: Path, sql: str, words: str) -> None:
    if words:
        with pytest.raises(DataError, match=f"gives no rows: .*({words})"):
            query(server, sql).read(tmp_path)
        refused(query(server, sql), tmp_path)
    else:
        assert query(server, sql).read(tmp_path).shape == (0, 3)


@pytest.mark.usefixtures("password")
def test_the_owner_of_a_table_can_only_read(server: Server, tmp_path: Path) -> None:
    sql = "WITH a AS (DELETE FROM visits RETURNING id) SELECT id FROM a ORDER BY id"
    found = query(server, sql, connection=server.url("owner"))
    assert "may only read it (SQLSTATE 25006)" in refused(found, tmp_path)


def test_no_login(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'CLINIC_PASSWORD', which is not set" in refused(query(server), tmp_path)
    monkeypatch.setenv("CLINIC_PASSWORD", PASSWORD + "x")
    assert "refuses user or password" in refused(query(server), tmp_path)
    nowhere = query(server, connection="postgresql://reader@/clinic?host=/nowhere")
    assert "does not answer" in refused(nowhere, tmp_path)
    unknown = query(server, connection="oracel://reader@db/clinic")
    assert "not an address" in refused(unknown, tmp_path)


@pytest.mark.usefixtures("password")
def test_no_password_in_any_output(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A simulation, a check and refusals: screens, logs at every level, the whole run folder."""
    caplog.set_level(logging.DEBUG)
    SCHEMA.save(tmp_path / "schema.json")
    (tmp_path / "rows.toml").write_text(as_toml(query(server)))
    (tmp_path / "bad.toml").write_text(as_toml(query(server, "SELECT x FROM visits ORDER BY 1")))
    run = tmp_path / "run"
    shared = ("--label", "died", "--schema", tmp_path / "schema.json", "--parties", "2")
    train = ("--no-privacy", "--iterations", "1", "--profile", "fast-insecure", "--keep-messages")
    commands: list[tuple[Any, ...]] = [
        ("simulate", "--data", tmp_path / "rows.toml", *shared, *train, "--out", run),
        ("schema", "check", tmp_path / "schema.json", tmp_path / "rows.toml"),
        ("schema", "check", tmp_path / "schema.json", tmp_path / "bad.toml"),
        ("simulate", "--data", tmp_path / "bad.toml", *shared),
    ]  # fmt: skip
    codes, said = [], ""
    for command in commands:
        done = CliRunner().invoke(app, list(map(str, command)))
        codes.append(done.exit_code)
        said += done.stdout + done.stderr
    assert codes == [0, 0, 2, 2], said
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "messages" for path in written)
    everything = [said, caplog.text, *(path.read_bytes().decode("latin-1") for path in written)]
    assert all(PASSWORD not in text for text in everything)


@pytest.mark.usefixtures("password")
def test_a_partys_folder_has_the_query_and_no_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.toml").write_text(as_toml(query(server)))
    path = tmp_path / "invitation.json"
    invitation = Invitation(
        coordinator_key="11" * 32, superlink="centre:9092", ca="ca", schema=SCHEMA.to_dict()
    )
    path.write_text(invitation.to_json())
    folder = tmp_path / "a"
    card = init_party(folder, path, "a long passphrase", name="a", data=tmp_path / "rows.toml")
    assert card.rows == ROWS
    settings = Settings.load(folder)
    assert settings.data == msgspec.structs.asdict(query(server))
    assert SELECT in (folder / "party.toml").read_text()
    assert encode_shard(settings.rows(), SCHEMA).rows == ROWS
    for file in folder.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()
    monkeypatch.setenv("CLINIC_PASSWORD", "another")
    with pytest.raises(DataError, match=r"\[data\] of .*party.toml gives no rows: ") as caught:
        encode_shard(settings.rows(), SCHEMA)
    assert "another" not in str(caught.value)
    (tmp_path / "file.toml").write_text(
        as_toml(query(server, password_env="", password_file="secret"))
    )
    assert _query(tmp_path / "file.toml")["password_file"] == str(tmp_path / "secret")


# -- without a server ------------------------------------------------------------------------------

GOOD = {"connection": "postgresql://reader@db/clinic", "query": SELECT}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"connection": f"postgresql://reader:{PASSWORD}@db/clinic"},
            "connection holds a password",
        ),
        ({"connection": f"postgresql://db/clinic?user=r&password={PASSWORD}"}, "holds a password"),
        ({"connection": f"postgresql://reader:a/b{PASSWORD}@db/clinic"}, "holds a password"),
        ({"connection": f"mssql://db/clinic?user=r&PWD={PASSWORD}"}, "holds a password"),
        ({"connection": f"mssql:///?odbc_connect=UID%3Dr%3BPWD%3D{PASSWORD}"}, "holds a password"),
        ({"connection": f"duckdb:host=db password={PASSWORD}"}, "holds a password"),
        ({"connection": [f"postgresql://reader:{PASSWORD}@db/clinic"]}, "must be a text"),
        ({"password_env": "A", "password_file": "b"}, "both given"),
        ({"query": "DELETE FROM visits"}, "does not begin with SELECT"),
        ({"query": "SELECT 1"}, "no ORDER BY"),
        ({"query": "SELECT 1 ORDER BY 1; COMMIT; DROP TABLE visits"}, "a semicolon inside"),
        ({"query": ""}, "length >= 1"),
    ],
)
def test_a_wrong_description(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        Query(**(GOOD | changes))
    assert PASSWORD not in str(caught.value)
    (tmp_path / "rows.toml").write_text(
        "".join(f"{name} = {value!r}\n" for name, value in (GOOD | changes).items())
    )
    with pytest.raises(CohortError, match=words) as caught:
        read_table(tmp_path / "rows.toml")
    assert PASSWORD not in str(caught.value)


def test_duckdb_reads_files(tmp_path: Path) -> None:
    """Two exports joined, as the same join by pandas."""
    people = pd.DataFrame({"id": [3, 1, 2], "age": [30.5, 10, 20]})
    visits = pd.DataFrame({"id": [1, 2, 3], "ward": ["A", "B", "A"], "died": [True, False, False]})
    people.to_csv(tmp_path / "people.csv", index=False)
    visits.to_parquet(tmp_path / "visits.parquet")
    sql = "SELECT age, ward, died FROM 'people.csv' JOIN 'visits.parquet' USING (id) ORDER BY id"
    (tmp_path / "rows.toml").write_text(f'connection = "duckdb:"\nquery = "{sql}"\n')
    joined = people.merge(visits, on="id").sort_values("id")[["age", "ward", "died"]]
    pd.testing.assert_frame_equal(
        read_table(tmp_path / "rows.toml").reset_index(drop=True),
        joined.reset_index(drop=True),
        check_dtype=False,
    )


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM 'none.csv' ORDER BY 1", "is not there or cannot be read"),
        ("SELECT * FROM none ORDER BY 1", "a table or function that is not there"),
        ("SELECT agee FROM 't.csv' ORDER BY 1", "a column that is not there"),
        (f"SELECT ward::INT FROM 't.csv' WHERE ward = '{PASSWORD}' ORDER BY 1", "casts and divis"),
        ("SELECT age age age FROM 't.csv' ORDER BY 1", "the query is not understood"),
    ],
)
def test_what_duckdb_refuses(sql: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"age,ward\n1,{PASSWORD}\n")
    assert words in refused(Query(connection="duckdb:", query=sql), tmp_path)
