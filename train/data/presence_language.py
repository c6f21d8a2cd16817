"""Whether the data of a language run is there: its text or packed corpus, its task's files, its pre-trained weights."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from train.errors import UserError
from train.folder import summary, tag

RUN = "run:"


def missing(config: DictConfig) -> str | None:
    """What has to be done before the run can begin, in one line, or None. Imports nothing heavy."""
    try:
        if config.task.name == "language_modeling":
            return missing_text(config)
        return missing_task(config) or missing_weights(config)
    except UserError as error:
        return str(error)


def missing_text(config: DictConfig) -> str | None:
    """What is lacking of a corpus: nothing where it is packed already, or where the text is made."""
    from train.schema_language import Text

    options = Text(**OmegaConf.to_container(config.dataset, resolve=True))
    if options.folder is None:
        return None
    if config.corpus is not None:
        folder = Path(config.corpus).expanduser()
        if (folder / "manifest.json").exists():
            return None
        return f"{folder} holds no packed corpus: make it with python -m scripts.make_corpus, or leave corpus= out"
    if list((Path(config.output_root).expanduser() / "corpus").glob(f"{options.name}-*/manifest.json")):
        return None  # whether it is this config's is looked at when it is opened
    folder = Path(options.folder).expanduser()
    if not folder.is_absolute():
        if config.data_root is None:
            return (
                f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {options.folder}, or "
                "dataset=text_made for text that the project makes itself"
            )
        folder = Path(config.data_root).expanduser() / folder
    if options.hub is None and not any(folder.glob(options.files)):
        return (
            f"{folder} holds no {options.files}: set DATA_ROOT (or dataset.folder), or dataset=text_made for text "
            "that the project makes itself"
        )
    return None


def missing_task(config: DictConfig) -> str | None:
    """What is lacking of one of the nine tasks' files."""
    from train.data.glue.tables import TABLES

    data = config.dataset
    if data.name not in TABLES:
        return f"dataset.name={data.name!r} is none of the nine tasks: {', '.join(TABLES)}"
    if data.layout == "hub":
        return None
    table = TABLES[data.name]
    inner = table.folder if data.layout == "folder" else data.name
    if config.data_root is None:
        return f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds glue/{inner}"
    folder = Path(config.data_root).expanduser() / "glue" / inner
    for split in ("train", *table.dev.values()):
        pattern = f"{split}.tsv" if data.layout == "folder" else f"{table.shards(split)}-*.parquet"
        if not any(folder.glob(pattern)):
            return f"{folder} lacks {pattern}: see README.md for the layout"
    return None


def missing_weights(config: DictConfig) -> str | None:
    """What is lacking of the pre-trained weights that a fine-tuning begins with."""
    source(config)
    return None


def source(config: DictConfig) -> Path:
    """The checkpoint (.pt) or the export's folder that `task.pretrained` names.

    `run:<experiment>` is a run of that experiment with this conditioning, `run:<experiment>,<key=value>,...` one that
    was given these words as well.

    Raises:
        UserError: it is not there, or its run is not complete.
    """
    asked = config.task.pretrained
    if not asked.startswith(RUN):
        path = Path(asked).expanduser()
        if (path / "model.safetensors").is_file() or (path.suffix == ".pt" and path.is_file()):
            return path
        raise UserError(f"task.pretrained={asked}: there is no checkpoint (.pt) and no export's folder")
    experiment, *given = asked.removeprefix(RUN).split(",")
    root = Path(config.output_root).expanduser().absolute()
    folder = root / experiment / ",".join([tag(config), *given]) / f"seed{config.task.pretrained_seed}"
    found = sorted(folder.glob("checkpoint-*.pt"))
    status = summary(folder).get("status")
    if not found or status != "complete":
        state = "is not there" if status is None else "has no checkpoint" if not found else f"is {status}, not complete"
        words = " ".join([experiment, *given])
        raise UserError(
            f"the pre-training in {folder} {state}: run it first (experiment={words} with this conditioning and "
            f"seed={config.task.pretrained_seed}, or make glue-pretrain), or name weights with task.pretrained=<file>"
        )
    return found[-1]
