"""The COCO table: average precision of Mask R-CNN on XCiT, at the paper's scale and on drawn shapes."""

from scripts.records import Recorded
from scripts.seeds import mean_std
from scripts.tables.model import Cell, Page, Piece, sentence
from scripts.tables.notes import left_out, provenance, verdicts
from scripts.tables.rows import (
    TEST,
    Line,
    columns,
    is_elsewhere,
    papers,
    runs_of,
    table,
    tags,
)
from scripts.tables.settings import Source, command, settings

SIZES = ("small", "medium", "large")
GOALS = {"ap_box_50": 50.0, "ap_mask_50": 40.0}  # what the reduced baseline is to reach
MINUTES = 8  # that a reduced run may take on two cores


def page(source: Source, scale: str) -> Page:
    """The page of one scale."""
    lines = of(source, scale)
    name = "coco" if scale == "paper" else "coco_reduced"
    said = [
        *(reached(lines) if scale == "reduced" else []),
        *verdicts([asked for asked in lines if "," not in asked.name]),
    ]
    return Page(
        name,
        "COCO, Mask R-CNN on XCiT-S" if scale == "paper" else "COCO, reduced: Mask R-CNN on a small XCiT",
        scale,
        intro(scale, runs_of(lines)),
        (table(name, columns(scale), lines),),
        (*said, *left_out(lines, is_elsewhere)),
        provenance(runs_of(lines)),
    )


def of(source: Source, scale: str) -> list[Line]:
    """The lines of each average precision, then those by size of object."""
    experiment = f"{scale}/coco_xcit"
    found, rows = settings(source, experiment), source.paper("coco")["rows"]
    metrics = {key: row["name"] for key, row in rows.items()}
    metrics |= {f"ap_{kind}_{size}": f"AP^{kind[0]}, {size}" for kind in ("box", "mask") for size in SIZES}
    return [
        Line(
            name,
            experiment,
            found,
            tag,
            command("coco-xcit", scale, tag),
            value=lambda run, key=key: precision(run, key),
            paper=papers(rows.get(key, {"values": [None, None]}), tag),
        )
        for key, name in metrics.items()
        for tag in tags(found, scale)
    ]


def precision(run: Recorded, key: str) -> float | None:
    """An average precision in percent; None where the set has no object of that size (COCO's -1)."""
    number = run.metric(key)
    return None if number == -1 else number


def intro(scale: str, runs: list[Recorded]) -> str:
    """What the numbers are."""
    if scale == "paper":
        return (
            f"COCO's average precision in percent by pycocotools on val2017. {TEST} Commands take `DATA_ROOT=<folder>`."
        )
    made = "drawn pictures"
    if runs:
        config, first = runs[0].config, runs[0].summary
        drawn = config["dataset"]["shapes"]
        made = (
            f"{drawn['train']} drawn pictures of {drawn['side']} x {drawn['side']} pixels to train on, {drawn['val']} "
            "to evaluate (`scripts/make_shapes.py`: discs, boxes, triangles, overlaps, crowds, empty pictures), "
            f"{first['parameters'] / 1e6:.2f} M parameters, {first['steps']} steps of {config['batch_size']}"
        )
    return (
        f"Not the paper's scale: {made}. COCO's average precision in percent by pycocotools, final weights; `no "
        f"number` where the set has no object of a size. {TEST} Tuned on the baseline alone."
    )


def reached(lines: list[Line]) -> list[Cell]:
    """Whether the baseline and the time are what was asked of the reduced row."""
    metrics = dict(zip(GOALS, ("AP^b_50", "AP^m_50"), strict=True))
    said = []
    for key, goal in GOALS.items():
        for asked in lines:
            if asked.name == metrics[key] and asked.tag == "baseline" and asked.values:
                mean, _ = mean_std(list(asked.values.values()))
                verdict = "reaches" if mean >= goal else "DOES NOT reach"
                told = Piece(f"{mean:.1f}", asked.home)
                said.append(
                    sentence(f"The baseline's {asked.name} is to be {goal:g} or more: ", told, f" {verdict} it.")
                )
    if runs := runs_of(lines):
        most = max(run.summary["timing"]["seconds"] for run in runs) / 60
        said.append(sentence(f"The longest run's steps took {most:.1f} minutes; {MINUTES} on two cores were allowed."))
    return said
