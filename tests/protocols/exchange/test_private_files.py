"""Private files: whole or not at all, nobody else's to read, through no link."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from protocols.exchange.private_files import (
    erase,
    private_folder,
    private_opener,
    sweep,
    write_private,
)

NAME = "session.sealed"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def _open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_and_private(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"old")
    path.chmod(0o666)
    write_private(path, b"new", durable=durable)
    assert path.read_bytes() == b"new" and mode(path) == 0o600
    assert os.listdir(tmp_path) == [NAME]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / NAME
    victim.write_bytes(b"kept")
    path.symlink_to(victim)
    write_private(path, b"secret")
    assert victim.read_bytes() == b"kept" and not path.is_symlink()
    assert path.read_bytes() == b"secret"


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "hard link"])
def test_a_planted_scratch_file_gets_no_secret(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the name is guessed all the same: the write fails, and nothing is read or changed."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)
    victim, scratch = tmp_path / "victim", tmp_path / f".{NAME}.{'0' * 16}.tmp"
    if kind != "dangling":
        victim.write_bytes(b"kept")
    if kind == "file":
        scratch.write_bytes(b"kept")
    elif kind == "hard link":
        scratch.hardlink_to(victim)
    else:
        scratch.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / NAME, b"secret")
    assert not (tmp_path / NAME).exists()
    assert not victim.exists() if kind == "dangling" else victim.read_bytes() == b"kept"


def test_scratch_names_are_not_predictable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = list[str](), os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(Path(a).name), real(a, b))[1])
    for _ in range(20):
        write_private(tmp_path / NAME, b"x")
    assert len(set(seen)) == 20 and all(len(name) > len(NAME) + 16 for name in seen)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / NAME
    write_private(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == [NAME]


def test_what_killed_writes_left_is_removed(tmp_path: Path) -> None:
    """By this version and by those before."""
    for name in (NAME, f".{NAME}.tmp", f".{NAME}.{'0' * 16}.tmp", "a.tmp", ".hidden"):
        (tmp_path / name).write_bytes(b"sealed")
    sweep(tmp_path)
    assert set(os.listdir(tmp_path)) == {NAME, "a.tmp", ".hidden"}
    for _ in range(2):
        erase(tmp_path / NAME)
        assert not (tmp_path / NAME).exists()


def test_an_opener_for_files_that_grow(tmp_path: Path) -> None:
    for _ in range(2):
        with open(tmp_path / "log", "a", opener=private_opener) as file:
            file.write("x")
    assert (tmp_path / "log").read_text() == "xx" and mode(tmp_path / "log") == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with (
        pytest.raises(OSError, match="symbolic links"),
        open(tmp_path / "link", "w", opener=private_opener),
    ):
        pass
    assert (tmp_path / "log").read_text() == "xx"


def test_a_folder_of_before_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    for path in (tmp_path / "new" / "inner", tmp_path / "old"):
        assert mode(private_folder(path)) == 0o700
