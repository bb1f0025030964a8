"""A run's sheets and its part of the joint seed, under a driver that asks for anything.

Each floor has a mutant: the same file with one line changed, under which its check fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.account import Account
from parties.agent.owner import Owner as DeployedOwner
from parties.coins import Coins
from parties.kernel import run as run_module
from parties.kernel.keys.session import KeySession
from parties.kernel.private import HiddenError, Terms, closed
from parties.kernel.run import Run
from parties.kernel.sheet import digest_of
from parties.reader.schema import Label, Schema
from parties.reader.shard import ClampCounts, Shard
from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import signed_values
from protocols.exchange.signed_values import commitment
from protocols.plan.held_out import HeldOut
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from tests.kernel.test_key_session import SHEET as KEYS_OF_CKKS
from tests.kernel.test_sums_session import KEYS, ROSTER, each_round
from tests.kernel.test_sums_session import SHEET as SUMS_WITH_NOISE
from tests.support.helpers import through_the_codec, unit_columns
from tests.support.others import PLAN, Others

SUMS = replace(SUMS_WITH_NOISE, law="", rounds=each_round(units=0))
KEYS_SHEET = replace(KEYS_OF_CKKS, session="s", roster=ROSTER)
OTHERS = Others(KEYS)
NAMED = {name: key for name, key in ROSTER if name != "a"}


class Owner:
    """One of four; kernel: the module of its run, or a mutant; peers: that it named."""

    def __init__(
        self, kernel: Any = run_module, peers: Mapping[str, str] | None = NAMED, *sheets: Any
    ) -> None:
        label = Label(name="y", positive="1", negative="0")
        schema = Schema(columns=unit_columns(1), label=label, scaling="range")
        x, y = np.array([[0.5, 1.0], [-0.5, 1.0]]), np.array([0.0, 1.0])
        shard = Shard(x=x, y=y, counts=ClampCounts(rows=2), schema=schema)
        self._kernel = kernel
        self.run: Run = kernel.Run(
            name="a",
            rows=closed(shard),
            signing_key=KEYS["a"],
            randomness=SeededRandomness(1),
            account=Account(None, ""),
            coins=Coins(SystemRandomness()),
            terms=Terms(exact=True, insecure=True, colluders=1),
            peers=None if peers is None else lambda: peers,
        )
        self.sessions = [self.open(sheet) for sheet in sheets]

    def open(self, sheet: Any) -> Any:
        """A session of it."""
        with self.run.private:
            return self.run.open(sheet, self.run.used(self.run.rows))

    def agree(self) -> dict[str, str]:
        """Signatures of all, of exactly what this owner signed."""
        sheets, own = self.run.agree(PLAN, OTHERS.commitments(self.run.commitment))
        return OTHERS.signatures(self.agreement(sheets=sheets), own)

    def agreement(self, **changed: Any) -> Any:
        """On this owner's sheets, or on others; as its kernel makes it."""
        own = {"sheets": [digest_of(SUMS)], "own": self.run.commitment, **changed}
        return OTHERS.agreement(made=self._kernel.Agreement, **own)

    def seeds(self) -> dict[str, str]:
        """Of all, as they are handed out once they are shown."""
        return OTHERS.all_seeds(self.run.reveal(self.agree()))


def opened(kernel: Any = run_module, **fields: Any) -> Owner:
    return Owner(kernel, fields.get("peers", NAMED), SUMS)


def refuses(ask: Callable[[], Any], error: type[Exception] = PolicyError) -> bool:
    """Whether the kernel does, for this kind of reason."""
    try:
        ask()
    except error:
        return True
    except Exception:
        return False
    return False


# -- what is signed --------------------------------------------------------------------------------


def one_agreement_a_run(kernel: Any) -> bool:
    """Of two, others could take the one, and this owner's seed would be shown for the other."""
    owner = opened(kernel)
    owner.agree()
    return refuses(lambda: owner.run.agree("22" * 32, OTHERS.commitments(owner.run.commitment)))


