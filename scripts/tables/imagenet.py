"""The ImageNet table: top-1 of five architectures, at the paper's scale and reduced."""

from scripts import shape
from scripts.seeds import mean_std
from scripts.tables.model import Cell, Page, Piece, cell, sentence
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

ROWS = {"vit": "ViT", "deit": "DeiT", "swin": "Swin", "xcit": "XCiT", "davit": "DaViT"}
LINEAR = "linear_cifar10.json"
MARGIN = {"XCiT": 10, "DaViT": 10, "DeiT": 0, "Swin": 0}  # points over a linear classifier that a baseline is to reach


def page(source: Source, scale: str) -> Page:
    """The page of one scale."""
    lines = [asked for row in ROWS for asked in of(source, scale, row)]
    name = "imagenet" if scale == "paper" else "imagenet_reduced"
    return Page(
        name,
        "ImageNet-1k, top-1 in percent" if scale == "paper" else "The ImageNet rows, reduced",
        scale,
        intro(scale, lines),
        (table(name, columns(scale, ("parameters", "epochs")), lines),),
        (*against_linear(source, lines), *verdicts(lines), *left_out(lines, is_elsewhere)),
        provenance(runs_of(lines)),
    )


def of(source: Source, scale: str, row: str) -> list[Line]:
    """The lines of one architecture."""
    experiment, target = f"{scale}/imagenet_{row}", f"imagenet-{row}"
    found, paper = settings(source, experiment), source.paper("imagenet")["rows"][target]
    return [
        Line(
            paper["name"] if scale == "paper" else ROWS[row],
            experiment,
            found,
            tag,
            command(target, scale, tag),
            paper=papers(paper, tag),
            before=size(Line("", experiment, found, tag, "")),
        )
        for tag in tags(found, scale)
    ]


def size(asked: Line) -> tuple[Cell, Cell]:
    """Parameters and epochs, as recorded."""
    for run in asked.runs.values():
        parameters, epochs = run.summary["parameters"], run.summary["epochs"]
        return cell(f"{parameters / 1e6:.2f} M", parameters=parameters), cell(f"{epochs:.3g}", epochs=epochs)
    return cell("", parameters=None), cell("", epochs=None)


def intro(scale: str, lines: list[Line]) -> str:
    """What the numbers are."""
    if scale == "paper":
        return (
            "Top-1 accuracy in percent on ImageNet-1k's 50,000 validation images. The paper's values come with its own "
            f"spread, over how many trials is not known to us. {TEST} Commands take `DATA_ROOT=<folder> DEVICES=8`."
        )
    data = sorted({run.config["dataset"]["name"] for run in runs_of(lines)})
    return (
        f"Not the paper's scale: small members of the same timm families on {', '.join(data) or 'CIFAR-10'}, top-1 in "
        f"percent on the whole test set, final weights. {TEST} Tuned on the baselines alone. `s`: the longest run's "
        "training time in seconds, two runs side by side and at times beside other work. What was reduced stands in "
        "`configs/experiment/reduced/`. Commands take `DATA_ROOT=<folder>`."
    )


def against_linear(source: Source, lines: list[Line]) -> list[Cell]:
    """Whether each reduced baseline reaches what a linear classifier on the same pixels does, by what it should."""
    record = source.json(LINEAR, shape.LINEAR)
    baselines = {asked.name: asked for asked in lines if asked.tag == "baseline" and asked.values}
    if record is None or not baselines or lines[0].scale == "paper":
        return []
    linear = record["top1"]
    said = [sentence("A linear classifier on the same pixels reaches ", Piece(f"{linear:.1f} %", LINEAR), ".")]
    for name, margin in MARGIN.items():
        if name in baselines:
            asked = baselines[name]
            reached, _ = mean_std(list(asked.values.values()))
            goal = f"beat that by {margin} points" if margin else "reach that"
            verdict = "does" if reached >= linear + margin else "DOES NOT"
            told = Piece(f"{reached - linear:+.1f} points", asked.home)
            said.append(sentence(f"{name}'s baseline is to {goal}: it {verdict} (", told, ")."))
    return said
