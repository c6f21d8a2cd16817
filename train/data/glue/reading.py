"""One split of a task as sentences and labels: from the GLUE download's tsv files or the hub's parquet.

In the tsv files quotes are characters like any other, some begin with a byte-order mark, CoLA's have no header but
for the test set's, and columns of no use to the task hold `n/a`, `none` or commas as they like: columns are found by
name, and nothing but tabs and line ends divides them.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from train.data.glue.tables import Table
from train.errors import UserError
from train.schema_language import Glue

UNLABELLED = ("", "n/a", "-", "-1")


@dataclass(frozen=True)
class Rows:
    """One split."""

    path: Path
    first: list[str]
    second: list[str] | None  # None where the task has single sentences
    labels: list[float] | None  # class numbers or scores; None for a test set
    index: list[str]  # as the server wants it back

    def __len__(self) -> int:
        return len(self.first)


def read(options: Glue, table: Table, data_root: str | None, split: str) -> Rows:
    """One split, `test` without labels.

    Raises:
        UserError: a file is missing, cut short or malformed; names it, and the line.
    """
    labelled = not split.startswith("test")
    if options.layout == "folder":
        return _tsv(Path(data_root).expanduser() / "glue" / table.folder / f"{split}.tsv", table, labelled)
    folder = _hub(options) if options.layout == "hub" else Path(data_root).expanduser() / "glue"
    return _parquet(folder / options.name, table, split, labelled)


def check_rows(rows: Rows, wanted: int | None) -> None:
    """Refuse a split that is shorter or longer than the published one: a download that was cut off looks like this.

    Raises:
        UserError: naming the file and both numbers.
    """
    if wanted is not None and len(rows) != wanted:
        raise UserError(
            f"{rows.path} holds {len(rows)} rows, the published file {wanted}: it is cut short or another; "
            "dataset.rows=null takes it as it is"
        )


def _tsv(path: Path, table: Table, labelled: bool) -> Rows:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: byte {error.start}") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    header = table.header if labelled and table.header else tuple(lines.pop(0).split("\t"))
    wanted = (*table.columns, *((table.label,) if labelled else ()))
    lacking = [column for column in wanted if column not in header]
    if lacking:
        raise UserError(f"{path}: no column {', '.join(lacking)} in its header: {', '.join(header)[:200]}")
    places = [header.index(column) for column in wanted]
    begins = 1 if labelled and table.header else 2
    kept, index, odd, unlabelled = [], [], [], 0
    for number, line in enumerate(lines, begins):
        if not line and number == len(lines) + begins - 1:
            continue  # the end of the last line
        cells = line.split("\t")
        if len(cells) != len(header):
            odd.append(number)
            continue
        if labelled and cells[places[-1]].strip() in UNLABELLED:
            unlabelled += 1
            continue
        kept.append([cells[place] for place in places])
        index.append(cells[0] if header[0] in ("index", "id") and not labelled else str(number - begins))
    if odd and not table.tolerant:
        found = len(lines[odd[0] - begins].split("\t"))
        raise UserError(f"{path}, line {odd[0]}: {found} columns, not {len(header)}: the file is cut short or damaged")
    if odd or unlabelled:
        print(f"{path}: passed over {len(odd)} rows that lack columns, {unlabelled} without a label", file=sys.stderr)
    if not kept:
        raise UserError(f"{path} holds no rows")
    labels = [_label(row[-1], table, path) for row in kept] if labelled else None
    second = [row[1] for row in kept] if len(table.columns) == 2 else None
    return Rows(path, [row[0] for row in kept], second, labels, index)


def _label(cell: str, table: Table, path: Path) -> float:
    cell = cell.strip()
    if table.labels:
        if cell not in table.labels:
            raise UserError(f"{path}: a label is {cell!r}, not one of {', '.join(table.labels)}")
        return table.labels.index(cell)
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 5:
        raise UserError(f"{path}: a score is {cell!r}, not a number from 0 to 5")
    return score


def _parquet(folder: Path, table: Table, split: str, labelled: bool) -> Rows:
    import pyarrow
    import pyarrow.parquet

    files = sorted(folder.glob(f"{table.shards(split)}-*.parquet"))
    if not files:
        raise UserError(f"{folder} lacks {table.shards(split)}-*.parquet")
    columns = list(table.hub or table.columns)
    try:
        content = pyarrow.concat_tables(
            [pyarrow.parquet.read_table(file, columns=[*columns, "label", "idx"]) for file in files]
        )
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{files[0]} cannot be read as parquet: {str(error).splitlines()[0]}") from None
    sentences = [content[name].to_pylist() for name in columns]
    labels = content["label"].to_pylist()
    if any(text is None for column in sentences for text in column):
        raise UserError(f"{files[0]}: a sentence is missing")
    if labelled:
        highest = len(table.labels) - 1 if table.labels else 5
        if not all(label is not None and 0 <= label <= highest for label in labels):
            raise UserError(f"{files[0]}: a label is missing, or none of 0 to {highest}")
    if not labels:
        raise UserError(f"{files[0]} holds no rows")
    return Rows(
        files[0],
        sentences[0],
        sentences[1] if len(sentences) == 2 else None,
        labels if labelled else None,
        [str(number) for number in content["idx"].to_pylist()],
    )


def _hub(options: Glue) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                options.hub, revision=options.revision, repo_type="dataset", allow_patterns=f"{options.name}/*.parquet"
            )
        )
    except Exception as error:  # no network, no such data set: the hub's client has many ways to say so
        raise UserError(
            f"{options.hub} at {options.revision} cannot be had from the hub: {' '.join(str(error).split())[:200]}"
        ) from None
