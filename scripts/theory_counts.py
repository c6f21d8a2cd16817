"""What the theory table counts: each theorem on a set of matrices or heads, as plain rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scripts.theory_models import train_digits_vit
from specattn import find_projections, weight_spectra
from specattn.attention_layer import attention_layers
from specattn.jacobian import AttentionJacobian, attention_jacobian
from specattn.jacobian_extremes import extreme_singular_values
from specattn.theorems import identity_bound, sufficient_lam, theorem_3_4, theorem_3_5, theorem_3_8

LAMS = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 10.0, 30.0, 100.0)
STOPS = (0, 10, 100, 600)
# Above this many rows σ_min below the Gram matrix's floor is left unresolved: QR would take minutes.
_RESOLVE_ROWS = 1500


def matrices_of(model: nn.Module, per_head: bool = False) -> list[Tensor]:
    """The projections of a model in float64, as the paper writes them, D × d."""
    found = []
    for projection in find_projections(model):
        blocks = projection.blocks(projection.weight.detach().double(), "head" if per_head else "matrix")
        found += [block.mT for block in blocks]
    return found


def heads_of(model: nn.Module, batch: object, **kwargs: object) -> Iterator[tuple[AttentionJacobian, Tensor]]:
    """(Jacobian, W_V + C_V) of every head that has the closed form."""
    for layer in attention_layers(model, batch, **kwargs):
        wv_HdD = layer.projections["v"].effective_weight.detach().unflatten(0, (layer.heads, -1))
        for jacobian, wv in zip(layer.closed or [], wv_HdD, strict=False):
            yield jacobian, wv.mT


def gaussian_heads(n: int, width: int, d: int, spread: float, count: int = 20) -> Iterator:
    """Gaussian X and W / √D, W scaled by `spread`."""
    for seed in range(count):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(n, width, dtype=torch.float64, generator=g)
        w = [spread * torch.randn(width, d, dtype=torch.float64, generator=g) / width**0.5 for _ in range(3)]
        yield attention_jacobian(x, *w), w[2]


def bound_rows(name: str, heads: Iterator[tuple[AttentionJacobian, Tensor]]) -> list[dict]:
    """One row per head: Theorem 3.4's terms, its bound and the true κ(J)."""
    rows = []
    for jacobian, wv in heads:
        terms = theorem_3_4(jacobian, wv)
        spectrum = extreme_singular_values(jacobian)
        if math.isinf(spectrum.kappa) and jacobian.shape[0] <= _RESOLVE_ROWS:
            spectrum = extreme_singular_values(jacobian, resolve=True)
        # Without a resolved σ_min, κ(J) is only known to be at least σ_max over the floor.
        at_least = spectrum.sigma_max / spectrum.floor
        rows.append(
            {
                "set": name,
                "tokens": len(jacobian.x_ND),
                "width": jacobian.x_ND.shape[1],
                "head_width": jacobian.v_Nd.shape[1],
                **terms,
                "kappa_jacobian": spectrum.kappa,
                "kappa_jacobian_at_least": min(spectrum.kappa, at_least),
                "kappa_nonzero": spectrum.kappa_nonzero,
                "rank": spectrum.rank,
                "count": spectrum.count,
                "method": spectrum.method,
            }
        )
    return rows


def identity_rows(name: str, matrices: list[Tensor]) -> list[dict]:
    """One row per λ: Theorem 3.8 over a set of matrices."""
    lams = torch.tensor(LAMS, dtype=torch.float64)
    found = [(float(torch.linalg.svdvals(w)[0]), *theorem_3_8(w, lams)) for w in matrices]
    rows = []
    for i, lam in enumerate(LAMS):
        better = [float(after[i]) < before for _, before, after in found]
        certain = [lam > sufficient_lam(top, before) for top, before, _ in found]
        rows.append(
            {
                "set": name,
                "matrices": len(found),
                "lam": lam,
                "median_kappa": statistics.median(before for _, before, _ in found),
                "median_kappa_conditioned": statistics.median(float(after[i]) for *_, after in found),
                "improved": sum(better) / len(found),
                "sufficient": sum(certain) / len(found),
                "sufficient_violated": sum(c and not b for c, b in zip(certain, better, strict=True)),
                "bound_violated": sum(
                    float(after[i]) > identity_bound(top, lam) * (1 + 1e-9) for top, _, after in found
                ),
            }
        )
    return rows


