"""Weight spectra: σ_max, σ_min and κ of every projection, of W and of W + C.

Records are plain dicts of numbers and strings, ready for JSON; `to_table` makes a pandas table of them.
Shape suffixes: G matrices of equal shape in a batch, O outputs, I inputs (`nn.Linear` orientation), K = min(O, I).
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from specattn.projections import Projection, find_projections

if TYPE_CHECKING:
    import pandas

# Matrices decomposed in one batch; bounds the memory (16 float64 matrices of 768² are 75 MB).
_BATCH = 16


@torch.no_grad()
def weight_spectra(model: nn.Module, per_head: bool = False, modules: str | None = None) -> list[dict]:
    """Extreme singular values and condition number of each W_Q, W_K, W_V, and of W + C beside it.

    Args:
        model: any model that `find_projections` knows, conditioned or not.
        per_head: one record for the d × D matrix of every head instead of one for the whole projection.
        modules: a glob on the attention module's dotted name; None takes all.

    Returns:
        One dict per layer, projection (and head), in the model's order:

        attention, layer, projection, head: dotted name, its index, "q", "k" or "v", head index or None;
        rows, columns: the matrix as stored, [outputs, inputs];
        sigma_max, sigma_min, kappa: of W;
        sigma_max_conditioned, sigma_min_conditioned, kappa_conditioned: of W + C, what the model computes
        with. Without a correction W + C is W and they are equal.

        Singular values are computed in float64, whatever the weights are stored in. `kappa` is `inf` where
        σ_min lies below the resolution of that, max(rows, columns) · 2.2e-16 · σ_max.

    Raises:
        ValueError: no attention projection is found, or `per_head` and the number of heads is unknown.
    """
    projections = find_projections(model, modules)
    layers = {name: i for i, name in enumerate(dict.fromkeys(p.attention for p in projections))}
    records, matrices = [], []
    for projection in projections:
        plain, effective = projection.weight, projection.effective_weight
        # Identity, not equality: an unconditioned projection hands out the same storage twice.
        conditioned = effective.data_ptr() != plain.data_ptr()
        pairs = zip(_blocks(projection, plain, per_head), _blocks(projection, effective, per_head), strict=True)
        for head, (w, w_plus_c) in enumerate(pairs):
            records.append(
                {
                    "attention": projection.attention,
                    "layer": layers[projection.attention],
                    "projection": projection.which,
                    "head": head if per_head else None,
                    "rows": w.shape[0],
                    "columns": w.shape[1],
                }
            )
            matrices.append((w, w_plus_c if conditioned else None))
    for record, (w, _), (top, bottom) in zip(records, matrices, extremes([w for w, _ in matrices]), strict=True):
        record.update(_figures("", top, bottom, w))
        record.update(_figures("_conditioned", top, bottom, w))
    changed = [(r, c) for r, (_, c) in zip(records, matrices, strict=True) if c is not None]
    for (record, w), (top, bottom) in zip(changed, extremes([c for _, c in changed]), strict=True):
        record.update(_figures("_conditioned", top, bottom, w))
    return records


def _blocks(projection: Projection, weight: Tensor, per_head: bool) -> Tensor:
    return projection.blocks(weight, "head" if per_head else "matrix")


def _figures(suffix: str, top: float, bottom: float, matrix: Tensor) -> dict[str, float]:
    return {
        f"sigma_max{suffix}": top,
        f"sigma_min{suffix}": bottom,
        f"kappa{suffix}": condition_number(top, bottom, matrix.shape),
    }


def condition_number(sigma_max: float, sigma_min: float, shape: tuple[int, ...]) -> float:
    """κ = σ_max / σ_min; `inf` where σ_min is no more than float64 rounding of σ_max (and for a zero matrix)."""
    floor = max(shape) * torch.finfo(torch.float64).eps * sigma_max
    return sigma_max / sigma_min if sigma_min > floor else math.inf


def extremes(matrices: list[Tensor]) -> list[tuple[float, float]]:
    """(σ_max, σ_min) of each matrix in float64, batched over those of equal shape."""
    found: list[tuple[float, float]] = [(math.nan, math.nan)] * len(matrices)
    by_shape = defaultdict(list)
    for index, matrix in enumerate(matrices):
        by_shape[matrix.shape, matrix.device].append(index)
    for indices in by_shape.values():
        for start in range(0, len(indices), _BATCH):
            batch = indices[start : start + _BATCH]
            stacked_GOI = torch.stack([matrices[i].detach().double() for i in batch])
            sigma_GK = torch.linalg.svdvals(stacked_GOI)
            for i, (top, bottom) in zip(batch, sigma_GK[:, [0, -1]].tolist(), strict=True):
                found[i] = (top, bottom)
    return found


def to_table(records: list[dict]) -> pandas.DataFrame:
    """The records as a pandas table, one row each. Needs pandas, which is imported here alone."""
    import pandas

    return pandas.DataFrame(records)
