"""The reduced ImageNet rows as a table, from the committed records of their runs.

python -m scripts.imagenet_table [--records results/runs] [--into results/imagenet_reduced.md]
"""

import argparse
import json
import sys
from pathlib import Path

from scripts.records import by_tag, complete
from scripts.reduced_rows import Found, all_runs, header, line, mean, provenance, verdicts

ROWS = {"vit": "ViT", "deit": "DeiT", "swin": "Swin", "xcit": "XCiT", "davit": "DaViT"}
LINEAR = Path("results/linear_cifar10.json")
MARGIN = {"xcit": 10, "davit": 10, "deit": 0, "swin": 0}  # points over a linear classifier that a baseline is to reach


def table(rows: dict[str, Found]) -> list[str]:
    """The Markdown table, one line a row."""
    lines = header("parameters", "epochs")
    for row, found in rows.items():
        first = next(iter(found["baseline"].values())).summary
        lines.append(line(ROWS[row], found, f"{first['parameters'] / 1e6:.2f} M", f"{first['epochs']:.3g}"))
    return lines


def against_linear(rows: dict[str, Found], linear: float) -> list[str]:
    """Whether each baseline reaches what a linear classifier on the same pixels does, by the points it should."""
    said = [f"A linear classifier on the same pixels reaches {linear:.1f} % (`{LINEAR}`)."]
    for row, margin in MARGIN.items():
        if row in rows:
            reached = mean(rows[row]["baseline"])
            verdict = "does" if reached >= linear + margin else "DOES NOT"
            goal = f"beat that by {margin} points" if margin else "reach that"
            said.append(f"{ROWS[row]}'s baseline is to {goal}: it {verdict} ({reached - linear:+.1f} points).")
    return said


def page(records: Path, linear: float) -> str:
    """The whole Markdown file."""
    rows = {row: by_tag(complete(records, f"reduced/imagenet_{row}")) for row in ROWS}
    rows = {row: found for row, found in rows.items() if "baseline" in found}
    if not rows:
        raise SystemExit(f"error: no complete baseline of a reduced ImageNet row below {records}")
    runs = all_runs(rows)
    data = sorted({run.config["dataset"]["name"] for run in runs})
    text = [
        "# The ImageNet rows, reduced",
        "",
        f"Not the paper's scale: small members of the same timm families on {', '.join(data)}, top-1 in percent on the "
        "whole test set, final weights, mean ± sample standard deviation over seeds. Paired difference: conditioned "
        "minus baseline with the same seed, with its 95 % interval (t). Tuned on the baselines alone. `s`: the longest "
        "run's training time in seconds, two runs side by side and at times beside other work. What was reduced stands "
        "in `configs/experiment/reduced/`.",
        "",
        *table(rows),
        "",
        *[f"- {sentence}" for sentence in [*against_linear(rows, linear), *verdicts(rows, ROWS)]],
        "",
        provenance(runs, "python -m scripts.imagenet_table"),
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