def sheets_are_of_one_run(kernel: Any) -> bool:
    """And there are some."""
    if not refuses(lambda: Owner(kernel).run.agree(PLAN, {})):
        return False
    others = [replace(KEYS_SHEET, session="t"), replace(KEYS_SHEET, roster=ROSTER[:3])]
    return all(refuses(Owner(kernel, None, SUMS, other).agree) for other in others)


def parties_are_those_that_the_owner_named(kernel: Any) -> bool:
    """Not those that whoever drives the kernel says: noise is shared out over them."""
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    unknown = [{**NAMED, "b": stranger}, {n: k for n, k in NAMED.items() if n != "d"}, {}]
    return all(refuses(opened(kernel, peers=peers).agree) for peers in unknown)


def everybody_has_a_commitment(kernel: Any) -> bool:
    owner = opened(kernel)
    made = OTHERS.commitments(owner.run.commitment)
    return refuses(lambda: owner.run.agree(PLAN, {**made, "e": made["d"]}))


def the_own_commitment_is_its_own(kernel: Any) -> bool:
    """Otherwise whoever drives it knows the seed that is its part."""
    made = OTHERS.commitments(commitment(bytes(32)))
    return refuses(lambda: opened(kernel).run.agree(PLAN, made))


def no_sheet_is_opened_after(kernel: Any) -> bool:
    owner = opened(kernel)
    owner.agree()
    return refuses(lambda: owner.open(KEYS_SHEET))


def no_session_is_opened_again(kernel: Any) -> bool:
    """Its parties would have two secrets under one seed."""
    owner = opened(kernel)
    owner.agree()
    owner.run.take_back()
    return refuses(lambda: owner.open(SUMS))


# -- the seed --------------------------------------------------------------------------------------


def no_seed_before_the_own_word(kernel: Any) -> bool:
    return refuses(lambda: opened(kernel).run.reveal({}))


def no_seed_before_all_have_signed(kernel: Any) -> bool:
    owner = opened(kernel)
    signed = owner.agree()
    left = [{n: s for n, s in signed.items() if n != name} for name in signed]
    left += [{}, {**signed, "e": signed["b"]}]
    return all(refuses(lambda s=s: owner.run.reveal(s), ProtocolError) for s in left)  # type: ignore[misc]


def another(**changed: Any) -> Callable[[Any], bool]:
    """Refused: one party's signature of something else."""

    def holds(kernel: Any) -> bool:
        owner = opened(kernel)
        signed, run = owner.agree(), owner.run
        other = OTHERS.signatures(owner.agreement(**changed), "")
        return refuses(lambda: run.reveal({**signed, "c": other["c"]}), ProtocolError)

    return holds


def no_secret_before_all_have_signed(kernel: Any) -> bool:
    """Nor without this owner's word."""
    owner = Owner(kernel, NAMED, SUMS, KEYS_SHEET)
    seeds = OTHERS.all_seeds(bytes(32))
    early = [refuses(lambda s=s: s.begin(seeds)) for s in owner.sessions]  # type: ignore[misc]
    owner.agree()
    early += [refuses(lambda s=s: s.begin(seeds)) for s in owner.sessions]  # type: ignore[misc]
    return all(early) and not any(session.begun for session in owner.sessions)


def every_seed_opens_its_commitment(kernel: Any) -> bool:
    """Its own in another's place, another's in its own, one that was changed, or none."""
    owner = opened(kernel)
    seeds = owner.seeds()
    (session,) = owner.sessions
    wrong: list[Any] = [{**seeds, "b": seeds["a"]}, {**seeds, "a": seeds["b"]}]
    wrong += [{**seeds, name: "00" * 32} for name in seeds]
    found = [refuses(lambda s=s: session.begin(s), ProtocolError) for s in wrong]  # type: ignore[misc]
    return all(found) and not session.begun


