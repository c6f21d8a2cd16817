"""Crammed BERT at full size takes real pre-training steps: the proof that the paper-scale configs run as written.

    python -m scripts.language_proof [legacy current] [--batch 2] [--work outputs/proof_glue]

For each version of the recipe, on the CPU in float32, with its model, masking, optimizer and clipping, plain and
conditioned with svd: 20 steps on one fixed batch of text (the project's own, packed by the recipe's own code with
its vocabulary and length), whose loss must fall; then the weights are folded, exported and loaded again, and must
compute the same. Each part runs in a process of its own, which tells its peak memory. Minutes for each.
Record: results/language_proof.json and .md.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import specattn
from specattn.models import crammed_bert
from train.compose import resolve
from train.distributed import join
from train.optimizer import build_optimizer
from train.record_files import write
from train.tasks import build_model
from train.tasks.language_modeling import LanguageModeling

STEPS = 20
VERSIONS, METHODS = ("legacy", "current"), ("plain", "svd")
RECORD = Path("results/language_proof.json")


def words(version: str, method: str, batch: int, work: Path) -> list[str]:
    """The paper-scale config on text that is at hand, at a batch that a CPU can hold and the peak rate throughout."""
    return [
        f"experiment=paper/glue_pretrain_{version}",
        "dataset=text_made",
        f"conditioning={'off' if method == 'plain' else method}",
        f"batch_size={batch}",
        f"task.ramp.unit={batch}",
        "runtime.device=cpu",
        "runtime.wandb=off",
        f"output_root={work}",
    ]


def prove(version: str, method: str, batch: int, work: Path) -> dict:
    """One part of the proof."""
    config = resolve(words(version, method, batch, work))
    task = LanguageModeling(config, join("cpu"))
    [fixed] = next(task.batches(0, 1))
    torch.manual_seed(config.seed)
    model = build_model(config).train()
    optimizer = build_optimizer(config, model)
    losses, began = [], time.perf_counter()
    for step in range(STEPS):
        loss = task.loss(model, fixed)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_grad)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"{version}, {method}: step {step + 1}/{STEPS}  loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    seconds = (time.perf_counter() - began) / STEPS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(parameter.numel() for parameter in model.parameters())
    model.eval()
    with torch.no_grad():
        before = model(fixed.tokens_BN[:1], torch.arange(8))
        crammed_bert.save(specattn.fold(model), work / "export")
        del model, optimizer
        after = crammed_bert.load(work / "export").eval()(fixed.tokens_BN[:1], torch.arange(8))
    return {
        "parameters": parameters,
        "masked_tokens": len(fixed.targets_M),
        "losses": losses,
        "seconds_per_step": seconds,
        "peak_memory_bytes": peak,
        "export_relative_difference": ((after - before).abs().max() / before.abs().max()).item(),
    }


def sound(found: dict) -> list[str]:
    """What a record does not show as it should."""
    problems = []
    if not all(math.isfinite(loss) for loss in found["losses"]):
        problems.append("a loss is not finite")
    if not found["losses"][-1] < found["losses"][0]:
        problems.append("the loss did not fall")
    if not found["export_relative_difference"] < 1e-4:
        problems.append("the export computes something else")
    return problems


def page(record: dict) -> str:
    """The record as a Markdown table."""
    lines = [
        "# Crammed BERT at full size trains",
        "",
        f"One CPU thread, float32, a few sequences of 128 tokens, vocabulary of the config: the loss at the first and "
        f"last of {STEPS} steps on one fixed batch at the recipe's peak rate. Export: the largest difference of logits "
        "between the trained model and its folded, exported and reloaded weights, relative to the largest logit. No "
        "GPU was used: throughput and memory in half precision, and the 24-hour budget, were not measured.",
        "",
        "| version | correction | parameters | batch | loss | s a step | peak memory | export | sound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in record.items():
        version, method = name.split("/")
        lines.append(
            f"| {version} | {method} | {found['parameters'] / 1e6:.2f} M | {found['batch']} | "
            f"{found['losses'][0]:.3f} → {found['losses'][-1]:.3f} | {found['seconds_per_step']:.1f} | "
            f"{found['peak_memory_bytes'] / 2**30:.2f} GiB | {found['export_relative_difference']:.1e} | "
            f"{'; '.join(sound(found)) or 'yes'} |"
        )
    return "\n".join([*lines, "", "Made by `python -m scripts.language_proof`; the JSON holds every loss.", ""])


def main() -> int:
    """Prove the versions one after the other; 1 where one is not sound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--batch", type=int, default=2, help="sequences of 128 tokens")
    parser.add_argument("--work", type=Path, default=Path("outputs/proof_glue"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    work = chosen.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    if chosen.one:
        torch.set_num_threads(1)
        found = prove(*chosen.one, chosen.batch, work)
        write(work / "one.json", json.dumps(found | {"batch": chosen.batch}))
        return 0
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in [f"{version}/{method}" for version in chosen.versions for method in METHODS]:
        command = [sys.executable, "-m", "scripts.language_proof", "--batch", str(chosen.batch), "--work", str(work)]
        subprocess.run([*command, "--one", *name.split("/")], check=True)
        record[name] = json.loads((work / "one.json").read_text())
        write(RECORD, json.dumps(record, indent=1) + "\n")
        write(RECORD.with_suffix(".md"), page(record))
        print(f"{name}: {'; '.join(sound(record[name])) or 'sound'}", flush=True)
    return 1 if any(sound(found) for found in record.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
