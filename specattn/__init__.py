"""Spectral conditioning of attention: `condition`, `fold`, `corrections`, spectra and Jacobians.

Names are loaded on first use; importing the package loads torch and nothing heavier.
"""

from importlib import import_module

_HOME = {
    "condition": "conditioning",
    "conditioned": "conditioning",
    "corrections": "conditioning",
    "fold": "conditioning",
    "find_projections": "projections",
    "Projection": "projections",
    "weight_spectra": "spectrum",
    "attention_statistics": "attention",
    "saturation_warning": "attention",
    "attention_jacobian": "jacobian",
    "multihead_jacobian": "jacobian",
    "jacobian_spectra": "jacobian_layers",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"specattn.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
