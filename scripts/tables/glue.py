"""The GLUE table: crammed BERT on the tasks, their average, its pre-training, and the control without that."""

import statistics
from functools import partial

from scripts.records import Recorded, experiments
from scripts.tables.model import Cell, Page, Piece, Table, cell, sentence
from scripts.tables.notes import judged, left_out, provenance, verdicts
from scripts.tables.rows import (
    TEST,
    Line,
    between,
    columns,
    folder,
    papers,
    runs_of,
    table,
    tags,
)
from scripts.tables.settings import EXPECTED, SEEDS, Setting, Source, command, label, settings
from train.data.glue.tables import AVERAGED, TABLES

SCRATCH = "baseline,task.scratch=True"
CLEAR = 1.0  # point
NUMBERS = 9  # of the eight tasks in the average, MNLI gives two
BEFORE, AFTER = ("metric", "majority class"), ("median (range)",)
PRETRAINING = ("pre-training", "conditioning", "seed", "steps", "tokens seen", "held-out loss", "unigram entropy",
               "below it", "masked tokens right", "s")  # fmt: skip


def page(source: Source, scale: str) -> Page:
    """The page of one scale."""
    lines, mean = every(source, scale)
    name = "glue" if scale == "paper" else "glue_reduced"
    told = table(name, columns(scale, BEFORE, AFTER), [*lines, *mean])
    return Page(
        name,
        f"GLUE with crammed BERT{'' if scale == 'paper' else ', reduced'}",
        scale,
        intro(scale, len({asked.name for asked in lines if asked.values and asked.name != "WNLI"})),
        (told, *pretraining(source, scale, name)),
        (*once(source, scale), *verdicts([*lines, *mean]), *scratch(lines), *like_majority(lines), *left_out(lines)),
        provenance(runs_of(lines)),
    )


def every(source: Source, scale: str) -> tuple[list[Line], list[Line]]:
    """The lines of all tasks, and those of their average."""
    lines = [asked for name in TABLES for asked in of(source, scale, name)]
    return lines, averages(source, lines, scale)


def of(source: Source, scale: str, name: str) -> list[Line]:
    """The lines of a task: of each number that it adds to the average (MNLI two), for each setting."""
    experiment = f"{scale}/glue_{name}"
    found, known = settings(source, experiment), TABLES[name]
    if name not in AVERAGED and not found:
        return []
    paper = source.paper("glue")["rows"].get(f"glue-{name}", {"values": [None, None]})
    shown_tags = tags(found, scale) + ([SCRATCH] if SCRATCH in found or scale == "reduced" else [])
    return [
        Line(
            known.folder + suffix.replace("_", "-"),
            experiment,
            found,
            tag,
            asked_with(name, scale, tag),
            value=partial(score, key=known.metric + suffix),
            paper=papers(paper, tag),
            before=(cell(known.metric), majority(found.get(tag), suffix)),
            after=(spread(found.get(tag), known.metric + suffix),),
        )
        for suffix in known.dev
        for tag in shown_tags
    ]


def asked_with(name: str, scale: str, tag: str) -> str:
    """The command of a task's setting, once the pre-training is there; the control has no make target."""
    if tag == SCRATCH:
        return (
            f"python -m scripts.glue_finetune --scale {scale} --tasks {name} --lam 0 --seeds {SEEDS[scale]} --scratch"
        )
    return command("glue-finetune", scale, tag) + f" TASKS={name}"


def score(run: Recorded, key: str) -> float | None:
    """A metric of the last epoch."""
    return run.metric(key)


def majority(setting: Setting | None, suffix: str) -> Cell:
    """What the training set's most frequent answer gets."""
    for run in setting.runs.values() if setting else ():
        number = run.metric("majority" + suffix)
        return cell(f"{number:.1f}", **{"majority class": number})
    return cell("", **{"majority class": None})


def spread(setting: Setting | None, key: str) -> Cell:
    """Median over seeds, as the recipe reports it, and the least and greatest where there are several."""
    listed = [score(run, key) for run in setting.runs.values()] if setting else []
    listed = [number for number in listed if number is not None]
    if not listed:
        return cell("", median=None, least=None, greatest=None)
    middle, ends = statistics.median(listed), (min(listed), max(listed))
    text = f"{middle:.1f}" + (f" ({ends[0]:.1f} to {ends[1]:.1f})" if len(listed) > 1 else "")
    return cell(text, median=middle, least=ends[0], greatest=ends[1])


def averages(source: Source, lines: list[Line], scale: str) -> list[Line]:
    """The average's lines: for each seed that all numbers have, their mean, so that seeds pair here as well.

    It counts the numbers that every setting with a run has: an average over other tasks is another number.
    """
    counted = [asked for asked in lines if asked.experiment.split("glue_")[1] in AVERAGED]
    present = [tag for tag in (*EXPECTED, SCRATCH) if any(asked.values for asked in counted if asked.tag == tag)]
    names = [
        name
        for name in dict.fromkeys(asked.name for asked in counted)
        if all(asked.values for asked in counted if asked.name == name and asked.tag in present)
    ]
    parts = {tag: [asked for asked in counted if asked.tag == tag and asked.name in names] for tag in present}
    found = {tag: Setting(tag, together(parts[tag])) for tag in present if names}
    whole = not found or len(names) == NUMBERS
    paper = source.paper("glue")["rows"]["average"]
    return [
        Line(
            "average" if whole else f"average of {len(names)} numbers",
            f"{scale}/glue",
            found,
            tag,
            command("glue", scale, tag),
            paper=papers(paper, tag) if whole else cell("other tasks", paper=None),
            before=(cell("mean"), cell("", **{"majority class": None})),
            after=(middle(parts.get(tag, []) if found else []),),
            derived=True,
        )
        for tag in (found or EXPECTED[:2])
    ]


