"""A party's clipped gradients of a torch module, against loops over rows; what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch import nn  # noqa: E402

from ciphercohort.estimators.torch_plan import TrainingPlan  # noqa: E402
from parties.kernel.private import shuffled  # noqa: E402
from parties.kernel.sums.integer_sums import PartSum  # noqa: E402
from parties.reader.tensor_shard import TensorSchema, TensorShard  # noqa: E402
from parties.verifier.torch_step import (  # noqa: E402
    TorchContributor,
    TorchModel,
    layout_of,
    load_vector,
    to_vector,
    trainable,
)
from protocols.errors import DataError, ParameterError, PolicyError  # noqa: E402
from protocols.plan.run_plan import Member  # noqa: E402
from protocols.privacy.laws.seeded import SeededRandomness  # noqa: E402
from protocols.updates.momentum import GradientDescent  # noqa: E402
from tests.support import torch_cases as cases  # noqa: E402

MLP = TorchModel(module=cases.make_mlp, loss=cases.row_loss)
CONVOLUTION = TorchModel(module="tests.support.torch_cases:make_convolution", loss=cases.row_loss)


def plan_of(model, shards, clip=0.5):
    module = model.build()
    schema = shards[0].schema
    training = TrainingPlan(
        update=GradientDescent(rounds=2, learning_rate=0.1),
        clip=clip,
        epsilon=None,
        delta=1e-5,
        colluders=0,
        rows_by_party=tuple(shard.rows for shard in shards),
        layout=layout_of(module),
        length=to_vector(module).size,
        schema=schema.digest(),
        features=schema.num_features,
        stage_rounds=2,
    )
    members = tuple(
        Member(name=f"p{k}", rows=shard.rows, verify_key="", commitment="")
        for k, shard in enumerate(shards)
    )
    return training.stage_plan("session", members, 2)


def looped(model, shard, point, clip):
    """sum_i clip(g_i) by torch's own autograd, one row after the other."""
    module = model.build()
    load_vector(module, point)
    total, norms = np.zeros(point.size), []
    for row, label in zip(shard.inputs, shard.labels, strict=True):
        loss = cases.row_loss(module(torch.tensor(row[None])), torch.tensor([label])).sum()
        own = [p for _, p in trainable(module)]
        found = torch.autograd.grad(loss, own, allow_unused=True)
        flat = np.concatenate(
            [
                (torch.zeros_like(p) if g is None else g).double().numpy().ravel()
                for p, g in zip(own, found, strict=True)
            ]
        )
        norms.append(np.linalg.norm(flat))
        total += flat * min(1.0, clip / norms[-1])
    return total, np.array(norms)


@pytest.mark.parametrize(
    ("model", "schema", "clip"), [(MLP, cases.SCHEMA, 1.3), (CONVOLUTION, cases.IMAGES, 1.3)]
)
def test_clipped_sum_is_the_loop_over_rows(model, schema, clip) -> None:
    shards = [cases.data(23, schema), cases.data(9, schema, seed=1)]
    plan = plan_of(model, shards, clip)
    point = to_vector(model.build()) + np.random.default_rng(3).normal(size=plan.length) / 4
    total, norms = looped(model, shards[0], point, clip)
    assert 3 < (norms > clip).sum() < 20  # the bound cuts some rows and not others
    for microbatch in (None, 1, 7):
        contributor = TorchContributor(plan, "p0", shards[0], model, microbatch)
        for _ in range(2):  # nothing accumulates from round to round
            found = contributor.contribution("gradient", 0, point)
            np.testing.assert_allclose(found, total / 32, rtol=0, atol=1e-6)


def test_parties_together_are_the_pooled_rows() -> None:
    shards = [cases.data(rows, seed=rows) for rows in (5, 12, 30)]
    plan = plan_of(MLP, shards)
    point = to_vector(MLP.build())
    parts = [
        TorchContributor(plan, f"p{k}", shard, MLP).contribution("gradient", 0, point)
        for k, shard in enumerate(shards)
    ]
    whole = cases.pooled(dict(enumerate(shards)))
    np.testing.assert_allclose(sum(parts), looped(MLP, whole, point, 0.5)[0] / 47, atol=1e-6)


def test_unequal_weights_reach_the_rows() -> None:
    shards = [cases.data(5), cases.data(20)]
    plan = plan_of(MLP, shards)
    point = to_vector(MLP.build())
    equal = replace(plan, weights=(0.5, 0.5))
    found = TorchContributor(equal, "p0", shards[0], MLP).contribution("gradient", 0, point)
    np.testing.assert_allclose(found, 0.5 * looped(MLP, shards[0], point, 0.5)[0] / 5, atol=1e-6)


