"""Pages from `report/templates`: Jinja2 escapes every text that is not HTML already."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

Html = Markup

ENVIRONMENT = Environment(
    loader=PackageLoader("ciphercohort.report"),
    autoescape=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
ENVIRONMENT.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
_MACROS: Any = ENVIRONMENT.get_template("macros.html").module
Macro = Callable[..., Html]
section: Macro = _MACROS.section
table: Macro = _MACROS.table
bar: Macro = _MACROS.bar
picture: Macro = _MACROS.picture
noted: Macro = _MACROS.noted


def render(template: str, **fields: Any) -> str:
    """A whole page; nothing in it is loaded from elsewhere."""
    return ENVIRONMENT.get_template(template).render(**fields)


def page(title: str, body: Iterable[Html]) -> str:
    """The whole document of some parts."""
    return render("page.html", title=title, body=list(body))


def fragment(*children: object) -> Html:
    """Several pieces in a row."""
    return Html("").join(children)  # type: ignore[arg-type]


def tag(name: str, *children: object, **attributes: str) -> Html:
    """One element; `cls` is the attribute class."""
    pairs = fragment(
        *(Html(' {}="{}"').format(k if k != "cls" else "class", v) for k, v in attributes.items())
    )
    return Html("<{0}{1}>{2}</{0}>").format(name, pairs, fragment(*children))
