"""The probe: what the paper's argument is about, recorded along training on a fixed batch; it changes nothing.

| event | holds |
|---|---|
| `spectra` | σ_max, σ_min and κ of W and W + C for each projection (`specattn.weight_spectra`) |
| `attention` | entropy, largest probability, saturation, gradient norms (`specattn.attention_statistics`) |
| `jacobian` | κ of the attention Jacobian of the chosen layers at the first sample, and Theorem 3.4's bound on it |
"""

import time

import torch
from torch import nn

import specattn
from specattn.attention import saturation_warning


class Probe:
    """Looks at a model where the config says so; rank 0 alone."""

    def __init__(self, run) -> None:
        self.run, self.options = run, run.config.probe
        self.batch: tuple[torch.Tensor, torch.Tensor] | None = None
        self.began = 0.0

    def look(self) -> None:
        """Record what the config asks for, at the run's step; before the first step also warn of saturation."""
        run, options = self.run, self.options
        if not run.place.first:
            return
        self.began = time.perf_counter()
        self._log("spectra", weights=specattn.weight_spectra(run.model))
        if not options.attention and options.jacobian is None:
            return
        if self.batch is None:
            self.batch = run.task.probe_batch(options.samples)
        if options.attention:
            statistics = specattn.attention_statistics(run.model, self.batch, loss=self._loss)
            self._log("attention", layers=statistics)
            if run.step == 0 and (warning := saturation_warning(statistics, run.config.conditioning.lam)):
                run.say.line(f"warning: {warning}")
        if options.jacobian is not None:
            spectra = specattn.jacobian_spectra(
                run.model, self.batch[0][:1], modules=options.jacobian, tokens=options.tokens, heads=(0,), bound=True
            )
            self._log("jacobian", layers=spectra)

    def _log(self, event: str, **values: list[dict]) -> None:
        now = time.perf_counter()
        self.run.record.log(event, self.run.step, {"probe_seconds": now - self.began}, **values)
        self.began = now

    def _loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if hasattr(self.run.task, "probe_loss"):
            return self.run.task.probe_loss(model, batch)
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