def test_one_row_moves_the_sum_by_at_most_two_clips() -> None:
    shard = cases.data(10)
    changed = shard.inputs.copy()
    changed[4] = 1e30  # its gradient overflows float32
    other = TensorShard(inputs=changed, labels=shard.labels, schema=cases.SCHEMA)
    plan = plan_of(MLP, [shard, shard], clip=0.1)
    point = to_vector(MLP.build())
    sums = [
        TorchContributor(plan, "p0", rows, MLP).contribution("gradient", 0, point)
        for rows in (shard, other)
    ]
    assert np.isfinite(sums).all()
    moved = np.linalg.norm(sums[0] - sums[1])
    assert 0 < moved <= 2 * 0.1 / 20 * (1 + 1e-12)


@pytest.mark.parametrize(("model", "schema"), [(MLP, cases.SCHEMA), (CONVOLUTION, cases.IMAGES)])
@pytest.mark.parametrize("microbatch", [None, 1, 7])
def test_a_row_changes_no_bit_of_anothers_part(model, schema, microbatch) -> None:
    """Replaced by anything, overflow included: the sum moves by the two rows' own parts alone."""
    shard = cases.data(40, schema)
    plan = plan_of(model, [shard, shard])
    point = to_vector(model.build())
    rng = np.random.default_rng(4)

    def parts(inputs, labels):
        rows = TensorShard(inputs=inputs, labels=labels, schema=schema)
        contributor = TorchContributor(plan, "p0", rows, model, microbatch)
        load_vector(contributor._module, point)
        own = torch.split(torch.arange(40), contributor._microbatch)
        found = [
            contributor._gradients(contributor._inputs[k], contributor._labels[k]) for k in own
        ]
        return torch.cat(found).numpy(), contributor.exact("gradient", 0, point).units

    before, total = parts(shard.inputs, shard.labels)
    for k, scale in ((0, 1.0), (17, 1e6), (39, 1e30)):
        inputs, labels = shard.inputs.copy(), shard.labels.copy()
        inputs[k], labels[k] = scale * rng.standard_normal(inputs[k].shape), (labels[k] + 1) % 3
        after, moved = parts(inputs, labels)
        others = np.arange(40) != k
        assert (before[others] == after[others]).all()
        clip = Fraction(0.5) * Fraction(plan.row_weight(0))
        bits = PartSum(clip, 2, len(point), 40).bits
        step = [int(a) - int(b) for a, b in zip(total, moved, strict=True)]
        assert 0 < sum(v * v for v in step) <= (2 * clip * 2**bits) ** 2


def test_a_row_without_a_finite_gradient_counts_as_zero() -> None:
    shards = [cases.data(6), cases.data(6)]
    plan = plan_of(MLP, shards)
    point = to_vector(MLP.build())
    contributor = TorchContributor(plan, "p0", shards[0], MLP)
    contributor._inputs[2] = torch.nan
    kept = [k for k in range(6) if k != 2]
    rest = TensorShard(
        inputs=shards[0].inputs[kept], labels=shards[0].labels[kept], schema=cases.SCHEMA
    )
    found = contributor.contribution("gradient", 0, point)
    np.testing.assert_allclose(found, looped(MLP, rest, point, 0.5)[0] / 12, atol=1e-6)


def test_vectors_follow_the_documented_order() -> None:
    module = cases.make_convolution()
    names = [name for name, _ in layout_of(module)]
    assert names[:3] == ["first.weight", "first.bias", "norm.weight"]
    assert not any(name.startswith("frozen") for name in names)
    vector = np.arange(to_vector(module).size, dtype=float)
    load_vector(module, vector)
    assert (to_vector(module) == vector).all()
    assert module.first.weight[1, 0, 0, 2].item() == 11.0
    with pytest.raises(ParameterError, match=r"weights of shape"):
        load_vector(module, vector[:-1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), "has dropout"),
        (lambda: nn.TransformerEncoderLayer(6, 2, 4), "has dropout"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), "BatchNorm"),
        (nn.Tanh, "no trainable parameter"),
        (cases.Dropping, "is random"),
        (cases.Mixing, "depends on the other rows"),
    ],
)
def test_unusable_modules_are_refused(make, message) -> None:
    shard = cases.data(8)
    plan = plan_of(MLP, [shard, shard])
    with pytest.raises((DataError, ParameterError), match=message):
        model = TorchModel(module=make, loss=cases.row_loss)
        fitting = replace(
            plan,
            schema={"digest": "", "parameters": [list(e) for e in layout_of(model.build())]},
            length=to_vector(model.build()).size,
        )
        TorchContributor(fitting, "p0", shard, model)


