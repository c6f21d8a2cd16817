"""The model and the input that a report is about: a timm name or a transformers folder, photos or random numbers."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

_IMAGES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
# Tokens of the random sequences given to a text model, where its positions allow as many.
_SEQUENCE = 64


@dataclass
class Subject:
    """A model in evaluation mode, a batch for it, and where both come from, in words."""

    model: nn.Module
    batch: object
    weights: str
    source: str


def load(name: str, weights: Path | None, images: Path | None, count: int, seed: int) -> Subject:
    """Builds the model and its batch; ValueError in one line where that cannot be done."""
    torch.manual_seed(seed)
    if (Path(name) / "config.json").is_file():
        if images is not None or weights is not None:
            raise ValueError("--images and --weights are for timm models; a transformers folder holds its own weights")
        return _transformers(Path(name), count, seed)
    if Path(name).is_dir():
        raise ValueError(f"{name} has no config.json: it is not a transformers model")
    return _timm(name, weights, images, count, seed)


def _timm(name: str, weights: Path | None, images: Path | None, count: int, seed: int) -> Subject:
    try:
        import timm
    except ImportError:
        raise ValueError("timm is not installed: pip install timm") from None
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise ValueError(f"timm has no model {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    model = timm.create_model(name, pretrained=False).eval()
    said = f"timm's initialisation, seed {seed}"
    if weights is not None:
        _fill(model, weights)
        said = f"weights of {weights.name}"
    size = model.pretrained_cfg["input_size"]
    if images is None:
        noise = torch.randn(count, *size, generator=torch.Generator().manual_seed(seed))
        return Subject(model, noise, said, f"{count} images of Gaussian noise (--images FOLDER for photos)")
    batch = _photos(images, count, model)
    return Subject(model, batch, said, f"{len(batch)} photos of {images}")


def _fill(model: nn.Module, weights: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not weights.is_file():
        raise ValueError(f"--weights: there is no file {weights}")
    try:
        state = load_file(weights)
    except SafetensorError as error:
        raise ValueError(f"--weights: {weights} is not a safetensors file ({error})") from None
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"--weights: {weights} does not fit: {str(error).splitlines()[1].strip()}") from None


def _photos(folder: Path, count: int, model: nn.Module) -> Tensor:
    if not folder.is_dir():
        raise ValueError(f"--images: there is no folder {folder}")
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in _IMAGES)
    if not files:
        raise ValueError(f"--images: no images ({', '.join(sorted(_IMAGES))}) under {folder}")
    from PIL import Image, UnidentifiedImageError
    from timm.data import create_transform, resolve_model_data_config

    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    # Spread over the sorted list: with one folder per class, different classes.
    chosen = [files[i * len(files) // count] for i in range(min(count, len(files)))]
    loaded = []
    for file in chosen:
        try:
            loaded.append(transform(Image.open(file).convert("RGB")))
        except (UnidentifiedImageError, OSError):
            raise ValueError(f"--images: {file} cannot be read as an image") from None
    return torch.stack(loaded)


def _transformers(folder: Path, count: int, seed: int) -> Subject:
    try:
        import transformers
    except ImportError:
        raise ValueError("transformers is not installed: pip install transformers") from None
    transformers.logging.set_verbosity_error()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        if any(folder.glob("*.safetensors")):
            model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
            said = f"weights of {folder}"
        else:
            model, said = transformers.AutoModel.from_config(config), f"its own initialisation, seed {seed}"
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder} cannot be loaded as a transformers model: {str(error).splitlines()[0]}") from None
    model.eval()
    g = torch.Generator().manual_seed(seed)
    size = getattr(config, "image_size", None)
    if size is not None:
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
        pixels = torch.randn(count, getattr(config, "num_channels", 3), *sides, generator=g)
        return Subject(model, {"pixel_values": pixels}, said, f"{count} images of Gaussian noise")
    longest = getattr(config, "max_position_embeddings", _SEQUENCE)
    # RoBERTa's family counts positions from the padding token on.
    length = min(_SEQUENCE, longest - 2)
    ids = torch.randint(0, config.vocab_size, (count, length), generator=g)
    return Subject(model, {"input_ids": ids}, said, f"{count} random sequences of {length} tokens")
