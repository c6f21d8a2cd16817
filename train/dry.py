"""`runtime.dry=true`: what each run would be, checked without training anything."""

import torch
from omegaconf import DictConfig
from torch import nn

from train.data.presence import layout, missing
from train.distributed import Place
from train.errors import UserError
from train.folder import tag

HEADER = ("experiment", "conditioning", "seed", "parameters", "steps", "batch", "lr", "memory", "data")
GIB = 2**30


def table(configs: list[DictConfig]) -> str:
    """One line a run: what it is, its length, global batch, learning rate, memory on a device, data."""
    from train.optimizer import scaled_lr
    from train.tasks import build_model, build_plain

    lines = [HEADER]
    for config in configs:
        with torch.device("meta"):
            model = build_plain(config)
        if config.conditioning.lam:
            build_model(config)  # refuses what the model or the library cannot do
        parameters = sum(parameter.numel() for parameter in model.parameters())
        bytes_needed = memory(config, model)
        lines.append(
            (
                config.experiment,
                tag(config),
                str(config.seed),
                f"{parameters / 1e6:.2f} M",
                length(config),
                str(config.batch_size),
                f"{scaled_lr(config):g}",
                "?" if bytes_needed is None else f"{bytes_needed / GIB:.3g} GiB",
                missing(config.dataset.name, config.data_root, layout(config)) or "found",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    text = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    note = (
        "memory: an estimate for each device, of weights, gradients, optimizer, average and what a micro-batch keeps "
        "for its backward pass, in bf16 unless runtime.precision says otherwise; the allocator needs some more"
    )
    return "\n".join([*text, note])


def length(config: DictConfig) -> str:
    """The optimizer steps, where the number of images is known; else the epochs."""
    from train.data.plan import BatchPlan
    from train.optimizer import Length

    schedule, known = config.schedule, config.dataset.get("images")
    if not known:
        return f"{schedule.steps}" if schedule.steps is not None else f"{schedule.epochs:g} epochs"
    size = config.dataset.train_size or known[0]
    alone = Place(0, 1, torch.device("cpu"))
    plan = BatchPlan(size, config.batch_size, config.seed, alone, repeats=config.dataset.repeats)
    return str(Length.of(schedule, plan.steps_per_epoch).steps)


def memory(config: DictConfig, model: nn.Module) -> int | None:
    """Bytes that one device needs in training, estimated; None where the model's input is no image.

    Args:
        model: the model on the meta device: its forward pass says what is kept for the backward pass.

    Raises:
        UserError: the batch cannot be shared out over the devices.
    """
    from train.data.plan import BatchPlan

    if "image_size" not in config.dataset:
        return None
    devices = config.runtime.devices
    if config.batch_size % devices:
        raise UserError(f"batch_size={config.batch_size} is not divisible by the {devices} devices")
    place = Place(0, devices, torch.device("cpu"))
    micro = BatchPlan(config.batch_size, config.batch_size, 0, place, config.runtime.micro_batch).micro
    half = config.runtime.precision != "fp32"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    # float32: a weight, its gradient, AdamW's two moments, and the average; the activations are halved by autocast.
    fixed = parameters * 4 * (4 + bool(config.ema.decay))
    return fixed + micro * kept_for_backward(config, model) // (2 if half else 1)


def kept_for_backward(config: DictConfig, model: nn.Module) -> int:
    """Bytes in float32 that a forward pass keeps for each image, counted on the meta device."""
    weights = {id(parameter) for parameter in model.parameters()}
    held: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        owner = tensor if tensor._base is None else tensor._base
        if id(owner) not in weights:
            storage = tensor.untyped_storage()
            held[storage._cdata] = (storage.nbytes(), tensor)  # kept alive, or its place might be used again
        return tensor

    images, data = 2, config.dataset
    channels = len(data.mean)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.train()(torch.empty(images, channels, data.image_size, data.image_size, device="meta"))
    del output
    return sum(size for size, _ in held.values()) // images
