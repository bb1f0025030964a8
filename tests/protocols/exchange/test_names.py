"""Names of parties as file names: every text, inside the folder, each one its own; and cards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import ParameterError
from protocols.exchange.cards import CARD_KIND, MAX_BYTES, Card
from protocols.names import check_name, file_stem, spoken

HOSTILE = (
    *("../../x", "/etc/passwd", "..", ".", "", ".hidden", "a/b", "a\\b", "nul\0byte", "line\nfeed"),
    *("é", "e\u0301", "\ud800", "名" * 300, "x" * 5000, "%2E", "%2E%2E", "a b", "-rf", "~root"),
)


def test_hostile_names_stay_in_the_folder(tmp_path: Path) -> None:
    for name in HOSTILE:
        path = tmp_path / f"{file_stem(name)}.jsonl"
        path.write_text("x")
        assert path.resolve().parent == tmp_path.resolve() and not path.name.startswith(".")
    assert len(os.listdir(tmp_path)) == len(HOSTILE)


@pytest.mark.parametrize("name", ["hospital-1", "North_2", "st.mary", "A", "x" * 160])
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert file_stem(name) == name


@given(st.lists(st.text(st.characters()), min_size=2, unique=True))
def test_no_two_names_share_a_file(names: list[str]) -> None:
    stems = [file_stem(name) for name in names]
    assert len(set(stems)) == len(names)
    assert all(0 < len(stem) <= 160 and "/" not in stem and stem.isascii() for stem in stems)


def test_a_short_name_cannot_pose_as_a_long_one() -> None:
    long = file_stem("x" * 5000)
    assert file_stem(long) != long and len(long) < 160


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "", "-", "coordinator", "a.b", "a b", "x" * 65, 7, None, ["a"]]
)
def test_odd_names_of_parties_are_refused(name: object) -> None:
    with pytest.raises(ParameterError, match="use letters, digits, - and _"):
        check_name(name)
    assert check_name("St-Mary_2") == "St-Mary_2"


GOOD: dict[str, Any] = {
    "kind": CARD_KIND, "name": "a", "identity": "ab" * 32, "node_key": "ecdsa-sha2-nistp384 AAAA",
    "rows": 4, "num_features": 3, "schema": "cd" * 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "../../x"}, "name='../../x': use letters, digits"),
        ({"name": "coordinator"}, "and not 'coordinator'"),
        ({"name": 7}, "name=7"),
        ({"identity": "ab" * 31}, "identity='ab"),
        ({"identity": "AB" * 32}, "is not 64 hexadecimal digits"),
        ({"identity": " " + "ab" * 32}, "is not 64 hexadecimal digits"),
        ({"schema": None}, "schema=None"),
        ({"node_key": "a\nb"}, "node_key='a"),
        ({"rows": True}, "rows=True"),
        ({"rows": -1}, "rows=-1"),
        ({"num_features": 2.5}, "num_features=2.5"),
        ({"kind": "other"}, "cohort party init makes one"),
        ({"more": 1}, "cohort party init makes one"),
    ],
)
def test_hostile_cards_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(GOOD))
    card = Card.load(path)
    path.write_text(card.to_json())
    assert Card.load(path) == card
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(ParameterError, match="is no party's card") as caught:
        Card.load(path)
    assert words in str(caught.value)


def test_what_is_no_card_at_all(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    for data in (b"", b"[]", b"\xff", b"[" * 60_000, json.dumps(GOOD).encode() + b" " * MAX_BYTES):
        path.write_bytes(data + (b"x" if data.startswith(b"{") else b""))
        if data.startswith(b"{"):
            assert Card.load(path).name == "a"  # no more than MAX_BYTES are read
            continue
        with pytest.raises(ParameterError, match="cohort party init makes one"):
            Card.load(path)


def test_a_key_as_it_is_read_out() -> None:
    assert spoken("0123456789abcdef") == "0123 4567 89ab cdef"
