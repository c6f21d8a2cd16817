"""Fine-tuning on one of the nine tasks of GLUE: the recipe's GLUE-sane, the last epoch's score on the dev set."""

from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from train.data.glue import metrics, reading
from train.data.glue.features import Features
from train.data.glue.tables import TABLES
from train.data.plan import BatchPlan, shard
from train.distributed import Place
from train.errors import UserError
from train.evaluation import gathered
from train.randomness import SUBSET, permutation
from train.record_files import write
from train.schema_language import Glue as Options
from train.tasks import pretrained

EVALUATION_BATCH = 64
Batch = tuple[Tensor, Tensor]


class Glue:
    """One row of the GLUE table, at either scale."""

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.place = config, place
        self.data = Options(**OmegaConf.to_container(config.dataset, resolve=True))
        self.table = TABLES[self.data.name]
        self.primary = self.table.metric
        if self.data.classes != self.table.classes:
            raise UserError(f"dataset.classes={self.data.classes}: {self.data.name} has {self.table.classes}")
        if self.data.length > config.model.length:
            raise UserError(f"dataset.length={self.data.length}: the model has {config.model.length} positions")
        self.pretrained = pretrained.read(config)
        self.tokenizer = Tokenizer.from_str(self.pretrained.tokenizer)
        train = reading.read(self.data, self.table, config.data_root, "train")
        reading.check_rows(train, self.data.rows and self.data.rows[0])
        self.train = self.features(train)
        self.dev = {}
        for suffix, split in self.table.dev.items():
            rows = reading.read(self.data, self.table, config.data_root, split)
            reading.check_rows(rows, self.data.rows and self.data.rows[1 + len(self.dev)])
            self.dev[suffix] = self.features(rows)
        self.chosen = torch.arange(len(self.train))
        if self.data.train_size is not None:
            if self.data.train_size > len(self.train):
                raise UserError(f"dataset.train_size={self.data.train_size}: there are {len(self.train)} rows")
            self.chosen = permutation(len(self.train), SUBSET)[: self.data.train_size]  # the same for every seed
        self.plan = BatchPlan(len(self.chosen), config.batch_size, config.seed, place, config.runtime.micro_batch)

    @property
    def regression(self) -> bool:
        """Whether the task is to give a score."""
        return not self.table.labels

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch; the last, smaller batch is dropped."""
        return self.plan.steps_per_epoch

    def features(self, rows: reading.Rows) -> Features:
        """A split's tokens."""
        return Features(rows, self.tokenizer, self.data.length, self.regression)

    def start(self, model: nn.Module) -> None:
        """Load the pre-trained encoder, unless this is the control without."""
        if not self.config.task.scratch:
            pretrained.start(model, self.pretrained)

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """For each step this rank's micro-batches: tokens [B, N] and labels [B]."""
        for _, _, parts in self.plan.micro_batches(start, stop):
            yield [self.moved(*self.train.batch(self.chosen[indices].tolist())) for _, indices in parts]

    def moved(self, *tensors: Tensor) -> Batch:
        """On the device that trains."""
        return tuple(tensor.to(self.place.device, non_blocking=True) for tensor in tensors)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy, or the squared error of the score."""
        logits = model(batch[0]).float()
        return F.mse_loss(logits[:, 0], batch[1]) if self.regression else F.cross_entropy(logits, batch[1])

    probe_loss = loss

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The task's metrics in percent and the mean loss on the dev set, over all ranks.

        MNLI's mismatched set has its own under `<name>_mm`. `majority` is what the training set's most frequent
        class alone would get.
        """
        found = {}
        for suffix, features in self.dev.items():
            outputs = self.outputs(model, features)
            labels = features.labels.double()
            predictions = outputs[:, 0] if self.regression else outputs.argmax(1).double()
            scores = metrics.report(self.primary, labels.numpy(), predictions.numpy())
            if self.regression:
                scores["loss"] = F.mse_loss(predictions, labels).item()
            else:
                scores["loss"] = F.cross_entropy(outputs, features.labels).item()
            scores["majority"] = metrics.majority(self.primary, self.train.labels[self.chosen].numpy(), labels.numpy())
            scores["count"] = len(features)
            found |= {name + suffix: value for name, value in scores.items()}
        return found

    def outputs(self, model: nn.Module, features: Features) -> Tensor:
        """The model's outputs for a whole split, float64 [rows, classes], on every rank."""
        share = list(shard(len(features), self.place))
        parts = []
        for start in range(0, len(share), EVALUATION_BATCH):
            tokens, _ = features.batch(share[start : start + EVALUATION_BATCH])
            parts.append(model(tokens.to(self.place.device)).double().cpu())
        return gathered(torch.cat(parts) if parts else torch.empty(0, self.table.classes).double(), self.place)

    def probe_batch(self, size: int) -> Batch:
        """The first rows of the dev set, padded to one length."""
        features = next(iter(self.dev.values()))
        return self.moved(*features.batch(list(range(min(size, len(features))))))

    @torch.no_grad()
    def write_test_predictions(self, model: nn.Module, folder: Path) -> list[Path]:
        """Predictions for the test sets, as GLUE's server takes them: `<folder>/<CoLA, MNLI-m, ...>.tsv`.

        Raises:
            UserError: a test set is missing, or the folder cannot be written.
        """
        written = []
        for name, split in self.table.tests.items():
            rows = reading.read(self.data, self.table, self.config.data_root, split)
            outputs = self.outputs(model, self.features(rows)).numpy()
            if self.regression:
                answers = [f"{score:.3f}" for score in numpy.clip(outputs[:, 0], 0, 5)]
            else:
                answers = [self.table.labels[label] for label in outputs.argmax(1)]
            lines = [f"{index}\t{answer}\n" for index, answer in zip(rows.index, answers, strict=True)]
            path = folder / f"{name}.tsv"
            if self.place.first:
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    write(path, "index\tprediction\n" + "".join(lines))
                except OSError as error:
                    raise UserError(f"predictions={folder} cannot be written: {error.strerror}") from None
            written.append(path)
        return written
