"""What the tables share: a line for each setting of a row, with its seeds, spread and paired difference.

A difference is conditioned minus baseline with the same seed and its 95 % interval is Student's (paired t test); runs
that did not complete are named beneath the table and never averaged.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from scripts.records import Recorded
from scripts.seeds import Paired, mean_std, paired, shown
from scripts.tables.model import Cell, Piece, Table, cell
from scripts.tables.settings import EXPECTED, Setting, baseline_of, label, lam, overrides

Settings = dict[str, Setting]
DIFFERENCE, INTERVAL = "paired difference", "95 % interval (paired t)"
NO_NORM = ("model.norm=False",)  # the override that takes LayerNorm out of the attention blocks
ASIDE = ("scale", "hardware", "command")
TEST = (
    "Ours: mean ± sample standard deviation over seeds. Paired difference: conditioned minus baseline with the same "
    "seed, with its 95 % interval by Student's t (paired t test)."
)


@dataclass(frozen=True)
class Line:
    """One line of a table: a setting (`tag`) of an experiment, of which `found` holds all.

    `value` takes the number out of a run; `paper` is the paper's cell (paper scale only); `before` are cells between
    the row's name and its conditioning, `after` between the interval and the scale.
    """

    name: str
    experiment: str
    found: Settings
    tag: str
    command: str
    value: Callable[[Recorded], float | None] = lambda run: run.value
    paper: Cell | None = None
    before: tuple[Cell, ...] = ()
    after: tuple[Cell, ...] = ()
    hidden: tuple[str, ...] = ()  # overrides that a column of its own says
    derived: bool = False  # a mean over several experiments, whose runs are linked in their own lines

    @property
    def scale(self) -> str:
        """paper, or reduced."""
        return self.experiment.split("/")[0]

    @property
    def home(self) -> str:
        """The folder of its records, below results/."""
        return f"runs/{self.scale}" if self.derived else folder(self.experiment, self.tag)

    @property
    def runs(self) -> dict[int, Recorded]:
        """Its complete runs by seed; none where it was not run."""
        return self.found[self.tag].runs if self.tag in self.found else {}

    @property
    def values(self) -> dict[int, float]:
        """seed → number."""
        return values(self.runs, self.value)

    @property
    def absent(self) -> str:
        """What is said where it has no number: `not run`, `3 diverged`, or `no number` of complete runs."""
        ended = Counter(run.status for run in self.found[self.tag].unfinished) if self.tag in self.found else {}
        return ", ".join(f"{count} {status}" for status, count in ended.items()) or (
            "no number" if self.runs else "not run"
        )


def columns(scale: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The titles above `line`'s cells; only the paper's scale has a column for the paper's values."""
    paper = ("paper",) if scale == "paper" else ()
    return ("row", *before, "conditioning", *paper, "ours", "seeds", DIFFERENCE, INTERVAL, *after, "s", *ASIDE)


def line(asked: Line) -> tuple[Cell, ...]:
    """Its cells; where there is no complete run it says so."""
    runs, numbers = asked.runs, asked.values
    paper = (asked.paper or given(None),) if asked.scale == "paper" else ()
    if numbers:
        mean, std = mean_std(list(numbers.values()))
        spread = std if len(numbers) > 1 else None
        ours = cell(shown(list(numbers.values())), asked.home, state="run", mean=mean, std=spread)
    else:
        ours = cell(asked.absent, state=asked.absent, mean=None, std=None)
    return (
        cell(asked.name),
        *asked.before,
        cell(label(asked.tag, asked.hidden)),
        *paper,
        ours,
        seeds(asked),
        *difference(asked),
        *asked.after,
        cell(f"{longest(runs):.0f}" if runs else ""),
        cell(asked.scale),
        cell(hardware(list(runs.values()))),
        cell(asked.command, code=True),
    )


def values(runs: dict[int, Recorded], value: Callable[[Recorded], float | None]) -> dict[int, float]:
    """seed → number, without runs that recorded none (it was not finite)."""
    return {seed: number for seed, run in runs.items() if (number := value(run)) is not None}


def folder(experiment: str, tag: str, seed: int | None = None) -> str:
    """Where a setting's records lie below results/, or one run's summary."""
    return f"runs/{experiment}/{tag}" + ("" if seed is None else f"/seed{seed}/summary.json")


