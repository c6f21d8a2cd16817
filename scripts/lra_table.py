"""The reduced Long Range Arena columns as a table, from the committed records of their runs.

python -m scripts.lra_table [--records results/runs] [--into results/lra_reduced.md]
"""

import argparse
import sys
from pathlib import Path

from scripts.records import Recorded, by_tag, complete
from scripts.reduced_rows import Found, all_runs, header, line, mean, provenance, verdicts

ROWS = {
    "listops": "ListOps",
    "text": "Text",
    "retrieval": "Retrieval",
    "image": "Image",
    "pathfinder": "Pathfinder",
}


def majority(found: Found) -> float:
    """What always naming the commonest class of the test set reaches, in percent."""
    return next(iter(found["baseline"].values())).summary["metrics"]["test_majority"]


def noise(run: Recorded) -> float:
    """The standard error of an accuracy, in points, from the size of the test set alone."""
    metrics = run.summary["metrics"]
    share = metrics["test_accuracy"] / 100
    return 100 * (share * (1 - share) / metrics["test_count"]) ** 0.5


def learning(rows: dict[str, Found]) -> list[str]:
    """Which baselines learn at all: every seed's accuracy more than three standard errors above the majority class."""
    learns, does_not = [], []
    for row, found in rows.items():
        least = min(found["baseline"].values(), key=lambda run: run.value)
        (learns if least.value > majority(found) + 3 * noise(least) else does_not).append(
            f"{ROWS[row]} ({mean(found['baseline']):.1f} % beside {majority(found):.1f} %)"
        )
    said = []
    if learns:
        said.append(f"The baseline learns at this scale: {', '.join(learns)}, every seed clear of the majority class.")
    if does_not:
        said.append(
            f"It does not clearly learn at this scale: {', '.join(does_not)}; a difference there says nothing about "
            "the method."
        )
    return said


def page(records: Path) -> str:
    """The whole Markdown file."""
    rows = {row: by_tag(complete(records, f"reduced/lra_{row}")) for row in ROWS}
    rows = {row: found for row, found in rows.items() if "baseline" in found}
    if not rows:
        raise SystemExit(f"error: no complete baseline of a reduced Long Range Arena row below {records}")
    lines = header("majority class", "tokens", "steps")
    for row, found in rows.items():
        first = next(iter(found["baseline"].values()))
        length = first.config["dataset"]["padded_length"]
        lines.append(line(ROWS[row], found, f"{majority(found):.2f}", f"{length:,}", f"{first.summary['steps']:,}"))
    text = [
        "# The Long Range Arena, reduced",
        "",
        "Not the paper's scale: the same Nyströmformer on short or small sets, ListOps, Retrieval and Pathfinder made "
        "by the project itself. Accuracy in percent on the whole test set of the model of best dev accuracy, mean ± "
        "sample standard deviation over seeds. Paired difference: conditioned minus baseline with the same seed, with "
        "its 95 % interval (t). Text has no dev set of its own: as in the original it is the test set. `s`: the "
        "longest run's training time in seconds, two runs side by side. What was reduced stands in "
        "`configs/experiment/reduced/`.",
        "",
        *lines,
        "",
        *[f"- {sentence}" for sentence in [*learning(rows), *verdicts(rows, ROWS)]],
        "",
        provenance(all_runs(rows), "python -m scripts.lra_table"),
    ]
    return "\n".join(text) + "\n"


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("results/runs"))
    parser.add_argument("--into", type=Path, default=Path("results/lra_reduced.md"))
    chosen = parser.parse_args()
    text = page(chosen.records)
    chosen.into.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
