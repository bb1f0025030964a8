"""Names that both sides know: of steps that stand for others, of elements, of views of rows."""

COVERED, COMMIT = "cover-", "commit-"
"""Prefixes: of a step that repeats another one without the parties that have vanished; of the step
before another one, in which its replies are fixed."""
PUBLIC_KEY = "public-key"
RELINEARISATION = "relinearisation"
OPENING_KEY = "opening-key"
CONTRIBUTE = "contribute"
KEYS = "keys"
RANGES_VIEW, EMPTY_VIEW, CELLS_VIEW = "ranges", "missing", "cells"
"""Rows encoded otherwise than for training: see `parties.reader.views`."""


def repeated(step: str) -> str:
    """The step that `step` repeats, itself if it repeats none."""
    return step.removeprefix(COVERED)


def commit_of(step: str) -> str:
    """The step in which the replies to `step` are fixed."""
    again = COVERED if step != repeated(step) else ""
    return f"{again}{COMMIT}{repeated(step)}"


def rotation_label(index: int) -> str:
    """Label of a rotation key's uniform half."""
    return f"rotation/{index}"
