"""What the tables of reduced rows share: the baseline, each conditioned model beside it, and their origin.

A table is a dictionary row → tag → seed → run (scripts/records.py). Paired difference: conditioned minus baseline with
the same seed, with its 95 % interval (t).
"""

import json

from scripts.records import Recorded
from scripts.seeds import mean_std, paired, shown

METHODS = {"identity-lam10": "identity, λ = 10", "svd-lam1": "svd, λ = 1"}
Found = dict[str, dict[int, Recorded]]


def header(*extra: str) -> list[str]:
    """The two first lines of a Markdown table whose rows have `extra` cells before the baseline."""
    names = ["row", *extra, "baseline"]
    for name in METHODS.values():
        names += [name, "paired difference"]
    names += ["seeds", "s"]
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def line(name: str, found: Found, *extra: str) -> str:
    """One row: its name, the extra cells, the baseline, each method with its difference, seeds and longest seconds."""
    seeds = sorted({seed for runs in found.values() for seed in runs})
    cells = [name, *extra, shown(list(values(found["baseline"]).values()))]
    for tag in METHODS:
        cells += differences(found, tag)
    cells += [", ".join(map(str, seeds)), f"{seconds(found):.0f}"]
    return f"| {' | '.join(cells)} |"


def values(runs: dict[int, Recorded]) -> dict[int, float]:
    """seed → the number that tables show."""
    return {seed: run.value for seed, run in runs.items()}


def differences(found: Found, tag: str) -> list[str]:
    """Mean ± std of a conditioned row and its paired difference to the baseline, two cells."""
    if tag not in found:
        return ["not run", ""]
    difference = paired(values(found["baseline"]), values(found[tag]))
    interval = f" ({difference.low:+.2f} to {difference.high:+.2f})" if difference.seeds > 1 else ""
    return [shown(list(values(found[tag]).values())), f"{difference.mean:+.2f}{interval}"]


def seconds(found: Found) -> float:
    """The longest a run's steps took."""
    return max(run.summary["timing"]["seconds"] for seeds in found.values() for run in seeds.values())


def mean(runs: dict[int, Recorded]) -> float:
    """The mean over seeds."""
    return mean_std(list(values(runs).values()))[0]


def verdicts(rows: dict[str, Found], names: dict[str, str]) -> list[str]:
    """What the differences say, in words made from them, one sentence a method."""
    said = []
    for tag, method in METHODS.items():
        sides: dict[str, list[str]] = {"gains on": [], "loses on": [], "is not told from no change on": []}
        for row, found in rows.items():
            if tag in found:
                difference = paired(values(found["baseline"]), values(found[tag]))
                side = "is not told from no change on"
                if difference.decided:
                    side = "loses on" if difference.mean < 0 else "gains on"
                sides[side].append(names[row])
        parts = [f"{verb} {', '.join(rows)}" for verb, rows in sides.items() if rows]
        if parts:
            said.append(
                f"{method[0].upper()}{method[1:]}: {'; '.join(parts)} (95 % interval of the paired difference)."
            )
    return said


def all_runs(rows: dict[str, Found]) -> list[Recorded]:
    """Every run of a table."""
    return [run for found in rows.values() for seeds in found.values() for run in seeds.values()]


def provenance(runs: list[Recorded], command: str) -> str:
    """How many runs there are, on what they ran, at which commits, and what made the page."""
    sessions = [json.loads((run.folder / "environment.json").read_text())["sessions"][-1] for run in runs]
    devices = sorted({f"{s['device']}, {s['threads']} thread(s)" for s in sessions})
    commits = sorted({s["git"]["commit"][:10] + ("+" if s["git"]["dirty"] else "") for s in sessions if s["git"]})
    return (
        f"{len(runs)} runs on {'; '.join(devices)}; commits {', '.join(commits)} (+: with uncommitted changes). "
        f"Made by `{command}` from the records in `results/runs/`."
    )
