"""Reading the records of runs: the four small files of each, nothing else."""

from dataclasses import dataclass
from pathlib import Path

from scripts import shape
from train.errors import UserError
from train.folder import summary
from train.record_files import read_metrics

AGAIN = "collect the run again"


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
        return shape.held(self.folder / "config.yaml", shape.CONFIGS.get(self.family, shape.CONFIG), AGAIN)

    @property
    def family(self) -> str:
        """The family of rows that share a table: `lra` of reduced/lra_text."""
        return self.summary.get("experiment", "").split("/")[-1].split("_")[0]

    def metric(self, name: str) -> float | None:
        """One of the final metrics; None where it was not finite.

        Raises:
            UserError: it was not recorded.
        """
        if name not in self.summary["metrics"]:
            raise UserError(f"{self.folder / 'summary.json'} is damaged: metrics.{name} is missing: {AGAIN}")
        return self.summary["metrics"][name]

    @property
    def status(self) -> str:
        """complete, or running, stopped, failed or diverged; `unreadable` where summary.json is."""
        return self.summary.get("status", "unreadable")

    @property
    def sessions(self) -> list[dict]:
        """The processes that made it, in order: versions, commit and device of each; empty where it died too early."""
        path = self.folder / "environment.json"
        return shape.held(path, shape.SESSIONS, AGAIN)["sessions"] if path.exists() else []

    def events(self, kind: str) -> list[dict]:
        """The events of one kind, in order.

        Raises:
            UserError: an event is damaged.
        """
        path = self.folder / "metrics.jsonl"
        found = []
        for number, event in enumerate(read_metrics(path), 1):
            wrong = shape.misfit(event, {"event": shape.TEXT})
            if not wrong and event["event"] == kind:
                found.append(event)
                wrong = shape.misfit(event, shape.EVENTS.get(kind, {}))
            if wrong:
                raise UserError(f"{path}:{number} is damaged: {wrong}: {AGAIN}")
        return found


def every(root: Path, experiment: str) -> list[Recorded]:
    """An experiment's runs below an output root, complete or not, by tag and seed.

    Raises:
        UserError: a summary.json is damaged.
    """
    runs = [Recorded(path.parent, summary(path.parent)) for path in (root / experiment).glob("*/seed*/summary.json")]
    for run in runs:
        if not run.folder.name.removeprefix("seed").isdecimal():
            raise UserError(f"{run.folder} is no run's folder: its name should be seed and a number")
        wanted = shape.COMPLETE if run.status == "complete" else shape.SUMMARY if run.summary else {}
        wrong = shape.misfit(run.summary, wanted)
        if not wrong and run.status == "complete" and run.summary["primary"] not in run.summary["metrics"]:
            wrong = f"metrics.{run.summary['primary']} is missing"
        if not wrong and run.status == "complete":
            wrong = shape.misfit(run.summary["metrics"], shape.METRICS.get(run.family, {}), "metrics")
        if wrong:
            raise UserError(f"{run.folder / 'summary.json'} is damaged: {wrong}: {AGAIN}")
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
