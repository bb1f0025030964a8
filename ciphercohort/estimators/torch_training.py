"""Federated training of a torch module, in the manner of scikit-learn, with its plaintext twin.

from ciphercohort.estimators.torch_training import FederatedModule

model = FederatedModule(make_module, row_loss, update=GradientDescent(...), clip=1.0, epsilon=2)
model.fit({"north": TensorShard(...), "south": TensorShard(...)}).predict(inputs)
"""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from numpy.typing import NDArray

from ciphercohort.estimators.torch_plan import TrainingPlan
from ciphercohort.estimators.torch_stage import MakePlan, TorchPartySpec, run_encrypted, run_plain
from ciphercohort.results.exact_sums import tell
from coordinator.costs import Costs
from parties.policy import Policy
from parties.reader.shard import Shard
from parties.reader.tensor_shard import TensorShard
from parties.verifier.torch_step import (
    ModuleFactory,
    RowLoss,
    TorchModel,
    layout_of,
    load_vector,
    outputs_of,
    to_vector,
)
from protocols.errors import ParameterError
from protocols.exchange.messages import new_signing_key
from protocols.privacy.loss.ledger import Ledger
from protocols.sums.plan import Vector
from protocols.updates.update import Update
from sims.ledgers import ledger_path

# round (1 .. T), weights after it
OnRound = Callable[[int, Vector], None]
Shards = Mapping[str, TensorShard]


