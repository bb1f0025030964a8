"""Modules in the place of those that Flower's example apps load data with: no download, no GPU.

The data have the shape, types and size of a row of those that the apps name, and labels that a
model can learn; all else is random.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

IMAGES = {
    "uoft-cs/cifar10": ("img", (32, 32, 3)),
    "zalando-datasets/fashion_mnist": ("image", (28, 28)),
    "ylecun/mnist": ("image", (28, 28)),
}
FLOWERS = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
SIZES = ("Sepal Length", "Sepal Width", "Petal Length", "Petal Width")


class Data:
    """Columns, as `datasets.Dataset` hands them out."""

    def __init__(self, columns: dict[str, Any], change: Any = None, kind: str = "") -> None:
        self._columns, self._change, self._kind = columns, change, kind

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def with_transform(self, change: Callable[[Any], Any]) -> Data:
        """Batches go through a function."""
        return Data(self._columns, change, self._kind)

    def with_format(self, kind: str) -> Data:
        """All of them at once: "pandas"."""
        return Data(self._columns, self._change, kind)

    def train_test_split(self, test_size: float, seed: int | None = None) -> Split:
        """By a random order, the same in every run; without a seed that of 0."""
        order = np.random.default_rng(seed or 0).permutation(len(self))
        cut = round(len(self) * (1 - test_size))
        halves = {"train": order[:cut], "test": order[cut:]}
        return Split({name: self._take(rows) for name, rows in halves.items()})

    def set_format(self, kind: str) -> None:
        """Columns are arrays already."""

    def shuffle(self, seed: int) -> None:
        """In the order that they are."""

    def batch(self, size: int, num_proc: int, drop_last_batch: bool) -> Data:
        """Rows that are batches."""
        starts = range(0, len(self) - size + 1, size)
        columns = {
            name: [np.stack(column[k : k + size]) for k in starts]
            for name, column in self._columns.items()
        }
        return Data(columns, self._change, self._kind)

    def map(self, change: Callable[[Any], Any], batched: bool) -> Data:
        """With more columns."""
        return Data({**self._columns, **change(self._columns)}, self._change, self._kind)

    def renamed(self, old: str, new: str | None) -> Data:
        """Or without a column."""
        kept = {name: column for name, column in self._columns.items() if name != old}
        return Data({**kept, **({new: self._columns[old]} if new else {})}, self._change)

    def _take(self, rows: Iterable[int]) -> Data:
        taken = {name: [column[row] for row in rows] for name, column in self._columns.items()}
        return Data(taken, self._change, self._kind)

    def __getitem__(self, rows: Any) -> Any:
        if self._kind == "pandas":
            return pd.DataFrame(self._columns)[rows]
        if isinstance(rows, str):
            return self._columns[rows]
        batch = {name: [column[rows]] for name, column in self._columns.items()}
        changed = self._change(batch) if self._change else batch
        return {name: column[0] for name, column in changed.items()}


class Split(dict[str, Data]):
    """Train and test."""

    def with_transform(self, change: Callable[[Any], Any]) -> Split:
        """Of both."""
        return Split({name: data.with_transform(change) for name, data in self.items()})

    def map(self, change: Callable[[Any], Any], batched: bool) -> Split:
        """Of both."""
        return Split({name: data.map(change, batched) for name, data in self.items()})

    def remove_columns(self, column: str) -> Split:
        """Of both."""
        return Split({name: data.renamed(column, None) for name, data in self.items()})

    def rename_column(self, old: str, new: str) -> Split:
        """Of both."""
        return Split({name: data.renamed(old, new) for name, data in self.items()})


def rows_of(name: str, seed: int, count: int) -> Data:
    """Of a data set of that name."""
    rng = np.random.default_rng(seed)
    if name.endswith("/iris"):
        species = rng.integers(0, 3, count)
        x = np.maximum(FLOWERS[species] + rng.normal(0, 0.35, (count, 4)), 2.01)
        small = name.startswith("hitorilabs")
        names = [n.lower().replace(" ", "_") if small else n.replace(" ", "") + "Cm" for n in SIZES]
        label = "species" if small else "Species"
        return Data({**dict(zip(names, x.T, strict=True)), label: species})
    if name == "scikit-learn/adult-census-income":
        numbers = {f"number{k}": rng.normal(40, 10, count) for k in range(6)}
        kinds = {f"kind{k}": [f"k{v}" for v in rng.integers(0, 5, count)] for k in range(8)}
        risk = (numbers["number0"] - 40) / 10 + rng.normal(0, 0.5, count)
        return Data({**numbers, **kinds, "income": np.where(risk > 0, ">50K", "<=50K").tolist()})
    if name == "stanfordnlp/imdb":
        labels = rng.integers(0, 2, count)
        texts = [" ".join(f"w{w}" for w in rng.integers(4 + 9 * k, 40, 30)) for k in labels]
        return Data({"text": texts, "label": labels.tolist()})
    if name == "jxie/higgs":
        labels = rng.integers(0, 2, count)
        return Data({"inputs": rng.normal(labels[:, None], 2.0, (count, 28)), "label": labels})
    key, shape = IMAGES[name]
    labels = rng.integers(0, 10, count)
    means = np.random.default_rng(0).uniform(60, 190, (10, *shape))
    x = np.clip(means[labels] + rng.normal(0, 40, (count, *shape)), 0, 255).astype(np.uint8)
    return Data({key: list(x), "label": labels.tolist()})


class Federated:
    """`flwr_datasets.FederatedDataset`: partitions of unequal sizes."""

    def __init__(self, dataset: str, partitioners: Any) -> None:
        self._name = dataset

    def load_partition(self, partition: int, split: str | None = None) -> Data:
        """Of one client."""
        return rows_of(self._name, 100 + partition, 100 + 10 * partition)


class Accuracy:
    """`evaluate.load("accuracy")`."""

    def __init__(self) -> None:
        self._right: list[bool] = []

    def add_batch(self, predictions: Any, references: Any) -> None:
        """Count."""
        self._right += (predictions == references).tolist()

    def compute(self) -> dict[str, float]:
        """Of all."""
        return {"accuracy": float(np.mean(self._right))}


def small_bert(name: str, num_labels: int) -> Any:
    """prajjwal1/bert-tiny without its weights."""
    hub: Any = import_module("transformers")
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = hub.BertConfig(**sizes, intermediate_size=512, num_labels=num_labels)
    return hub.BertForSequenceClassification(config)


def words(name: str, model_max_length: int) -> Any:
    """A tokenizer with a token for each word of `rows_of`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    hub: Any = import_module("transformers")
    known = {word: k for k, word in enumerate(("[PAD]", "[UNK]", *(f"w{k}" for k in range(40))))}
    made = Tokenizer(models.WordLevel(known, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return hub.PreTrainedTokenizerFast(
        tokenizer_object=made,
        **{"pad_token": "[PAD]", "unk_token": "[UNK]"},
    )


class Nothing:
    """Takes any arguments, and every method of it too."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **named: None


class Natural:
    """`NaturalIdPartitioner`: a client for each value of a column."""

    dataset: Any

    def __init__(self, partition_by: str) -> None:
        self._by = partition_by

    def load_partition(self, partition: int) -> Any:
        """Of one client."""
        frame = self.dataset.frame
        values = sorted(frame[self._by].unique())
        part = frame[frame[self._by] == values[partition % len(values)]]
        return SimpleNamespace(to_pandas=lambda: part)


class Compose:
    """`torchvision.transforms.Compose`."""

    def __init__(self, parts: Sequence[Callable[[Any], Any]]) -> None:
        self._parts = parts

    def __call__(self, x: Any) -> Any:
        """All of them."""
        for part in self._parts:
            x = part(x)
        return x


class ToTensor:
    """Channels first, from 0 to 1."""

    def __call__(self, x: Any) -> Any:
        """Of an image."""
        import torch

        x = np.asarray(x)
        x = x[:, :, None] if x.ndim == 2 else x
        return torch.from_numpy(x.transpose(2, 0, 1).astype(np.float32) / 255)


class Normalize:
    """By channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self._mean, self._std = (np.array(v, np.float32)[:, None, None] for v in (mean, std))

    def __call__(self, x: Any) -> Any:
        """Of a tensor."""
        import torch

        return (x - torch.from_numpy(self._mean)) / torch.from_numpy(self._std)


class Same(Nothing):
    """A random change of an image, left out."""

    def __call__(self, x: Any) -> Any:
        """Nothing."""
        return x


def _module(name: str, **content: Any) -> None:
    made = ModuleType(name)
    # Torch looks for it.
    made.__spec__ = ModuleSpec(name, None)
    made.__dict__.update(content)
    sys.modules[name] = made
    above, _, own = name.rpartition(".")
    if above in sys.modules:
        setattr(sys.modules[above], own, made)


def _table(name: str, engine: Any, columns: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(int(engine.url))
    return pd.DataFrame({column: rng.normal(50, 10, 80) for column in columns})


def _load(name: str, split: str | None = None) -> Any:
    data = rows_of(name, 7, 400)
    return data if split else {"test": data, "train": data}


def install() -> None:
    """In this process, for what is imported later."""
    _module("flwr_datasets", FederatedDataset=Federated)
    _module(
        "flwr_datasets.partitioner",
        IidPartitioner=Nothing, DirichletPartitioner=Nothing, NaturalIdPartitioner=Natural,
    )  # fmt: skip
    made = SimpleNamespace(from_pandas=lambda frame: SimpleNamespace(frame=frame))
    _module("datasets", load_dataset=_load, Dataset=made)
    _module("torchvision")
    _module(
        "torchvision.transforms",
        Compose=Compose, ToTensor=ToTensor, Normalize=Normalize, RandomCrop=Same,
        RandomHorizontalFlip=Same,
    )  # fmt: skip
    _module("wandb", init=Nothing, log=Nothing, finish=Nothing)
    if find_spec("tqdm") is None:
        _module("tqdm", tqdm=lambda x, *arguments, **named: x)
    for name in ("torch.utils.tensorboard", "torch.utils.tensorboard.writer"):
        _module(name, SummaryWriter=Nothing)
    _module("sqlalchemy", create_engine=lambda url: SimpleNamespace(url=url, dispose=lambda: None))
    pd.read_sql_table = _table
    _module("datasets.utils")
    _module("datasets.utils.logging", disable_progress_bar=Nothing)
    _module("evaluate", load=lambda name: Accuracy())
    with suppress(ImportError):
        hub: Any = import_module("transformers")
        hub.AutoTokenizer.from_pretrained = words
        hub.AutoModelForSequenceClassification.from_pretrained = small_bert
