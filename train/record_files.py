"""The files of a record, written whole or not at all, and without this machine's paths."""

import contextlib
import json
import math
import os
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from train.compose import result_changing
from train.errors import WriteError
from train.folder import summary, tag

REPOSITORY = Path(__file__).resolve().parent.parent


def write(path: Path, text: str) -> None:
    """Write a small file whole or not at all.

    Raises:
        WriteError: the disk is full or refuses; the file that was there is untouched.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def plain_config(config: DictConfig) -> dict:
    """The resolved config as plain values, with the machine's paths written as variables."""
    values = OmegaConf.to_container(config, resolve=True) | result_changing(config)
    values["checkpoint"] = scrubbed(values["checkpoint"], config) if values["checkpoint"] else None
    values["data_root"] = "${DATA_ROOT}" if values["data_root"] else None
    values["output_root"] = "${OUTPUT_ROOT}"
    values["corpus"] = scrubbed(values["corpus"], config) if values["corpus"] else None
    for part, key in (("task", "pretrained"), ("dataset", "folder"), ("dataset", "filter_tokenizer")):
        if isinstance(values[part].get(key), str):
            values[part][key] = scrubbed(values[part][key], config)
    return values


def scrubbed(text: str, config: DictConfig) -> str:
    """A text without this machine's paths."""
    for root, variable in ((config.data_root, "DATA_ROOT"), (config.output_root, "OUTPUT_ROOT")):
        if root:
            for spelling in (str(Path(root).expanduser().absolute()), str(root)):
                if len(spelling) > 1:
                    text = text.replace(spelling, f"${{{variable}}}")
    return text.replace(str(REPOSITORY), "${SPECATTN}").replace(str(Path.home()), "~")


def described(folder: Path, config: DictConfig, status: str, **values: object) -> str:
    """The text of a summary.json: what tables read."""
    about = {
        "status": status,
        "experiment": config.experiment,
        "row": OmegaConf.to_container(config.row),
        "tag": tag(config),
        "conditioning": OmegaConf.to_container(config.conditioning),
        "seed": config.seed,
        "folder": str(folder.relative_to(Path(config.output_root).expanduser().absolute())),
    }
    return json.dumps(finite(about | values), indent=1) + "\n"


def mark(folder: Path, config: DictConfig, status: str, error: str) -> None:
    """Write into summary.json how a run failed, beside what it says already of how far the run had come."""
    lines = scrubbed(error, config).splitlines()
    held = {key: value for key, value in summary(folder).items() if key in ("step", "steps", "metrics", "best")}
    with contextlib.suppress(WriteError):  # a full disk has been said already
        write(folder / "summary.json", described(folder, config, status, error=lines[0] if lines else "", **held))


def finite(value: object) -> object:
    """Plain values with null for every number that JSON has no word for (an infinite κ)."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(path: Path) -> list[dict]:
    """The events of a metrics.jsonl; a line that a crash cut short ends the list."""
    events = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                break
    return events
