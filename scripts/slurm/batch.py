"""The text of a batch file: one run, or an array of runs, on one node or several.

A job that gets USR1, as SLURM sends it before the time limit, saves on all ranks and ends with status 75; the batch
file then requeues it, and the same command goes on from its checkpoint. Nodes meet through torch elastic on the first
node, at a port that follows from the job's number.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from train.errors import RESUME, UserError

TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")  # as sbatch reads it: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s


@dataclass(frozen=True)
class Resources:
    """What each job asks the cluster for."""

    nodes: int = 1
    devices: int = 8  # on each node
    gpus: bool = True  # False: CPU processes, as many as `devices` on each node
    cpus: int = 8  # cores for each device
    time: str = "24:00:00"
    partition: str | None = None
    account: str | None = None
    memory: str | None = None  # of a node, as sbatch's --mem
    at_once: int | None = None  # jobs of an array that run side by side
    warning: int = 300  # seconds before the time limit at which the job saves and requeues itself

    def check(self) -> None:
        """Refuse what sbatch would refuse, or read as something else.

        Raises:
            UserError: naming the option.
        """
        if min(self.nodes, self.devices, self.cpus) < 1 or self.warning < 1:
            raise UserError("NODES, DEVICES, CPUS and the warning must be at least 1")
        if self.at_once is not None and self.at_once < 1:
            raise UserError(f"--at-once {self.at_once}: at least one job of an array must run")
        if not TIME.fullmatch(self.time):
            raise UserError(f"TIME={self.time}: write minutes, hours:minutes:seconds or days-hours:minutes:seconds")
        if 0 < seconds(self.time) <= self.warning:  # 0: no limit
            raise UserError(
                f"TIME={self.time} is no longer than the warning of {self.warning} s before its end: "
                'ask for more time, or warn later, as SLURM="--warning 60"'
            )
        for name in ("partition", "account", "memory"):
            value = getattr(self, name)
            if value is not None and not re.fullmatch(r"[\w.,-]+", value):
                raise UserError(f"{name.upper()}={value!r}: letters, digits and .,_- alone")


def seconds(time: str) -> int:
    """A time limit as sbatch reads it: m, m:s, h:m:s, d-h, d-h:m, d-h:m:s."""
    days, dash, rest = time.rpartition("-")
    fields = [int(field) for field in rest.split(":")]
    if dash:
        fields = [int(days) * 24 + fields[0], *fields[1:], 0, 0][:3]
    else:
        fields = {1: [0, *fields, 0], 2: [0, *fields], 3: fields}[len(fields)]
    return 3600 * fields[0] + 60 * fields[1] + fields[2]


def batch(name: str, folder: Path, runs: list[list[str]], resources: Resources, python: Path, root: Path) -> str:
    """The batch file.

    Args:
        name: the job's name.
        folder: where the list of runs, the batch file and the logs lie.
        runs: the words of each run; more than one make an array.
        python: the interpreter; root: the repository.
    """
    resources.check()
    if re.search(r"[\s\"'\\%]", str(folder)):  # sbatch splits, unquotes or expands these in its options
        raise UserError(f"{folder}: SLURM's options take no blank, quote, backslash or % in a path: set output_root")
    many = len(runs) > 1
    job = "%A_%a" if many else "%j"
    options = {
        "job-name": name,
        "nodes": resources.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": resources.devices * resources.cpus,
        "gpus-per-node": resources.devices if resources.gpus else None,
        "time": resources.time,
        "partition": resources.partition,
        "account": resources.account,
        "mem": resources.memory,
        "signal": f"USR1@{resources.warning}",
        "output": folder / f"{job}.log",
        "open-mode": "append",
        "array": f"1-{len(runs)}" + (f"%{resources.at_once}" if resources.at_once else "") if many else None,
    }
    lines = [f"#SBATCH --{key}={value}" for key, value in options.items() if value is not None]
    return TEMPLATE.format(
        options="\n".join([*lines, "#SBATCH --requeue"]),
        root=shlex.quote(str(root)),
        python=shlex.quote(str(python)),
        runs=shlex.quote(str(folder / "runs")),
        logs=shlex.quote(str(folder)),
        resume=RESUME,
    )


def listed(runs: list[list[str]]) -> str:
    """The list of runs, one line each, quoted as a shell reads it."""
    return "".join(shlex.join(words) + "\n" for words in runs)


TEMPLATE = """#!/bin/bash
{options}
# Made by `python -m scripts.slurm`; line i of `runs` is the i-th job's.
cd {root} || exit 1
index=${{SLURM_ARRAY_TASK_ID:-1}}
job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
mapfile -t words < <(sed -n "${{index}}p" {runs} | xargs -n 1 printf '%s\\n')

# Where the nodes meet: the first one, at a port that two jobs on it are unlikely to share.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun no longer takes it from sbatch by itself
export SPECATTN_NODES=$SLURM_JOB_NUM_NODES
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export SPECATTN_RENDEZVOUS=$first:$((20000 + SLURM_JOB_ID % 40000))
export SPECATTN_LOGS={logs}/$job-ranks

echo "job $job on $SLURM_JOB_NODELIST, start ${{SLURM_RESTART_COUNT:-0}}: ${{words[*]}}"
srun --kill-on-bad-exit=0 --output={logs}/$job-node%n.log --open-mode=append \\
  {python} -m train "${{words[@]}}"
status=$?
echo "job $job ended with status $status"
if [ $status -eq {resume} ]; then
  scontrol requeue "$SLURM_JOB_ID"  # saved before the time limit: go on in a new job
fi
exit $status
"""
