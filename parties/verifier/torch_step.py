"""Any torch module in the secure-aggregation protocol: clipped per-row gradients of a loss.

Parameters travel as one vector: the trainable ones in the order of `module.named_parameters()`,
each flattened row by row. The plan lists names and shapes; a party with another module refuses.
Gradients are float32, as the module is; each is clipped, rounded toward zero to integers and added
exactly (`kernel.sums.integer_sums`). Every round uses all rows: batches by secret coins are not
offered.

**A condition.** torch computes gradients of a batch at once, of a shape that row counts alone
decide. At a fixed shape and place, a row's gradient is a function of this row: which numbers are
multiplied and in what order depends on shapes, not on values. That is a property of torch's
kernels, tested bit for bit on the layers of `tests/support/torch_cases.py`, and proven nowhere. At
another place in the batch a gradient may differ in its last bits: neighbours are tables whose other
rows stand where they stood.

Which module and loss are run is decided on the party's own machine, never by the plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from parties.kernel.integers.exact import Exact
from parties.kernel.sums.gradients import GRADIENT
from parties.kernel.sums.integer_sums import PartSum
from parties.kernel.sums.row_function import Contributor
from parties.reader.shard import Shard
from parties.reader.tensor_shard import TensorSchema, TensorShard
from protocols.errors import DataError, ParameterError, PolicyError
from protocols.privacy.laws import RandomSource
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan

Vector = NDArray[np.float64]
Layout = list[tuple[str, list[int]]]
ModuleFactory = Callable[[], nn.Module]
# (outputs, labels) -> the loss of every row, shape (rows,), such as with reduction="none".
RowLoss = Callable[[Tensor, Tensor], Tensor]
# Gradient values that are held at once: 64 MB in float32, 128 MB in float64.
MICROBATCH_VALUES = 1 << 24
# Rows on which a module is tried out before training.
PROBE_ROWS = 4


# -- parameters as a vector -----------------------------------------------------------------------


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Trainable parameters with their names, in the order of the vector."""
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def layout_of(module: nn.Module) -> Layout:
    """Name and shape of every trainable parameter, JSON-ready."""
    return [(name, list(p.shape)) for name, p in trainable(module)]


def to_vector(module: nn.Module) -> Vector:
    """The trainable parameters, float64, shape (length,)."""
    parts = [p.detach().double().flatten() for _, p in trainable(module)]
    vector: Vector = torch.cat(parts).numpy()
    return vector


def load_vector(module: nn.Module, vector: Vector) -> None:
    """Inverse of `to_vector`, rounded to the parameters' precision.

    Raises:
        ParameterError: another length.
    """
    own = [p for _, p in trainable(module)]
    sizes = [p.numel() for p in own]
    if vector.shape != (sum(sizes),):
        raise ParameterError(f"weights of shape {vector.shape}; the module has {sum(sizes)}")
    with torch.no_grad():
        pieces = torch.split(torch.tensor(vector, dtype=torch.float64), sizes)
        for p, piece in zip(own, pieces, strict=True):
            p.copy_(piece.view_as(p))


def outputs_of(module: nn.Module, inputs: NDArray[Any]) -> Vector:
    """The module's outputs for rows, float64, shape (rows, …)."""
    dtype = torch.int64 if np.issubdtype(inputs.dtype, np.integer) else torch.float32
    module.eval()
    with torch.no_grad():
        found: Vector = module(torch.tensor(inputs, dtype=dtype)).double().numpy()
    return found


