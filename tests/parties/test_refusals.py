"""What a coordinator hears of an owner's files: sentences of a table, whatever went wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any

import pytest

import parties.agent.agent as agent_module
import parties.agent.consent as consent_module
import parties.verifier.foreseen as foreseen_module
from ciphercohort.deploy.evaluation import evaluation_plan
from coordinator.deployment import create_session
from parties import policy as refusals
from parties.account import Account
from parties.agent.consent import Consent
from parties.agent.owner import Owner
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.kernel.run import Run
from parties.policy import End, Policy, Reason
from parties.reader.views import encode_with_views
from parties.verifier.foreseen import foreseen
from parties.verifier.party import Party
from protocols import errors
from protocols.errors import CohortError
from protocols.exchange.messages import decode
from protocols.names import MAX_NAME
from protocols.privacy.loss.ledger import Ledger
from tests.coordinator.test_deployment import NAMES
from tests.coordinator.test_inference import FRAMES, MODEL, SCHEMA, Hospitals
from tests.parties.agents import PASSPHRASE
from tests.support.damage import DAMAGED

SECRET = "/home/owner/7.25-of-another-study"
NAME = NAMES[0]
BOUNDARIES: list[tuple[Any, str]] = [
    *((Ledger, name) for name in ("reserved", "spend", "commit", "foresee", "spent")),
    *((SessionStore, name) for name in ("record", "begin", "save", "end", "open_session")),
    *((Owner, name) for name in ("keep", "foresee")),
    *((Consent, name) for name in ("check_members", "_peers", "_foresee", "require", "end")),
    *((Party, name) for name in ("outcome", "state", "fingerprint")),
    *((Account, name) for name in ("reserve", "spend", "commit", "abandon")),
    *((Run, "used"), (Vault, "seal")),
]
KINDS = [*vars(errors).values(), OSError, RuntimeError, KeyError]
KINDS = [kind for kind in KINDS if isinstance(kind, type) and issubclass(kind, Exception)]
# Of each boundary three: in all, each kind at several.
CASES = [
    (*place, {errors.PolicyError, KINDS[k % len(KINDS)], KINDS[(2 * k + 1) % len(KINDS)]})
    for k, place in enumerate(BOUNDARIES)
]


class Owners(Hospitals):
    """With ledgers, records of what finished, and words about their budgets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Vault(PASSPHRASE))
        self.agents.private, self.homes, self.replies = True, folder / "homes", list[bytes]()
        self.restart()

    def restart(self) -> None:
        """Agents of what is on disk."""
        for name, agent in self.agents.agents.items():
            self.agents.restart(name)
            agent, owner = self.agents.agents[name], self.owner(name)
            agent.consent._foresee = lambda plan, owner=owner: foreseen(plan, owner)
            agent.consent._peers = owner.peers
            agent._keep = lambda *told, owner=owner: owner.keep(*told)

    def owner(self, name: str) -> Owner:
        rows, views = encode_with_views(FRAMES[name], SCHEMA)
        return Owner(
            name=name,
            rows=rows,
            views=views,
            schema=SCHEMA,
            signing_key=self.agents.session.parties[name].run.signing_key,
            store=SimpleNamespace(record=lambda session: object()),  # type: ignore[arg-type]
            terms=Policy().terms(),
            peers=lambda: self.keys,
            ledger=self.agents.ledger(name),
            dataset="rows",
            results=self.homes / name,
        )

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = super().ask(step, outgoing)
        self.replies.append(replies.get(NAME, b""))
        return replies

    def try_one(self) -> bool:
        """Whether an evaluation finishes; every reply is signed."""
        plan = evaluation_plan(
            self.settings, MODEL, epsilon=0.5, delta=1e-5, colluders=0, however_noisy=True
        )
        self.replies = []
        try:
            self.serve(create_session(self.settings, plan))
        except CohortError:
            return False
        finally:
            for reply in filter(None, self.replies):
                decode(reply, self.keys[NAME])
        return True


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Owners:
    return Owners(tmp_path_factory.mktemp("owners"))


@pytest.mark.parametrize(("where", "name", "kinds"), CASES)
def test_no_word_of_an_error_leaves_but_those_of_the_table(
    where: Any, name: str, kinds: set[Any], owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever type, at each place where an owner's files or answers are asked."""
    raised = []
    for kind in kinds:

        def fail(*_: Any, kind: type[Exception] = kind, **__: Any) -> Any:
            raised.append(kind)
            raise kind(SECRET)

        with monkeypatch.context() as patched:
            if name.startswith("_"):
                patched.setattr(owners.agents.agents[NAME].consent, name, fail)
            else:
                patched.setattr(where, name, fail)
            owners.try_one()
            assert not any(SECRET.encode() in reply for reply in owners.replies), kind
        for agent in owners.agents.agents.values():
            agent.give_up()
    assert {*raised} == kinds


def test_a_file_that_is_damaged_is_refused_in_words_of_the_table(tmp_path: Path) -> None:
    """Every file of an owner, in every way; once it is as it was, the next session finishes."""
    owners = Owners(tmp_path / "a")
    assert owners.try_one()
    held = [path for top in (owners.agents.folder, owners.homes) for path in top.rglob("*")]
    files = [path for path in held if path.is_file() and NAME in str(path)]
    assert {"sessions.json", "rows.json", "outcome.json"} <= {path.name for path in files}
    for k, path in enumerate(files):
        for damage in [*DAMAGED.values()][k % 5 :: 5]:
            copytree(owners.agents.folder, tmp_path / "kept")
            damage(path)
            owners.try_one()
            assert not any(str(tmp_path).encode() in reply for reply in owners.replies), path
            for agent in owners.agents.agents.values():
                agent.give_up()
            rmtree(owners.agents.folder)
            (tmp_path / "kept").rename(owners.agents.folder)
        owners.restart()
    assert owners.try_one()


@pytest.mark.parametrize("module", [agent_module, consent_module, foreseen_module])
def test_a_sentence_says_nothing_but_of_the_request(module: Any) -> None:
    """Names that its fields are made of: no record, no session of another, no error."""
    allowed = {"request", "plan", "digest", "asked", "member", "shown", "more", "twins", "what"}
    allowed |= {"repr", "map", "spoken", "end", "End", "Reason", "m", "run"}
    found = 0
    for call in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id not in ("ToldError", "told"):
            continue
        found += 1
        names = {
            n.id for word in call.keywords for n in ast.walk(word.value) if isinstance(n, ast.Name)
        }
        assert names <= allowed, ast.unparse(call)
    assert found > 1


def sentences() -> Iterator[str]:
    for reason in Reason:
        fields = re.findall(r"{(\w+)}", reason.value)
        yield str(refusals.ToldError(reason, **dict.fromkeys(fields, "?")))


def test_the_table_tells_no_figure() -> None:
    told = [*sentences(), *(end.value for end in End)]
    assert len({*told}) == len(told) and not any(
        re.search(r"\d|/", words.replace(str(MAX_NAME), "")) for words in told
    )
