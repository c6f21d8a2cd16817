"""What conditioning costs the ViT row: time, memory, FLOPs and parameters of a training step, in one interleaved run.

    python -m scripts.bench_cost --scale reduced   # the small ViT, within five minutes on two cores
    python -m scripts.bench_cost --scale paper     # ViT-B on a GPU, the largest batch that fits

Variants: plain, identity (λ = 10), svd computed once, and svd computed anew from the present W every n steps, which is
done through the public API (`recompute`). Each round measures a block of steps of every variant, and of plain a second
time: the ratio of the two is the null. The weights are not updated, so that all blocks do the same arithmetic.

FLOPs are torch's count of matrix products and convolutions, forward and backward, plus thin singular value
decompositions at 14 m n² + 8 n³ (Golub and Van Loan); element-wise work, λx and W + C among it, is counted for none.
Written to results/cost.json, where a scale that was not measured now stays as it was.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from scripts.paired_steps import LAM, Steps, interleaved, ratios
from specattn import condition, find_projections, fold
from train.compose import resolve
from train.distributed import Place
from train.errors import USAGE, UserError, WriteError
from train.record import environment
from train.record_files import write
from train.tasks import plain_model

RESULT = Path("results/cost.json")
NULL = "plain again"
LARGEST = 512  # images, the first batch that is tried on a GPU


def recompute(model: torch.nn.Module) -> None:
    """Replace the svd correction by the one of the present W: `fold`, put W back, `condition` again."""
    stored = list({id(p.stored): p.stored for p in find_projections(model)}.values())
    kept = [weight.detach().clone() for weight in stored]
    fold(model)
    with torch.no_grad():
        for weight, value in zip(stored, kept, strict=True):
            weight.copy_(value)
    condition(model, LAM["svd"], "svd")


def svd_flops(shape: tuple[int, ...], *_: object, **__: object) -> int:
    """FLOPs of thin singular value decompositions of `shape` [..., r, c]."""
    *batch, rows, columns = shape
    m, n = max(rows, columns), min(rows, columns)
    return math.prod(batch) * (14 * m * n**2 + 8 * n**3)


def flops(work: Callable[[], object]) -> int:
    """FLOPs of some work, as the module's docstring says; attention by its plain formula on every device."""
    mapping = {torch.ops.aten._linalg_svd: svd_flops}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        work()
    return counter.get_total_flops()


def steps_of(config: DictConfig, device: str, batch: int, precision: str) -> Steps:
    """The row's model and a random batch, measured once so that its memory is known to suffice."""
    torch.manual_seed(0)
    data = config.dataset
    images = torch.randn(batch, len(data.mean), data.image_size, data.image_size, device=device)
    labels = torch.randint(0, data.classes, (batch,), device=device)
    dtype = torch.bfloat16 if precision == "bf16" else None
    steps = Steps(plain_model(config).to(device), images, labels, dtype)
    steps.as_variant("svd", steps.timed_step)  # the one that keeps most
    return steps


def fitting(config: DictConfig, device: str, precision: str) -> Steps:
    """As `steps_of`, with the largest power of two that the GPU's memory holds.

    Raises:
        UserError: not even one image fits.
    """
    batch = min(LARGEST, config.batch_size)
    while batch:
        torch.cuda.empty_cache()  # not below: the error there still holds what did not fit
        try:
            return steps_of(config, device, batch, precision)
        except torch.cuda.OutOfMemoryError:
            batch //= 2
    raise UserError("not one image fits into the GPU's memory")


def variants(steps: Steps, every: list[int]) -> dict[str, tuple[str, int | None]]:
    """Name → the conditioning to attach, and after how many steps it is computed anew."""
    named = {"plain": ("plain", None), NULL: ("plain", None), "identity": ("identity", None), "svd": ("svd", None)}
    return named | {f"svd, every {f'{n} steps' if n > 1 else 'step'}": ("svd", n) for n in every}


def block(steps: Steps, length: int, every: int | None) -> float:
    """Seconds of one step of a block, the recomputations that fall into it included."""

    def work() -> None:
        for index in range(length):
            if every is not None and index % every == 0:
                recompute(steps.model)
            steps.step()

    return steps.timed(work) / length


