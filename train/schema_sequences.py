"""The schema of the Long Range Arena's parts."""

from dataclasses import dataclass

from omegaconf import MISSING


@dataclass
class LongRange:
    """Sequence classification; everything that differs between the tasks is in the data set."""

    name: str = "long_range"


@dataclass
class Sequences:
    """Sequences of small integers, or pairs of them, with classes; 0 is padding."""

    name: str = MISSING
    kind: str = MISSING  # listops | text | retrieval | image | pathfinder: how the files are read (train/data/lra)
    folder: str = MISSING  # below the data root; below <output_root>/data where `made_by` is set
    classes: int = MISSING
    vocab_size: int = MISSING
    max_length: int = MISSING  # tokens that are kept of a sequence
    padded_length: int = MISSING  # what every sequence is padded to with zeros
    pair: bool = False
    mask_zero: bool = True  # token 0 takes no part in the attention: also black pixels, as in the original
    train_size: int | None = None  # a fixed subset of the training set; None: all of it
    eval_size: int | None = None  # likewise of the dev set and of the test set
    split: str = "nystromformer"  # pathfinder: nystromformer (shuffled, 80/10/10) | google (in order)
    made_by: str | None = None  # the command, without --out, that makes a set which the project generates
    sizes: list[int] | None = None  # how many there are: training, dev and test
