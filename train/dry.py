"""`runtime.dry=true`: what each run would be, checked without training anything."""

from omegaconf import DictConfig

from train.data.presence import layout, missing
from train.folder import tag


def table(configs: list[DictConfig]) -> str:
    """One line a run: experiment, conditioning, seed, parameters, length, global batch, lr, data."""
    from train.optimizer import scaled_lr
    from train.tasks import build_model

    lines = [("experiment", "conditioning", "seed", "parameters", "length", "batch", "lr", "data")]
    for config in configs:
        model = build_model(config)
        schedule = config.schedule
        lines.append(
            (
                config.experiment,
                tag(config),
                str(config.seed),
                f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M",
                f"{schedule.steps} steps" if schedule.steps is not None else f"{schedule.epochs:g} epochs",
                str(config.batch_size),
                f"{scaled_lr(config):g}",
                missing(config.dataset.name, config.data_root, layout(config)) or "found",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
