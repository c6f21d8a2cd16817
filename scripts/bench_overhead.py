"""What conditioning costs a training step of timm's ViT-B/16 (batch 8, 224 px; AdamW): time and memory.

    python -m scripts.bench_overhead                    # about ten minutes on two cores
    python -m scripts.bench_overhead --precision bf16   # autocast, for a GPU

One model takes its steps in turn as plain, plain again (the null), identity, svd, and identity by
`torch.nn.utils.parametrize`; the ratio to plain is the median over rounds of steps taken next to each other. As a
ratio of whole steps drowns in the noise of the machine, the correction's own forward and backward time is measured
alone as well, on tensors of the model's sizes, and set against the plain step, the fastest of each: it must be at
most 1 %, and the peak of allocated bytes at most 1 % above plain's for identity. The paper reports 1.002 (29:33
against 29:29) for identity, and 1.41 for an SVD that is computed again along the way.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import timm
import torch
from torch import nn
from torch.nn.utils import parametrize

from scripts.paired_steps import LAM, Steps, interleaved, ratios
from specattn import condition, fold
from specattn.diagonal import _add, _add_transposed


class AddIdentity(nn.Module):
    """The parametrization that the package's own mechanism is compared with."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """W + λI on each of the three blocks."""
        outputs, inputs = weight.shape
        eye = torch.eye(inputs, dtype=weight.dtype, device=weight.device)
        return weight + LAM["identity"] * eye.repeat(outputs // inputs, 1)


class Bench(Steps):
    """The model as timm has it, with the package's conditionings and the parametrization to switch between."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.manual_seed(0)
        model = timm.create_model(arguments.model, num_classes=1000).to(arguments.device)
        size = model.patch_embed.img_size
        images = torch.randn(arguments.batch, 3, *size, device=arguments.device)
        labels = torch.randint(0, 1000, (arguments.batch,), device=arguments.device)
        super().__init__(model, images, labels, torch.bfloat16 if arguments.precision == "bf16" else None)

    def as_variant(self, variant: str, function: Callable[[], float]) -> float:
        """Runs `function` with the model as `variant`."""
        if variant != "parametrize":
            return super().as_variant(variant, function)
        for layer in self.layers:
            parametrize.register_parametrization(layer, "weight", AddIdentity())
        try:
            return function()
        finally:
            for layer in self.layers:
                parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)

    def correction_alone(self, method: str, repeats: int = 25) -> float:
        """Seconds that the correction itself takes in one step, forward and backward, over all layers."""
        held = self.held[method]
        tokens = self.images.shape[0] * (self.model.patch_embed.num_patches + self.model.num_prefix_tokens)
        low = self.dtype or torch.float32
        work = []
        for layer, corrections in zip(self.layers, held, strict=True):
            if corrections.diagonal:
                x = torch.randn(tokens, layer.in_features, device=self.device)
                y, grad = (torch.randn(tokens, layer.out_features, device=self.device, dtype=low) for _ in range(2))
                runs, lam = corrections._runs(), corrections.setting.lam
                work += [partial(_add, y, x, runs, lam, None), partial(_add_transposed, x, grad, runs, lam, None)]
            else:
                # W + C; the gradient of W + C is that of W, so that the backward pass does nothing more.
                weight = layer.weight.detach()
                work.append(partial(torch.add, weight, corrections.matrix("weight", weight)))

        def once() -> None:
            for function in work:
                function()

        once()
        return min(self.timed(once) for _ in range(repeats))


def measure(arguments: argparse.Namespace) -> list[str]:
    """The report as lines of markdown."""
    bench = Bench(arguments)
    variants = ["plain", "plain again", *bench.held, "parametrize"]
    peak = {v: bench.as_variant(v, bench.peak_bytes) for v in variants}
    times = interleaved({v: partial(bench.as_variant, v, bench.timed_step) for v in variants}, arguments.rounds)
    plain = statistics.median(times["plain"])
    hardware = torch.cuda.get_device_name() if bench.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    lines = [
        f"# Cost of conditioning: {arguments.model}, batch {arguments.batch}, {arguments.precision}, {hardware}",
        "",
        f"Written by `python -m scripts.bench_overhead`; torch {torch.__version__}, {arguments.rounds} rounds, median "
        f"plain step {plain * 1e3:.1f} ms. Ratios: median over rounds (quartiles).",
        "",
        "| variant | step / plain step | correction alone, of a plain step (fastest of each) | peak bytes / plain |",
        "|---|---|---|---|",
    ]
    for variant in variants[1:]:
        low, middle, high = ratios(times, variant, "plain")
        alone = f"{bench.correction_alone(variant) / min(times['plain']):.2%}" if variant in bench.held else ""
        lines.append(
            f"| {variant} | {middle:.4f} ({low:.4f} to {high:.4f}) | {alone} | {peak[variant] / peak['plain']:.4f} |"
        )
    folded = fold(condition(bench.model, LAM["identity"]))
    plain_types = [type(m) for m in timm.create_model(arguments.model, num_classes=1000).modules()]
    lines += [
        "",
        f"`condition` itself, once: identity {bench.seconds['identity']:.2f} s, svd {bench.seconds['svd']:.1f} s. "
        f"After `fold`: module types equal to the plain model's: {[type(m) for m in folded.modules()] == plain_types}.",
    ]
    return lines


def main() -> None:
    """Prints the report, and writes it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="a markdown file to write the report to")
    arguments = parser.parse_args()
    report = "\n".join(measure(arguments)) + "\n"
    print(report)
    if arguments.output is not None:
        arguments.output.write_text(report)


if __name__ == "__main__":
    main()
