"""A timm model under timm's own, unchanged training step: its task, optimizer, schedule and EMA.

    python examples/timm_training.py [--epochs 16] [--lam 1] [--method svd]

A small ViT on scikit-learn's handwritten digits. One line differs from a training without conditioning.
"""

import argparse

import timm
import torch
from sklearn.datasets import load_digits
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.task import ClassificationTask
from timm.utils import ModelEmaV3

import specattn


def main() -> None:
    """Trains, and evaluates the average of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lam", type=float, default=1.0)
    parser.add_argument("--method", default="svd")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(digits.target)
    train, test = torch.randperm(len(images)).split([1500, len(images) - 1500])

    size = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 32, "depth": 2, "num_heads": 4}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, **size)
    specattn.condition(model, lam=arguments.lam, method=arguments.method)  # the line that differs

    task = ClassificationTask(model, criterion_kwargs={"smoothing": 0.1}, device=torch.device("cpu"))
    optimizer = create_optimizer_v2(model, opt="adamw", lr=3e-3, weight_decay=0.05)
    steps = 30 * arguments.epochs
    schedule = CosineLRScheduler(optimizer, t_initial=steps, warmup_t=5, warmup_lr_init=1e-5, t_in_epochs=False)
    ema = ModelEmaV3(model, decay=0.98)
    step = 0
    for epoch in range(arguments.epochs):
        task.train()
        for batch in train[torch.randperm(len(train))].split(50):
            result = task(images[batch], labels[batch])
            optimizer.zero_grad()
            result["loss"].backward()
            optimizer.step()
            step += 1
            ema.update(model, step)
            schedule.step_update(step)
        ema.module.eval()
        with torch.no_grad():
            accuracy = (ema.module(images[test]).argmax(dim=1) == labels[test]).float().mean()
        print(f"epoch {epoch + 1}: loss {result['loss'].item():.3f}, test accuracy {accuracy:.3f}")

    specattn.fold(ema.module, "vit_digits.safetensors")
    plain = timm.create_model(
        "vit_tiny_patch16_224", num_classes=10, **size, checkpoint_path="vit_digits.safetensors"
    ).eval()
    print(
        f"timm loads the export: test accuracy {(plain(images[test]).argmax(dim=1) == labels[test]).float().mean():.3f}"
    )


if __name__ == "__main__":
    main()
