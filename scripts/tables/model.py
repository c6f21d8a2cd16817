"""What a table is: rows of cells, each cell text that knows which record it came from."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Piece:
    """Some text; `link` is the record that it came from (a path below results/), `code` sets it as typed."""

    text: str
    link: str = ""
    code: bool = False


@dataclass(frozen=True)
class Cell:
    """Pieces of text, and in `parts` the same as plain values: CSV has a column for each."""

    pieces: tuple[Piece, ...] = ()
    parts: dict[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Without links."""
        return "".join(piece.text for piece in self.pieces)


def cell(text: str = "", link: str = "", code: bool = False, **parts: object) -> Cell:
    """A cell of one piece (of none where the text is empty)."""
    return Cell((Piece(text, link, code),) if text else (), parts)


def sentence(*pieces: str | Piece) -> Cell:
    """A line of text in which some pieces are linked."""
    return Cell(tuple(Piece(piece) if isinstance(piece, str) else piece for piece in pieces))


@dataclass(frozen=True)
class Table:
    """Named columns and rows of as many cells.

    `aside` names the columns that a narrow page (LaTeX) puts beneath the table, each different value once.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    aside: tuple[str, ...] = ()
    caption: str = ""

    def __post_init__(self) -> None:
        """A row of another length would silently shift every number after it."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells under {len(self.columns)} columns")


@dataclass(frozen=True)
class Page:
    """A table of the paper at one scale: what it is, its tables, what they say, and where they come from."""

    name: str
    title: str
    scale: str
    intro: str
    tables: tuple[Table, ...]
    notes: tuple[Cell, ...]
    provenance: Cell
