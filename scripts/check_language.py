"""Check the data of GLUE's row: a task's files read whole, or which text a pre-training packs (make check-data)."""

from omegaconf import DictConfig, OmegaConf

from train.data.corpus.documents import folder_of, sources
from train.data.glue import reading
from train.data.glue.tables import TABLES
from train.data.presence_language import missing_task
from train.errors import UserError
from train.schema_language import Glue, Text


def check(config: DictConfig) -> list[str]:
    """Print what is there, and return what is not as the config says.

    Raises:
        UserError: a file is missing or malformed, naming it and the line.
    """
    return task(config) if config.task.name == "glue" else text(config)


def task(config: DictConfig) -> list[str]:
    """Every split of one of the nine tasks; needs no pre-trained weights."""
    if missing := missing_task(config):
        raise UserError(missing)
    table, options = TABLES[config.dataset.name], Glue(**OmegaConf.to_container(config.dataset, resolve=True))
    expected = dict(zip(("train", *table.dev.values()), options.rows or (), strict=False))
    problems = []
    for split in ("train", *table.dev.values()):
        rows = reading.read(options, table, config.data_root, split)
        print(f"{split}: {len(rows):,} rows")
        if len(rows) != expected.get(split, len(rows)):
            problems.append(f"{split} holds {len(rows):,} rows, the published file {expected[split]:,}")
    return problems


def text(config: DictConfig) -> list[str]:
    """The files that a pre-training packs; python -m scripts.make_corpus --check compares a packed corpus's hashes."""
    options = Text(**OmegaConf.to_container(config.dataset, resolve=True))
    if options.hub and not folder_of(options, config.data_root).is_dir():
        raise UserError(
            f"{folder_of(options, config.data_root)} is not there: a run fetches {options.hub} from the hub"
        )
    found = sources(options, config.data_root)
    print(f"{len(found)} files of text, {sum(source.bytes for source in found) / 1e6:,.1f} MB")
    return []
