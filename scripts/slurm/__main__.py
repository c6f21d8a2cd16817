"""Submit a row, or a sweep of it, to SLURM; or print how the runs of a submission stand.

    python -m scripts.slurm submit experiment=paper/imagenet_vit conditioning.lam=0,10 --nodes 1 --devices 8 [--dry]
    python -m scripts.slurm results outputs/slurm/<name>

Words are those of `python -m train -m`: choices, ranges and globs make an array, one job a run. Everything is checked
before anything is submitted. The folder holds the batch file, the list of runs and the logs of every job, node and
rank.
"""

import argparse
import hashlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.entry import ran
from scripts.slurm.batch import Resources, batch, listed
from train.compose import distinguishing, expand, resolve
from train.data.presence import lacking
from train.errors import FAILED, UserError
from train.folder import check_unchanged, check_writable, primary_metric, run_folder, summary
from train.record_files import write

ROOT = Path(__file__).resolve().parents[2]


def submit(chosen: argparse.Namespace) -> int:
    """Check the runs, write the batch file and hand it to sbatch; returns the exit status.

    Raises:
        UserError: a word or an option is wrong, data is missing, or there is no sbatch.
    """
    resources = Resources(**{name: getattr(chosen, name) for name in Resources.__dataclass_fields__})
    resources.check()
    words = [*chosen.words, f"runtime.devices={chosen.devices}"]
    if not chosen.gpus:
        words.append("runtime.device=cpu")
    if not (runs := expand(words)):
        raise UserError(f"this submission asks for no run: {' '.join(words)}")
    configs = [resolve(run) for run in runs]
    world = chosen.nodes * chosen.devices
    for words, config in zip(runs, configs, strict=True):
        check_unchanged(run_folder(config, distinguishing(words)), config)
        if config.batch_size % world:
            raise UserError(
                f"batch_size={config.batch_size} is not divisible by the {world} devices of {chosen.nodes} node(s)"
            )
        if not chosen.dry and (missing := lacking(config)):
            raise UserError(missing)
    digest = hashlib.sha256(listed(runs).encode()).hexdigest()[:8]
    folder = Path(configs[0].output_root).expanduser().absolute() / "slurm" / f"{configs[0].row.name}-{digest}"
    text = batch(configs[0].row.name, folder, runs, resources, Path(sys.executable), ROOT)
    if chosen.dry:
        print(text)
        print(f"# {len(runs)} run(s):")
        print("".join(f"#   {line}\n" for line in listed(runs).splitlines()), end="")
        return 0
    if shutil.which("sbatch") is None:
        raise UserError("there is no sbatch here: run this on a SLURM login node, or print the batch file with DRY=1")
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "runs", listed(runs))
    write(folder / "batch.sh", text)
    answer = subprocess.run(
        ["sbatch", "--parsable", str(folder / "batch.sh")], check=False, capture_output=True, text=True
    )
    if answer.returncode:
        raise UserError(f"sbatch: {answer.stderr.strip().splitlines()[-1] if answer.stderr.strip() else 'refused'}")
    print(f"job {answer.stdout.strip()}: {len(runs)} run(s); batch file, list of runs and logs in {folder}")
    print(f"how they stand: {Path(sys.executable).name} -m scripts.slurm results {folder}")
    return 0


def results(folder: Path) -> int:
    """Print how each run of a submission stands, the failed ones last; 1 where one has failed.

    Raises:
        UserError: the folder is none of a submission.
    """
    if not (folder / "runs").is_file():
        raise UserError(f"{folder} holds no list of runs: name a folder below <output_root>/slurm")
    lines = []
    for words in submitted(folder / "runs"):
        run = run_folder(resolve(words), distinguishing(words))
        held = summary(run)
        status = held.get("status", "not begun")
        said = status
        if status == "complete":
            said = primary_metric(held) or "complete, no finite metric"
        elif status in ("failed", "diverged"):
            said = f"{status}: {held.get('error', '')}"
        lines.append((status in ("failed", "diverged"), "/".join(run.parts[-4:]), said))
    if not lines:
        raise UserError(f"{folder / 'runs'} is empty: submit again")
    width = max(len(name) for _, name, _ in lines)
    for _, name, said in sorted(lines, key=lambda line: line[0]):
        print(f"  {name:<{width}}  {said}")
    failed = sum(bad for bad, _, _ in lines)
    print(f"{len(lines)} runs, {failed} failed")
    return FAILED if failed else 0


def submitted(path: Path) -> list[list[str]]:
    """The words of each run of a submission.

    Raises:
        UserError: the list is damaged.
    """
    try:
        return [shlex.split(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): submit again") from None


def submission(words: list[str]) -> argparse.Namespace:
    """The options of `submit`; words and options may be mixed."""
    parser = argparse.ArgumentParser(prog="scripts.slurm submit", allow_abbrev=False)
    parser.add_argument("words", nargs="+", help="key=value words, as of python -m train -m")
    default = Resources()
    for name in ("nodes", "devices", "cpus", "warning"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name), help=f"({getattr(default, name)})")
    parser.add_argument("--at-once", type=int, help="jobs of an array side by side (all)")
    for name in ("time", "partition", "account", "memory"):
        parser.add_argument(f"--{name}", default=getattr(default, name), help=f"({getattr(default, name)})")
    parser.add_argument("--cpu", dest="gpus", action="store_false", help="CPU processes in place of GPUs")
    parser.add_argument("--dry", action="store_true", help="print the batch file and submit nothing")
    return parser.parse_intermixed_args(words)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("submit", "results"))
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="submit: words and options; results: a folder")
    chosen = parser.parse_args()
    if chosen.command == "submit":
        return submit(submission(chosen.rest))
    if len(chosen.rest) != 1:
        raise UserError("results takes one folder, <output_root>/slurm/<name>")
    return results(Path(chosen.rest[0]))


if __name__ == "__main__":
    sys.exit(ran(main))