def given(value: float | str | dict | None) -> Cell:
    """A value of paper.yaml."""
    if value is None:
        return cell("not known", paper=None)
    if isinstance(value, dict):
        return cell(f"{value['mean']} ± {value['std']:.2f}", paper=value["mean"], **{"paper std": value["std"]})
    return cell(str(value), paper=value)


def papers(row: dict, tag: str) -> Cell:
    """What the paper gives for a row's baseline or for its own conditioning; nothing for another."""
    if tag not in EXPECTED[:2]:
        return cell("none", paper=None)
    return given(row["values"][EXPECTED.index(tag)])


def seeds(asked: Line) -> Cell:
    """How many seeds, and each by name, linked to its run."""
    listed = sorted(asked.values)
    pieces = [Piece(f"{len(listed)} (" if listed else "0")]
    for seed in listed:
        link = "" if asked.derived else folder(asked.experiment, asked.tag, seed)
        pieces += [Piece(str(seed), link), Piece(")" if seed == listed[-1] else ", ")]
    return Cell(tuple(pieces), {"seeds": len(listed), "which seeds": " ".join(map(str, listed))})


def between(asked: Line, base: str | None = None) -> Paired | None:
    """A line's difference to another setting, by default its own baseline; None where no seed is shared."""
    base = baseline_of(asked.tag) if base is None else base
    if asked.tag == base or base not in asked.found:
        return None
    ours, theirs = asked.values, values(asked.found[base].runs, asked.value)
    return paired(theirs, ours) if ours.keys() & theirs.keys() else None


def difference(asked: Line) -> tuple[Cell, Cell]:
    """The paired difference and its interval, two cells; a reason where there is none."""
    told = between(asked)
    if told is None:
        lonely = asked.values and asked.tag != baseline_of(asked.tag)
        reason = "no baseline of these seeds and settings" if lonely else ""
        return cell(reason, difference=None), cell("", low=None, high=None, pairs=None)
    first = cell(f"{told.mean:+.2f}", asked.home, difference=told.mean)
    if told.seeds == 1:
        return first, cell("one seed: none", low=None, high=None, pairs=1)
    fewer = "" if told.seeds == len(asked.values) else f" ({told.seeds} shared seeds)"
    return first, cell(f"{told.low:+.2f} to {told.high:+.2f}{fewer}", low=told.low, high=told.high, pairs=told.seeds)


def longest(runs: dict[int, Recorded]) -> float:
    """The most seconds that a run's steps took."""
    return max(run.summary["timing"]["seconds"] for run in runs.values())


def hardware(runs: list[Recorded]) -> str:
    """On what they ran, each kind once."""
    return "; ".join(sorted({device(session) for run in runs for session in run.sessions}))


def device(session: dict) -> str:
    """`8 x NVIDIA H100, 4 threads`."""
    count, threads = session.get("devices", 1), session.get("threads")
    said = (f"{count} x " if count > 1 else "") + session["device"]
    return said + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")


def tags(found: Settings, scale: str) -> list[str]:
    """What a row shows: what it is to be run with, and each other conditioning of the same config.

    More than two λ make an ablation with a page of its own (ablations.py).
    """
    expected = EXPECTED if scale == "reduced" else EXPECTED[:2]
    others = [tag for tag in found if not overrides(tag) and tag not in expected]
    if is_ablation(found):
        others = [tag for tag in others if lam(tag) is None]
    return [*expected, *others]


def is_ablation(found: Settings) -> bool:
    """Whether there are more than two λ of the paper's own correction, 0 among them."""
    return len([tag for tag in found if not overrides(tag) and lam(tag) is not None]) > 2


def is_elsewhere(tag: str) -> bool:
    """Whether an ablation's page shows a setting that a row's own page does not."""
    return overrides(tag) == NO_NORM or (not overrides(tag) and lam(tag) is not None)


def table(name: str, titles: tuple[str, ...], lines: list[Line], caption: str = "") -> Table:
    """A table of lines."""
    return Table(name, titles, tuple(map(line, lines)), ASIDE, caption)


def runs_of(lines: list[Line]) -> list[Recorded]:
    """The complete runs that lines show, each once."""
    return list({run.folder: run for asked in lines for run in asked.runs.values()}.values())
