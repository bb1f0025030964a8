"""What is refused, when, and in which words: arguments, strategies, settings, other clients."""

from __future__ import annotations

from typing import Any

import flwr.server.strategy as legacy
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.client.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import Privacy, SecureSum, SecureSumMod, secure_sum_mod
from ciphercohort.flower.plan import SumPlan
from protocols.errors import MessageError, ParameterError, ProtocolError
from tests.flower.federation import FIRST_NODE, Federation, train
from tests.flower.sums.test_secure_sums import run


def test_a_reply_without_a_weight_is_refused() -> None:
    def bare(message: Message, context: Context) -> RecordDict:
        return RecordDict({"arrays": train(message, context)["arrays"]})

    with pytest.raises(ProtocolError, match="no metric 'num-examples'"):
        run(Federation(3, train=bare), SecureSum(FedAvg()))


def test_a_mod_may_want_more_than_the_usual() -> None:
    with pytest.raises(ProtocolError, match="this client wants privacy"):
        run(Federation(3, mods=[SecureSumMod(privacy=True)]), SecureSum(FedAvg()))
    with pytest.raises(ProtocolError, match=r"lost=0.4 exceeds max_lost=0.333"):
        run(Federation(10), SecureSum(FedAvg(), lost=0.4))
    config = {"secure-sum-min-clients": 5}
    with pytest.raises(ProtocolError, match="and 3 more: .*wants secure-sum-min-clients=5$"):
        run(Federation(4, config=config), SecureSum(FedAvg()))
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    with pytest.raises(ProtocolError, match="epsilon=4 of the plan exceeds max_epsilon=1"):
        run(Federation(3, mods=[SecureSumMod(max_epsilon=1)]), SecureSum(FedAvg(), privacy=privacy))


def test_an_unknown_setting_of_an_owner_is_refused() -> None:
    with pytest.raises(ProtocolError, match="secure-sum-hom in .* none of secure-sum-home, "):
        run(Federation(3, config={"secure-sum-hom": "/tmp/x"}), SecureSum(FedAvg()))


@pytest.mark.parametrize(
    "options",
    [{"max_epsilon": -1}, {"max_lost": 2}, {"max_delta": "a"}, {"privacy": 3}, {"weighted_by": 1}],
)
def test_a_mods_options_are_checked(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(ParameterError, match=f"{name}={value!r}"):
        SecureSumMod(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"range": 0}, "range=0 must be a finite number above 0"),
        ({"range": "16"}, "range='16'"),
        ({"lost": 0.5}, "lost=0.5 must be a finite number from 0 and below 0.5"),
        ({"lost": "a"}, "lost='a'"),
        ({"examples": 0}, "examples=0"),
        ({"privacy": 4.0}, "privacy=4.0 is no Privacy: give it Privacy.for_rounds"),
    ],
)
def test_options_are_checked(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        SecureSum(FedAvg(), **options)
    with pytest.raises(MessageError, match="no plan"):
        SumPlan.of_json("{}")


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (FedAvg, "strategy=FedAvg is a class"),
        (legacy.FedAvg(), "SecureSumWorkflow"),
        (FedAvg(fraction_train=0.3), "fraction_train=0.3 samples less than 0.5"),
        (FedAvg(fraction_evaluate=0.2), "fraction_evaluate=0.2 samples less than 0.5"),
    ],
)
def test_a_strategy_that_cannot_do_is_refused_before_a_run(strategy: Any, reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        SecureSum(strategy)


def test_more_rounds_than_privacy_has_are_refused_before_the_first() -> None:
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    federation = Federation(4)
    with pytest.raises(ParameterError, match="num_rounds=4 with 1 of all clients exceeds"):
        run(federation, SecureSum(FedAvg(), privacy=privacy), rounds=4)
    assert federation.seen == []


class Bare(Federation):
    """One client lacks the mod."""

    def deliver(self, request: Message) -> Message:
        if request.metadata.dst_node_id == FIRST_NODE:
            return Message(train(request, self.contexts[FIRST_NODE]), reply_to=request)
        return super().deliver(request)


def test_clients_in_the_clear_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ProtocolError, match=r"0 of 3 .* keys.*is secure_sum_mod in"):
        run(Federation(3, mods=[]), SecureSum(FedAvg()))
    caplog.clear()
    run(Bare(5), SecureSum(FedAvg(fraction_evaluate=0.0)))
    assert f"1 nodes stay out of the secure sums: node {FIRST_NODE}: no key: " in caplog.text
    assert "is secure_sum_mod in its ClientApp(mods=[…]), and the first of them?" in caplog.text


def test_a_mod_in_front_of_ours_is_named_as_what_may_be_wrong() -> None:
    """Flower's own, which take every message for one of training: they fail at the first key."""
    for mod in (fixedclipping_mod, adaptiveclipping_mod):
        federation = Federation(3, mods=[mod, secure_sum_mod])
        with pytest.raises(ProtocolError, match=r"0 of 3 .* keys.*and the first of them"):
            run(federation, SecureSum(FedAvg()))


def test_a_mod_behind_ours_works_on_the_plain_message() -> None:
    seen = []

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        seen.append(set(message.content))
        return call_next(message, context)

    run(Federation(3, mods=[secure_sum_mod, mod]), SecureSum(FedAvg(fraction_evaluate=0.0)))
    assert seen == [{"arrays", "config"}] * 3


def largest(records: Any, weighted_by: str) -> MetricRecord:
    return MetricRecord({"epsilon": max(r.metric_records["metrics"]["loss"] for r in records)})


@pytest.mark.parametrize("name", ["train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"])
def test_functions_of_single_metrics_are_refused(name: str) -> None:
    """They see one reply: a largest value would be the mean."""
    with pytest.raises(ParameterError, match=f"{name}='largest' would see one reply"):
        SecureSum(FedAvg(**{name: largest}))
    strategy = FedAvg(fraction_evaluate=0.0, **{name: largest})
    assert run(Federation(3), SecureSum(strategy, means_only=True)).arrays is not None


def test_where_nobody_may_vanish_those_with_keys_train(caplog: pytest.LogCaptureFixture) -> None:
    federation = Bare(5)
    assert run(federation, SecureSum(FedAvg(), lost=0)).arrays is not None
    assert len({r.metadata.dst_node_id for r, _ in federation.of_step("sum")}) == 4
    assert f"1 nodes stay out of the secure sums: node {FIRST_NODE}: no key: " in caplog.text


@pytest.mark.parametrize("field", [{"rounds": 0}, {"sampling": 0}, {"delta": 0}, {"epsilon": "a"}])
def test_figures_of_privacy_are_checked(field: dict[str, Any]) -> None:
    [(name, value)] = field.items()
    with pytest.raises(ParameterError, match=f"{name}={value!r} "):
        Privacy.for_rounds(
            **{"epsilon": 4.0, "delta": 1e-5, "rounds": 5, "clip": 1.0, "sampling": 1.0, **field}
        )
