"""Every paper-scale ImageNet config takes real training steps on photographs: the proof that it runs as written.

    DATA_ROOT=<folder with imagenette> python -m scripts.full_size_proof [imagenet-vit ...] [--work outputs/proof]

For each row, at 224 pixels and batch 4 on the CPU in float32, with its model, loss, mixing, optimizer, clipping and
average: (1) 20 steps on one fixed batch without augmentation, whose loss must fall; (2) five steps of its whole
recipe conditioned with svd, augmentation and repeats included, through `python -m train`, stopped after the third and
resumed, then exported and compared with plain timm. Each row runs in a process of its own, which tells
its peak memory. Record: results/full_size_proof.json and .md.
"""

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import timm
import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file

import specattn
from train import checkpoint
from train.compose import distinguishing, resolve
from train.data.imagenet import FolderImages
from train.distributed import join
from train.folder import run_folder
from train.optimizer import build_optimizer
from train.record_files import write
from train.tasks import build_model

ROWS = ("imagenet-vit", "imagenet-deit", "imagenet-swin", "imagenet-xcit", "imagenet-davit")
STEPS, BATCH = 20, 4
RECORD = Path("results/full_size_proof.json")


def words(row: str, work: Path) -> list[str]:
    """The row's paper-scale config, on imagenette and a batch that a CPU can hold.

    The rates are absolute here: the linear rule would leave next to nothing of them at a batch of four.
    """
    return [
        f"experiment=paper/{row.replace('-', '_')}",
        "dataset=imagenette",
        f"batch_size={BATCH}",
        "optimizer.lr=1e-4",
        "optimizer.lr_scaling=absolute",
        "optimizer.reference_batch=null",
        "schedule.scale_bounds=null",
        "schedule.epochs=null",
        "schedule.steps=5",
        "schedule.warmup_epochs=null",
        "schedule.warmup_steps=1",
        "schedule.cooldown_epochs=null",
        "schedule.per=step",
        "schedule.lag=null",
        "ema.copy_epochs=0",
        "evaluate.epochs=null",
        "evaluate.steps=100000",
        "runtime.save_steps=3",
        "runtime.log_steps=1",
        "runtime.threads=1",
        "runtime.workers=0",
        "runtime.device=cpu",
        "runtime.precision=fp32",
        "runtime.wandb=off",
        f"output_root={work}",
        f"data_root={work / 'data'}",
    ]


def fixed_batch(config: DictConfig, images: torch.Tensor, labels: torch.Tensor) -> dict:
    """The loss of each of 20 steps on one batch, in evaluation's transform, and seconds a step."""
    torch.manual_seed(config.seed)
    model = build_model(config).train()
    optimizer = build_optimizer(config, model)
    losses, began = [], time.perf_counter()
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=config.task.label_smoothing)
        loss.backward()
        if config.optimizer.clip_grad is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_grad)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "seconds_per_step": (time.perf_counter() - began) / STEPS}


def few(source: Path, target: Path) -> None:
    """Links to eight training and two validation photographs of each class: an evaluation then takes seconds."""
    for split, count in (("train", 8), ("val", 2)):
        for folder in sorted((source / "imagenette" / split).iterdir()):
            place = target / "imagenette" / split / folder.name
            place.mkdir(parents=True, exist_ok=True)
            for image in sorted(folder.iterdir())[:count]:
                (place / image.name).unlink(missing_ok=True)
                (place / image.name).symlink_to(image.absolute())


def whole_recipe(asked: list[str], work: Path) -> dict:
    """Five steps of the recipe, stopped after three and resumed; its export in plain timm."""
    asked = [*asked, "conditioning=svd"]
    config = resolve(asked)
    folder = run_folder(config, distinguishing(asked))
    stopped = subprocess.run(
        [sys.executable, "-c", STOPPING, *asked], check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    kept = checkpoint.checkpoints(folder)
    first = checkpoint.load(kept[-1])["step"]
    subprocess.run([sys.executable, "-m", "train", *asked], check=True)
    state = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event["event"] == "train"]

    model = build_model(config)
    model.load_state_dict(state["model"])
    model.eval()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(images)
        specattn.fold(model, work / "plain.safetensors")
        plain = timm.create_model(
            config.model.name, num_classes=config.dataset.classes, **OmegaConf.to_container(config.model.args)
        ).eval()
        plain.load_state_dict(load_file(work / "plain.safetensors"), strict=True)
        difference = (plain(images) - before).abs().max() / before.abs().max()
    return {
        "stopped_after": first,
        "stop_status": stopped.returncode,
        "resumed_to": state["step"],
        "losses": losses,
        "peak_memory_bytes": max(event["timing"]["peak_memory_bytes"] for event in events if event["event"] == "train"),
        "export_relative_difference": difference.item(),
    }


