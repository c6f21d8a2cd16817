"""`make doctor`: what is here, and what each row still needs. Reads, changes nothing, prints no secret.

    python -m scripts.doctor [data_root=<folder>] [output_root=<folder>]

Python and packages, devices and precisions, W&B, disk, SLURM; then for each row at both scales whether its data is
there, and how many of its runs are complete, below the output root or among the committed records.
"""

import importlib.metadata
import netrc
import os
import platform
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from scripts.records import by_tag, complete
from scripts.reduced_plan import RECORDS
from scripts.tables.settings import SEEDS, baseline_of
from train.compose import options, resolve
from train.data.presence import lacking
from train.errors import USAGE, UserError

PACKAGES = ("torch", "timm", "torchvision", "transformers", "datasets", "hydra-core", "mmdet", "wandb")
NO_ROW = ("*/digits_*", "*/glue_wnli", "*/evidence_*")  # the demo, the task outside the mean of nine, the study
NOTE = "(data found): the files lie where they should; make check-data ROW=<row> counts and opens them"
GIB = 2**30


def versions() -> str:
    """The versions of what the rows are run with."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed{' (needed for COCO: make coco-xcit installs it)' * (name == 'mmdet')}")
    return ", ".join(found)


def devices() -> list[str]:
    """Each device and the precisions that it computes in."""
    import torch

    usable = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    capability = torch.backends.cpu.get_cpu_capability()
    lines = [f"CPU, {usable} of {os.cpu_count()} cores usable, {memory:.0f} GiB: fp32, bf16 ({capability})"]
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        # Emulation does not count: runtime.precision=auto takes bf16 where the GPU itself has it.
        low = "bf16, fp16" if about.major >= 8 else "fp16"
        lines.append(
            f"cuda:{index} {about.name}, {about.total_memory / GIB:.0f} GiB, compute capability "
            f"{about.major}.{about.minor}: fp32, {low}"
        )
    if len(lines) == 1:
        lines.append(f"no GPU (torch built for {'CUDA ' + torch.version.cuda if torch.version.cuda else 'the CPU'})")
    return lines


def wandb_state() -> str:
    """Whether runs could be sent online; the key itself is never shown."""
    try:
        login = "a key in WANDB_API_KEY" if os.environ.get("WANDB_API_KEY") else "no key: wandb login"
        if login.startswith("no") and any("wandb" in host for host in netrc.netrc().hosts):
            login = "a key in the netrc file"
    except (OSError, netrc.NetrcParseError):
        pass
    mode = f", WANDB_MODE={os.environ['WANDB_MODE']}" if "WANDB_MODE" in os.environ else ""
    return f"{login}{mode}; runs are kept offline unless runtime.wandb=online"


def disk(name: str, folder: Path | None) -> str:
    """Free space where a folder lies, or will."""
    if folder is None:
        return f"{name} is not set"
    standing = folder.absolute()
    while not standing.exists():
        standing = standing.parent
    usage = shutil.disk_usage(standing)
    writes = "" if name == "data root" or os.access(standing, os.W_OK) else ", CANNOT BE WRITTEN"
    there = "" if folder.exists() else ", is not there yet" if name == "output root" else ", IS NOT THERE"
    return f"{name} {folder}: {usage.free / GIB:.0f} of {usage.total / GIB:.0f} GiB free{there}{writes}"


def slurm() -> str:
    """Whether there is a cluster, and its partitions."""
    if shutil.which("sbatch") is None:
        return "no sbatch here (make slurm-<row> DRY=1 prints a batch file all the same)"
    try:
        answer = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %D %G"], capture_output=True, text=True, timeout=3, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "sbatch is here, sinfo does not answer"
    if answer.returncode:
        return f"sbatch is here, sinfo fails: {' '.join(answer.stderr.split())}"
    said = "; ".join(
        "{} ({} nodes, {})".format(*line.split(maxsplit=2)) for line in answer.stdout.splitlines() if line.strip()
    )
    return f"partitions: {said}"


def row_line(experiment: str, words: list[str], roots: list[Path]) -> tuple[str, str, str]:
    """An experiment, its complete runs by tag, and what it still needs."""
    counts: dict[str, set[int]] = {}
    for root in roots:
        for tag, seeds in by_tag(complete(root, experiment)).items():
            counts.setdefault(tag, set()).update(seeds)
    done = ", ".join(f"{tag} {len(seeds)}" for tag, seeds in counts.items()) or "none"
    once = any(word in experiment for word in ("pretrain", "curves"))
    asked = 1 if once else len(SEEDS[experiment.split("/")[0]].split(","))
    plain = [tag for tag in counts if baseline_of(tag) == "baseline" and tag != "baseline"]
    lacks = [
        f"{asked - seeds} of {asked} seeds of {name}" if seeds else name
        for name, seeds in (
            ("a baseline", len(counts.get("baseline", ()))),
            ("a conditioned run", max((len(counts[tag]) for tag in plain), default=0)),
        )
        if seeds < asked
    ]
    if not lacks:
        return experiment, done, "nothing"
    try:
        needs = lacking(resolve([f"experiment={experiment}", *words]))
    except UserError as error:
        needs = str(error)
    if needs is None:
        needs = f"{' and '.join(lacks)} (data found)"
    return experiment, done, needs


def report(words: list[str]) -> list[str]:
    """Every line.

    Raises:
        UserError: a word is wrong.
    """
    base = resolve(["experiment=reduced/digits_vit", *words])
    data = Path(base.data_root).expanduser() if base.data_root else None
    output = Path(base.output_root).expanduser()
    lines = [
        ("python", f"{platform.python_version()}, {sys.prefix}"),
        ("packages", versions()),
        *(("device", line) for line in devices()),
        ("W&B", wandb_state()),
        ("disk", disk("output root", output)),
        ("data", disk("data root", data) if data else "DATA_ROOT is not set: the rows' data is not looked for"),
        ("SLURM", slurm()),
    ]
    text = [f"{name:<9} {line}" for name, line in lines]
    table = [("row", "complete runs", "still needs")]
    shown = [name for name in options("experiment") if not any(fnmatch(name, pattern) for pattern in NO_ROW)]
    table += [row_line(name, words, [output, RECORDS]) for name in shown]
    widths = [max(len(line[column]) for line in table) for column in range(2)]
    return [*text, "", *(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in table), NOTE]


def main(words: list[str] | None = None) -> int:
    """Print the report; returns the exit status."""
    words = sys.argv[1:] if words is None else words
    if "--help" in words or "-h" in words:
        print(__doc__)
        return 0
    try:
        print("\n".join(report(words)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