def svd_row(name: str, matrices: list[Tensor]) -> dict:
    """Theorem 3.5 over a set of matrices."""
    pairs = [theorem_3_5(w) for w in matrices]
    return {
        "set": name,
        "matrices": len(pairs),
        "median_kappa": statistics.median(b for b, _ in pairs),
        "max_kappa": max(b for b, _ in pairs),
        "max_kappa_conditioned": max(a for _, a in pairs),
        "violated": sum(a > 2 + 1e-12 for _, a in pairs),
    }


def along_training() -> tuple[list[dict], dict[str, nn.Module]]:
    """κ of the weights while a small ViT trains, plain and conditioned, and the models at the end."""
    rows, models = [], {}
    for name, lam, method in (("baseline", 0.0, "identity"), ("svd", 1.0, "svd"), ("identity λ = 1", 1.0, "identity")):
        for step, model, accuracy in train_digits_vit(lam, method, STOPS):
            spectra = weight_spectra(model)
            rows.append(
                {
                    "run": name,
                    "step": step,
                    "test_accuracy": accuracy,
                    "median_kappa": statistics.median(r["kappa"] for r in spectra),
                    "median_kappa_conditioned": statistics.median(r["kappa_conditioned"] for r in spectra),
                    "max_kappa_conditioned": max(r["kappa_conditioned"] for r in spectra),
                }
            )
            models[name] = model
    return rows, models


def counterexamples() -> list[dict]:
    """Theorem 3.8 at λ = 2 and 10 on W = −λ I and on W = −λ diag(1.01, 1.11, 1.21, 1.31)."""
    rows = []
    for lam in (2.0, 10.0):
        for name, diagonal in (("−λ I", (1.0,) * 4), ("−λ diag(1.01, 1.11, 1.21, 1.31)", (1.01, 1.11, 1.21, 1.31))):
            weight = -lam * torch.diag(torch.tensor(diagonal, dtype=torch.float64))
            before, after = theorem_3_8(weight, torch.tensor([lam]))
            rows.append({"weight": name, "lam": lam, "kappa": before, "kappa_conditioned": float(after)})
    return rows


def gaussian_matrices(rows: int, columns: int, count: int = 100) -> list[Tensor]:
    """Gaussian entries / √rows."""
    g = torch.Generator().manual_seed(0)
    return [torch.randn(rows, columns, dtype=torch.float64, generator=g) / rows**0.5 for _ in range(count)]


def summed_bounds(rows: list[dict]) -> list[dict]:
    """One row per set: how often the bound of Theorem 3.4 is finite, holds, and is near the truth."""
    summary = []
    for name in dict.fromkeys(row["set"] for row in rows):
        group = [row for row in rows if row["set"] == name]
        finite = [row for row in group if math.isfinite(row["bound"])]
        # Undecided: κ(J) is unresolved and what is known of it lies below the bound.
        known = [
            row
            for row in finite
            if math.isfinite(row["kappa_jacobian"]) or row["kappa_jacobian_at_least"] > row["bound"]
        ]
        held = [row for row in known if row["kappa_jacobian"] <= row["bound"]]
        finite_terms = ("kappa_x", "kappa_lambda", "kappa_softmax")
        summary.append(
            {
                "set": name,
                "heads": len(group),
                "finite": len(finite),
                "undecided": len(finite) - len(known),
                "holds": len(held),
                "within_10": sum(row["bound"] <= 10 * row["kappa_jacobian"] for row in held),
                "within_1000": sum(row["bound"] <= 1000 * row["kappa_jacobian"] for row in held),
                "median_kappa": statistics.median(row["kappa_jacobian"] for row in group),
                "median_bound": statistics.median(row["bound"] for row in group),
                "infinite_terms": ", ".join(t for t in finite_terms if any(math.isinf(row[t]) for row in group))
                or "none",
            }
        )
    return summary
