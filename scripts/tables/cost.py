"""The cost table: a step's time, memory, FLOPs and parameters, measured by `scripts/bench_cost.py` in one run."""

from scripts.shape import COST
from scripts.tables.model import Cell, Page, Piece, Table, cell, sentence
from scripts.tables.rows import device, given
from scripts.tables.settings import RESTORE, Source
from train.errors import UserError

RECORD = "cost.json"
NAMES = {"plain": "plain", "identity": "λI", "svd": "svd, once", "svd, every step": "svd, every step"}
ASIDE = ("scale", "hardware", "command")
TITLES = ("step", "ratio to plain (quartiles)", "plain against itself", "peak memory", "FLOPs", "parameters")
METRICS = ("seconds", "seconds_std", "ratio", "ratio_low", "ratio_high", "null_ratio")
METRICS += ("memory_bytes", "flops", "parameters")


def page(source: Source, scale: str) -> Page:
    """The page of one scale."""
    record = source.json(RECORD, COST) or {}
    if lacks := {row["scale"] for row in record.get("rows", [])} - record.get("environment", {}).keys():
        raise UserError(f"{source.results / RECORD} is damaged: environment.{min(lacks)} is missing: {RESTORE}")
    measured = {row["name"]: row for row in record.get("rows", []) if row["scale"] == scale}
    paper = source.paper("cost")["rows"]
    rows = []
    for key in dict.fromkeys([*NAMES, *measured]):
        papers = (given(paper[key]["values"][0] if key in paper else None),) if scale == "paper" else ()
        rows.append((cell(NAMES.get(key, key)), *papers, *costs(measured.get(key)), cell(scale),
                     cell(device(record["environment"][scale]) if key in measured else ""),
                     cell("make cost" + (" SCALE=reduced" if scale == "reduced" else ""), code=True)))  # fmt: skip
    name = "cost" if scale == "paper" else "cost_reduced"
    titles = ("correction", *(("paper, wall time",) if scale == "paper" else ()), *TITLES, *ASIDE)
    return Page(
        name,
        "Cost of conditioning" + ("" if scale == "paper" else ", reduced"),
        scale,
        intro(scale),
        (Table(name, titles, tuple(rows), ASIDE),),
        dearer(measured),
        made(measured),
    )


def costs(row: dict | None) -> tuple[Cell, ...]:
    """The measured cells; `not run` where there is no measurement."""
    if row is None:
        first = cell("not run", state="not run", seconds=None, seconds_std=None)
        second = cell("", ratio=None, ratio_low=None, ratio_high=None)
        return first, second, *(cell("", **{metric: None}) for metric in METRICS[5:])
    std, low, high = (row.get(name) for name in ("seconds_std", "ratio_low", "ratio_high"))
    spread = "" if std is None else f" ± {1000 * std:.1f}"
    ends = "" if low is None or row["name"] == "plain" else f" ({low:.3f} to {high:.3f})"
    return (
        cell(f"{1000 * row['seconds']:.1f}{spread} ms", RECORD, state="run", seconds=row["seconds"], seconds_std=std),
        cell(f"{row['ratio']:.3f}{ends}", RECORD, ratio=row["ratio"], ratio_low=low, ratio_high=high),
        number(row, "null_ratio", "{:.3f}"),
        number(row, "memory_bytes", "{:.1f} MiB", 2**20),
        number(row, "flops", "{:.4g} G", 1e9),
        number(row, "parameters", "{:.4g} M", 1e6),
    )


def number(row: dict, key: str, form: str, unit: float = 1) -> Cell:
    """One measured number; empty where it was not measured."""
    value = row.get(key)
    return cell("" if value is None else form.format(value / unit), RECORD, **{key: value})


def intro(scale: str) -> str:
    """What the numbers are."""
    what = "ViT-B" if scale == "paper" else "Not the paper's scale: the reduced ViT"
    paper = (
        " The paper's wall times are a third party's reading of it (medium confidence), on hardware not known to us."
        if scale == "paper"
        else ""
    )
    return (
        f"{what}: an optimizer step without conditioning (plain), with λI, with the svd correction computed once, and "
        "with it computed anew every n steps, all interleaved in one run. Plain against itself is what the ratio shows "
        f"where nothing differs: the measurement's own error.{paper}"
    )


def dearer(measured: dict[str, dict]) -> tuple[Cell, ...]:
    """Each correction's ratio beside the error of the measurement, in one sentence."""
    pieces: list[str | Piece] = []
    for name, row in measured.items():
        if name != "plain" and row.get("ratio") is not None:
            pieces += [
                "; " if pieces else "",
                f"{NAMES.get(name, name)} ",
                Piece(f"{100 * (row['ratio'] - 1):+.2f} %", RECORD),
            ]
    nulls = [row["null_ratio"] for row in measured.values() if row.get("null_ratio") is not None]
    error = f" (plain against itself: {100 * (nulls[0] - 1):+.2f} %)" if nulls else ""
    return (sentence("A step's time beside the plain step: ", *pieces, f"{error}."),) if pieces else ()


def made(measured: dict[str, dict]) -> Cell:
    """Where the page comes from."""
    if not measured:
        return sentence("Not measured yet. Made by ", Piece("make tables", code=True), f" from results/{RECORD}.")
    return sentence("Made by ", Piece("make tables", code=True), " from ", Piece(f"results/{RECORD}", RECORD), ".")
