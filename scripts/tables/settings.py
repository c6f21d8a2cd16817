"""What was run under a row: a setting is a folder `<tag>`, several seeds of one config.

A tag is the conditioning, and after it each `key=value` in which the run differs from its experiment (train/folder.py).
A setting is compared with the baseline of the same key=values, or with none.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from scripts.records import Recorded, every
from scripts.shape import PAPER, held
from train.errors import UserError

EXPECTED = ("baseline", "identity-lam10", "svd-lam1")  # what a row is run with
SEEDS = {"paper": "0,1,2,3,4", "reduced": "0,1,2"}
METHODS = ("identity", "svd", "relative", "orthogonal", "rescale")
CONDITIONING = ("layout", "targets", "when", "modules")
HASH = re.compile(r"\+[0-9a-f]{10}$")  # a name that was too long, or had letters that no folder may have


RESTORE = "restore it from git, or measure it again"


@functools.lru_cache(maxsize=4)
def _held(path: Path, changed: int) -> dict:
    """The paper's values, read once for all tables as long as the file is not `changed`."""
    return held(path, PAPER, RESTORE)


@dataclass(frozen=True)
class Source:
    """Where everything is read: results/ with runs/ (the records), paper.yaml, cost.json and linear_cifar10.json."""

    results: Path = Path("results")

    @property
    def records(self) -> Path:
        """The committed records."""
        return self.results / "runs"

    def paper(self, table: str) -> dict:
        """The paper's values of one table: `rows` (name → {name, values}), and what else is said of it."""
        path = self.results / "paper.yaml"
        if not path.is_file():
            raise UserError(f"{path} is not there: name the folder that holds it and runs/ with --results")
        return _held(path, path.stat().st_mtime_ns)[table]

    def json(self, name: str, shape: dict) -> dict | None:
        """A measured file beside the records; None where it is not there.

        Raises:
            UserError: it is damaged.
        """
        path = self.results / name
        return held(path, shape, RESTORE) if path.exists() else None


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their seed alone: complete ones by seed, and the others."""

    tag: str
    runs: dict[int, Recorded]
    unfinished: tuple[Recorded, ...] = ()


def parts(tag: str) -> list[str]:
    """The conditioning and each key=value of a tag; a value may hold commas."""
    return re.split(r",(?=[\w.]+=)", tag)


def overrides(tag: str) -> tuple[str, ...]:
    """In what besides the conditioning it differs from the experiment; a hash stays, so that it equals no other."""
    return tuple(part for part in parts(tag)[1:] if part.split("=")[0] not in CONDITIONING)


def baseline_of(tag: str) -> str:
    """The tag of the baseline that differs in the conditioning alone."""
    return ",".join(["baseline", *overrides(tag)])


def lam(tag: str) -> float | None:
    """λ of the paper's own correction (identity, every other choice at its default), 0 for a baseline; else None."""
    first, *rest = parts(tag)
    if first == "baseline":
        return 0.0
    plain = len(rest) == len(overrides(tag))
    return float(first.removeprefix("identity-lam")) if plain and first.startswith("identity-lam") else None


def label(tag: str, without: tuple[str, ...] = ()) -> str:
    """A tag in words: `identity, λ = 10, layout = head`; leaves out the overrides that a column of its own says."""
    first, *rest = parts(HASH.sub("", tag))
    method, _, number = first.partition("-lam")
    words = [f"{method}, λ = {number}" if number else "baseline, λ = 0"]
    return ", ".join(words + [part.replace("=", " = ", 1) for part in rest if part not in without])


def command(target: str, scale: str, tag: str) -> str:
    """The make command that runs a setting (with DATA_ROOT=<folder>); the baseline comes with the paper's λ."""
    words = ["make", target, *(["SCALE=reduced"] if scale == "reduced" else []), f"SEEDS={SEEDS[scale]}"]
    method, _, number = parts(HASH.sub("", tag))[0].partition("-lam")
    if tag not in EXPECTED[:2]:
        words += [f"METHOD={method}"] if method not in ("baseline", "identity") else []
        words += [] if tag == "svd-lam1" else [f"LAM=0,{number}"] if number else ["LAM=0"]
    more = [f"conditioning.{part}" if part.split("=")[0] in CONDITIONING else part for part in parts(tag)[1:]]
    return " ".join(words + ([f'ARGS="{" ".join(more)}"'] if more else []))


def trained(experiment: str, tag: str) -> str:
    """The command of a setting of an experiment that has no make target."""
    method, _, number = parts(HASH.sub("", tag))[0].partition("-lam")
    words = ["python -m train -m", f"experiment={experiment}"]
    words += [f"conditioning={method}", f"conditioning.lam={number}"] if number else ["conditioning=off"]
    more = [f"conditioning.{part}" if part.split("=")[0] in CONDITIONING else part for part in parts(tag)[1:]]
    return " ".join([*words, *more, f"seed={SEEDS['reduced']}"])


def order(tag: str) -> tuple:
    """Baselines first, then by method and λ; what differs in more than the conditioning last."""
    method, _, number = parts(HASH.sub("", tag))[0].partition("-lam")
    place = METHODS.index(method) + 1 if method in METHODS else 0
    return overrides(tag), place, float(number or 0), tag


def settings(source: Source, experiment: str) -> dict[str, Setting]:
    """tag → what was run of an experiment, in the order of tables.

    Raises:
        UserError: a record lies under an experiment, a scale, a setting or a seed that is not its own.
    """
    found: dict[str, list[Recorded]] = {}
    for run in every(source.records, experiment):
        own = run.summary.get("experiment", experiment)
        scale = run.summary.get("row", {}).get("scale", experiment.split("/")[0])
        if own != experiment or scale != experiment.split("/")[0]:
            raise UserError(f"{run.folder} lies under {experiment}, its summary.json says {own} at the scale {scale}")
        place = str(run.folder.relative_to(source.records))
        made_as = run.summary.get("folder", place)
        if made_as != place or run.seed != int(run.folder.name.removeprefix("seed")):
            raise UserError(f"{run.folder}: its summary.json says {made_as}, seed {run.seed}: move it back")
        found.setdefault(run.tag, []).append(run)
    return {
        tag: Setting(
            tag,
            {run.seed: run for run in found[tag] if run.status == "complete"},
            tuple(run for run in found[tag] if run.status != "complete"),
        )
        for tag in sorted(found, key=order)
    }
