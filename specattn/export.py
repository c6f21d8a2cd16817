"""Exports: plain safetensors files that unmodified timm and transformers models load."""

import os

import torch
from torch import nn


def save(model: nn.Module, path: str | os.PathLike) -> None:
    """Writes the state dict of a plain model to a safetensors file, every key of it (strict=True finds all).

    Tied weights are written once for each of their names. A file of the same name is replaced only once the
    new one is complete.

    Raises:
        ValueError: the state dict holds something that is no tensor, which safetensors cannot hold.
    """
    from safetensors.torch import save_file

    tensors = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}, and a safetensors file holds tensors only")
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
    path = os.fspath(path)
    unfinished = f"{path}.unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    os.replace(unfinished, path)
