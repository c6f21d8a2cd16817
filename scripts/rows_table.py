"""The reduced ImageNet rows as a table, from the committed records of their runs.

python -m scripts.rows_table [--records results/runs] [--into results/imagenet_reduced.md]
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

from scripts.records import Recorded, by_tag, complete
from scripts.seeds import mean_std, paired, shown

ROWS = {"vit": "ViT", "deit": "DeiT", "swin": "Swin", "xcit": "XCiT", "davit": "DaViT"}
METHODS = {"identity-lam10": "identity, λ = 10", "svd-lam1": "svd, λ = 1"}
LINEAR = Path("results/linear_cifar10.json")
MARGIN = {"xcit": 10, "davit": 10, "deit": 0, "swin": 0}  # points over a linear classifier that a baseline is to reach


def values(runs: dict[int, Recorded]) -> dict[int, float]:
    """seed → final top-1."""
    return {seed: run.value for seed, run in runs.items()}


def differences(found: dict[str, dict[int, Recorded]], tag: str) -> str:
    """Mean ± std of a conditioned row and its paired difference to the baseline, two cells."""
    if tag not in found:
        return "not run | "
    difference = paired(values(found["baseline"]), values(found[tag]))
    interval = f" ({difference.low:+.2f} to {difference.high:+.2f})" if difference.seeds > 1 else ""
    return f"{shown(list(values(found[tag]).values()))} | {difference.mean:+.2f}{interval}"


def about(run: Recorded) -> dict:
    """What the table's text says of the runs: taken from one record."""
    return yaml.safe_load((run.folder / "config.yaml").read_text())


def seconds(runs: dict[str, dict[int, Recorded]]) -> float:
    """The longest a run's steps took."""
    return max(run.summary["timing"]["seconds"] for seeds in runs.values() for run in seeds.values())


def table(rows: dict[str, dict[str, dict[int, Recorded]]]) -> str:
    """The Markdown table, one line a row."""
    names = list(METHODS.values())
    lines = [
        f"| row | parameters | epochs | baseline | {names[0]} | paired difference | {names[1]} | paired difference "
        "| seeds | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row, found in rows.items():
        first = next(iter(found["baseline"].values()))
        seeds = sorted({seed for runs in found.values() for seed in runs})
        lines.append(
            f"| {ROWS[row]} | {first.summary['parameters'] / 1e6:.2f} M | {first.summary['epochs']:.3g} | "
            f"{shown(list(values(found['baseline']).values()))} | "
            + " | ".join(differences(found, tag) for tag in METHODS)
            + f" | {', '.join(map(str, seeds))} | {seconds(found):.0f} |"
        )
    return "\n".join(lines)


def sentences(rows: dict[str, dict[str, dict[int, Recorded]]], linear: float) -> list[str]:
    """What the numbers say, in words made from them."""
    said = [f"A linear classifier on the same pixels reaches {linear:.1f} % (`{LINEAR}`)."]
    for row, margin in MARGIN.items():
        if row in rows:
            mean, _ = mean_std(list(values(rows[row]["baseline"]).values()))
            verdict = "beats" if mean >= linear + margin else "DOES NOT beat"
            goal = f"by {margin} points" if margin else "or equal it"
            said.append(
                f"{ROWS[row]}'s baseline is to beat that {goal}: it {verdict} it ({mean - linear:+.1f} points)."
            )
    for tag, name in METHODS.items():
        sides = {"gains": [], "loses": [], "is not told from no change on": []}
        for row, found in rows.items():
            if tag in found:
                difference = paired(values(found["baseline"]), values(found[tag]))
                side = "is not told from no change on" if not difference.decided else "gains"
                sides["loses" if difference.decided and difference.mean < 0 else side].append(ROWS[row])
        parts = [
            f"{verb}{'' if 'told' in verb else ' on'} {', '.join(names)}" for verb, names in sides.items() if names
        ]
        if parts:
            said.append(f"{name[0].upper()}{name[1:]}: {'; '.join(parts)} (95 % interval of the paired difference).")
    return said


def page(records: Path, linear: float) -> str:
    """The whole Markdown file."""
    rows = {row: by_tag(complete(records, f"reduced/imagenet_{row}")) for row in ROWS}
    rows = {row: found for row, found in rows.items() if "baseline" in found}
    if not rows:
        raise SystemExit(f"error: no complete baseline of a reduced ImageNet row below {records}")
    runs = [run for found in rows.values() for seeds in found.values() for run in seeds.values()]
    sessions = [json.loads((run.folder / "environment.json").read_text())["sessions"][-1] for run in runs]
    devices = sorted({f"{s['device']}, {s['threads']} thread(s)" for s in sessions})
    commits = sorted({s["git"]["commit"][:10] + ("+" if s["git"]["dirty"] else "") for s in sessions if s["git"]})
    data = sorted({about(run)["dataset"]["name"] for run in runs})
    text = [
        "# The ImageNet rows, reduced",
        "",
        f"Not the paper's scale: small members of the same timm families on {', '.join(data)}, top-1 in percent on the "
        "whole test set, final weights, mean ± sample standard deviation over seeds. Paired difference: conditioned "
        "minus baseline with the same seed, with its 95 % interval (t). Tuned on the baselines alone. `s`: the longest "
        "run's training time in seconds. What was reduced stands in `configs/experiment/reduced/`.",
        "",
        table(rows),
        "",
        *[f"- {sentence}" for sentence in sentences(rows, linear)],
        "",
        f"{len(runs)} runs on {'; '.join(devices)}; commits {', '.join(commits)} (+: with uncommitted changes). "
        "Made by `python -m scripts.rows_table` from the records in `results/runs/`.",
    ]
    return "\n".join(text) + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("results/runs"))
    parser.add_argument("--into", type=Path, default=Path("results/imagenet_reduced.md"))
    chosen = parser.parse_args()
    if not LINEAR.exists():
        print(f"error: {LINEAR} is not there: python -m scripts.linear_cifar10 makes it", file=sys.stderr)
        return 2
    text = page(chosen.records, json.loads(LINEAR.read_text())["top1"])
    chosen.into.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
