"""How fast and how exact the Jacobian's spectrum is, against the obvious way: results/bench_jacobian.md.

    python -m scripts.bench_jacobian                 # every case, about 15 minutes on two quiet cores
    python -m scripts.bench_jacobian small weights   # some of them
    python -m scripts.bench_jacobian real --images FOLDER

Cases, each in a process of its own, so that its peak memory is its own; ratios are of medians within one process:

small    N=64, D=96, d=32, Gaussian X and W/√D, one thread: all singular values and the extremes alone against
         torch.func.jacrev followed by svdvals.
real     the same size on heads of a ViT (timm's initialisation; photos with --images, else noise) at several λ:
         errors against svdvals of the dense Jacobian, beside the bound max(1e-8, 10 ε κ²).
head     one ViT-B head (N=197, D=768, d=64), two threads: the extremes against eigvalsh of the same Gram matrix.
weights  weight spectra of a whole ViT-B, two threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from specattn import condition, weight_spectra
from specattn.attention_layer import attention_layers
from specattn.jacobian import AttentionJacobian, attention_jacobian
from specattn.jacobian_extremes import extreme_singular_values
from specattn.jacobian_spectrum import singular_values

EPS = torch.finfo(torch.float64).eps


def timed(function: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Median seconds of `repeats` calls, and the last result."""
    seconds, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def gaussian(n: int, width: int, d: int) -> tuple[Tensor, list[Tensor]]:
    """Gaussian X and W / √D, float64, seed 0."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, width, dtype=torch.float64, generator=g)
    return x, [torch.randn(width, d, dtype=torch.float64, generator=g) / width**0.5 for _ in range(3)]


def small(repeats: int, _: Path | None) -> dict:
    """All values and the extremes against jacrev and svdvals."""
    torch.set_num_threads(1)
    x, weights = gaussian(64, 96, 32)

    def attention(*w: Tensor) -> Tensor:
        return torch.softmax((x @ w[0]) @ (x @ w[1]).mT / 32**0.5, -1) @ (x @ w[2])

    def obvious() -> Tensor:
        blocks = torch.func.jacrev(attention, argnums=(0, 1, 2))(*weights)
        return torch.linalg.svdvals(torch.cat([b.reshape(64 * 32, -1) for b in blocks], 1))

    def ours(function: Callable) -> Callable:
        return lambda: function(attention_jacobian(x, *weights))

    ours(extreme_singular_values)()  # loads what is loaded on first use
    every, spectrum = timed(ours(singular_values), repeats)
    extreme, extremes = timed(ours(extreme_singular_values), repeats)
    plain, truth = timed(obvious, max(1, repeats // 2))
    return {
        "jacrev and svdvals, s": plain,
        "all singular values, s": every,
        "extremes, s": extreme,
        "all: times faster (at least 12)": plain / every,
        "extremes: times faster (at least 100)": plain / extreme,
        "all: largest relative error (at most 1e-8)": float((spectrum.values / truth - 1).abs().max()),
        "extremes: relative error of σ_max": abs(extremes.sigma_max / float(truth[0]) - 1),
        "extremes: relative error of σ_min (at most 1e-8)": abs(extremes.sigma_min / float(truth[-1]) - 1),
        "κ": float(truth[0] / truth[-1]),
    }


def real(_: int, images: Path | None) -> dict:
    """Errors on real heads, at λ = 0, 1, 10, and with the svd correction."""
    import timm

    torch.set_num_threads(1)
    batch = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    if images is not None:
        from PIL import Image
        from torchvision.transforms.functional import normalize, pil_to_tensor

        photo = Image.open(sorted(images.rglob("*.JPEG"))[0]).convert("RGB").resize((32, 32))
        batch = normalize(pil_to_tensor(photo)[None] / 255, [0.5] * 3, [0.5] * 3)
    found = {}
    for lam, method in ((0.0, "identity"), (1.0, "identity"), (10.0, "identity"), (1.0, "svd")):
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=4, embed_dim=96, depth=2, num_heads=3)
        condition(model, lam=lam, method=method)
        for layer in attention_layers(model, batch, tokens=64):
            found[f"{method} λ = {lam:g}, {layer.name}, head 0"] = errors(layer.closed[0])
    return found


def errors(jacobian: AttentionJacobian) -> dict:
    """Both paths against the SVD of the dense matrix."""
    truth = singular_values(jacobian, resolve=True)
    extremes = extreme_singular_values(jacobian)
    resolved = extreme_singular_values(jacobian, resolve=True)
    kappa = truth.sigma_max / float(truth.values[-1])
    allowed = max(1e-8, 10 * EPS * kappa**2)
    report = {
        "κ": truth.kappa,
        "allowed error": allowed,
        "rank by Gram": f"{extremes.rank} of {extremes.count}",
        "rank by SVD": truth.rank,
    }
    if extremes.sigma_min is None:
        report["extremes"] = f"σ_min below the floor {extremes.floor:.1e}: κ = inf"
    else:
        error = abs(extremes.sigma_min / float(truth.values[-1]) - 1)
        report["extremes: relative error of σ_min"] = error
        report["within"] = error <= allowed
    if resolved.sigma_min is not None and truth.sigma_min is not None:
        report["resolve=True: relative error of σ_min"] = abs(resolved.sigma_min / truth.sigma_min - 1)
    return report


def head(repeats: int, _: Path | None) -> dict:
    """The extremes of one ViT-B head; eigvalsh of the same Gram matrix is timed in a process of its own."""
    torch.set_num_threads(2)
    x, weights = gaussian(197, 768, 64)
    seconds, extremes = timed(lambda: extreme_singular_values(attention_jacobian(x, *weights)), max(1, repeats // 2))
    return {
        "extremes, s": seconds,
        "σ_max": extremes.sigma_max,
        "σ_min": extremes.sigma_min,
        "κ": extremes.kappa,
        "floor": extremes.floor,
        "bound on the relative error of σ_min": extremes.relative_error,
    }


def head_reference(_: int, __: Path | None) -> dict:
    """Eigvalsh of the Gram matrix of the same head (its construction is not counted)."""
    torch.set_num_threads(2)
    x, weights = gaussian(197, 768, 64)
    gram = attention_jacobian(x, *weights).row_gram()
    seconds, values = timed(lambda: torch.linalg.eigvalsh(gram), 1)
    sigma = values.clamp(min=0).sqrt()
    return {"eigvalsh, s": seconds, "σ_max": float(sigma[-1]), "σ_min": float(sigma[0])}


def weights(repeats: int, _: Path | None) -> dict:
    """Weight spectra of a whole ViT-B, plain and conditioned."""
    import timm

    torch.set_num_threads(2)
    model = timm.create_model("vit_base_patch16_224")
    plain, records = timed(lambda: weight_spectra(model), repeats)
    condition(model)
    conditioned, _ = timed(lambda: weight_spectra(model), repeats)
    return {"matrices": len(records), "plain, s (at most 10)": plain, "W and W + C, s (at most 10)": conditioned}


CASES = {"small": small, "real": real, "head": head, "head_reference": head_reference, "weights": weights}


def child(name: str, arguments: argparse.Namespace) -> dict:
    """One case in a fresh process."""
    command = [sys.executable, "-m", "scripts.bench_jacobian", "--child", name, "--repeats", str(arguments.repeats)]
    command += ["--images", str(arguments.images)] if arguments.images else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def lines(result: dict, indent: str = "") -> list[str]:
    """As a Markdown list, nested where the values are."""
    out = []
    for key, value in result.items():
        if isinstance(value, dict):
            out += [f"{indent}- {key}", *lines(value, indent + "  ")]
        else:
            out.append(f"{indent}- {key}: {f'{value:.4g}' if isinstance(value, float) else value}")
    return out


def main() -> None:
    """Runs the chosen cases and writes what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="small, real, head, weights; default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=Path, help="folder of photos for `real`")
    parser.add_argument("--out", type=Path, default=Path("results/bench_jacobian.md"))
    parser.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        result = CASES[arguments.child](arguments.repeats, arguments.images)
        result["peak memory, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(result))
        return
    chosen = arguments.cases or ["small", "real", "head", "weights"]
    if unknown := set(chosen) - {"small", "real", "head", "weights"}:
        parser.error(f"no case {', '.join(sorted(unknown))}: there are small, real, head, weights")
    text = ["# Speed and exactness of the Jacobian's spectrum", ""]
    text += [f"Written by `python -m scripts.bench_jacobian`, torch {torch.__version__}.", ""]
    for name in chosen:
        result = child(name, arguments)
        if name == "head":
            reference = child("head_reference", arguments)
            result["eigvalsh of the same Gram matrix, s"] = reference["eigvalsh, s"]
            result["times faster (at least 4)"] = reference["eigvalsh, s"] / result["extremes, s"]
            for key in ("σ_max", "σ_min"):
                result[f"relative difference of {key} from eigvalsh"] = abs(result[key] / reference[key] - 1)
        text += [f"## {name}", "", *lines(result), ""]
        print("\n".join(text[-len(lines(result)) - 3 :]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
