"""Reading the records of runs: summaries and metrics, nothing else."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from train.folder import summary
from train.record_files import read_metrics


@dataclass(frozen=True)
class Recorded:
    """One complete run."""

    folder: Path
    summary: dict

    @property
    def tag(self) -> str:
        """The folder's name for what was run: conditioning, and what else differs."""
        return self.folder.parent.name

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.summary["seed"]

    @property
    def value(self) -> float:
        """The final primary metric."""
        return self.summary["metrics"][self.summary["primary"]]

    @property
    def config(self) -> dict:
        """The config that the run recorded."""
        return yaml.safe_load((self.folder / "config.yaml").read_text())

    def events(self, kind: str) -> list[dict]:
        """The events of one kind, in order."""
        return [event for event in read_metrics(self.folder / "metrics.jsonl") if event["event"] == kind]


def complete(root: Path, experiment: str) -> list[Recorded]:
    """An experiment's complete runs below an output root, by tag and seed."""
    runs = [
        Recorded(path.parent, held)
        for path in sorted((root / experiment).glob("*/seed*/summary.json"))
        if (held := summary(path.parent)).get("status") == "complete"
    ]
    return sorted(runs, key=lambda run: (run.tag, run.seed))


def by_tag(runs: list[Recorded]) -> dict[str, dict[int, Recorded]]:
    """tag → seed → run."""
    grouped: dict[str, dict[int, Recorded]] = {}
    for run in runs:
        grouped.setdefault(run.tag, {})[run.seed] = run
    return grouped
