"""`python -m specattn report MODEL --lam 10`: spectra, attention and warnings of a model, without training."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from pathlib import Path
from typing import NoReturn


class UsageError(Exception):
    """Something the user can put right; its message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _lam(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    from specattn.correction import METHODS
    from specattn.setting import LAYOUTS

    parser = _Parser(prog="python -m specattn", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    report = commands.add_parser(
        "report",
        help="singular values, attention statistics and saturation warnings, plain beside conditioned",
        description="Singular values of every W_Q, W_K, W_V and of W + C, and what attention does with them.",
    )
    report.add_argument("model", help="a timm model name, or a folder with a transformers model (config.json)")
    report.add_argument("--lam", type=_lam, default=None, metavar="λ", help="default: the method's own (identity: 10)")
    report.add_argument("--method", choices=METHODS, default="identity")
    report.add_argument("--layout", choices=LAYOUTS, default="matrix")
    report.add_argument("--targets", default="qkv", help="which projections, any of q, k, v")
    report.add_argument("--modules", default=None, metavar="GLOB", help="which attention modules, by dotted name")
    report.add_argument("--weights", type=Path, metavar="FILE", help="safetensors state dict for a timm model")
    report.add_argument("--images", type=Path, metavar="FOLDER", help="photos to run on; without it, random input")
    report.add_argument("--count", type=_positive, default=4, help="how many images or sequences (default 4)")
    report.add_argument(
        "--jacobian", type=_positive, metavar="TOKENS", help="κ of the attention Jacobian too, on so many tokens"
    )
    report.add_argument("--seed", type=int, default=0, help="of random weights and input (default 0)")
    report.add_argument("--csv", action="store_true", help="one CSV row per layer and projection, warnings to stderr")
    report.add_argument("--plot", type=Path, metavar="FILE", help="write a PNG beside the table")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; 0, or 2 after one line on stderr that says what to put right."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # of the libraries whose models are looked at
    try:
        options = build_parser().parse_args(arguments)
        from specattn.report import run

        run(options)
    except (UsageError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