def every_seed_has_one_length(kernel: Any) -> bool:
    """Seeds are hashed one after the other: a byte more of one is one less of the next."""
    others = Others(KEYS)
    others.seeds["b"], owner = b"b" * 31, opened(kernel)
    made = others.commitments(owner.run.commitment)
    sheets, own = owner.run.agree(PLAN, made)
    agreed = others.agreement(sheets, owner.run.commitment, made=kernel.Agreement)
    seeds = others.all_seeds(owner.run.reveal(others.signatures(agreed, own)))
    return refuses(lambda: owner.sessions[0].begin(seeds), ProtocolError)


def joint_seeds(kernel: Any, **changed: Any) -> bytes:
    fields = {"sheets": ["33" * 32], "own": commitment(b"a" * 32), **changed}
    own = OTHERS.agreement(made=kernel.Agreement, **fields)
    found: bytes = own.joint_seed(OTHERS.all_seeds(b"a" * 32))
    return found


def vars_of(agreed: Any) -> dict[str, Any]:
    return {name: getattr(agreed, name) for name in agreed.__slots__}


def the_joint_seed_has_all_of_it(kernel: Any) -> bool:
    changes = [{}, {"session": "t"}, {"plan": "22" * 32}, {"sheets": ["44" * 32]}]
    return len({joint_seeds(kernel, **each) for each in changes}) == len(changes)


def the_joint_seed_has_every_seed(kernel: Any) -> bool:
    found = set()
    for changed in (None, *OTHERS.seeds):
        others = Others(KEYS)
        if changed:
            others.seeds[changed] = b"other".ljust(32)
        fields = vars_of(others.agreement(["33" * 32], commitment(b"a" * 32)))
        # Commitments stand in the agreement: the seed itself is looked for.
        made = SimpleNamespace(**{**fields, "digest": "55" * 32})
        found.add(kernel.Agreement.joint_seed(made, others.all_seeds(b"a" * 32)))
    return len(found) == 1 + len(OTHERS.seeds)


RUN, AGREEMENT = run_module, signed_values
SIGNED = "[self.session, self.plan, [*self.sheets], committed]"


def a_state_that_is_not_taken_is_kept(kernel: Any) -> bool:
    """A session that could not go on must not begin anew in the next attempt."""
    owner = Owner(kernel, NAMED)
    owner.run._held = {digest_of(KEYS_SHEET): ["no state of such a session"]}
    first = refuses(lambda: owner.open(KEYS_SHEET), HiddenError)
    return first and refuses(lambda: owner.open(KEYS_SHEET), HiddenError)


HALF = HeldOut(share=0.5, draw="d")


def a_comparison_with_coins_is_booked(kernel: Any) -> bool:
    """Its refusal would cost nothing."""
    owner = Owner(kernel, NAMED)
    owner.run.account = cast(Any, SimpleNamespace(is_booked=False, spend=lambda: None))

    def compare() -> None:
        with owner.run.private:
            owner.run.used(owner.run.rows, HALF, PLAN)

    return refuses(compare)


def a_comparison_with_coins_is_spent(kernel: Any) -> bool:
    """Whoever could take it back would ask again, after each start; a toss tells nothing."""
    run = Owner(kernel, NAMED).run
    with run.private:
        run.used(run.rows, HALF, PLAN)
        tossed = run.account.is_spent
        run.used(run.rows, replace(HALF, judged=True), "", PLAN)
    run.take_back()
    return not tossed and run.account.is_spent


