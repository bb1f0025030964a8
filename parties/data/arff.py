"""Tables in Weka's format, .arff: names and kinds above, records with commas below."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd

from parties.data.delimited import (
    MISSING,
    check_distinct,
    read_text,
    records_of,
    values_of,
    walk,
)
from parties.data.problems import Problems
from protocols.errors import DataError

_ATTRIBUTE = re.compile(
    r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s{]+)\s*(\{.*\}|\S+).*", re.IGNORECASE
)
_KINDS = ("numeric", "real", "integer", "string", "date")


def read_arff(path: Path, problems: Problems) -> pd.DataFrame:
    """A table in Weka's format; `?` is a missing cell.

    Raises:
        DataError: as `read_delimited`.
    """
    text = read_text(path, problems)
    lines = io.StringIO(text, newline="").readlines()
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        if words.casefold().startswith("@data"):
            break
        if words.casefold().startswith("@attribute"):
            found = _ATTRIBUTE.fullmatch(words)
            kind = found[2].casefold() if found else ""
            if found is None or (not kind.startswith("{") and kind not in _KINDS):
                raise DataError(
                    f"has in line {number} no @attribute with a name and a kind "
                    f"({', '.join(_KINDS)} or {{…}}): correct it"
                )
            names.append(re.sub(r"\\(.)", r"\1", found[1].strip("'\"")))
        elif words and not words.startswith("%") and not words.casefold().startswith("@relation"):
            raise DataError(f"has a line {number} before @data that is no @attribute: correct it")
    else:
        raise DataError("has no line @data: export the table again")
    if not names:
        raise DataError("has no @attribute: export the table again")
    check_distinct(names)
    body = ["" if line.lstrip().startswith("%") else line for line in lines[number:]]
    if any(line.lstrip().startswith("{") for line in body):
        raise DataError("has sparse rows ({…}): save it with all values written out")
    # As many lines above as in the file, so that the walk counts as the file does.
    text = "\n" * number + "".join(body)
    quote = "'" if "'" in text else '"'
    walked = walk(records_of(text, quote, ",", problems), names, problems)
    return values_of(text, walked, names, quote=quote, missing=(*MISSING, "?"))
