"""A coordinator that forges keys, or brings clients of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flwr.app import Message

from ciphercohort.flower.members import Entry, Roster
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.server import SecureGrid
from protocols.errors import MessageError, PolicyError, ProtocolError
from tests.flower.federation import (
    FIRST_NODE,
    Federation,
    asking,
    memory_of,
    one_round,
    rosters,
)


def forged(entry: Entry, **changes: str) -> Entry:
    fields = ("name", "identity", "key", "signature")
    return Entry(**{name: changes.get(name, getattr(entry, name)) for name in fields})


def test_forged_keys_are_refused(finished: Federation) -> None:
    """A key of the coordinator's own in a member's name, twice the same, or a member left out."""
    request, _ = finished.of_step("roster")[0]
    roster = rosters(finished)
    own = memory_of(finished, request).own
    other = (int(own) + 1) % 10
    fresh = "11" * 32
    entries = list(roster.entries)

    def told(entries: list[Entry], epoch: int = 5) -> str:
        return Roster.of(roster.session, epoch, entries).to_json()

    swapped = [forged(e, key=fresh) if k == other else e for k, e in enumerate(entries)]
    with pytest.raises(ProtocolError, match="not signed by its identity"):
        finished.send(request, roster=told(swapped))
    without = [entry for k, entry in enumerate(entries) if k != own]
    with pytest.raises(PolicyError, match="not in the roster"):
        finished.send(request, roster=told(without))
    with pytest.raises(PolicyError, match="older than the one held"):
        finished.send(request, roster=told(entries, epoch=1))
    with pytest.raises(PolicyError, match="too few"):
        finished.send(request, roster=told([entries[int(own)], entries[other]]))
    with pytest.raises(MessageError, match="no roster"):
        finished.send(request, roster="{}")
    with pytest.raises(MessageError, match="not distinct"):
        rows = json.loads(roster.to_json())
        rows[2].append(rows[2][-1])
        finished.send(request, roster=json.dumps(rows))


def refuses(reply: Message, reason: str) -> None:
    """It takes no roster, and names one member with this reason."""
    record = reply.content[RECORD]
    assert "digest" not in record and len(record["refused"]) == 1
    assert reason in record["reasons"][0]


def test_sybil_clients_are_refused_after_the_first_round(finished: Federation) -> None:
    """A coordinator that registers clients of its own, later, or exchanges an identity."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    request, _ = finished.of_step("roster")[0]
    roster = rosters(finished)
    sybils = [
        Entry.by(Ed25519PrivateKey.generate(), name, X25519PrivateKey.generate(), roster.session)
        for name in ("sybil-1", roster.entries[3].name)
    ]
    late = Roster.of(roster.session, 5, [*roster.entries, sybils[0]])
    refuses(finished.send(request, roster=late.to_json()), "is new since the first round")
    own = memory_of(finished, request).own
    if own != 3:
        rest = [entry for k, entry in enumerate(roster.entries) if k != 3]
        swapped = Roster.of(roster.session, 5, [*rest, sybils[1]])
        refuses(finished.send(request, roster=swapped.to_json()), "another identity than before")


def test_pinned_identities_keep_sybils_out_from_the_start(tmp_path: Path) -> None:
    """Nine of ten clients are pinned; the tenth gets in nowhere."""
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(10)}
    federation = Federation(10, configs=homes)
    one_round(federation)
    identities = {e.name: e.identity for e in rosters(federation).entries}
    stranger = identities.pop(str(FIRST_NODE + 9))
    pins = tmp_path / "pins"
    pins.write_text("\n".join(identities.values()))
    pinned = {k: {**config, "secure-sum-pins": str(pins)} for k, config in homes.items()}
    federation = Federation(10, configs=pinned)
    grid = SecureGrid(federation)
    assert grid.send_and_receive(asking(federation, range(10), 0.5))
    request, _ = federation.of_step("roster")[-1]
    last = Roster.of_json(str(request.content[RECORD]["roster"]))
    assert {e.identity for e in last.entries} == set(identities.values())
    assert FIRST_NODE + 9 not in grid.get_node_ids()
    pins.write_text("\n".join([*identities.values(), stranger]))
    federation = Federation(10, configs=pinned)
    assert one_round(federation).arrays is not None
    # The identities are those of the first run.
    assert {e.identity for e in rosters(federation).entries} == {*identities.values(), stranger}


def test_keys_of_one_run_are_not_those_of_another(tmp_path: Path) -> None:
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(4)}
    found = []
    for _ in range(2):
        federation = Federation(4, configs=homes)
        one_round(federation)
        found.append(rosters(federation))
    assert {e.identity for e in found[0].entries} == {e.identity for e in found[1].entries}
    assert not {e.key for e in found[0].entries} & {e.key for e in found[1].entries}