FLOORS: dict[str, tuple[ModuleType, str, str, Callable[[Any], bool]]] = {
    "once": (RUN, "self._agreed is None),", "True),", one_agreement_a_run),
    "one run": (
        RUN, "len(runs) == 1", "True",
        sheets_are_of_one_run,
    ),
    "peers": (
        RUN, "not strangers", "True", parties_are_those_that_the_owner_named,
    ),
    "commitments": (RUN, "commitments.keys() == roster.keys()", "True", everybody_has_a_commitment),
    "own commitment": (
        RUN, "commitments.get(self.name) == self.commitment", "True",
        the_own_commitment_is_its_own,
    ),
    "no other sheet": (
        RUN, "if self._agreed is not None and digest not in", "if False and digest not in",
        no_sheet_is_opened_after,
    ),
    "no session again": (
        RUN, "if self._agreed is not None and digest not in self._held:", "if False:",
        no_session_is_opened_again,
    ),
    "own word": (
        RUN, 'raise PolicyError("the sheets of this run are not signed: no seed',
        'return self._seed  # ("', no_seed_before_the_own_word,
    ),
    "all have signed": (
        RUN, "self._agreed.check(signatures)", "pass", no_seed_before_all_have_signed,
    ),
    "signed by its key": (
        AGREEMENT, ' check("agree', ' (lambda *_: None)("agree',
        another(sheets=["77" * 32]),
    ),
    "this session": (AGREEMENT, SIGNED, SIGNED.replace("self.session", "0"), another(session="t")),
    "this plan": (AGREEMENT, SIGNED, SIGNED.replace("self.plan", "0"), another(plan="22" * 32)),
    "these sheets": (
        AGREEMENT, SIGNED, SIGNED.replace("[*self.sheets]", "0"),
        another(sheets=[digest_of(replace(SUMS, honest=2))]),
    ),
    "all sheets": (
        AGREEMENT, SIGNED, SIGNED.replace("[*self.sheets]", "self.sheets[0]"),
        another(sheets=[digest_of(SUMS), digest_of(KEYS_SHEET)]),
    ),
    "these commitments": (
        AGREEMENT, SIGNED, SIGNED.replace("committed", "0"), another(own=commitment(bytes(32))),
    ),
    "this party": (
        AGREEMENT, "bytes.fromhex(digest) + name.encode()", "bytes.fromhex(digest)",
        lambda kernel: kernel.Agreement.text("a", PLAN) != kernel.Agreement.text("b", PLAN),
    ),
    "no secret before": (
        RUN, "self._agreed is None or not self._is_signed or", "self._agreed is None or",
        no_secret_before_all_have_signed,
    ),
    "seeds as committed": (
        AGREEMENT, " or commitment(seed) != self.commitments[name]", "",
        every_seed_opens_its_commitment,
    ),
    "length of a seed": (
        AGREEMENT, "len(seed) != SEED_BYTES or ", "", every_seed_has_one_length,
    ),
    "joint seed of this agreement": (
        AGREEMENT, ', bytes.fromhex(self.digest)]', "]", the_joint_seed_has_all_of_it,
    ),
    "joint seed of all": (
        AGREEMENT, "parts.append(seed)", "parts = [parts[0], seed]", the_joint_seed_has_every_seed,
    ),
    "coins: booked": (
        RUN, "if not self.account.is_booked:", "if False:", a_comparison_with_coins_is_booked,
    ),
    "coins: spent": (
        RUN, ", self.account.spend\n", ", lambda: None\n", a_comparison_with_coins_is_spent,
    ),
    "a state is taken or kept": (
        RUN,
        "        if self._held.get(digest) is not None:\n"
        "            opened.restore(self._held[digest])\n",
        "        state = self._held.pop(digest, None)\n"
        "        if state is not None:\n            opened.restore(state)\n",
        a_state_that_is_not_taken_is_kept,
    ),
}  # fmt: skip


