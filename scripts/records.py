"""Reading the records of runs: the four small files of each, nothing else."""

import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from train.errors import UserError
from train.folder import summary
from train.record_files import read_metrics


@dataclass(frozen=True)
class Recorded:
    """One run, complete unless a function says otherwise."""

    folder: Path
    summary: dict

    @property
    def tag(self) -> str:
        """The folder's name for what was run: conditioning, and what else differs."""
        return self.folder.parent.name

    @property
    def seed(self) -> int:
        """The run's seed; its folder's name has it too, where the summary was never finished."""
        return self.summary["seed"] if "seed" in self.summary else int(self.folder.name.removeprefix("seed"))

    @property
    def value(self) -> float | None:
        """The final primary metric; None where it was not finite."""
        return self.summary["metrics"][self.summary["primary"]]

    @property
    def config(self) -> dict:
        """The config that the run recorded."""
        path = self.folder / "config.yaml"
        try:
            return yaml.safe_load(path.read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{path} cannot be read ({type(error).__name__}): collect the run again") from None

    @property
    def status(self) -> str:
        """complete, or running, stopped, failed or diverged; `unreadable` where summary.json is."""
        return self.summary.get("status", "unreadable")

    @property
    def sessions(self) -> list[dict]:
        """The processes that made it, in order: versions, commit and device of each; empty where it died too early."""
        path = self.folder / "environment.json"
        try:
            return json.loads(path.read_text())["sessions"] if path.exists() else []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read ({type(error).__name__}): collect the run again") from None

    def events(self, kind: str) -> list[dict]:
        """The events of one kind, in order."""
        return [event for event in read_metrics(self.folder / "metrics.jsonl") if event["event"] == kind]


def every(root: Path, experiment: str) -> list[Recorded]:
    """An experiment's runs below an output root, complete or not, by tag and seed."""
    runs = [Recorded(path.parent, summary(path.parent)) for path in (root / experiment).glob("*/seed*/summary.json")]
    return sorted(runs, key=lambda run: (run.tag, run.seed))


def complete(root: Path, experiment: str) -> list[Recorded]:
    """Those of them that are complete."""
    return [run for run in every(root, experiment) if run.status == "complete"]


def experiments(root: Path) -> list[str]:
    """The experiments that have records below a root."""
    return sorted({str(path.parents[2].relative_to(root)) for path in root.glob("**/seed*/summary.json")})


def by_tag(runs: list[Recorded]) -> dict[str, dict[int, Recorded]]:
    """tag → seed → run."""
    grouped: dict[str, dict[int, Recorded]] = {}
    for run in runs:
        grouped.setdefault(run.tag, {})[run.seed] = run
    return grouped