def measure(steps: Steps, every: list[int], rounds: int, seconds: float) -> list[dict]:
    """One row a variant; sizes first, then times for as long as there is (`scripts.paired_steps.interleaved`)."""
    asked = variants(steps, every)
    length = max(every)
    anew = partial(recompute, steps.model)
    work_again = steps.as_variant("svd", lambda: flops(anew))
    memory_again = steps.as_variant("svd", lambda: steps.peak_bytes(anew))
    sizes = {name: (steps.as_variant(name, steps.peak_bytes), steps.as_variant(name, lambda: flops(steps.step)))
             for name in dict.fromkeys(attached for attached, _ in asked.values())}  # fmt: skip
    measures = {
        name: partial(steps.as_variant, attached, partial(block, steps, length, n))
        for name, (attached, n) in asked.items()
    }
    times = interleaved(measures, rounds, seconds, lambda done: said(f"round {done} of at most {rounds}"))
    null = ratios(times, NULL, "plain")[1]
    rows = []
    for name, (attached, n) in asked.items():
        if name == NULL:
            continue
        low, middle, high = ratios(times, name, "plain")
        peak, count = sizes[attached]
        rows.append(
            {
                "name": name,
                "seconds": statistics.median(times[name]),
                "seconds_std": statistics.stdev(times[name]),
                "ratio": middle,
                "ratio_low": low,
                "ratio_high": high,
                "null_ratio": null,
                "memory_bytes": int(peak if n is None else max(peak, memory_again)),
                "flops": count + (work_again // n if n is not None else 0),
                "parameters": sum(parameter.numel() for parameter in steps.model.parameters()),
                "rounds": len(times[name]),
            }
        )
    return rows


def stored(path: Path, scale: str, rows: list[dict], about: dict) -> dict:
    """The file's content with one scale's rows and environment put in place of its own.

    Raises:
        UserError: the file that is there is not one of these.
    """
    held = {"environment": {}, "rows": []}
    if path.exists():
        try:
            held = json.loads(path.read_text())
            others = [row for row in held["rows"] if row["scale"] != scale]
            return {
                "environment": held["environment"] | {scale: about},
                "rows": others + [{"scale": scale, **row} for row in rows],
            }
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged: move it away") from None
    return {"environment": {scale: about}, "rows": [{"scale": scale, **row} for row in rows]}


def said(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    """Measure one scale and write it down; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("reduced", "paper"), default="reduced")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="(a GPU for the paper's scale, else the CPU)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="(bf16 on a GPU, else fp32)")
    parser.add_argument("--batch", type=int, help="(the row's; on a GPU the largest that fits, at most 512)")
    parser.add_argument("--every", default="10,50", help="steps between recomputations, comma-separated (10,50)")
    parser.add_argument("--rounds", type=int, default=15, help="at most so many (15)")
    parser.add_argument("--minutes", type=float, default=4, help="no round begins after so long (4)")
    parser.add_argument("--model", nargs="*", default=[], help="words for the config, as model.args.depth=2")
    parser.add_argument("--output", type=Path, default=RESULT)
    chosen = parser.parse_args(words)
    try:
        device = chosen.device or ("cuda" if chosen.scale == "paper" else "cpu")
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("there is no GPU here: --scale paper takes hours without one (--device cpu --batch 8)")
        precision = chosen.precision or ("bf16" if device == "cuda" else "fp32")
        if not all(word.strip().isdecimal() and int(word) for word in chosen.every.split(",")):
            raise UserError(f"--every {chosen.every}: write whole numbers of steps, as 10,50")
        if chosen.rounds < 2 or (chosen.batch is not None and chosen.batch < 1):
            raise UserError("--rounds must be at least 2, --batch at least 1")
        every = sorted({int(word) for word in chosen.every.split(",")})
        config = resolve([f"experiment={chosen.scale}/imagenet_vit", *chosen.model])
        stored(chosen.output, chosen.scale, [], {})  # a damaged file is said before, not after, the measuring
        if chosen.batch is None and device == "cuda":
            steps = fitting(config, device, precision)
        else:
            steps = steps_of(config, device, chosen.batch or config.batch_size, precision)
        rows = measure(steps, every, chosen.rounds, 60 * chosen.minutes)
        about = environment(Place(0, 1, torch.device(device)), precision) | {"batch": len(steps.images)}
        content = stored(chosen.output, chosen.scale, rows, about)
        write(chosen.output, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except (UserError, WriteError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"\nstopped: {chosen.output} is as it was", file=sys.stderr)
        return 130
    for row in rows:
        print(f"{row['name']:<24} {1e3 * row['seconds']:9.2f} ms  {row['ratio']:.4f} (null {row['null_ratio']:.4f})  "
              f"{row['memory_bytes'] / 2**20:9.1f} MiB  {row['flops'] / 1e9:.2f} GFLOPs")  # fmt: skip
    print(f"written: {chosen.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
