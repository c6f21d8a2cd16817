"""`make check-results`: is what stands in results/ and README.md what the records give, and are the records sound?

One line for each thing that is wrong; status 1 where there is any. The tables, the report and README.md's marked blocks
are made anew in memory and compared; each picture holds a digest of the records that it was drawn from; README.md may
have no result outside its blocks; and each record must come from a clean tree whose commit is in this history.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.entry import ran, stale
from scripts.figures.every import pictures
from scripts.figures.picture import KINDS
from scripts.plotting import source_of, whole
from scripts.records import AGAIN, Recorded, every, experiments
from scripts.report.blocks import outside, written
from scripts.report.document import documents
from scripts.shape import COST, EVENTS
from scripts.tables.cost import RECORD
from scripts.tables.pages import files, pages
from scripts.tables.settings import Source
from train.errors import FAILED, UserError
from train.record_files import read_metrics

# What a number that was measured looks like: a share, a spread, a difference in points, an accuracy with decimals.
RESULT = re.compile(r"\d ?(?:%|percent\b)|±|\d points?\b|(?<![\d.])\d{2,3}\.\d+(?![\d.])")


def main() -> int:
    """Say what is wrong; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with runs/ and paper.yaml")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    chosen = parser.parse_args()
    source, wrong = Source(chosen.results), 0
    for line in [*as_a_line(outdated(source, chosen.readme)), *loose_numbers(chosen.readme), *unsound(source)]:
        print(f"error: {line}", file=sys.stderr)
        wrong += 1
    count = sum(len(every(source.records, name)) for name in experiments(source.records))
    print(f"{count} records, {wrong} thing{'' if wrong == 1 else 's'} wrong" + ("" if wrong else ": all is as made"))
    return FAILED if wrong else 0


def as_a_line(lines: Iterator[str]) -> Iterator[str]:
    """The lines, and a record that cannot be read as one more; what else there is to check still is."""
    try:
        yield from lines
    except UserError as error:
        yield str(error)


def outdated(source: Source, readme: Path) -> Iterator[str]:
    """The files that are not what the records give."""
    made = pages(source)
    folder, wanted = source.results / "tables", files(made)
    for name, text in wanted.items():
        yield from differs(folder / name, text, "make tables")
    for path in stale(folder, set(wanted)) if folder.is_dir() else []:
        yield f"{path} is made by nothing: remove it"
    drawn = pictures(source)
    made_here = {f"{picture.name}.{kind}" for picture in drawn for kind in KINDS}
    for path in stale(source.results / "figures", made_here) if drawn else []:
        if path.suffix[1:] in KINDS:
            yield f"{path} is drawn from no record: remove it"
    for picture in drawn:
        for path in (source.results / "figures" / f"{picture.name}.{kind}" for kind in KINDS):
            if not path.exists():
                yield f"{path} is not there: make figures"
            elif not whole(path):
                yield f"{path} is damaged: remove it, then make figures"
            elif source_of(path) != picture.digest:
                yield f"{path} was drawn from other records than are there: make figures"
    for name, text in documents(source, made).items():
        yield from differs(source.results / name, text, "make report")
    for path, text in written(source, readme).items():
        yield from differs(path, text, "make report")


def differs(path: Path, text: str, command: str) -> Iterator[str]:
    """One line where a file does not hold a text, with the first line that differs."""
    if not path.exists():
        yield f"{path} is not there: {command}"
        return
    held, wanted = path.read_text().splitlines(), text.splitlines()
    if path.read_text() != text:
        pairs = enumerate(zip(held, wanted, strict=False), 1)
        place = next((number for number, (one, other) in pairs if one != other), min(len(held), len(wanted)) + 1)
        yield f"{path} is not what the records give, from line {place} on: {command}"


def loose_numbers(readme: Path) -> Iterator[str]:
    """Results in README.md that no record makes."""
    for number, line in enumerate(outside(readme.read_text()).splitlines(), 1):
        if found := RESULT.search(line):
            yield f"{readme}:{number}: a result outside the blocks of make report: {found[0]!r} in {line.strip()!r}"


def unsound(source: Source) -> Iterator[str]:
    """Records of a dirty tree, of no checkout, or of a commit that is not in this history."""
    origin: dict[str, list[str]] = {}  # commit → records
    for experiment in experiments(source.records):
        for run in every(source.records, experiment):
            if run.status == "unreadable":
                yield f"{run.folder}: summary.json cannot be read"
            if not run.sessions and run.status == "complete":
                yield f"{run.folder}: no environment.json says which commit it was made at"
            if run.status == "complete" and unlike_events(run):
                yield f"{run.folder}: summary.json's metrics are not what metrics.jsonl ends with"
            yield from damaged(run)
            for session in run.sessions:
                yield from noted(str(run.folder), session["git"], origin)
    for scale, about in ((source.json(RECORD, COST) or {}).get("environment") or {}).items():
        yield from noted(f"{source.results / RECORD} ({scale})", about.get("git"), origin)
    if not origin:
        return
    if why := no_history(source.results):
        print(f"note: {why}: whether the records' commits are in the history was not checked", file=sys.stderr)
        return
    for commit, names in sorted(origin.items()):
        if not is_ancestor(source.results, commit):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: commit {commit[:10]} is no ancestor of HEAD"


def damaged(run: Recorded) -> Iterator[str]:
    """One line where a complete run's config or one of its events is not there or cannot be read."""
    if run.status != "complete":
        return
    try:
        _ = run.config
        for kind in EVENTS:
            run.events(kind)
    except UserError as error:
        yield str(error)
    path = run.folder / "metrics.jsonl"
    if not (events := read_metrics(path)) or len(events) != len(path.read_text(errors="replace").splitlines()):
        yield f"{path} is not there or not whole: {AGAIN}"


def unlike_events(run: Recorded) -> bool:
    """Whether a run's final metrics are not those of its last evaluation."""
    last = (run.events("evaluate") or [{}])[-1]
    return any(key not in last or last[key] != value for key, value in run.summary["metrics"].items())


def noted(name: str, git: dict | None, origin: dict[str, list[str]]) -> Iterator[str]:
    """Note a record's commit; one line where it says too little to find the code again."""
    if git is None:
        yield f"{name}: made outside a git checkout, its code is not known"
        return
    if git["dirty"]:
        yield f"{name}: made from a tree with uncommitted changes to {git['commit'][:10]}"
    listed = origin.setdefault(git["commit"], [])
    if name not in listed:
        listed.append(name)


def asked(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """What git says of the checkout that a folder lies in."""
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)


def no_history(folder: Path) -> str:
    """Why ancestors cannot be told here; empty where they can."""
    try:
        shallow = asked(folder, "rev-parse", "--is-shallow-repository")
    except OSError:
        return "git is not installed"
    if shallow.returncode:
        return "this is no git checkout"
    return "this clone is shallow (git fetch --unshallow)" if shallow.stdout.strip() == "true" else ""


def is_ancestor(folder: Path, commit: str) -> bool:
    """Whether a commit is in HEAD's history."""
    return asked(folder, "merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


if __name__ == "__main__":
    sys.exit(ran(main))
