"""The schema of the language rows: text and its packing, pre-training, the nine tasks (part of train/schema.py)."""

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class CrammedBert:
    """The sizes of `specattn.models.crammed_bert`."""

    name: str = "crammed_bert"
    vocabulary: int = 32768
    length: int = 128  # the most tokens
    width: int = 768
    depth: int = 16
    heads: int = 12
    feed_forward: int = 3072  # outputs of the first dense layer, half of which gate the other half
    dropout: float = 0.0  # none in pre-training, .1 in fine-tuning
    head_width: int = 1024  # the classifier's hidden layer


@dataclass
class Text:
    """Text for pre-training, and how it is cleaned, tokenised and packed (train/data/corpus)."""

    name: str = MISSING
    folder: str | None = None  # below the data root (or absolute); None: text that the project makes itself
    files: str = "**/*.txt"  # .txt; .jsonl and .json (also .gz); .parquet
    max_files: int | None = None  # the first so many in alphabetical order
    hub: str | None = None  # the data set's name on the hub, fetched where the folder is not there
    revision: str | None = None  # its commit
    column: str = "text"  # of JSON lines and parquet
    documents: str = "paragraph"  # of .txt files: paragraph (hard line breaks joined) | line | file
    held_out: list[str] = field(default_factory=list)  # globs of the files that the loss is measured on
    held_out_share: float = 0.0  # or this share of all documents, chosen by their hash
    min_characters: int = 1  # shorter documents are left out
    filter_ratio: float | None = None  # a document stays where tokens < ratio x characters; None: all stay
    filter_tokenizer: str = "own"  # what counts those tokens: own, a tokenizer.json, or a name on the hub
    drop_near_duplicates: bool = False  # leave out documents that nearly repeat an earlier one
    vocabulary: int = 32768
    tokenizer_megabytes: int = 1000  # the tokenizer is trained on at most so much text
    length: int = 128
    sort: bool = True  # by the number of full stops, most first
    made_megabytes: int = 6  # of the project's own text


@dataclass
class Ramp:
    """The global batch grows linearly from `unit` to `batch_size`, over micro-batches or over a share of the budget."""

    unit: int = 128  # sequences of a micro-batch of the recipe; the batch grows by so many
    micro_steps: int | None = None  # micro-batches of `unit` until the full batch is reached
    fraction: float | None = None  # or the share of the budget; both None: the full batch from the first step


@dataclass
class LanguageModeling:
    """Masked language modelling."""

    name: str = "language_modeling"
    masking: str = "legacy"  # legacy: each token by chance, specials never | current: a fixed count, specials too
    share: float = 0.15  # of the tokens
    ramp: Ramp = field(default_factory=Ramp)
    max_micro_steps: int | None = None  # the run also ends after so many micro-batches of `ramp.unit`
    shuffle: bool = False  # another order in each pass; False: in the order of the file, as the recipe has it


@dataclass
class GlueTask:
    """Fine-tuning on one of the nine tasks."""

    name: str = "glue"
    pretrained: str = MISSING  # `run:<experiment>`, a checkpoint (.pt) or an export's folder
    pretrained_seed: int = 0  # of `run:`
    scratch: bool = False  # the control: the tokenizer is taken from there, the weights are not


@dataclass
class Glue:
    """One of the nine tasks (train/data/glue)."""

    name: str = MISSING  # cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli
    classes: int = MISSING  # 1: a regression
    length: int = 128  # tokens, specials included
    layout: str = "folder"  # folder: the GLUE download's | parquet: the hub's | hub: fetched from there
    hub: str = "nyu-mll/glue"
    revision: str = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
    rows: list[int] | None = None  # of train and dev, as published; None: not compared
    train_size: int | None = None  # a fixed subset of the training rows; None: all of them


CHOICES = {
    "dataset.documents": ("paragraph", "line", "file"),
    "task.masking": ("legacy", "current"),
}
RANGES = {
    "dataset.filter_ratio": (0, None),
    "dataset.held_out_share": (0, 0.5),
    "dataset.length": (8, None),
    "dataset.made_megabytes": (1, None),
    "dataset.max_files": (1, None),
    "dataset.min_characters": (0, None),
    "dataset.tokenizer_megabytes": (1, None),
    "dataset.vocabulary": (100, 65536),
    "model.dropout": (0, 0.999),
    "schedule.hours": (0, None),
    "schedule.peak": (0, 1),
    "schedule.start": (0, 1),
    "task.max_micro_steps": (1, None),
    "task.pretrained_seed": (0, 2**32 - 1),
    "task.ramp.fraction": (0, 1),
    "task.ramp.micro_steps": (1, None),
    "task.ramp.unit": (1, None),
    "task.share": (0.01, 0.9),
}