def mutant(of: ModuleType, old: str, new: str) -> Any:
    """Both files as one module, with one line of one of them changed."""
    source = Path(str(of.__file__)).read_text()
    assert source.count(old) == 1, old
    found = ModuleType("mutant")
    found.__dict__.update(vars(run_module))
    sys.modules["mutant"] = found  # dataclasses look their module up
    try:
        found.__dict__["__name__"] = "mutant"
        exec(compile(source.replace(old, new), "mutant", "exec"), found.__dict__)
        if of is signed_values:
            run_source = Path(str(run_module.__file__)).read_text()
            named = "from protocols.exchange.signed_values import Agreement, commitment, new_seed\n"
            assert run_source.count(named) == 1
            exec(compile(run_source.replace(named, ""), "mutant", "exec"), found.__dict__)
    finally:
        del sys.modules["mutant"]
    return found


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_holds_and_its_mutant_is_seen(floor: str) -> None:
    of, old, new, holds = FLOORS[floor]
    assert holds(run_module)
    assert not holds(mutant(of, old, new))


def test_a_mutant_that_changes_nothing_is_not_seen() -> None:
    for of, old, _, holds in FLOORS.values():
        assert holds(mutant(of, old, old))


# -- what is answered ------------------------------------------------------------------------------


def test_all_sessions_of_a_run_have_the_joint_seed_of_all() -> None:
    owner = Owner(run_module, NAMED, SUMS, KEYS_SHEET)
    seeds = owner.seeds()
    sheets = [digest_of(SUMS), digest_of(KEYS_SHEET)]
    expected = OTHERS.agreement(sheets, owner.run.commitment).joint_seed(seeds)
    with owner.run.private:
        assert [session.begin(seeds) for session in owner.sessions] == [expected] * 2
    assert owner.sessions[1].seed == expected


def test_each_run_has_a_seed_of_its_own() -> None:
    assert len({opened().run.commitment for _ in range(3)}) == 3


def test_an_owner_who_named_nobody_looks_at_no_name() -> None:
    assert opened(peers=None).seeds()


def test_a_deployed_owner_tells_its_run_whom_it_named() -> None:
    """As its files have it when a plan is agreed to."""
    shard = opened().run.rows
    named = dict[str, str]()
    deployed = DeployedOwner(
        name="a",
        rows=shard,
        views=None,
        schema=shard.schema,
        signing_key=KEYS["a"],
        store=Any,  # type: ignore[arg-type]
        terms=Terms(exact=True, insecure=True, colluders=1),
        peers=lambda: named,
    )
    owner = opened()
    owner.run = deployed.begin()
    owner.open(SUMS)
    with pytest.raises(PolicyError, match=r"has not named \['b', 'c', 'd'\]"):
        owner.agree()
    named |= NAMED
    assert owner.seeds()


def test_who_has_not_signed_is_named() -> None:
    owner = opened()
    signed = owner.agree()
    with pytest.raises(ProtocolError, match="'c' has not signed this plan") as caught:
        owner.run.reveal({**signed, "c": signed["b"]})
    assert caught.value.culprit == "c"


@pytest.mark.parametrize("at", ["opened", "agreed", "revealed"])
def test_a_run_goes_on_where_it_was(at: str) -> None:
    """With the same seed, the same signature and no other sheet."""
    first = Owner(run_module, NAMED, KEYS_SHEET)
    signed = first.agree() if at != "opened" else {}
    if at == "revealed":
        first.run.reveal(signed)
    state = first.run.state()
    again = Owner(run_module, NAMED)
    again.run.restore(through_the_codec(state))
    assert again.run.commitment == first.run.commitment
    if at == "opened":
        again.open(KEYS_SHEET)
        again.agree()
        return
    with pytest.raises(PolicyError, match="are signed: no other"):
        again.open(SUMS)
    session: KeySession = again.open(KEYS_SHEET)
    seeds = OTHERS.all_seeds(first.run._seed)
    if at == "agreed":
        with pytest.raises(PolicyError, match="not everybody has signed"):
            session.begin(seeds)
        assert again.run.reveal(signed) == first.run._seed
    agreed = first.agreement(sheets=[digest_of(KEYS_SHEET)])
    assert session.begin(seeds) == agreed.joint_seed(seeds)