def test_a_loss_of_the_whole_batch_is_refused() -> None:
    shard = cases.data(8)
    model = TorchModel(module=cases.make_mlp, loss=nn.functional.cross_entropy)
    with pytest.raises(DataError, match="one value per row"):
        TorchContributor(plan_of(MLP, [shard, shard]), "p0", shard, model)


def test_a_module_that_fails_on_rows_is_the_owners_affair() -> None:
    """At the first rows or in a round: a DataError, which does not say what the row was."""

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if not outputs.isfinite().all():
            raise RuntimeError("row 3 is 8675309")
        return cases.row_loss(outputs, labels)

    shard = cases.data(8)
    model = TorchModel(module=cases.make_mlp, loss=loss)
    owner = TorchContributor(plan_of(MLP, [shard, shard]), "p0", shard, model)
    point = to_vector(MLP.build())
    assert np.isfinite(owner.contribution("gradient", 0, point)).all()
    with pytest.raises(DataError, match="fail on these rows: RuntimeError$"):
        owner.contribution("gradient", 1, point * 1e39)


def test_a_plan_about_something_else_is_refused() -> None:
    shard = cases.data(8)
    plan = plan_of(MLP, [shard, shard])
    with pytest.raises(PolicyError, match="other parameters"):
        TorchContributor(plan_of(CONVOLUTION, [cases.data(3, cases.IMAGES)] * 2), "p0", shard, MLP)
    with pytest.raises(PolicyError, match="not a torch module's"):
        other = replace(plan, objective={**plan.objective, "kind": "logistic"})
        TorchContributor(other, "p0", shard, MLP)
    with pytest.raises(PolicyError, match="TensorShard"):
        MLP.open_contributor(plan, "p0", object(), SeededRandomness(1))
    with pytest.raises(PolicyError, match="query"):
        TorchContributor(plan, "p0", shard, MLP).contribution("curvature", 0, np.zeros(plan.length))


def test_the_owner_names_module_and_loss() -> None:
    named = TorchModel(
        module="tests.support.torch_cases:make_mlp", loss="tests.support.torch_cases:row_loss"
    )
    shard = cases.data(8)
    plan, point = plan_of(MLP, [shard, shard]), to_vector(MLP.build())
    ours, theirs = (
        model.open_contributor(plan, "p0", shard, SeededRandomness(1)) for model in (MLP, named)
    )
    expected = ours.contribution("gradient", 0, point)
    assert (theirs.contribution("gradient", 0, point) == expected).all()
    for wrong in ("tests.support.torch_cases:nothing", "no.such:module", ""):
        with pytest.raises(ParameterError, match="package.module:function"):
            TorchModel(module=wrong, loss=cases.row_loss).build()


def test_what_a_spawned_process_gets_can_be_sent() -> None:
    opened = pickle.loads(pickle.dumps(MLP.open_contributor))
    assert opened.__self__ == MLP


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.zeros((0, 6)), np.zeros(0, int), "rows >= 1"),
        (np.zeros((2, 5)), np.zeros(2, int), "is due"),
        (np.full((2, 6), np.nan), np.zeros(2, int), "not finite"),
        (np.zeros((2, 6)), np.zeros(2), "one integer per row"),
        (np.zeros((2, 6)), np.array([0, 3]), "exceed 0"),
        (np.zeros((2, 6)), np.array([0, -1]), "exceed 0"),
    ],
)
def test_wrong_rows_are_refused(inputs, labels, message) -> None:
    with pytest.raises(DataError, match=message):
        TensorShard(inputs=inputs, labels=labels, schema=cases.SCHEMA)


def test_rows_are_frozen_copies_and_never_shown() -> None:
    inputs = np.ones((2, 6), np.float32)
    shard = TensorShard(inputs=inputs, labels=np.array([1, 2]), schema=cases.SCHEMA)
    inputs[:] = 7
    assert (shard.inputs == 1).all() and (shard.rows, shard.num_features) == (2, 6)
    assert "inputs" not in repr(shard) and "labels" not in repr(shard)
    with pytest.raises(ValueError, match="read-only"):
        shard.inputs[0, 0] = 2
    tokens = TensorSchema(shape=(6,), classes=3, integers=True)
    assert tokens.digest() != cases.SCHEMA.digest()
    with pytest.raises(DataError, match="no integers"):
        TensorShard(inputs=inputs + 0.5, labels=np.array([1, 2]), schema=tokens)


def test_labels_move_with_their_tensors() -> None:
    count = 40
    tensors = TensorShard(
        inputs=np.arange(count, dtype=np.float32),
        labels=np.arange(count),
        schema=TensorSchema(shape=(), classes=count),
    )
    moved = shuffled(tensors, bytes(32))
    assert (moved.inputs == moved.labels).all() and (moved.labels != tensors.labels).any()
