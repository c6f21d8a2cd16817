"""The typed schema of a run: every key that a config or the command line may set.

`RESULT_KEYS` are the top-level keys that change what a run computes; they are its identity. Everything
else (where data and outputs lie, devices, precision, logging, probes) changes nothing beyond rounding
and what each rank and micro-batch draws for itself: dropout masks, and what mixup and cutmix mix.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from train import schema_detection, schema_language
from train.schema_sequences import LongRange, Sequences

RESULT_KEYS = (
    "task", "model", "dataset", "conditioning", "optimizer", "schedule", "ema", "batch_size", "evaluate", "seed",
)  # fmt: skip


@dataclass
class Row:
    """Which line of which table of the paper a run belongs to."""

    table: str = MISSING
    name: str = MISSING
    scale: str = MISSING  # paper | reduced


@dataclass
class Classification:
    """Image classification: the loss, and what mixes labels."""

    name: str = "classification"
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_probability: float = 1.0
    cutmix_probability: float = 0.5  # of the mixed batches, where both are on


@dataclass
class Model:
    """A timm model, or one of specattn.models; `args` go to its constructor as they are."""

    name: str = MISSING
    args: dict[str, Any] = field(default_factory=dict)
    norm: bool = True  # False: every LayerNorm becomes the identity (the LayerNorm ablation)
    attention_scale: float | None = None  # multiplies q·k in place of 1/sqrt(d); None: the model's own


@dataclass
class Images:
    """An image set and its augmentation."""

    name: str = MISSING
    classes: int = MISSING
    image_size: int = MISSING
    mean: list[float] = MISSING
    std: list[float] = MISSING
    train_size: int | None = None  # a fixed subset of the training images; None: all of them
    flip: float = 0.0
    pad: int = 0  # small sets: random crop after zero padding by this many pixels
    scale: list[float] = field(default_factory=lambda: [0.08, 1.0])  # folders: RandomResizedCrop
    ratio: list[float] = field(default_factory=lambda: [0.75, 1.3333333333333333])
    interpolation: str = "bicubic"
    crop_ratio: float = 0.875  # evaluation: centre crop of image_size from image_size / crop_ratio
    auto_augment: str | None = None  # 'ra' (torchvision RandAugment) or a timm string
    random_erasing: float = 0.0
    repeats: int = 1  # repeated augmentation: copies of each image in an epoch
    layout: str = "folder"  # folder | archives | parquet | hub: where photographs lie (train/data/photographs.py)
    hub: str | None = None  # the data set's name on the hub and its pinned revision
    revision: str | None = None
    synsets: str | None = None  # timm's list of class identifiers, in the order of the labels
    images: list[int] | None = None  # how many there are, training and validation


@dataclass
class Conditioning:
    """`specattn.condition`'s arguments."""

    method: str = "identity"
    lam: float = 0.0
    layout: str = "matrix"
    targets: str = "qkv"
    when: str = "persistent"
    modules: str | None = None


@dataclass
class Optimizer:
    """A timm optimizer; `lr` is for the recipe's own global batch."""

    name: str = "adamw"
    lr: float = MISSING
    weight_decay: float = 0.0
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    # '1d': tensors of one axis, biases and no_decay_names; 'names': those names alone; 'none': everything decays
    no_decay: str = "1d"
    no_decay_names: list[str] | None = None  # parameter names, or globs of them; None: the model's own list
    clip_grad: float | None = None
    lr_scaling: str = "absolute"  # absolute | linear (in the global batch, from reference_batch)
    reference_batch: int | None = None


@dataclass
class Schedule:
    """Length and learning rate; durations are in steps or in epochs, exactly one."""

    name: str = "cosine"  # cosine | constant | steps | triangle | one_cycle (torch's OneCycleLR)
    steps: int | None = None
    epochs: float | None = None
    warmup_steps: int | None = None
    warmup_epochs: float | None = None
    warmup_lr: float = 0.0
    min_lr: float = 0.0
    per: str = "step"  # step | epoch: how often the learning rate moves
    warmup_prefix: bool = True  # the cosine begins after the warm-up (True) or runs beneath it (False)
    cooldown_steps: int | None = None  # at min_lr, after `steps` or `epochs`
    cooldown_epochs: float | None = None
    lag: int | None = None  # steps or epochs (`per`) that the rate comes late: 1 where it is set at the end of each
    scale_bounds: bool | None = None  # warmup_lr and min_lr scale with the batch as lr does
    anneal: str | None = None  # one_cycle: linear (None) | cosine, how both of its halves move
    cycle_momentum: list[float] | None = None  # one_cycle: β1 moves from the second to the first and back
    hours: float | None = None  # a budget of the clock in place of steps or epochs (train/budget.py)
    start: float | None = None  # triangle: the factor on the rate at the first step (0.25) ...
    peak: float | None = None  # ... which has grown to 1 at this share of the run (0.75) and falls to 0 at its end
    milestones: list[float] | None = None  # steps: the epochs after which the rate is multiplied by `decay`
    decay: float | None = None  # steps: None is 0.1


