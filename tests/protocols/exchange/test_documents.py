"""Documents of other people: typed, strict, and refused with place, value and what is due."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from protocols.errors import MessageError, ParameterError
from protocols.exchange.documents import Checked, Text, load_toml, parse_json, read


@dataclass(frozen=True)
class Inner:
    """A dataclass; it refuses odd numbers."""

    even: int = 0

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ParameterError(f"even={self.even} is odd")


class Outer(Checked, frozen=True):
    """A document."""

    name: Text
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    mode: Literal["ask", "policy"] = "ask"
    inner: Inner = Inner()
    more: dict[str, list[Inner]] = msgspec.field(default_factory=dict)


GOOD = {"name": "a", "share": 1, "inner": {"even": 2}, "more": {"x": [{"even": 4}]}}


def test_numbers_have_one_form() -> None:
    found: Outer = read(GOOD, Outer, "it")
    assert (found.inner, found.more) == (Inner(2), {"x": [Inner(4)]})
    assert isinstance(found.share, float) and isinstance(Outer(name="a", share=0).share, float)
    assert str(Outer(name="a", share=-0.0).share) == "0.0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "name='' of it: Expected 'str' of length >= 1"),
        ({"name": "\ud800"}, "name=.* of it: .*regex"),
        ({"share": "1"}, "share='1' of it: Expected 'float', got 'str'"),
        ({"share": True}, "share=True of it: Expected 'float', got 'bool'"),
        ({"share": 1.5}, "share=1.5 of it: Expected 'float' <= 1"),
        ({"mode": "aks"}, "mode='aks' of it: .*not one of 'ask', 'policy'"),
        ({"shrae": 1}, "unknown field 'shrae'; did you mean 'share'?"),
        ({"inner": {"evne": 2}}, "unknown field 'evne'; did you mean 'even'?"),
        ({"more": {"x": [{"even": 2.5}]}}, r"\[0\].even of it: Expected 'int', got 'float'"),
        ({"inner": {"even": 3}}, "^even=3 is odd$"),
        ({"inner": 3}, "inner=3 of it: Expected 'object', got 'int'"),
    ],
)
def test_what_is_not_as_declared_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises((MessageError, ParameterError), match=words):
        read(GOOD | change, Outer, "it", MessageError)
    if "even" not in words and "shrae" not in words and "name" not in change:
        with pytest.raises(ParameterError):
            Outer(**({"name": "a"} | change))


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is malformed"), ("share = 2", "share=2"), (None, "x.toml does not exist")],
)
def test_toml(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ParameterError, match=words):
        load_toml(path, Outer, name="a")
    path.write_text('mode = "policy"\n[inner]\neven = 2\n')
    assert load_toml(path, Outer, name="a") == Outer(name="a", mode="policy", inner=Inner(2))


@pytest.mark.parametrize(
    "text", [b"\xff", "", "[" * 100_000, '{"a": 1, "a": 2}', "[NaN]", "[-Infinity]"]
)
def test_json_that_is_none(text: str | bytes) -> None:
    with pytest.raises(MessageError, match="it "):
        parse_json(text, "it", MessageError)


def test_a_file_does_not_say_what_the_program_says(tmp_path: Path) -> None:
    """The program's own fields are no fields of the file."""
    path = tmp_path / "x.toml"
    path.write_text('name = "b"\nmode = "policy"\n')
    with pytest.raises(ParameterError, match=r"unknown field 'name'"):
        load_toml(path, Outer, name="a")
