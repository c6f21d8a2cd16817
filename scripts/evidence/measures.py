"""What the study looks at in a run besides its accuracy: conditioning and attention, at the start and at the end."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scripts.records import Recorded

NAMES = {
    "kappa": "κ(W + C)",
    "sigma_min": "σ_min(W + C)",
    "kappa_jacobian": "κ of the Jacobian",
    "entropy": "entropy of attention",
    "saturated": "saturated rows",
}


@dataclass(frozen=True)
class Measures:
    """At one step; None where it was not recorded or is not finite.

    κ and σ_min of the weights: median over layers and projections, of W + C. κ of the Jacobian: of its non-zero
    singular values, the first probed layer's first head. Entropy (1: uniform) and the share of rows whose largest
    probability is above 0.9: medians over the layers with a softmax.
    """

    kappa: float | None
    sigma_min: float | None
    kappa_jacobian: float | None
    entropy: float | None
    saturated: float | None


def at(run: Recorded, place: int) -> Measures:
    """The measures of the first probe (place 0) or of the last (place -1)."""
    spectra, attention, jacobian = (event(run, kind, place) for kind in ("spectra", "attention", "jacobian"))
    weights, layers = spectra.get("weights", []), attention.get("layers", [])
    probed = jacobian.get("layers", [])
    return Measures(
        kappa=middle(weight["kappa_conditioned"] for weight in weights),
        sigma_min=middle(weight["sigma_min_conditioned"] for weight in weights),
        kappa_jacobian=middle([probed[0]["kappa_nonzero"]] if probed else []),
        entropy=middle(layer["entropy"] for layer in layers),
        saturated=middle(layer["saturated_rows"] for layer in layers),
    )


def event(run: Recorded, kind: str, place: int) -> dict:
    """The first or last event of a kind; empty where there is none."""
    found = run.events(kind)
    return found[place] if found else {}


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are numbers."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(known) if known else None


def mean_of(runs: Iterable[Recorded], name: str, place: int) -> float | None:
    """The mean of a measure over runs, the geometric one for κ and σ_min; None where no run has it."""
    values = [value for run in runs if (value := getattr(at(run, place), name)) is not None]
    if not values:
        return None
    if name in ("kappa", "sigma_min", "kappa_jacobian") and min(values) > 0:
        return statistics.geometric_mean(values)
    return statistics.fmean(values)
