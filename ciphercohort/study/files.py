"""Where the documents of a study go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ciphercohort.results.documents import to_json, write_text
from protocols.errors import ParameterError


def write(
    folder: Path,
    name: str,
    body: Mapping[str, Any],
    texts: Iterable[tuple[str, str]],
    *,
    fresh: bool = True,
) -> Path:
    """The JSON document and what is made of it; an earlier one of the same name gives way.

    fresh: into a folder that holds nothing else.

    Raises:
        ParameterError: the folder holds something else.
    """
    if fresh:
        check_folder(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    for each, text in texts:
        write_text(folder / each, text)
    write_text(folder / name, to_json(body))
    return folder / name


def check_folder(folder: Path, name: str) -> None:
    """Raises ParameterError: it is a file, or holds something else than an earlier result."""
    taken = folder.is_dir() and any(folder.iterdir()) and not (folder / name).is_file()
    if folder.is_file() or taken:
        raise ParameterError(f"out={str(folder)!r} holds something else: give a new folder")
