"""A session's file with one line changed, its own or one of what all sheets are held to."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from parties.kernel import sheet


def mutant(module: Any, old: str, new: str) -> ModuleType:
    """The module, made of its changed source, or upon changed floors."""
    own, shared = (Path(str(each.__file__)).read_text() for each in (module, sheet))
    assert (own.count(old) or shared.count(old)) == 1, old
    made = {"mutant": ModuleType("mutant"), "mutant_sheet": ModuleType("mutant_sheet")}
    with patch.dict(sys.modules, made):  # dataclasses look their module up
        exec(compile(shared.replace(old, new), "mutant_sheet", "exec"), vars(made["mutant_sheet"]))
        text = own.replace(old, new if old in own else old)
        text = text.replace("from parties.kernel.sheet ", "from mutant_sheet ")
        exec(compile(text, "mutant", "exec"), vars(made["mutant"]))
    return made["mutant"]
