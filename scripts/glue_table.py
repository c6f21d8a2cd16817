"""The reduced GLUE row as tables, from the committed records of its runs: pre-training, and the nine tasks.

python -m scripts.glue_table [--records results/runs] [--scale reduced] [--into results/glue_reduced.md]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from scripts.records import Recorded, by_tag, complete
from scripts.seeds import paired
from train.data.glue.tables import AVERAGED, TABLES

METHODS = {"baseline": "baseline", "identity-lam10": "identity, λ = 10", "svd-lam1": "svd, λ = 1"}
SCRATCH = "baseline,task.scratch=True"
Found = dict[str, dict[int, Recorded]]


def numbers(name: str) -> dict[str, str]:
    """The numbers that a task adds to the average: what they are called → their key in the metrics."""
    table = TABLES[name]
    return {table.folder + suffix.replace("_", "-"): table.metric + suffix for suffix in table.dev}


def values(runs: dict[int, Recorded], key: str) -> dict[int, float]:
    """seed → a metric of the last epoch."""
    return {seed: run.summary["metrics"][key] for seed, run in runs.items()}


def spread(found: dict[int, float]) -> str:
    """Median, and the least and greatest where there are several."""
    listed = list(found.values())
    middle = f"{statistics.median(listed):.1f}"
    return middle if len(listed) == 1 else f"{middle} ({min(listed):.1f} to {max(listed):.1f})"


def pretraining(records: Path, experiment: str) -> list[str]:
    """The table of held-out losses beside the unigram entropy, one line a conditioning; empty where there is none."""
    runs = by_tag(complete(records, experiment))
    lines = [
        "| pre-training | steps | tokens seen | held-out loss | unigram entropy | below it | masked tokens right | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tag, name in METHODS.items():
        for run in runs.get(tag, {}).values():
            found, metrics = run.summary, run.summary["metrics"]
            lines.append(
                f"| {name} | {found['step']} | {found['tokens'] / 1e6:.1f} M | {metrics['loss']:.3f} | "
                f"{metrics['unigram_entropy']:.3f} | {metrics['gain']:+.3f} | {metrics['accuracy']:.1f} % | "
                f"{found['timing']['seconds']:.0f} |"
            )
    return lines if len(lines) > 2 else []


def table(rows: dict[str, Found]) -> tuple[list[str], dict[str, list[float]]]:
    """The Markdown table of the tasks, and each column's medians over the numbers that all columns have."""
    present = [tag for tag in (*METHODS, SCRATCH) if any(tag in found for found in rows.values())]
    title = {**METHODS, SCRATCH: "baseline, no pre-training"}
    lines = [
        "| task | metric | majority class | " + " | ".join(title[tag] for tag in present) + " | seeds | s |",
        "|---" * (len(present) + 5) + "|",
    ]
    columns: dict[str, list[float]] = {tag: [] for tag in present}
    for name, found in rows.items():
        runs = [run for seeds in found.values() for run in seeds.values()]
        seconds = max(run.summary["timing"]["seconds"] for run in runs)
        seeds = sorted({run.seed for run in runs})
        for shown, key in numbers(name).items():
            majority = runs[0].summary["metrics"]["majority" + key.removeprefix(TABLES[name].metric)]
            cells = [spread(values(found[tag], key)) if tag in found else "not run" for tag in present]
            lines.append(
                f"| {shown} | {TABLES[name].metric} | {majority:.1f} | {' | '.join(cells)} | "
                f"{', '.join(map(str, seeds))} | {seconds:.0f} |"
            )
            if name in AVERAGED and all(tag in found for tag in present):
                for tag in present:
                    columns[tag].append(statistics.median(values(found[tag], key).values()))
    averages = [f"{statistics.mean(column):.1f}" if column else "" for column in columns.values()]
    count = max(map(len, columns.values()), default=0)
    lines.append(f"| mean of the {count} medians | | | {' | '.join(averages)} | | |")
    return lines, columns


def sentences(rows: dict[str, Found]) -> list[str]:
    """What the numbers say of conditioning and of pre-training, in words made from them."""
    said = []
    for other, base, what in (
        *((tag, "baseline", f"{name[0].upper()}{name[1:]}, against the baseline") for tag, name in METHODS.items()),
        ("baseline", SCRATCH, "Pre-training, against the same network without it"),
    ):
        sides: dict[str, list[str]] = {"gains on": [], "loses on": [], "is not told from no change on": []}
        for name, found in rows.items():
            if other == base or other not in found or base not in found:
                continue
            for shown, key in numbers(name).items():
                difference = paired(values(found[base], key), values(found[other], key))
                side = "is not told from no change on" if not difference.decided else "gains on"
                sides["loses on" if difference.decided and difference.mean < 0 else side].append(
                    f"{shown} ({difference.mean:+.1f})"
                )
        parts = [f"{verb} {', '.join(names)}" for verb, names in sides.items() if names]
        if parts:
            said.append(f"{what}: {'; '.join(parts)} (95 % interval of the paired difference over seeds).")
    return said


def page(records: Path, scale: str) -> str:
    """The whole Markdown file."""
    rows = {name: by_tag(complete(records, f"{scale}/glue_{name}")) for name in TABLES}
    rows = {name: found for name, found in rows.items() if "baseline" in found}
    if not rows:
        raise SystemExit(f"error: no complete baseline of a {scale} GLUE task below {records}")
    pretrained = [line for path in sorted(records.glob(f"{scale}/glue_pretrain*"))
                  for line in pretraining(records, str(path.relative_to(records)))]  # fmt: skip
    lines, columns = table(rows)
    runs = [run for found in rows.values() for seeds in found.values() for run in seeds.values()]
    sessions = [json.loads((run.folder / "environment.json").read_text())["sessions"][-1] for run in runs]
    devices = sorted({f"{s['device']}, {s['threads']} thread(s)" for s in sessions})
    commits = sorted({s["git"]["commit"][:10] + ("+" if s["git"]["dirty"] else "") for s in sessions if s["git"]})
    count = max(map(len, columns.values()))
    full = "" if count == 9 else f" The paper's average is over nine numbers; {count} of them are here."
    text = [
        f"# GLUE with crammed BERT, {scale}",
        "",
        ("Not the paper's scale: a small crammed BERT, pre-trained for minutes and fine-tuned for at most one. " if
         scale == "reduced" else "") +
        "Scores in percent on the dev sets after the last epoch: median over fine-tuning seeds, and the least and "
        "greatest. Each method was pre-trained and fine-tuned with its own correction. Majority class: what the "
        f"training set's most frequent answer gets.{full} `s`: the longest run's training time in seconds.",
        "",
        *pretrained,
        *([""] if pretrained else []),
        *lines,
        "",
        *[f"- {sentence}" for sentence in sentences(rows)],
        "",
        f"{len(runs)} fine-tunings on {'; '.join(devices)}; commits {', '.join(commits)} (+: with uncommitted "
        "changes). Made by `python -m scripts.glue_table` from the records in `results/runs/`.",
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("results/runs"))
    parser.add_argument("--scale", default="reduced", choices=("paper", "reduced"))
    parser.add_argument("--into", type=Path)
    chosen = parser.parse_args()
    text = page(chosen.records, chosen.scale)
    (chosen.into or Path(f"results/glue_{chosen.scale}.md")).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
