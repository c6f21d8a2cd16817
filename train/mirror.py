"""Weights & Biases as a mirror of metrics.jsonl: fed by a thread of its own, so that training never waits for it.

Whatever goes wrong there (no network, no key, a full disk) is said once, and training goes on: metrics.jsonl is
the truth. Nothing about the machine, its user or the code is sent: config, metrics, tags.
"""

import queue
import secrets
import shlex
import sys
import threading
from pathlib import Path

from omegaconf import DictConfig

from train.folder import tag
from train.record_files import plain_config, write

PATIENCE = {"offline": 20.0, "online": 25.0}  # seconds that the end of a run waits for what is still queued


class Mirror:
    """A W&B run of the same name and id as the run folder, resumed as the same run."""

    def __init__(self, folder: Path, config: DictConfig) -> None:
        self.mode, self.folder, self.config = config.runtime.wandb, folder, config
        self.lines: queue.SimpleQueue = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._follow, name="wandb", daemon=True)
        if self.mode != "off":
            self.thread.start()

    def log(self, line: dict) -> None:
        """Queue one event."""
        if self.thread.is_alive():
            self.lines.put(line)

    def close(self) -> bool:
        """Hand over what is queued; False where W&B did not take it in time and was left behind."""
        if not self.thread.is_alive():
            return True
        self.lines.put(None)
        self.thread.join(PATIENCE[self.mode])
        if self.thread.is_alive():
            _say(f"did not finish within {PATIENCE[self.mode]:.0f} s and was left behind; metrics.jsonl has everything")
            return False
        return True

    def _follow(self) -> None:
        try:
            run = self._begin()
            while (line := self.lines.get()) is not None:
                run.log({"global_step": line["step"], **numbers(line)})
            run.finish()
            if self.mode == "offline":
                _say(f"offline; to upload: wandb sync {shlex.quote(str(self.folder))}/wandb/offline-run-*")
        except Exception as error:  # whatever W&B raises, training goes on
            _say(f"stopped ({str(error).splitlines()[0] if str(error) else type(error).__name__}); training goes on")

    def _begin(self):
        import wandb

        config = self.config
        run = wandb.init(
            project="specattn",
            id=run_id(self.folder),
            resume="allow",
            name=f"{config.experiment} {tag(config)} seed {config.seed}",
            group=config.experiment,
            job_type=tag(config),
            tags=[config.row.table, config.row.name, config.row.scale],
            config=plain_config(config),
            mode=self.mode,
            dir=str(self.folder),
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_code=True,
                disable_git=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_disable_stats=True,
                x_save_requirements=False,
                program="train",
                host="",
                username="",
            ),
        )
        run.define_metric("global_step")
        run.define_metric("*", step_metric="global_step")
        if self.mode == "online" and run.url:
            _say(run.url)
        return run


def run_id(folder: Path) -> str:
    """The folder's W&B id: drawn once, kept in it, so that the same command goes on with the same run."""
    path = folder / "wandb_id"
    if not path.exists():
        write(path, secrets.token_hex(6) + "\n")
    return path.read_text().strip()


def numbers(line: dict, prefix: str = "") -> dict[str, float]:
    """Every number of an event under a slashed name; records of a layer are named by attention and projection."""
    flat = {}
    prefix = prefix or f"{line['event']}/"
    for key, value in line.items():
        if isinstance(value, dict):
            flat.update(numbers(value, f"{prefix}{key}/"))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                name = ".".join(str(item[part]) for part in ("attention", "projection", "head") if item.get(part))
                flat.update(numbers(item, f"{prefix}{name or index}/"))
        elif isinstance(value, (int, float)) and key != "step":
            flat[f"{prefix}{key}"] = value
    return flat


def _say(text: str) -> None:
    print(f"wandb: {text}", file=sys.stderr, flush=True)
