"""What `init` and `admit` make and take: certificates, invitation, cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator.certificates import CA, CA_KEY, SERVER, SERVER_KEY, make_certificates
from coordinator.settings import IDENTITY, Settings
from coordinator.setup import INVITATION, admit, host_of, init_coordinator
from protocols.errors import ParameterError
from protocols.exchange.cards import CARD_KIND, Card
from protocols.names import spoken

ADDRESSES = dict.fromkeys(("fleet", "control", "serverappio", "public"), "127.0.0.1:9092")


@pytest.fixture
def centre(tmp_path: Path) -> Settings:
    init_coordinator(tmp_path / "centre", {"label": {"name": "y"}}, ADDRESSES, {})
    with pytest.raises(ParameterError, match="is not empty"):
        init_coordinator(tmp_path / "centre", {}, ADDRESSES, {})
    return Settings.load(tmp_path / "centre")


def card(name: str) -> dict[str, Any]:
    keys = {"identity": "ab" * 32, "node_key": "", "schema": "cd" * 32}
    return {"kind": CARD_KIND, "name": name, "rows": 4, "num_features": 3, **keys}


def test_cards_are_checked(centre: Settings, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    for text in ("", "[]", "{}", '{"kind": "ciphercohort-party"}'):
        path.write_text(text)
        with pytest.raises(ParameterError, match="no party's card"):
            Card.load(path)
    good = card("a")
    path.write_text(json.dumps({**good, "name": "../../x"}))
    with pytest.raises(ParameterError, match=r"name='../../x': use letters, digits, - and _"):
        admit(centre, path)
    assert not list(tmp_path.rglob("x.json")) and not centre.cards()
    path.write_text(json.dumps(good))
    assert admit(centre, path).rows == 4
    path.write_text(json.dumps({**good, "rows": 5}))
    assert admit(centre, path).rows == 5 and centre.cards()["a"].rows == 5
    path.write_text(json.dumps({**good, "identity": "ef" * 32}))
    with pytest.raises(
        ParameterError, match=f"'a' is admitted with another key, {spoken('ab' * 32)}"
    ):
        admit(centre, path)
    assert centre.cards()["a"].identity == "ab" * 32
    path.write_text(json.dumps({**good, "name": "c", "schema": "ff" * 32}))
    with pytest.raises(ParameterError, match="another schema"):
        admit(centre, path)
    for name in ("", "../x", "a-b", "\u00e9", "a" * 65, "a\n"):
        with pytest.raises(ParameterError, match="letters and digits, at most 64"):
            centre.session_folder(name)
    for address in ("host", "host:", ":80", "host:port"):
        with pytest.raises(ParameterError, match="HOST:PORT"):
            host_of(address)


def test_the_invitation_holds_nothing_secret(centre: Settings) -> None:
    folder = centre.folder
    text = (folder / INVITATION).read_text()
    for name in (CA_KEY, SERVER_KEY, IDENTITY):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert (folder / name).read_text().splitlines()[-2 if "ca" in name else 0] not in text
    assert json.loads(text)["ca"] == (folder / CA).read_text()


def test_certificates_name_their_hosts(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["centre.example.org", "10.0.0.7", "::1"])
    ca = x509.load_pem_x509_certificate((tmp_path / CA).read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / SERVER).read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["centre.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    limits = server.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not limits.ca


@pytest.mark.parametrize("name", ["public", "fleet", "control", "serverappio"])
@pytest.mark.parametrize("address", ["centre.org", "localhost:99999", ":9092", "a:b", "a:0", ""])
def test_an_address_that_is_none_leaves_no_folder(name: str, address: str, tmp_path: Path) -> None:
    """The right command is not refused for what a wrong one left."""
    names = ("public", "fleet", "control", "serverappio")
    addresses = dict.fromkeys(names, "127.0.0.1:9092") | {name: address}
    with pytest.raises(ParameterError, match="HOST:PORT"):
        init_coordinator(tmp_path / "centre", {}, addresses, {})
    assert not (tmp_path / "centre").exists()
