"""How far Theorems 3.4, 3.5 and 3.8 hold on random, initial and trained weights: results/theory.md and its CSVs.

    python -m scripts.theory_table [--out results]        (a few minutes on one CPU core)

Each theorem is counted on the same kinds of matrices and heads; definitions stand in the table's own text. The
trained weights are a ViT trained here on scikit-learn's digits and, where the package `rxnmapper` is installed, the
ALBERT it ships; a set that is missing is named as missing.
"""

from __future__ import annotations

import argparse
import csv
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from scripts.theory_counts import (
    along_training,
    bound_rows,
    counterexamples,
    gaussian_heads,
    gaussian_matrices,
    heads_of,
    identity_rows,
    matrices_of,
    summed_bounds,
    svd_row,
)
from scripts.theory_models import digits_batch, digits_vit, reaction_albert
from specattn import condition


def number(value: object) -> str:
    """As it stands in the Markdown table."""
    if not isinstance(value, float):
        return str(value)
    return "∞" if math.isinf(value) else f"{value:.3g}"


def table(rows: list[dict], columns: dict[str, str]) -> str:
    """A Markdown table of some keys of the rows under the given headings."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(number(row[key]) for key in columns) + " |" for row in rows]
    return "\n".join(lines)


def write_csv(path: Path, rows: list[dict]) -> None:
    """All rows, full precision."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Computes everything and writes theory.md, theory_bound.csv and theory_identity.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to")
    folder = parser.parse_args().out
    import timm

    warnings.filterwarnings("ignore", module="timm")
    torch.manual_seed(0)
    vit = timm.create_model("vit_base_patch16_224")
    training, trained = along_training()
    albert = reaction_albert()

    sets = {
        "Gaussian 64 × 64": gaussian_matrices(64, 64),
        "Gaussian 96 × 32 (a head)": gaussian_matrices(96, 32),
        "ViT-B/16 at initialisation, 768 × 768": matrices_of(vit),
        "digits ViT at initialisation, 48 × 48": matrices_of(digits_vit()),
        "digits ViT trained, 48 × 48": matrices_of(trained["baseline"]),
        "digits ViT trained, heads 48 × 16": matrices_of(trained["baseline"], per_head=True),
    }
    image = digits_batch()
    heads: dict[str, Iterator] = {
        f"Gaussian N={n} D={width} d={d}, W × {spread:g}": gaussian_heads(n, width, d, spread)
        for n, width, d in ((8, 16, 4), (32, 16, 8), (24, 48, 16))
        for spread in (1.0, 3.0)
    }
    for lam in (0.0, 1.0, 10.0):
        model = condition(digits_vit(), lam=lam)
        heads[f"digits ViT at initialisation, λ = {lam:g}"] = heads_of(model, image)
    heads["digits ViT at initialisation, svd"] = heads_of(condition(digits_vit(), method="svd"), image)
    for name, model in trained.items():
        heads[f"digits ViT trained, {name}"] = heads_of(model, image)
    missing = ""
    if albert is None:
        missing = "\nThe trained ALBERT is missing: the package `rxnmapper` is not installed.\n"
    else:
        sets["ALBERT trained on reactions, 256 × 256"] = matrices_of(albert[0])
        sets["ALBERT trained on reactions, heads 256 × 32"] = matrices_of(albert[0], per_head=True)
        heads["ALBERT trained on reactions"] = heads_of(*albert)

    bounds = []
    for name, group in heads.items():
        rows = bound_rows(name, group)
        if not rows:
            raise ValueError(f"{name}: no head has the closed form, so that there is nothing to count")
        bounds += rows
    identity = [row for name, group in sets.items() for row in identity_rows(name, group)]
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "theory_bound.csv", bounds)
    write_csv(folder / "theory_identity.csv", identity)
    text = TEXT.format(
        svd=table(
            [svd_row(name, group) for name, group in sets.items()],
            {
                "set": "matrices",
                "matrices": "count",
                "median_kappa": "median κ(W)",
                "max_kappa": "largest κ(W)",
                "max_kappa_conditioned": "largest κ(W + C)",
                "violated": "above 2",
            },
        ),
        training=table(
            training,
            {
                "run": "run",
                "step": "step",
                "test_accuracy": "test accuracy",
                "median_kappa": "median κ(W)",
                "median_kappa_conditioned": "median κ(W + C)",
                "max_kappa_conditioned": "largest κ(W + C)",
            },
        ),
        bound=table(
            summed_bounds(bounds),
            {
                "set": "heads",
                "heads": "count",
                "finite": "finite",
                "holds": "holds",
                "undecided": "undecided",
                "within_10": "within 10×",
                "within_1000": "within 1000×",
                "median_kappa": "median κ(J)",
                "median_bound": "median bound",
                "infinite_terms": "infinite terms",
            },
        ),
        identity=table(
            identity,
            {
                "set": "matrices",
                "matrices": "count",
                "lam": "λ",
                "median_kappa": "median κ(W)",
                "median_kappa_conditioned": "median κ(W + λI)",
                "improved": "share improved",
                "sufficient": "share certain",
                "sufficient_violated": "certain, yet not improved",
                "bound_violated": "bound violated",
            },
        ),
        counterexamples=table(
            counterexamples(),
            {"weight": "W", "lam": "λ", "kappa": "κ(W)", "kappa_conditioned": "κ(W + λI)"},
        ),
        missing=missing,
    )
    (folder / "theory.md").write_text(text)
    print(text)


TEXT = """# The theorems, counted

Written by `python -m scripts.theory_table`; definitions are in `specattn/theorems.py` and docs/theory.md.
{missing}
## Theorem 3.5: κ(W + C) ≤ 2 for C = σ_max U Vᵀ, at the W that C was computed from

{svd}

Afterwards W moves, C does not, and κ is what it is (a ViT on scikit-learn's digits, AdamW, one seed):

{training}

## Theorem 3.4: κ(J) ≤ κ(X)³ κ(Λ) κ(W_V) (κ(W_Q) + κ(W_K)) + κ(X) κ(softmax)

κ(Λ) read literally is infinite for every attention (each Σ_i is singular); here it is taken over the N (N − 1)
eigenvalues that are not zero by construction. `holds` counts heads whose κ(J) is resolved and lies within a finite
bound, `undecided` those whose κ(J) is not resolved and may lie on either side. `median κ(J)` is infinite where rows
of J depend on one another or σ_min lies below the floor.

{bound}

## Theorem 3.8: κ(W + λ I_k) < κ(W)

`certain` is λ > σ_max (κ + 1) / (κ − 1), from κ(W + λI) ≤ (λ + σ_max) / (λ − σ_max). It is sufficient: the columns
after it count exceptions. The theorem as stated, for every λ ≥ 2, is false in general:

{counterexamples}

On random, initial and trained weights:

{identity}
"""

if __name__ == "__main__":
    main()
