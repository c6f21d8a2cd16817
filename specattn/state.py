"""The child module `specattn` of a conditioned layer: its corrections, and their place in a state dict."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specattn.correction import DIAGONAL_METHODS, Correction, correction_from
from specattn.diagonal import Runs, linear_plus_diagonal
from specattn.setting import Setting

#: Name of the child module, and so a part of the name of every entry added to a state dict.
CHILD = "specattn"


@dataclass(frozen=True)
class Part:
    """One conditioned projection within its parameter: outputs start:stop, cut into `blocks` equal blocks."""

    which: str
    start: int
    stop: int
    blocks: int
    transposed: bool = False

    @property
    def rows(self) -> int:
        """Outputs per block, r."""
        return (self.stop - self.start) // self.blocks


class Conditioning(nn.Module):
    """The corrections of one layer's parameters.

    Buffers, in `nn.Linear` orientation: `<parameter>_correction` [targeted outputs, D_in] for the dense methods,
    `<parameter>_sigma_max` [blocks] for `relative`, none for `identity`. The setting is the extra state.

    Args:
        setting: what the model is conditioned with.
        parts: parameter name -> its conditioned projections, in the order of their outputs.
        taken: parameter name -> what `taken_from_weight` kept for these parts, concatenated; None for `identity`.
    """

    def __init__(self, setting: Setting, parts: dict[str, tuple[Part, ...]], taken: dict[str, Tensor | None]) -> None:
        super().__init__()
        self.setting = setting
        self.parts = parts
        self.diagonal = setting.method in DIAGONAL_METHODS
        for parameter, tensor in taken.items():
            if tensor is not None:
                self.register_buffer(self._buffer_name(parameter), tensor)

    def correction(self, parameter: str, which: str, d_in: int) -> Correction:
        """The correction of one projection; its tensors are views of the buffers."""
        start = 0
        for part in self.parts[parameter]:
            stop = start + (part.blocks if self.diagonal else part.stop - part.start)
            if part.which == which:
                taken = self._taken(parameter)
                taken = None if taken is None else taken[start:stop]
                shape = (part.blocks, part.rows, d_in)
                return correction_from(taken, self.setting.method, self.setting.lam, shape)
            start = stop
        raise KeyError(which)

    def matrix(self, parameter: str, weight: Tensor) -> Tensor:
        """C as a tensor shaped as `weight`, zero outside the targets; a diagonal one is made here and now."""
        parts = self.parts[parameter]
        transposed = parts[0].transposed
        outputs, d_in = reversed(weight.shape) if transposed else weight.shape
        if not self.diagonal and sum(part.stop - part.start for part in parts) == outputs:
            full = self._taken(parameter)
        else:
            full = torch.zeros(outputs, d_in, dtype=weight.dtype, device=weight.device)
            for part in parts:
                self.correction(parameter, part.which, d_in).write(full[part.start : part.stop])
        return full.mT if transposed else full

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`F.linear(input, weight + C, bias)` for the parameter `weight` of a linear layer."""
        if self.diagonal:
            return linear_plus_diagonal(input, weight, bias, self._runs(), self.setting.lam, self._taken("weight"))
        return F.linear(input, weight + self.matrix("weight", weight), bias)

    def _runs(self) -> Runs:
        """(start, stop, rows per block) of the parts of `weight`, adjacent ones with equal blocks joined."""
        runs: list[tuple[int, int, int]] = []
        for part in self.parts["weight"]:
            if runs and runs[-1][1:] == (part.start, part.rows):
                runs[-1] = (runs[-1][0], part.stop, part.rows)
            else:
                runs.append((part.start, part.stop, part.rows))
        return tuple(runs)

    def _buffer_name(self, parameter: str) -> str:
        return f"{parameter}_{'sigma_max' if self.diagonal else 'correction'}"

    def _taken(self, parameter: str) -> Tensor | None:
        return self._buffers.get(self._buffer_name(parameter))

    def get_extra_state(self) -> Tensor:
        """The setting, as a tensor: the state dict stays one of tensors alone."""
        return self.setting.encode()

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to set: `check_state` has compared the setting before this is called."""

    def check_state(self, state_dict: dict, owner: str) -> None:
        """Refuses a state that holds W but not these corrections, also where loading is not strict.

        Args:
            state_dict: what is being loaded.
            owner: the name of the corrected layer in it, with a dot at its end, or "".

        Raises:
            ValueError: the state is that of a plain model, or of another conditioning; it says what to call.
        """
        entry = state_dict.get(f"{owner}{CHILD}._extra_state")
        if entry is not None:
            saved = Setting.decode(entry)
            if saved != self.setting:
                raise ValueError(
                    f"this state was written under another conditioning at {owner.rstrip('.')!r}: build the model and "
                    f"call {saved.call()} before loading it; this model has {self.setting.call()}"
                )
        elif any(owner + parameter in state_dict for parameter in self.parts):
            raise ValueError(
                f"this state is that of a plain model (no specattn entry at {owner.rstrip('.')!r}): load it into the "
                f"plain model first, then call {self.setting.call()}"
            )

    def extra_repr(self) -> str:
        """The setting and what it applies to."""
        which = "".join(part.which for parts in self.parts.values() for part in parts)
        return f"{self.setting.method}, lam={self.setting.lam:g}, layout={self.setting.layout}, targets={which}"
