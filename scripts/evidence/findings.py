"""What the study's records say, compared as docs/evidence.md's protocol lays down, in tables."""

from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from scripts.evidence.measures import NAMES, mean_of
from scripts.evidence.plan import PLAN, Setting, setting
from scripts.records import Recorded
from scripts.seeds import Paired, holm, paired, shown
from scripts.tables.model import Cell, Piece, Table, cell
from scripts.tables.rows import folder, values
from scripts.tables.settings import Source, settings

PRIMARY = (
    ("identity λ = 10", "baseline"),
    ("svd", "baseline"),
    ("control: orthogonal", "baseline"),
    ("control: rescale", "baseline"),
    ("svd", "control: orthogonal"),
    ("svd", "control: rescale"),
)
EQUAL = 1.0  # points: an interval within ± so much is equal for practical purposes
LEVEL = 0.05
PARTS = {
    "primary": "ViT with a class token, five seeds",
    "factor": "One factor at a time, ViT",
    "pooling": "ViT with mean pooling",
    "model": "Swin and XCiT",
    "long": "Identity λ = 10 with more training, more warm-up, a smaller learning rate",
}


@dataclass(frozen=True)
class Compared:
    """Two settings, seed by seed."""

    name: str
    against: str
    told: Paired
    home: str  # the records of the first


class Study:
    """The records of one scale, by setting."""

    def __init__(self, source: Source, scale: str) -> None:
        self.scale = scale
        every: dict[str, dict] = {}
        self.runs: dict[str, dict[int, Recorded]] = {}  # the complete ones
        self.failed: dict[str, dict[int, Recorded]] = {}  # the others: diverged, failed, interrupted
        for asked in PLAN:
            experiment, tag = asked.folder(scale)
            if experiment not in every:
                every[experiment] = settings(source, experiment)
            if (held := every[experiment].get(tag)) is None:
                continue
            ended = {run.seed: run for run in held.unfinished}
            for kept, found in ((self.runs, held.runs), (self.failed, ended)):
                if wanted := {seed: run for seed, run in found.items() if seed in asked.seeds}:
                    kept[asked.name] = wanted

    def home(self, name: str) -> str:
        """Where a setting's records lie below results/."""
        return folder(*setting(name).folder(self.scale))

    def numbers(self, name: str) -> dict[int, float]:
        """seed → accuracy, of the runs that have one."""
        return values(self.runs.get(name, {}), lambda run: run.value)

    def compared(self, name: str, against: str) -> Compared | None:
        """The paired difference; None where no seed is shared."""
        ours, theirs = self.numbers(name), self.numbers(against)
        if not ours.keys() & theirs.keys():
            return None
        return Compared(name, against, paired(theirs, ours), self.home(name))

    def primary(self) -> list[tuple[Compared, float]]:
        """The six comparisons that the protocol names and have records, each with its p-value after Holm."""
        found = [told for pair in PRIMARY if (told := self.compared(*pair)) and told.told.seeds > 1]
        missing = [1.0] * (len(PRIMARY) - len(found))  # the correction is for six, whichever of them have records
        return list(zip(found, holm([one.told.p for one in found] + missing), strict=False))

    @property
    def judged(self) -> bool:
        """Whether every primary run has a result: before, nothing is concluded."""
        return not self.lacking("primary")

    def lacking(self, *parts: str) -> int:
        """How many runs of these parts of the plan (of all where none is named) have no result; divergence is one."""
        chosen = [asked for asked in PLAN if asked.part in parts or not parts]
        ended = [self.failed.get(asked.name, {}).values() for asked in chosen]
        diverged = sum(run.status == "diverged" for runs in ended for run in runs)
        return sum(len(asked.seeds) - len(self.runs.get(asked.name, {})) for asked in chosen) - diverged

    def absent(self, name: str) -> str:
        """What is said where a setting has no number: `3 diverged`, `no number` of complete runs, or `not run`."""
        ended = Counter(run.status for run in self.failed.get(name, {}).values())
        none = "no number" if self.runs.get(name) else "not run"
        return ", ".join(f"{count} {status}" for status, count in ended.items()) or none


def interval(told: Paired) -> str:
    """`low to high`, or why there is none."""
    return f"{told.low:+.2f} to {told.high:+.2f}" if told.seeds > 1 else "one seed: none"


def primary_table(study: Study) -> Table:
    """The six primary comparisons."""
    rows = [
        (
            cell(f"{one.name} − {one.against}"),
            cell(f"{one.told.mean:+.2f}", one.home),
            cell(interval(one.told)),
            cell(str(one.told.seeds)),
            cell(f"{one.told.p:.2g}"),
            cell(f"{adjusted:.2g}"),
            cell("above zero" if adjusted < LEVEL and one.told.mean > 0 else
                 "below zero" if adjusted < LEVEL else "undecided"),
        )
        for one, adjusted in study.primary()
    ]  # fmt: skip
    titles = ("difference", "points", "95 % interval (paired t)", "seeds", "p", "p after Holm", "verdict")
    return Table("primary", titles, tuple(rows), caption="Primary comparison: ViT, paired differences of top-1.")


def settings_table(study: Study, part: str, caption: str) -> Table:
    """Every setting of a part: its accuracy and its difference to what it is compared with."""
    rows = []
    for asked in (asked for asked in PLAN if asked.part == part):
        numbers = study.numbers(asked.name)
        told = study.compared(asked.name, asked.against) if asked.against else None
        rows.append(
            (
                cell(asked.name),
                cell(shown(list(numbers.values())), study.home(asked.name))
                if numbers
                else cell(study.absent(asked.name)),
                seeds(study, asked),
                cell(asked.against or ""),
                cell(f"{told.told.mean:+.2f}", told.home) if told else cell(""),
                cell(interval(told.told)) if told else cell(""),
            )
        )
    titles = ("setting", "top-1", "seeds", "against", "paired difference", "95 % interval (paired t)")
    return Table(part, titles, tuple(rows), caption=caption)


def seeds(study: Study, asked: Setting) -> Cell:
    """The seeds of a setting, each linked to its run."""
    pieces: list[Piece] = []
    for seed in sorted(study.runs.get(asked.name, {})):
        link = folder(*asked.folder(study.scale), seed)
        pieces += [*([Piece(", ")] if pieces else []), Piece(str(seed), link)]
    return Cell(tuple(pieces))


def measures_table(study: Study) -> Table:
    """Conditioning and attention of every setting, start → end, means over seeds."""
    rows = []
    for name, runs in study.runs.items():
        accuracies = list(study.numbers(name).values())
        losses = [loss for run in runs.values() if (loss := run.summary["metrics"].get("loss")) is not None]
        cells = [cell(name, study.home(name)), cell(shown(accuracies) if accuracies else study.absent(name))]
        cells.append(cell(f"{fmean(losses):.3f}" if losses else "none"))
        for measure in NAMES:
            both = (mean_of(runs.values(), measure, 0), mean_of(runs.values(), measure, -1))
            cells.append(cell(" → ".join("none" if value is None else f"{value:.3g}" for value in both)))
        rows.append(tuple(cells))
    caption = (
        "What was measured beside the accuracy, start → end: means over seeds (geometric for κ and σ_min) of the "
        "median over layers and projections, so that a correction of v alone does not show in κ(W + C)."
    )
    return Table("measures", ("setting", "top-1", "test loss", *NAMES.values()), tuple(rows), caption=caption)
