"""The reduced COCO row as a table, from the committed records of its runs.

python -m scripts.coco_table [--records results/runs] [--into results/coco_reduced.md]
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

from scripts.records import Recorded, by_tag, complete
from scripts.seeds import mean_std, paired, shown

EXPERIMENT = "reduced/coco_xcit"
ROWS = {"baseline": "baseline", "identity-lam10": "identity, λ = 10", "svd-lam1": "svd, λ = 1"}
METRICS = {
    "ap_box": "AP^b",
    "ap_box_50": "AP^b_50",
    "ap_box_75": "AP^b_75",
    "ap_mask": "AP^m",
    "ap_mask_50": "AP^m_50",
    "ap_mask_75": "AP^m_75",
}
SIZES = ("small", "medium", "large")
GOALS = {"ap_box_50": 50.0, "ap_mask_50": 40.0}
MINUTES = 8  # that a run may take on two cores


def values(runs: dict[int, Recorded], metric: str) -> dict[int, float]:
    """seed → final value of a metric."""
    return {seed: run.summary["metrics"][metric] for seed, run in runs.items()}


def table(found: dict[str, dict[int, Recorded]]) -> str:
    """One line for each setting, with the paired difference of AP to the baseline below each conditioned one."""
    lines = [f"| setting | {' | '.join(METRICS.values())} | seeds |", "|---" * (len(METRICS) + 2) + "|"]
    for tag, runs in found.items():
        cells = [shown(list(values(runs, metric).values())) for metric in METRICS]
        lines.append(f"| {ROWS[tag]} | {' | '.join(cells)} | {', '.join(map(str, sorted(runs)))} |")
        if tag != "baseline":
            cells = []
            for metric in METRICS:
                difference = paired(values(found["baseline"], metric), values(runs, metric))
                reach = f" ({difference.low:+.1f} to {difference.high:+.1f})" if difference.seeds > 1 else ""
                cells.append(f"{difference.mean:+.2f}{reach}")
            lines.append(f"| minus the baseline | {' | '.join(cells)} | |")
    return "\n".join(lines)


def by_size(found: dict[str, dict[int, Recorded]]) -> str:
    """AP of small, medium and large objects; a dash where the set has none."""
    names = [(kind, size) for kind in ("box", "mask") for size in SIZES]
    lines = [f"| setting | {' | '.join(f'AP^{kind[0]} {size}' for kind, size in names)} |", "|---" * 7 + "|"]
    for tag, runs in found.items():
        cells = []
        for kind, size in names:
            numbers = list(values(runs, f"ap_{kind}_{size}").values())
            cells.append("-" if -1 in numbers else shown(numbers))
        lines.append(f"| {ROWS[tag]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def sentences(found: dict[str, dict[int, Recorded]]) -> list[str]:
    """What the numbers say, in words made from them."""
    said = []
    for metric, goal in GOALS.items():
        mean, _ = mean_std(list(values(found["baseline"], metric).values()))
        verdict = "reaches" if mean >= goal else "DOES NOT reach"
        said.append(f"The baseline's {METRICS[metric]} is to be {goal:g} or more: {mean:.1f} {verdict} it.")
    for tag in [tag for tag in found if tag != "baseline"]:
        for metric in ("ap_box", "ap_mask"):
            difference = paired(values(found["baseline"], metric), values(found[tag], metric))
            if difference.decided:
                text = f"{'gains' if difference.mean > 0 else 'loses'} {abs(difference.mean):.1f} points"
            else:
                text = f"is not told from no change ({difference.mean:+.1f} points, {difference.seeds} seeds)"
            said.append(f"{ROWS[tag]}: {METRICS[metric]} {text}.")
    longest = max(run.summary["timing"]["seconds"] for runs in found.values() for run in runs.values())
    said.append(f"The longest run's steps took {longest / 60:.1f} minutes; {MINUTES} on two cores were allowed.")
    return said


def page(records: Path) -> str:
    """The whole Markdown file."""
    runs = by_tag(complete(records, EXPERIMENT))
    found = {tag: runs[tag] for tag in ROWS if tag in runs}
    if "baseline" not in found:
        raise SystemExit(f"error: no complete baseline of {EXPERIMENT} below {records}")
    each = [run for listed in found.values() for run in listed.values()]
    config = yaml.safe_load((each[0].folder / "config.yaml").read_text())
    sessions = [json.loads((run.folder / "environment.json").read_text())["sessions"][-1] for run in each]
    devices = sorted({f"{s['device']}, {s['threads']} thread(s)" for s in sessions})
    commits = sorted({s["git"]["commit"][:10] + ("+" if s["git"]["dirty"] else "") for s in sessions if s["git"]})
    drawn, first = config["dataset"]["shapes"], each[0].summary
    text = [
        "# COCO, reduced: Mask R-CNN on a small XCiT",
        "",
        f"Not the paper's scale: {drawn['train']} drawn pictures of {drawn['side']} x {drawn['side']} pixels to train "
        f"on, {drawn['val']} to evaluate (`scripts/make_shapes.py`: discs, boxes, triangles, overlaps, crowds, empty "
        f"pictures), {first['parameters'] / 1e6:.2f} M parameters, {first['steps']} steps of {config['batch_size']}. "
        "COCO's AP in percent by pycocotools, final weights, mean ± sample standard deviation over seeds; differences "
        "are paired by seed, with their 95 % interval (t). Tuned on the baseline alone.",
        "",
        table(found),
        "",
        by_size(found),
        "",
        *[f"- {sentence}" for sentence in sentences(found)],
        "",
        f"{len(each)} runs on {'; '.join(devices)}; commits {', '.join(commits)} (+: with uncommitted changes). "
        "Made by `python -m scripts.coco_table` from the records in `results/runs/`.",
    ]
    return "\n".join(text) + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("results/runs"))
    parser.add_argument("--into", type=Path, default=Path("results/coco_reduced.md"))
    chosen = parser.parse_args()
    text = page(chosen.records)
    chosen.into.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
