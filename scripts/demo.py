"""`make demo`: a ViT on handwritten digits without conditioning, with the paper's λ = 10, and with Theorem 3.5's C.

Trains what is not complete (three seeds each), then prints and writes a table, a sentence and a picture, all
made from the records.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

from scripts.plotting import COLOURS, figure, finish
from scripts.records import Recorded, by_tag, complete
from scripts.seeds import Paired, paired, shown
from train.command import main as command

EXPERIMENT = "reduced/digits_vit"
NAMES = {
    "baseline": "no conditioning",
    "identity-lam10": "identity, λ = 10 (the paper's runs)",
    "svd-lam1": "svd, λ = 1 (Theorem 3.5)",
}


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-root", default="outputs", help="where runs and the demo's files go (outputs)")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    options = parser.parse_args()
    words = [
        f"experiment={EXPERIMENT}",
        "conditioning=off,identity,svd",
        "seed=0,1,2",
        f"output_root={options.output_root}",
        f"runtime.jobs={options.jobs}",
        "runtime.wandb=off",
        "runtime.keep_checkpoints=false",
    ]
    status = command(["-m", *words])
    if status:
        return status
    root = Path(options.output_root)
    runs = {tag: seeds for tag, seeds in by_tag(complete(root, EXPERIMENT)).items() if tag in NAMES}
    folder = root / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    text = table(runs) + "\n\n" + sentence(runs) + "\n"
    (folder / "demo.md").write_text(text)
    draw(runs, folder / "demo.png")
    print(f"\n{text}\ntable: {folder / 'demo.md'}\npicture: {folder / 'demo.png'}")
    return 0


def values(seeds: dict[int, Recorded]) -> dict[int, float]:
    """seed → final top-1."""
    return {seed: run.value for seed, run in seeds.items()}


def table(runs: dict[str, dict[int, Recorded]]) -> str:
    """The Markdown table: mean ± std over seeds and the paired difference to the baseline."""
    lines = [
        "| conditioning | top-1, % | seeds | paired difference (95 % interval) | median κ of W + C, start → end |",
        "|---|---|---|---|---|",
    ]
    for tag, name in NAMES.items():
        difference = "" if tag == "baseline" else interval(paired(values(runs["baseline"]), values(runs[tag])))
        start, end = (kappas(runs[tag], index)[1] for index in (0, -1))
        lines.append(
            f"| {name} | {shown(list(values(runs[tag]).values()))} | {len(runs[tag])} | {difference} | "
            f"{start:,.3g} → {end:,.3g} |"
        )
    return "\n".join(lines)


def interval(difference: Paired) -> str:
    """A paired difference as text."""
    return f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"


def sentence(runs: dict[str, dict[int, Recorded]]) -> str:
    """What was seen, in one sentence made from the numbers."""
    parts = []
    for tag in list(NAMES)[1:]:
        difference = paired(values(runs["baseline"]), values(runs[tag]))
        verb = "gained" if difference.mean > 0 else "lost"
        sure = "" if difference.decided else f", which {difference.seeds} seeds do not tell from zero"
        parts.append(f"{NAMES[tag].split(' (')[0]} {verb} {abs(difference.mean):.1f} points{sure}")
    base = shown(list(values(runs["baseline"]).values()), 1)
    return f"Seen on these digits (a small ViT, not the paper's scale): from {base} % without conditioning, " + (
        " and ".join(parts) + "."
    )


def kappas(seeds: dict[int, Recorded], index: int) -> tuple[int, float]:
    """Step and median κ(W + C) over layers, projections and seeds, at one of the probed steps."""
    steps, found = set(), []
    for run in seeds.values():
        event = run.events("spectra")[index]
        steps.add(event["step"])
        found += [
            math.inf if item["kappa_conditioned"] is None else item["kappa_conditioned"] for item in event["weights"]
        ]
    return max(steps), statistics.median(found)


def draw(runs: dict[str, dict[int, Recorded]], path: Path) -> None:
    """Accuracy, and the condition number of W_Q, W_K and W_V, over training."""
    canvas, (accuracy, *panels) = figure(4)
    for (tag, name), colour in zip(NAMES.items(), COLOURS, strict=False):
        for seed, run in runs[tag].items():
            label = name if seed == min(runs[tag]) else None
            evaluations = run.events("evaluate")
            accuracy.plot([e["step"] for e in evaluations], [e["top1"] for e in evaluations], color=colour, label=label)
            spectra = run.events("spectra")
            for panel, which in zip(panels, "qkv", strict=True):
                middle = [
                    statistics.median(
                        math.inf if item["kappa_conditioned"] is None else item["kappa_conditioned"]
                        for item in event["weights"]
                        if item["projection"] == which
                    )
                    for event in spectra
                ]
                panel.plot([event["step"] for event in spectra], middle, color=colour)
    accuracy.set(title="top-1 on the test digits, %", xlabel="step")
    for panel, which in zip(panels, "QKV", strict=True):
        panel.set(title=f"κ(W_{which} + C_{which}), median over layers", xlabel="step", yscale="log")
    finish(canvas, accuracy, path)


if __name__ == "__main__":
    sys.exit(main())