def together(parts: list[Line]) -> dict[int, Recorded]:
    """seed → the mean over lines, as if it were a run, for the seeds that all of them have."""
    runs = {}
    for seed in sorted(set.intersection(*(set(asked.values) for asked in parts))):
        each = [asked.runs[seed] for asked in parts]
        about = {
            "status": "complete",
            "seed": seed,
            "primary": "average",
            "metrics": {"average": statistics.mean(asked.values[seed] for asked in parts)},
            "timing": {"seconds": sum(run.summary["timing"]["seconds"] for run in each)},
        }
        runs[seed] = Recorded(each[0].folder, about)
    return runs


def middle(parts: list[Line]) -> Cell:
    """The mean of the medians, as the recipe averages."""
    if not parts:
        return cell("", median=None, least=None, greatest=None)
    mean = statistics.mean(statistics.median(asked.values.values()) for asked in parts)
    return cell(f"{mean:.1f}", median=mean, least=None, greatest=None)


def pretraining(source: Source, scale: str, name: str) -> tuple[Table, ...]:
    """The held-out losses beside the unigram entropy, one line a run; no table where there is no run."""
    rows = []
    for experiment in experiments(source.records):
        if experiment.startswith(f"{scale}/glue_pretrain"):
            for tag, setting in settings(source, experiment).items():
                rows += [pretrained(experiment, tag, run) for run in setting.runs.values()]
    caption = "Pre-training, once for each conditioning:"
    return (Table(f"{name}_pretraining", PRETRAINING, tuple(rows), caption=caption),) if rows else ()


def once(source: Source, scale: str) -> list[Cell]:
    """That the seeds are those of fine-tuning alone, where no conditioning has more than one pre-training."""
    names = [name for name in experiments(source.records) if name.startswith(f"{scale}/glue_pretrain")]
    counts = [len(held.runs) for name in names for held in settings(source, name).values()]
    if not counts or max(counts) != 1:
        return []
    said = (
        "GLUE: each conditioning was pre-trained once; the seeds are of fine-tuning, so that no interval holds what "
        "another pre-training would change."
    )
    return [cell(said)]


def pretrained(experiment: str, tag: str, run: Recorded) -> tuple[Cell, ...]:
    """One run of a pre-training."""
    about, metrics, at = run.summary, run.summary["metrics"], folder(experiment, tag, run.seed)
    return (
        cell(experiment.split("/")[1].replace("_", "-")),
        cell(label(tag)),
        cell(str(run.seed), at),
        cell(f"{about['step']:,}", steps=about["step"]),
        cell(f"{about['tokens'] / 1e6:.1f} M", tokens=about["tokens"]),
        *(
            cell(text, at, **{key: metrics[key]})
            for key, text in (
                ("loss", f"{metrics['loss']:.3f}"),
                ("unigram_entropy", f"{metrics['unigram_entropy']:.3f}"),
                ("gain", f"{metrics['gain']:+.3f}"),
                ("accuracy", f"{metrics['accuracy']:.1f} %"),
            )
        ),
        cell(f"{about['timing']['seconds']:.0f}", s=about["timing"]["seconds"]),
    )


def scratch(lines: list[Line]) -> list[Cell]:
    """What pre-training gives over the same network without it."""
    compared = [(asked, told) for asked in lines if asked.tag == "baseline" and (told := between(asked, SCRATCH))]
    return [judged("pre-training, against the same network without it", compared)] if compared else []


def like_majority(lines: list[Line]) -> list[Cell]:
    """Which settings score like one constant answer: a difference between such numbers tells of no learning."""
    pieces: list[str | Piece] = []
    for asked in lines:
        constant = asked.before[1].parts["majority class"]
        if asked.values and constant is not None and statistics.mean(asked.values.values()) < constant + CLEAR:
            mean = Piece(f"{statistics.mean(asked.values.values()):.1f}", asked.home)
            pieces += ["; " if pieces else "", f"{asked.name}, {label(asked.tag)} (", mean, f" beside {constant:.1f})"]
    said = f"Less than {CLEAR:g} point above the majority class, so that a difference there tells of no learning: "
    return [sentence(said, *pieces, ".")] if pieces else []


def intro(scale: str, count: int) -> str:
    """What the numbers are."""
    what = "Not the paper's scale: a small crammed BERT, pre-trained for minutes and fine-tuned for at most one. "
    few = "" if count in (0, NUMBERS) else f" The paper's average is over nine numbers; {count} of them are here."
    return (
        f"{what if scale == 'reduced' else ''}Scores in percent on the dev sets after the last epoch (paper: five "
        f"seeds). {TEST} Median and range over the same seeds, as the recipe reports them; the average's median is the "
        "mean of the medians. Each method was pre-trained and fine-tuned with its own correction. Majority class: what "
        f"the training set's most frequent answer gets.{few} `s`: the longest run's training time in seconds. "
        "Commands take `DATA_ROOT=<folder>`."
    )
