"""A PostgreSQL server of one's own, from Debian's packages: a socket in a folder, no port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "hunter2-Zaphod7741"
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def missing() -> str:
    """Why no server can be started here; empty if one can."""
    if _binary("initdb") is None or _binary("pg_ctl") is None:
        return "no PostgreSQL server binaries: apt-get install postgresql"
    if os.getuid() == 0 and not _other_user():
        return "PostgreSQL refuses to run as root, and there is no user postgres"
    return ""


def _binary(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(map(str, _PLACES))) or shutil.which(name)


def _other_user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


@dataclass(frozen=True)
class Server:
    """folder: of the socket; log: of the server."""

    folder: Path
    log: Path

    def url(self, user: str = "reader", database: str = "clinic") -> str:
        """SQLAlchemy's address, without a password."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, sql: str, database: str = "clinic") -> None:
        """As the owner of the server."""
        import psycopg

        address = f"host={self.folder} user=owner dbname={database} password={PASSWORD}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(sql)


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """folder: empty, with a short path, which the server's user may enter."""
    user = _other_user() if os.getuid() == 0 else None
    given = {"user": user} if user else {}
    if user:
        shutil.chown(folder, user)
    secret, data, log = folder / "secret", folder / "data", folder / "server.log"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o644)

    def call(name: str, *arguments: object) -> None:
        subprocess.run(  # type: ignore[call-overload]
            [_binary(name), *map(str, arguments)], check=True, capture_output=True, cwd=folder,
            **given,
        )  # fmt: skip

    call("initdb", "-D", data, "-U", "owner", "--pwfile", secret, "-A", "scram-sha-256", "-N")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    call("pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
    try:
        yield Server(folder, log)
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
