"""Our Nyström attention layer against transformers': time of forward and backward, and how memory grows.

    python -m scripts.bench_nystrom            # about two minutes on one core
    python -m scripts.bench_nystrom --record   # writes results/bench_nystrom.md as well

Both layers have the same weights and get the same input: a full mask, the original initialisation of the
pseudo-inverse, no dropout, no output projection. Rounds are interleaved in one process, in random order, and each
round runs ours twice, the second time as the null. A ratio is the median over rounds of two times taken next to each
other.

Memory: each size in a process of its own that takes one step at 128 tokens, reads its peak resident set (VmHWM, so
Linux alone), takes one step at full size and reads it again. The difference is what the table shows; it holds the
input, all activations and the gradients.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import NystromformerConfig
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

from scripts.paired_steps import interleaved, ratios
from specattn.models.nystromformer import LongRangeAttention

BATCH, DIM, HEADS, LANDMARKS, KERNEL = 8, 64, 2, 64, 35
RESULT = Path("results/bench_nystrom.md")


def layers(tokens: int) -> dict[str, nn.Module]:
    """Both layers, on the same weights."""
    torch.manual_seed(0)
    config = NystromformerConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_landmarks=LANDMARKS,
        segment_means_seq_len=tokens,
        conv_kernel_size=KERNEL,
        attention_probs_dropout_prob=0.0,
        inv_coeff_init_option=False,
    )
    theirs = NystromformerSelfAttention(config)
    ours = LongRangeAttention(DIM, HEADS, landmarks=LANDMARKS, conv_kernel=KERNEL, pinv_init="original")
    ours.out_proj = nn.Identity()
    state = theirs.state_dict()
    state["conv.weight"] = state["conv.weight"].squeeze(-1)  # [H, 1, K, 1]
    ours.load_state_dict(state)
    return {"transformers": theirs, "ours": ours}


def step(layer: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients of one forward and backward pass."""
    x = x.detach().requires_grad_()
    layer.zero_grad(set_to_none=True)
    if isinstance(layer, LongRangeAttention):
        out = layer(x, torch.ones(*x.shape[:2], 1, dtype=torch.bool))
    else:
        out = layer(x, torch.zeros(x.shape[0], 1, 1, x.shape[1]))[0]
    out.backward(x.detach())
    return out.detach(), {"input": x.grad} | {n: p.grad.squeeze() for n, p in layer.named_parameters()}


def speed(tokens: int, rounds: int) -> list[str]:
    """The table of times."""
    both = layers(tokens)
    x = torch.randn(BATCH, tokens, DIM)
    (their_out, their_grads), (our_out, our_grads) = (step(layer, x) for layer in both.values())
    error = float((our_out - their_out).abs().max() / their_out.abs().max())
    # A shift of all keys changes no softmax: the gradient in their bias is zero, and rounding is all that is there.
    gradient_error = max(
        float((our_grads[name] - g).norm() / g.norm()) for name, g in their_grads.items() if name != "key.bias"
    )
    both["ours again"] = both["ours"]

    def timed(layer: nn.Module) -> float:
        start = time.perf_counter()
        step(layer, x)
        return time.perf_counter() - start

    def told(done: int) -> None:
        print(f"\rround {done} of {rounds}", end="" if done < rounds else "\n", file=sys.stderr, flush=True)

    times = interleaved({name: partial(timed, layer) for name, layer in both.items()}, rounds, told=told)
    lines = ["| layer | median, ms | its time / ours: median over rounds (quartiles) |", "|---|---|---|"]
    for name, seconds in times.items():
        low, middle, high = ratios(times, name, "ours")
        shown = "1" if name == "ours" else f"{middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| {name} | {statistics.median(seconds) * 1e3:.0f} | {shown} |")
    return [
        *lines,
        "",
        f"Largest difference of the outputs {error:.1e} of the largest output; of the gradients (input, weights, "
        f"biases) in norm {gradient_error:.1e} of theirs.",
    ]


def peak_bytes() -> int:
    """Largest resident set of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def memory_of(name: str, tokens: int) -> int:
    """Bytes above the baseline at the peak of one step; called in a fresh process."""
    step(layers(128)[name], torch.randn(1, 128, DIM))
    layer, baseline = layers(tokens)[name], peak_bytes()
    step(layer, torch.randn(BATCH, tokens, DIM))
    return peak_bytes() - baseline


def memory(tokens: int, threads: int) -> list[str]:
    """The table of memory, each number from a process of its own."""
    lines = [f"| layer | {tokens} tokens, MB | {2 * tokens} tokens, MB | growth |", "|---|---|---|---|"]
    for name in ("transformers", "ours", "ours again"):
        found = []
        for size in (tokens, 2 * tokens):
            words = ["--child", name.removesuffix(" again"), "--tokens", str(size), "--threads", str(threads)]
            done = subprocess.run(
                [sys.executable, "-m", "scripts.bench_nystrom", *words], stdout=subprocess.PIPE, text=True, check=True
            )
            found.append(json.loads(done.stdout) / 2**20)
        lines.append(f"| {name} | {found[0]:.0f} | {found[1]:.0f} | {found[1] / found[0]:.2f} |")
    return lines


def main() -> None:
    """Prints the report, and writes it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--record", action="store_true", help=f"write {RESULT}")
    parser.add_argument("--child", choices=["transformers", "ours"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.child:
        print(memory_of(arguments.child, arguments.tokens))
        return
    report = [
        f"# Nyström attention: batch {BATCH}, {HEADS} heads × {DIM // HEADS}, {LANDMARKS} landmarks, kernel {KERNEL}",
        "",
        f"Written by `python -m scripts.bench_nystrom --record`; torch {torch.__version__}, CPU, float32, "
        f"{arguments.threads} thread(s), {arguments.rounds} rounds.",
        "",
        f"## Forward and backward, {arguments.tokens} tokens (at least 1.3)",
        "",
        *speed(arguments.tokens, arguments.rounds),
        "",
        "## Peak memory of one step above the baseline (growth at most 2.2)",
        "",
        *memory(arguments.tokens, arguments.threads),
    ]
    text = "\n".join(report) + "\n"
    print(text)
    if arguments.record:
        RESULT.parent.mkdir(exist_ok=True)
        unfinished = RESULT.with_suffix(".unfinished")
        unfinished.write_text(text)
        unfinished.replace(RESULT)


if __name__ == "__main__":
    main()
