"""What a model is conditioned with: the checked arguments of `condition`, as they are written in a checkpoint."""

import json
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from specattn.correction import METHODS, check_lam, default_lam

LAYOUTS = ("matrix", "head")
WHENS = ("persistent", "init")


@dataclass(frozen=True)
class Setting:
    """The result-changing arguments of `condition`, checked."""

    method: str
    lam: float
    layout: str
    targets: str
    when: str

    @classmethod
    def check(cls, lam: float | None, method: str, layout: str, targets: str, when: str) -> "Setting":
        """A setting from a user's arguments; ValueError with one line where one of them is wrong."""
        for key, value, known in (("method", method, METHODS), ("layout", layout, LAYOUTS), ("when", when, WHENS)):
            if value not in known:
                raise ValueError(f"{key} must be one of {', '.join(known)}; got {value!r}")
        wanted = "".join(which for which in "qkv" if which in targets) if isinstance(targets, str) else ""
        if not wanted or sorted(wanted) != sorted(targets):
            raise ValueError(f"targets must name some of q, k and v once each, e.g. 'qkv' or 'v'; got {targets!r}")
        return cls(method, default_lam(method) if lam is None else check_lam(lam), layout, wanted, when)

    def call(self) -> str:
        """The call that makes a model with this setting, for messages."""
        return (
            f"specattn.condition(model, lam={self.lam:g}, method={self.method!r}, layout={self.layout!r}, "
            f"targets={self.targets!r})"
        )

    def encode(self) -> Tensor:
        """As a uint8 tensor of JSON: a state dict of tensors alone passes safetensors and `weights_only=True`."""
        return torch.tensor(list(json.dumps(asdict(self)).encode()), dtype=torch.uint8, device="cpu")

    @classmethod
    def decode(cls, entry: Tensor) -> "Setting":
        """The inverse of `encode`; ValueError where the entry is not one."""
        try:
            return cls(**json.loads(bytes(entry.tolist()).decode()))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError("the state's specattn entry cannot be read: it is not one that specattn wrote") from error