# A worker that gets a signal in its third step, as a scheduler would send it.
STOPPING = """
import signal, sys
import train.loop
update = train.loop.Progress.step
def step(self, done, *numbers):
    update(self, done, *numbers)
    if done == 3:
        signal.raise_signal(signal.SIGUSR1)
train.loop.Progress.step = step
from train.command import main
sys.exit(main(sys.argv[1:]))
"""


def prove(row: str, work: Path) -> dict:
    """One row's proof."""
    asked = words(row, work)
    config = resolve(asked)
    images, labels = next(FolderImages(config, join("cpu")).evaluation_batches(20))
    every = images[:: 20 // BATCH].clone(), labels[:: 20 // BATCH].clone()
    assert len(every[1].unique()) == BATCH
    found = {"parameters": sum(p.numel() for p in build_model(config).parameters())}
    found["fixed"] = fixed_batch(config, *every)
    found["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found["recipe"] = whole_recipe(asked, work)
    return found


def sound(found: dict) -> list[str]:
    """What a row's record does not show as it should."""
    problems = []
    losses = found["fixed"]["losses"]
    if not all(math.isfinite(loss) for loss in [*losses, *found["recipe"]["losses"]]):
        problems.append("a loss is not finite")
    if not losses[-1] < losses[0]:
        problems.append("the loss did not fall")
    recipe = found["recipe"]
    if (recipe["stopped_after"], recipe["resumed_to"], recipe["stop_status"]) != (3, 5, 75):
        problems.append("not stopped after step 3 and resumed to step 5")
    if not recipe["export_relative_difference"] < 1e-4:
        problems.append("the export computes something else")
    return problems


def page(record: dict) -> str:
    """The record as a Markdown table."""
    lines = [
        "# Every paper-scale ImageNet config trains",
        "",
        f"On Imagenette photographs at 224 pixels, batch {BATCH}, one CPU thread, float32, learning rate 1e-4. Loss: "
        f"the first and last of {STEPS} steps on one fixed batch without augmentation. Recipe: five steps of the whole "
        "recipe, conditioned with svd, through `python -m train`, stopped by a signal after three and resumed. Export: "
        "largest difference of the logits of the folded weights in plain timm, relative to the largest logit. No GPU "
        "was used: step time, throughput and memory in bf16 and fp16 were not measured.",
        "",
        "| row | parameters | loss | s a step | peak memory | recipe's losses | export | sound |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, found in record.items():
        problems = sound(found)
        first, *_, last = found["fixed"]["losses"]
        peak = max(found["peak_memory_bytes"], found["recipe"]["peak_memory_bytes"]) / 2**30
        lines.append(
            f"| {row} | {found['parameters'] / 1e6:.2f} M | {first:.3f} → {last:.3f} | "
            f"{found['fixed']['seconds_per_step']:.1f} | {peak:.2f} GiB | "
            f"{', '.join(f'{loss:.2f}' for loss in found['recipe']['losses'])} | "
            f"{found['recipe']['export_relative_difference']:.1e} | {'; '.join(problems) or 'yes'} |"
        )
    return "\n".join(
        [*lines, "", "Made by `python -m scripts.full_size_proof`; `full_size_proof.json` holds every loss.", ""]
    )


def main() -> int:
    """Prove the rows one after the other; 1 where one is not sound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--work", type=Path, default=Path("outputs/proof"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not os.environ.get("DATA_ROOT"):
        print("error: set DATA_ROOT to the folder that holds imagenette/", file=sys.stderr)
        return 2
    chosen.work = chosen.work.absolute()
    chosen.work.mkdir(parents=True, exist_ok=True)
    if chosen.one:
        torch.set_num_threads(1)
        write(chosen.work / f"{chosen.one}.json", json.dumps(prove(chosen.one, chosen.work)))
        return 0
    few(Path(os.environ["DATA_ROOT"]), chosen.work / "data")
    for row in chosen.rows:
        shutil.rmtree(chosen.work / "paper" / row.replace("-", "_"), ignore_errors=True)
        command = [sys.executable, "-m", "scripts.full_size_proof", "--one", row, "--work", str(chosen.work)]
        subprocess.run(command, check=True)
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}  # rows may be proven side by side
        record[row] = json.loads((chosen.work / f"{row}.json").read_text())
        record = {name: record[name] for name in ROWS if name in record}
        write(RECORD, json.dumps(record, indent=1) + "\n")
        write(RECORD.with_suffix(".md"), page(record))
        print(f"{row}: {'; '.join(sound(record[row])) or 'sound'}", flush=True)
    return 1 if any(sound(found) for found in record.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