class FederatedModule:
    """A torch module that several data owners train by encrypted sums of clipped gradients.

    Privacy: with `epsilon`, the weights of all rounds are (epsilon, delta)-differentially private,
    replace-one, against everyone and `colluders` owners; not so if `seed` is set, or if the start
    or the clip is chosen by looking at the rows. Batches are full.

    module: function that makes the module, the same at every owner; its trainable parameters are
    the public start. loss: (outputs, labels) -> the loss of every row, shape (rows,). Both, or
    their names "package.module:function", see `TorchModel`. update: rule with its rounds. clip: L2
    bound of one row's gradient. epsilon: None for NO privacy noise. checkpoint_every: rounds
    between checkpoints; each starts a session of its own, and only gradient descent can go on from
    one. folder: of ledgers and checkpoints (`round-00010.npz`); None keeps neither. budget: epsilon
    that the ledgers grant in all, `epsilon` by default; a stage that was interrupted stays spent,
    so that going on needs more. processes: each owner in a spawned process. on_round(t, weights):
    after each round. seed: of the noise; None: drawn anew for every fit, which the twin repeats.

    Attributes:
        module_: trained; weights_: float64 vector, see `verifier.torch_step`; epsilon_: what the
        ledgers say was spent, the largest of the owners', infinite without privacy; costs_: of
        every session; plan_: of the last.

    Raises:
        ParameterError: an option is out of range.
    """

    def __init__(
        self,
        module: ModuleFactory | str,
        loss: RowLoss | str,
        *,
        update: Update,
        clip: float,
        epsilon: float | None = None,
        delta: float = 1e-5,
        colluders: int = 0,
        checkpoint_every: int | None = None,
        folder: Path | None = None,
        budget: float | None = None,
        processes: bool = False,
        on_round: OnRound = lambda t, weights: None,
        seed: int | None = None,
    ) -> None:
        self.update, self.clip, self.epsilon, self.delta = update, clip, epsilon, delta
        self.colluders, self.checkpoint_every, self.folder = colluders, checkpoint_every, folder
        self.budget, self.processes, self.on_round = budget, processes, on_round
        self._model = TorchModel(module=module, loss=loss)
        self.seed, self._root = seed, secrets.randbits(256) if seed is None else seed
        self.module_ = self._model.build()
        self._start = to_vector(self.module_)

    def fit(self, shards: Shards, resume: Path | None = None) -> FederatedModule:
        """Train; `resume`: go on from this checkpoint of an equal training.

        Raises:
            ParameterError: the checkpoint is of another training. ProtocolError: a party refused,
            such as for its budget.
        """
        training = self._training(shards)
        first, weights = self._restore(training, resume)
        tell(self.epsilon is None)
        if self.seed is None:
            self._root = secrets.randbits(256)  # two fits never share noise
        self.costs_: list[Costs] = []
        with tempfile.TemporaryDirectory(prefix="cohort-") as scratch:
            ledgers = self._ledgers(shards, self.folder or Path(scratch))
            for t, rounds in training.stages(first):
                specs = self._specs(shards, t, ledgers)
                outcome, costs = run_encrypted(
                    _maker(training, rounds), specs, weights, self._observer(t), self.processes
                )
                weights, self.plan_ = outcome.weights, outcome.plan
                self.costs_.append(costs)
                self._save(training, t + rounds, weights)
            spent = [ledger.spent(name).epsilon for name, ledger in ledgers.items()]
        self.epsilon_ = max(spent, default=math.inf)
        self.weights_ = weights
        load_vector(self.module_, weights)
        return self

    def twin(self, shards: Shards, resume: Path | None = None) -> Vector:
        """Weights of the last fit without encryption, with the same noise; `resume` as in it."""
        training = self._training(shards)
        first, weights = self._restore(training, resume)
        for t, rounds in training.stages(first):
            specs = self._specs(shards, t, {})
            weights = run_plain(_maker(training, rounds), specs, weights)
        return weights

    def predict(self, inputs: NDArray[Any], weights: Vector | None = None) -> NDArray[np.int64]:
        """The class with the largest output, shape (rows,); weights: others than `weights_`."""
        load_vector(self.module_, self.weights_ if weights is None else weights)
        labels: NDArray[np.int64] = outputs_of(self.module_, inputs).argmax(axis=1)
        return labels

    def score(
        self, inputs: NDArray[Any], labels: NDArray[np.int64], weights: Vector | None = None
    ) -> float:
        """Share of rows whose class is right."""
        return float(np.mean(self.predict(inputs, weights) == labels))

    # -- what a stage is made of ------------------------------------------------------------------

    def _training(self, shards: Shards) -> TrainingPlan:
        if not shards:
            raise ParameterError("shards is empty: need at least two owners")
        schema = next(iter(shards.values())).schema
        return TrainingPlan(
            update=self.update,
            clip=self.clip,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            rows_by_party=tuple(shard.rows for shard in shards.values()),
            layout=layout_of(self.module_),
            length=self._start.size,
            schema=schema.digest(),
            features=schema.num_features,
            stage_rounds=self.checkpoint_every or self.update.rounds,
        )

    def _ledgers(self, shards: Shards, folder: Path) -> dict[str, Ledger]:
        if self.epsilon is None:
            return {}
        grant = self.budget or self.epsilon
        return {
            name: Ledger(
                path=ledger_path(folder / "ledgers", name), epsilon=grant, delta=self.delta
            )
            for name in shards
        }

    def _specs(
        self, shards: Shards, first: int, ledgers: Mapping[str, Ledger]
    ) -> dict[str, TorchPartySpec]:
        policy = Policy(
            max_epsilon=self.epsilon,
            max_delta=self.delta,
            min_colluders=self.colluders,
            exact_sums=self.epsilon is None,
        )
        return {
            name: TorchPartySpec(
                name=name,
                shard=cast("Shard", shard),
                signing_key=new_signing_key().private_bytes(
                    Encoding.Raw, PrivateFormat.Raw, NoEncryption()
                ),
                coordinator_key="",
                policy=policy,
                noise_seed=self._root,
                model=self._model,
                first=first,
                ledger=ledgers.get(name),
            )
            for name, shard in shards.items()
        }

    def _observer(self, first: int) -> OnRound:
        return lambda t, weights: self.on_round(first + t + 1, weights)

    # -- checkpoints ------------------------------------------------------------------------------

    def _save(self, training: TrainingPlan, done: int, weights: Vector) -> None:
        if self.folder is None or self.checkpoint_every is None:
            return
        path = self.folder / f"round-{done:05d}.npz"
        self.folder.mkdir(parents=True, exist_ok=True)
        about = json.dumps({"rounds": done, "training": training.digest()})
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.savez(file, weights=weights, about=np.array(about))
        os.replace(partial, path)

    def _restore(self, training: TrainingPlan, path: Path | None) -> tuple[int, Vector]:
        if path is None:
            return 0, self._start.copy()
        with np.load(path, allow_pickle=False) as file:
            weights, about = file["weights"], json.loads(str(file["about"]))
        if about["training"] != training.digest():
            raise ParameterError(
                f"{path} is a checkpoint of another training: update, clip, privacy, checkpoints, "
                "rows and module must be the same"
            )
        return int(about["rounds"]), weights


def _maker(training: TrainingPlan, rounds: int) -> MakePlan:
    return lambda session, members: training.stage_plan(session, members, rounds)
