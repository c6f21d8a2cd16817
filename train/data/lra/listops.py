"""ListOps: basic_{train,val,test}.tsv with the header Source, Target.

Parentheses are dropped, `]` is read as `X`, what is left is split at spaces. Where the original collects its
vocabulary from the validation split, in an order that differs from run to run, ours is fixed: ids from 1 in the order
of `VOCABULARY`; 0 is the padding. A token outside it is an error, where the original has an out-of-vocabulary id.
"""

from pathlib import Path

from omegaconf import DictConfig

from train.data.lra.lines import columns, opened, quoted
from train.data.lra.tokens import Builder, TokenSet, limited
from train.errors import UserError

VOCABULARY = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "X")
FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = [b"Source", b"Target"]

# For speed every token becomes one byte, and a table turns bytes into ids: a row of 2,000 tokens takes 30 µs.
OPERATORS = {b"[MIN": b"\xf0", b"[MAX": b"\xf1", b"[MED": b"\xf2", b"[SM": b"\xf3"}
SHORT = b"0123456789\xf0\xf1\xf2\xf3X"
IDS = bytes.maketrans(SHORT, bytes(range(1, len(VOCABULARY) + 1)))
OPENS, CLOSES = bytes(range(11, 15)), bytes([15])


def ids(source: bytes) -> bytes | str:
    """The token ids of a row, a byte each; or what is wrong with it."""
    bare = source.translate(None, b"()").replace(b"]", b"X")
    for operator, short in OPERATORS.items():
        bare = bare.replace(operator, short)
    tokens = bare.split()
    joined = b"".join(tokens)
    if len(tokens) != len(joined) or joined.translate(None, SHORT):
        known = {token.encode() for token in VOCABULARY}
        strange = [t for t in source.translate(None, b"()").replace(b"]", b"X").split() if t not in known]
        return f"{quoted(strange[0] if strange else source)} is not in the vocabulary {' '.join(VOCABULARY)}"
    if not joined:
        return "no token"
    found = joined.translate(IDS)
    if len(found.translate(None, OPENS)) - len(found.translate(None, CLOSES)) != 0:
        return "an operator is never closed, or closed twice: the row is cut short?"
    return found


def read(path: Path, max_length: int, padded_length: int) -> TokenSet:
    """One split.

    Raises:
        UserError: naming file and line of what is wrong.
    """
    built = Builder(max_length, padded_length)
    lines = opened(path)
    number, header = next(lines)
    if columns(path, number, header, 2) != HEADER:
        raise UserError(f"{path}: the header is {quoted(header)}, not 'Source', a tab, 'Target'")
    for number, line in lines:
        source, target = columns(path, number, line, 2)
        if len(target) != 1 or not target.isdigit():
            raise UserError(f"{path}, line {number}: the target is {quoted(target)}, not a digit")
        found = ids(source)
        if isinstance(found, str):
            raise UserError(f"{path}, line {number}: {found}")
        built.add(int(target), found)
    if number == 1:
        raise UserError(f"{path} holds a header and no row")
    return built.done()


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """The three splits."""
    found = {}
    for split, name in FILES.items():
        samples = read(root / options.folder / name, options.max_length, options.padded_length)
        key = "train_size" if split == "train" else "eval_size"
        found[split] = limited(samples, getattr(options, key), key)
    return found
