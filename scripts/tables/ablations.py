"""The two ablations: accuracy over λ, and attention blocks with and without LayerNorm, each way conditioned or not."""

from collections.abc import Callable

from scripts.records import experiments
from scripts.seeds import mean_std, paired
from scripts.tables.model import Cell, Page, Piece, cell, sentence
from scripts.tables.names import row_name, target
from scripts.tables.notes import left_out, provenance, verdicts
from scripts.tables.rows import (
    NO_NORM,
    TEST,
    Line,
    Settings,
    columns,
    folder,
    is_ablation,
    runs_of,
    table,
)
from scripts.tables.settings import EXPECTED, Source, command, lam, overrides, settings, trained

GRID = (0, 0.1, 1, 10)  # what `make ablation-lambda` runs
TARGETS = ("imagenet_", "coco_", "lra_")  # whose experiments are make targets
FIRST = "imagenet_vit"  # the row of both ablations; others come with records of their own


def over_lam(source: Source, scale: str) -> Page:
    """Accuracy over λ, of the ViT and of each row with more than two λ."""
    lines = []
    for experiment, found in rows(source, scale, is_ablation):
        swept = {tag for tag in found if not overrides(tag) and lam(tag) is not None} | set(EXPECTED[:2])
        shown = [*sorted(swept, key=lam), *(["svd-lam1"] if "svd-lam1" in found else [])]
        lines += [
            Line(row_name(source, experiment), experiment, found, tag, asked_with(experiment, tag)) for tag in shown
        ]
    name = "ablation_lambda" if scale == "paper" else "ablation_lambda_reduced"
    what = "Not the paper's scale. " if scale == "reduced" else ""
    return Page(
        name,
        f"λ ablation{'' if scale == 'paper' else ', reduced'}",
        scale,
        f"{what}The primary metric in percent over λ of the paper's own correction, λI; the svd correction of Theorem "
        f"3.5 for comparison. The paper found λ = 10 best; its other values are not known to us. {TEST} Commands take "
        "`DATA_ROOT=<folder>`.",
        (table(name, columns(scale), lines),),
        (*best(lines), *verdicts(swept_besides(lines)), *left_out(lines, lambda tag: True)),
        provenance(runs_of(lines)),
    )


def rows(source: Source, scale: str, wanted: Callable[[Settings], bool]) -> list[tuple[str, Settings]]:
    """The experiments of a scale that an ablation has: the ViT's always, and those whose settings are `wanted`."""
    every = dict.fromkeys([f"{scale}/{FIRST}", *experiments(source.records)])
    found = [(name, settings(source, name)) for name in every if name.startswith(f"{scale}/")]
    return [(name, held) for name, held in found if name == f"{scale}/{FIRST}" or wanted(held)]


def asked_with(experiment: str, tag: str) -> str:
    """The command of a λ: the ViT's grid has a target of its own."""
    scale, name = experiment.split("/")
    if name == FIRST and lam(tag) in GRID:
        return command("ablation-lambda", scale, "baseline")
    return command(target(experiment), scale, tag) if name.startswith(TARGETS) else trained(experiment, tag)


def normed(experiment: str, tag: str) -> str:
    """The command of a setting with or without LayerNorm: the ViT's target runs both."""
    scale, name = experiment.split("/")
    if name == FIRST:
        return command("ablation-layernorm", scale, tag.removesuffix("," + NO_NORM[0]))
    return command(target(experiment), scale, tag) if name.startswith(TARGETS) else trained(experiment, tag)


def swept_besides(lines: list[Line]) -> list[Line]:
    """The lines that no other page has: of them alone this page says what they gain."""
    return [asked for asked in lines if asked.tag not in EXPECTED]


def bare_lines(lines: list[Line]) -> list[Line]:
    """Those without LayerNorm."""
    return [asked for asked in lines if overrides(asked.tag) == NO_NORM]


def best(lines: list[Line]) -> list[Cell]:
    """At which λ the mean over seeds is highest, for each row with more than two."""
    said = []
    for experiment in dict.fromkeys(asked.experiment for asked in lines):
        swept = [
            asked for asked in lines if asked.experiment == experiment and asked.values and lam(asked.tag) is not None
        ]
        if len(swept) > 2:
            top = max(swept, key=lambda asked: mean_std(list(asked.values.values()))[0])
            mean, _ = mean_std(list(top.values.values()))
            said.append(
                sentence(
                    f"{top.name}: of λ = {', '.join(f'{lam(asked.tag):g}' for asked in swept)} the mean is highest at "
                    f"λ = {lam(top.tag):g} (",
                    Piece(f"{mean:.2f}", top.home),
                    "); the paper found 10 best.",
                )
            )
    return said


def layer_norm(source: Source, scale: str) -> Page:
    """With and without LayerNorm, with and without conditioning."""
    lines = []
    for experiment, found in rows(source, scale, lambda held: any(overrides(tag) == NO_NORM for tag in held)):
        for norm in ((), NO_NORM):
            asked = [",".join([tag, *norm]) for tag in EXPECTED]
            asked += [tag for tag in found if norm and overrides(tag) == NO_NORM and tag not in asked]
            lines += [
                Line(row_name(source, experiment), experiment, found, tag, normed(experiment, tag),
                     before=(cell("without" if norm else "with"),), hidden=NO_NORM)
                for tag in asked
            ]  # fmt: skip
    name = "ablation_layernorm" if scale == "paper" else "ablation_layernorm_reduced"
    what = "Not the paper's scale. " if scale == "reduced" else ""
    return Page(
        name,
        f"LayerNorm ablation{'' if scale == 'paper' else ', reduced'}",
        scale,
        f"{what}The primary metric in percent of attention blocks with and without LayerNorm, each with and without "
        "conditioning. The paper found the two to be complementary; its values are not known to us. Each difference is "
        f"to the baseline with the same norm. {TEST} Commands take `DATA_ROOT=<folder>`.",
        (table(name, columns(scale, ("LayerNorm",)), lines),),
        (*interactions(lines), *verdicts(bare_lines(lines)), *left_out(lines, lambda tag: True)),
        provenance(runs_of(lines)),
    )


def interactions(lines: list[Line]) -> list[Cell]:
    """How much more conditioning gives without LayerNorm than with it: a difference of differences, paired by seed."""
    said = []
    for asked in lines:
        bare, plain = ",".join(["baseline", *NO_NORM]), asked.tag.removesuffix("," + NO_NORM[0])
        if overrides(asked.tag) != NO_NORM or asked.tag == bare:
            continue
        one, two, three, four = (
            Line("", asked.experiment, asked.found, tag, "").values for tag in ("baseline", plain, bare, asked.tag)
        )
        shared = one.keys() & two.keys() & three.keys() & four.keys()
        if not shared:
            continue
        told = paired({s: two[s] - one[s] for s in shared}, {s: four[s] - three[s] for s in shared})
        interval = f", 95 % interval {told.low:+.2f} to {told.high:+.2f}" if told.seeds > 1 else ", one seed"
        verdict = "more" if told.mean > 0 else "less"
        sure = "" if told.decided else ", not told from no difference"
        said.append(
            sentence(
                f"{asked.name}, {plain.replace('-lam', ', λ = ')}: its paired difference is ",
                Piece(f"{abs(told.mean):.2f} points {verdict}", folder(asked.experiment, asked.tag)),
                f" without LayerNorm than with it{interval}{sure}.",
            )
        )
    return said
