"""Pictures of reports: put together in all tests, and drawn where a test looks at them.

Drawing is a fifth of a small run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure

from ciphercohort.report import plots

DRAWN = plots.to_svg


def put_together(figure: Figure) -> str:
    """An empty picture; the figure has its axes."""
    assert figure.axes
    return '<svg xmlns="http://www.w3.org/2000/svg"/>'


@contextmanager
def drawn() -> Iterator[None]:
    """Pictures are drawn while it is open."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plots, "to_svg", DRAWN)
        yield
