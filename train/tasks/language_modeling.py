"""Pre-training by masked language modelling within a budget: batch ramp, both masking rules, loss on masked tokens.

The order of the data follows from the number of sequences used so far, which a checkpoint keeps; masks follow from
(seed, step). Where the ramp follows the steps, a resumed run is the run left alone; where it follows a clock it is not.

Shape suffixes: B batch, N tokens, M masked tokens of a micro-batch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from train.data.corpus import making, wordpiece
from train.data.corpus.documents import sources
from train.data.plan import BatchPlan
from train.distributed import Place, barrier, summed
from train.errors import UserError
from train.randomness import AUGMENT, ORDER, generator, permutation
from train.schema_language import Text
from train.tasks.masking import RULES, chosen_by_chance, corrupted

EVALUATION_BATCH = 64
MADE_IN_A_RUN = 1_000_000_000  # bytes of text; a larger corpus is made beforehand
SPECIALS = len(wordpiece.SPECIALS)


class Masked(NamedTuple):
    """A micro-batch."""

    tokens_BN: Tensor
    chosen_M: Tensor  # positions in the flattened tokens
    targets_M: Tensor
    weight: float  # of the sum of the losses, see `LanguageModeling.batches`


class LanguageModeling:
    """The pre-training of the GLUE row, at either scale."""

    primary = "gain"

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.place, self.options = config, place, config.task
        text = Text(**OmegaConf.to_container(config.dataset, resolve=True))
        self.corpus = opened(text, config, place)
        self.unit = self.options.ramp.unit
        self.spent: Callable[[], float] = lambda: 1.0
        self.samples = self.micro_steps = 0
        if config.batch_size % self.unit or self.unit % place.world:
            raise UserError(
                f"batch_size={config.batch_size} must be a multiple of task.ramp.unit={self.unit}, and that of the "
                f"{place.world} devices"
            )
        if None not in (self.options.ramp.micro_steps, self.options.ramp.fraction):
            raise UserError("task.ramp: give one of task.ramp.micro_steps and task.ramp.fraction")

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of the full batch in one pass over the sequences."""
        return max(1, len(self.corpus.train) // self.config.batch_size)

    @property
    def exhausted(self) -> bool:
        """Whether the most micro-batches that are allowed have been taken."""
        most = self.options.max_micro_steps
        return most is not None and self.micro_steps >= most

    def follow(self, spent: Callable[[], float]) -> None:
        """Be told how to ask for the share of the budget that is spent."""
        self.spent = spent

    def seen(self) -> dict[str, float]:
        """Sequences, tokens and micro-batches (of `ramp.unit` sequences) so far, and passes over the corpus."""
        return {
            "samples": self.samples,
            "tokens": self.samples * self.config.dataset.length,
            "micro_steps": self.micro_steps,
            "epochs": self.samples / len(self.corpus.train),
        }

    def state(self) -> dict:
        """What a checkpoint keeps: how far the data has been used, and the tokenizer that the weights go with."""
        return {
            "samples": self.samples,
            "micro_steps": self.micro_steps,
            "tokenizer": self.corpus.tokenizer.to_str(),
        }

    def load(self, state: dict) -> None:
        """Go on from a checkpoint."""
        self.samples, self.micro_steps = state["samples"], state["micro_steps"]

    def units(self) -> int:
        """Micro-batches of `ramp.unit` sequences in the next step's global batch."""
        ramp, full = self.options.ramp, self.config.batch_size // self.unit
        if ramp.micro_steps is not None:
            share = self.micro_steps / ramp.micro_steps
        elif ramp.fraction:
            share = self.spent() / ramp.fraction
        else:
            share = 1.0
        return round(1 + min(1.0, share) * (full - 1))

    def batches(self, start: int, stop: int) -> Iterator[list[Masked]]:
        """This rank's micro-batches for the steps start..stop-1, going on from the sequences used so far.

        Every loss is weighted so that the loop's mean over micro-batches and ranks is the mean over the masked tokens
        of the global batch, the same for any division of it. Masks are drawn for the global batch.
        """
        for step in range(start, stop):
            units = self.units()
            size = units * self.unit
            plan = BatchPlan(size, size, 0, self.place, self.config.runtime.micro_batch or self.unit)
            tokens_BN = self.sequences(self.samples, size)
            draw = generator(self.config.seed, AUGMENT, step)
            chosen_BN = RULES[self.options.masking](tokens_BN, self.options.share, SPECIALS, draw)
            inputs_BN = corrupted(tokens_BN, chosen_BN, wordpiece.MASK, self.config.dataset.vocabulary, draw)
            weight = plan.accumulation * self.place.world / max(1, int(chosen_BN.sum()))
            first = self.place.rank * plan.per_device
            parts = [slice(first + i * plan.micro, first + (i + 1) * plan.micro) for i in range(plan.accumulation)]
            self.samples += size
            self.micro_steps += units
            yield [self.moved(tokens_BN[p], inputs_BN[p], chosen_BN[p], weight) for p in parts]

    def sequences(self, first: int, count: int) -> Tensor:
        """The sequences first..first+count-1 of the endless stream, int64 [count, N]."""
        size = len(self.corpus.train)
        places = numpy.arange(first, first + count)
        rows = places % size
        if self.options.shuffle:
            for turn in numpy.unique(places // size):
                order = permutation(size, self.config.seed, ORDER, int(turn)).numpy()
                rows = numpy.where(places // size == turn, order[places % size], rows)
        return torch.from_numpy(self.corpus.train[rows].astype(numpy.int64))

    def moved(self, tokens_BN: Tensor, inputs_BN: Tensor, chosen_BN: Tensor, weight: float) -> Masked:
        """A micro-batch on the device that trains."""
        chosen_M = chosen_BN.flatten().nonzero()[:, 0]
        parts = (inputs_BN, chosen_M, tokens_BN.flatten()[chosen_M])
        return Masked(*(part.to(self.place.device, non_blocking=True) for part in parts), weight)

    def loss(self, model: nn.Module, batch: Masked) -> Tensor:
        """Cross-entropy of the masked tokens alone, summed and weighted: the decoder runs at their places only."""
        logits_MV = model(batch.tokens_BN, batch.chosen_M)
        return F.cross_entropy(logits_MV.float(), batch.targets_M, reduction="sum") * batch.weight

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The loss on held-out text, in nats a token, over all ranks.

        The same tokens are masked each time, at the rule's share, by chance, specials never; all of them are seen as
        <mask>, so that nothing but context can take the loss below `unigram_entropy`. `gain` is by how much it is
        below; `accuracy` is in percent.
        """
        totals = torch.zeros(3, dtype=torch.float64, device=self.place.device)
        starts = range(0, len(self.corpus.held_out), EVALUATION_BATCH)
        for start in starts[self.place.rank :: self.place.world]:
            batch = self.fixed(start, EVALUATION_BATCH)
            logits_MV = model(batch.tokens_BN, batch.chosen_M).float()
            right = (logits_MV.argmax(1) == batch.targets_M).sum()
            total = F.cross_entropy(logits_MV, batch.targets_M, reduction="none").double().sum()
            totals += torch.stack([total, right.double(), total.new_tensor(len(batch.targets_M))])
        loss, right, count = summed(totals, self.place).tolist()
        entropy = self.corpus.unigram_entropy
        mean = loss / count
        return {
            "gain": entropy - mean,
            "loss": mean,
            "unigram_entropy": entropy,
            "accuracy": 100 * right / count,
            "count": int(count),
        }

    def fixed(self, start: int, count: int) -> Masked:
        """Held-out sequences from `start` on, with the masks that they always have."""
        tokens_BN = torch.from_numpy(self.corpus.held_out[start : start + count].astype(numpy.int64))
        chosen_BN = chosen_by_chance(tokens_BN, self.options.share, SPECIALS, generator(start))
        return self.moved(tokens_BN, torch.where(chosen_BN, wordpiece.MASK, tokens_BN), chosen_BN, 1.0)

    def probe_batch(self, size: int) -> tuple[Tensor, Tensor]:
        """The first held-out sequences with their fixed masks, and the targets: -100 where nothing is predicted."""
        batch = self.fixed(0, size)
        targets_BN = torch.full_like(batch.tokens_BN, -100)
        targets_BN.view(-1)[batch.chosen_M] = batch.targets_M
        return batch.tokens_BN, targets_BN

    def probe_loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean loss of a probe batch."""
        return F.cross_entropy(model(batch[0]).flatten(0, 1).float(), batch[1].flatten())


def opened(text: Text, config: DictConfig, place: Place) -> making.Packed:
    """The run's corpus; rank 0 makes it first where it is not there.

    Raises:
        UserError: as `making.prepared`; or the text is so much that it should be packed before a run begins.
    """
    folder = Path(config.corpus).expanduser() if config.corpus else making.cache_folder(text, config.output_root)
    if place.first:
        if text.folder is not None and not (folder / "manifest.json").exists():
            size = sum(source.bytes for source in sources(text, config.data_root))
            if size > MADE_IN_A_RUN:
                raise UserError(
                    f"{folder} is not made yet, of {size / 1e9:.1f} GB of text: first run "
                    f"python -m scripts.make_corpus experiment={config.experiment}"
                )
        corpus = making.prepared(text, folder, config.data_root)
    barrier(place)
    return corpus if place.first else making.prepared(text, folder, config.data_root)
