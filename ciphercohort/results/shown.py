"""What shows itself in a notebook: the page is made, and its code loaded, when somebody looks."""

from __future__ import annotations

import pkgutil

PAGES = "ciphercohort.report.notebook:html_of"


class Shown:
    """A result, a table, an evaluation, a forecast, a deployed run."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """For notebooks: see `ciphercohort.report.notebook`. No row is in it."""
        return str(pkgutil.resolve_name(PAGES)(self))