@dataclass
class Ema:
    """Moving average of the weights (timm's ModelEmaV3); decay 0 is off."""

    decay: float = 0.0
    every: int = 1
    copy_epochs: float = 0.0  # the average only copies the weights until then
    evaluate: bool = True  # which weights the reported number is for


@dataclass
class Every:
    """How often something happens, in steps or in epochs, exactly one; the last step always counts."""

    steps: int | None = None
    epochs: float | None = None


@dataclass
class Probe(Every):
    """What is looked at along training, and how often; both None: never."""

    attention: bool = True  # entropy, saturation, gradient norms; at step 0 it warns where λ saturates
    jacobian: str | None = None  # a glob on attention modules: κ of the Jacobian of their first head
    samples: int = 8  # of the test set, in a fixed batch
    tokens: int | None = 16  # the Jacobian is taken at the first so many tokens; None: at all of them


@dataclass
class Runtime:
    """What changes nothing beyond rounding."""

    devices: int = 1
    device: str = "auto"  # auto | cpu | cuda
    workers: int | None = None  # loader processes for each device (small sets use none); None: as many as threads
    threads: int | None = None  # CPU threads for each device; None: the cores divided by the devices
    precision: str = "auto"  # auto | bf16 | fp16 | fp32; auto: bf16 where a GPU has it, else fp32
    micro_batch: int | None = None  # at most this many samples at a time on a device (accumulation)
    compile: bool = False
    channels_last: bool = False
    prefetch: int = 2  # batches that each loader worker prepares ahead
    persistent_workers: bool = True  # evaluation's loader workers stay between evaluations
    pin: bool | None = None  # page-locked batches; None: where a GPU trains
    deterministic: bool = True  # torch.use_deterministic_algorithms
    log_steps: int = 50
    save_steps: int | None = None  # None: at each evaluation
    keep_checkpoints: bool = True  # False: remove them once a run is complete (demos, sweeps)
    wandb: str = "offline"  # offline | online | off
    jobs: int = 1  # runs of a sweep side by side
    dry: bool = False  # check and print; train nothing


@dataclass
class Config:
    """A whole run."""

    experiment: str = ""  # filled in from the command line
    row: Row = field(default_factory=Row)
    task: Any = MISSING
    model: Any = MISSING
    dataset: Any = MISSING
    conditioning: Conditioning = field(default_factory=Conditioning)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    ema: Ema = field(default_factory=Ema)
    batch_size: int = MISSING  # global: over all devices and accumulation
    evaluate: Every = field(default_factory=Every)
    probe: Probe = field(default_factory=Probe)
    runtime: Runtime = field(default_factory=Runtime)
    seed: int = 0
    data_root: str | None = None
    corpus: str | None = None  # the folder of a packed corpus; None: <output_root>/corpus/<name>-<digest>
    output_root: str = "outputs"
    mode: str = "train"  # train | evaluate
    checkpoint: str | None = None  # evaluate: the weights to evaluate (train/evaluation.py)
    per_class: bool = False  # evaluate: also each class's accuracy
    predictions: str | None = None  # evaluate: a CSV file to write, one line an image


CHOICES = {
    "mode": ("train", "evaluate"),
    "conditioning.method": ("identity", "svd", "relative", "orthogonal", "rescale"),
    "conditioning.layout": ("matrix", "head"),
    "conditioning.targets": ("q", "k", "v", "qk", "qv", "kv", "qkv"),
    "conditioning.when": ("persistent", "init"),
    "optimizer.lr_scaling": ("absolute", "linear"),
    "optimizer.no_decay": ("1d", "names", "none"),
    "dataset.layout": ("folder", "archives", "parquet", "hub"),
    "dataset.kind": ("listops", "text", "retrieval", "image", "pathfinder"),
    "dataset.split": ("nystromformer", "google"),
    "schedule.name": ("cosine", "constant", "steps", "triangle", "one_cycle"),
    "schedule.anneal": (None, "linear", "cosine"),
    "model.correction": ("carry", "fold"),
    "schedule.per": ("step", "epoch"),
    "runtime.device": ("auto", "cpu", "cuda"),
    "runtime.precision": ("auto", "bf16", "fp16", "fp32"),
    "runtime.wandb": ("offline", "online", "off"),
    **schema_language.CHOICES,
}


def register() -> None:
    """Make the schema known to Hydra: configs name their part in their defaults list."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="task", name="classification_schema", node=Classification)
    store.store(group="task", name="long_range_schema", node=LongRange)
    store.store(group="dataset", name="sequences_schema", node=Sequences)
    store.store(group="model", name="model_schema", node=Model)
    store.store(group="dataset", name="images_schema", node=Images)
    store.store(group="task", name="language_modeling_schema", node=schema_language.LanguageModeling)
    store.store(group="task", name="glue_schema", node=schema_language.GlueTask)
    store.store(group="model", name="crammed_bert_schema", node=schema_language.CrammedBert)
    store.store(group="dataset", name="text_schema", node=schema_language.Text)
    store.store(group="dataset", name="glue_data_schema", node=schema_language.Glue)
    store.store(group="task", name="detection_schema", node=schema_detection.Detection)
    store.store(group="model", name="detector_schema", node=schema_detection.Detector)
    store.store(group="dataset", name="coco_schema", node=schema_detection.Coco)
