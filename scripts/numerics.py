"""Where λI is best added under autocast: forward and gradient error of three mechanisms against float64.

    python -m scripts.numerics            # prints the table and writes results/numerics.md (about a minute, CPU)

A fused qkv layer as timm initialises it (width 256, standard deviation 0.02) meets 4,096 tokens of unit variance,
as after a LayerNorm; the loss is ½‖y‖² per token. Errors are relative Frobenius norms against the same layer in
float64. The last column asks what is left of W beside λ: the diagonal of W is recovered from inputs and outputs by
least squares, and compared with the true one (near 1: nothing is left of it).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTH, TOKENS, SEEDS = 256, 4096, 5


def add_to_weight(x: Tensor, w: Tensor, lam: float) -> Tensor:
    """W + λI in float32, cast by autocast with the rest of the weight (also `torch.nn.utils.parametrize`)."""
    return F.linear(x, w + lam * torch.eye(WIDTH, dtype=w.dtype).repeat(3, 1))


def add_to_output(x: Tensor, w: Tensor, lam: float) -> Tensor:
    """XW in low precision, plus λx rounded to low precision first."""
    y = F.linear(x, w)
    return y + (lam * x).to(y.dtype).repeat(1, 3)


def add_to_output_float32(x: Tensor, w: Tensor, lam: float) -> Tensor:
    """XW in low precision, plus λx in the precision of x; the sum is rounded once."""
    y = F.linear(x, w)
    return (y.to(x.dtype) + (lam * x).repeat(1, 3)).to(y.dtype)


MECHANISMS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "W + λI before the cast": add_to_weight,
    "λx to the output, rounded first": add_to_output,
    "λx to the output in float32": add_to_output_float32,
}


def run(mechanism: Callable, x: Tensor, w: Tensor, lam: float, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Output, gradients and recovered diagonal, in float64."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        y = mechanism(x, w, lam)
    (0.5 * y.double().square().sum() / len(x)).backward()
    out, inputs = y.detach().double(), x.detach().double()
    recovered = torch.linalg.lstsq(inputs, out - lam * inputs.repeat(1, 3)).solution.T
    diagonal = recovered.unflatten(0, (3, WIDTH)).diagonal(dim1=-2, dim2=-1)
    return {"output": out, "grad x": x.grad.double(), "grad W": w.grad.double(), "diagonal of W": diagonal}


def measure(lam: float, dtype: torch.dtype) -> dict[str, dict[str, float]]:
    """mechanism -> quantity -> relative error, the mean over seeds."""
    errors: dict[str, dict[str, list[float]]] = {name: {} for name in MECHANISMS}
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        w = torch.nn.init.trunc_normal_(torch.empty(3 * WIDTH, WIDTH), std=0.02, generator=generator)
        x = torch.randn(TOKENS, WIDTH, generator=generator)
        exact = run(add_to_weight, x.double(), w.double(), lam, None)
        for name, mechanism in MECHANISMS.items():
            for quantity, value in run(mechanism, x, w, lam, dtype).items():
                error = ((value - exact[quantity]).norm() / exact[quantity].norm()).item()
                errors[name].setdefault(quantity, []).append(error)
    return {name: {q: sum(e) / len(e) for q, e in row.items()} for name, row in errors.items()}


def table() -> str:
    """The table as markdown."""
    quantities = ["output", "grad x", "grad W", "diagonal of W"]
    lines = [
        "# Precision of the correction under autocast",
        "",
        f"Relative errors against float64, mean of {SEEDS} seeds; written by `python -m scripts.numerics`, which "
        "says what is measured.",
        "",
        f"| λ | autocast | mechanism | {' | '.join(quantities)} |",
        "|---|---|---|" + "---|" * len(quantities),
    ]
    for lam in (0.3, 1.0, 10.0):
        for dtype, short in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
            for name, row in measure(lam, dtype).items():
                lines.append(f"| {lam:g} | {short} | {name} | {' | '.join(f'{row[q]:.1e}' for q in quantities)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the table and writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "results" / "numerics.md")
    arguments = parser.parse_args()
    text = table()
    print(text)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(text)


if __name__ == "__main__":
    main()