# -- the model on a party's machine ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A module and its loss, as the owner of the rows chose them.

    module: function without arguments that makes the module; loss: see `RowLoss`; each a
    module-level function or its name, "package.module:function". `open_contributor` is what
    `parties.verifier.party.Party` takes; it can be sent to a spawned process.
    """

    module: ModuleFactory | str
    loss: RowLoss | str

    def build(self) -> nn.Module:
        """The module, in float32 and training mode.

        Raises:
            ParameterError: no trainable parameter, dropout, or a layer whose rows mix.
        """
        module = cast("nn.Module", _resolve(self.module)()).to(torch.float32).train()
        if not trainable(module):
            raise ParameterError("the module has no trainable parameter")
        for name, layer in module.named_modules():
            rate = getattr(layer, "p" if "Dropout" in type(layer).__name__ else "dropout", 0.0)
            if isinstance(rate, float) and rate > 0:
                raise ParameterError(f"layer {name!r} has dropout, which is random: set it to 0")
        errors = ModuleValidator.validate(module, strict=False)
        if errors:
            raise ParameterError(
                f"the module has no gradients row by row: {errors[0]} (GroupNorm or LayerNorm can "
                "take the place of BatchNorm)"
            )
        return module

    def open_contributor(
        self, plan: GradientPlan, name: str, shard: Shard, randomness: RandomSource
    ) -> TorchContributor:
        """What a party contributes; `shard` is a TensorShard."""
        if not isinstance(getattr(shard, "schema", None), TensorSchema):
            raise PolicyError("a torch module needs the rows as a TensorShard")
        return TorchContributor(plan, name, cast(TensorShard, shard), self)


def _resolve(named: Any) -> Any:
    """The function that "package.module:function" names.

    Raises:
        ParameterError: there is none.
    """
    if not isinstance(named, str):
        return named
    path, _, attribute = named.partition(":")
    try:
        return getattr(import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParameterError(f"{named!r} is not package.module:function ({error})") from None


# -- a party's part of a round --------------------------------------------------------------------


class TorchContributor(Contributor):
    """weight_p / n_p sum_i clip(g_i): g_i is row i's gradient of all parameters as one vector.

    Privacy: each row is clipped on its own, to the plan's L2 bound. A row whose gradient is not
    finite counts as zero, so that no row can stop a run. Layers that mix rows, and losses that do,
    are refused before the first round: their clipped gradients would bound nothing. What goes wrong
    on rows is a DataError, so that the coordinator does not hear of it.

    microbatch: rows at once; by default as many as keep 2^24 gradient values in memory.

    Raises:
        PolicyError: the plan is about another objective or another module than this party's.
        ParameterError: the module cannot be used; the message says why.
        DataError: module or loss fail on these rows, or mix them.
    """

    def __init__(
        self,
        plan: GradientPlan,
        name: str,
        shard: TensorShard,
        model: TorchModel,
        microbatch: int | None = None,
    ) -> None:
        task, module = plan.task, model.build()
        if not isinstance(task, RowObjective) or task.kind != "torch":
            raise PolicyError(f"objective={dict(plan.objective)} is not a torch module's")
        if plan.noise.norm != 2:
            raise PolicyError(f"mechanism={plan.mechanism!r}: a torch module clips in L2 only")
        own = [[key, shape] for key, shape in layout_of(module)]
        stated = [list(entry) for entry in plan.schema.get("parameters", [])]
        if own != stated or plan.length != to_vector(module).size:
            raise PolicyError("the plan lists other parameters than this party's module has")
        self._clip, self._weight = task.clip, plan.row_weight(plan.party_index(name))
        self._loss: RowLoss = _resolve(model.loss)
        self._inputs, self._labels = torch.tensor(shard.inputs), torch.tensor(shard.labels)
        self._microbatch = microbatch or max(1, MICROBATCH_VALUES // plan.length)
        with _own_rows():
            self._check_rows(module)
        self._module: Any = GradSampleModule(module, loss_reduction="sum")

    def exact(self, query: str, t: int, point: Vector) -> Exact:
        """weight_p / n_p sum_i clip(g_i) at the parameters `point`, shape (length,)."""
        if query != GRADIENT:
            raise PolicyError(f"query={query!r} is not one that a torch module answers")
        load_vector(self._module, point)
        rows = len(self._labels)
        total = PartSum(Fraction(self._clip * self._weight), 2, len(point), rows)
        for own in torch.split(torch.arange(rows), self._microbatch):
            with _own_rows():
                gradients = self._gradients(self._inputs[own], self._labels[own])
            total.add(self._weight * gradients.numpy())
        return total.exact

    def _gradients(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Of every row, float64, shape (rows, length)."""
        self._module.zero_grad(set_to_none=True)
        with _quiet_hooks():
            self._losses(self._module, inputs, labels).sum().backward()  # type: ignore[no-untyped-call]
        rows = len(labels)
        parts = []
        for _, p in trainable(self._module):
            own: Tensor | None = getattr(p, "grad_sample", None)
            # A parameter that the loss does not depend on has none.
            own = torch.zeros(rows, p.numel()) if own is None else own
            parts.append(own.reshape(rows, -1).double())
        self._module.zero_grad(set_to_none=True)
        return torch.cat(parts, dim=1)

    def _losses(self, module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        losses = self._loss(module(inputs), labels)
        if losses.shape != labels.shape:
            raise DataError(
                f"the loss of {len(labels)} rows has shape {tuple(losses.shape)}: it must give one "
                'value per row, such as with reduction="none"'
            )
        return losses

    def _check_rows(self, module: nn.Module) -> None:
        """Losses are the same when asked again, and of each row alone."""
        inputs, labels = self._inputs[:PROBE_ROWS], self._labels[:PROBE_ROWS]
        with torch.no_grad():
            first, again = (self._losses(module, inputs, labels) for _ in range(2))
            if not torch.equal(first, again):
                raise DataError("the module is random: the same rows give different losses")
            alone = [
                self._losses(module, inputs[k : k + 1], labels[k : k + 1])
                for k in range(len(labels))
            ]
        if not torch.allclose(first, torch.cat(alone), rtol=1e-3, atol=1e-4):
            raise DataError("a row's loss depends on the other rows: clipping bounds nothing")


@contextmanager
def _own_rows() -> Iterator[None]:
    """The owner's module may fail in any way, and whether it does depends on the rows."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"module or loss fail on these rows: {type(error).__name__}") from error


@contextmanager
def _quiet_hooks() -> Iterator[None]:
    """Inputs need no gradient: torch warns that the first layer's hook sees outputs only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield
