"""A pre-training's checkpoint as an export: model.safetensors (W + C folded), config.json, tokenizer.json.

python -m scripts.export_bert outputs/paper/glue_pretrain_legacy/identity-lam10/seed0/best.pt export
"""

import argparse
import sys
from pathlib import Path

from omegaconf import OmegaConf

import specattn
from specattn.models import crammed_bert
from train import checkpoint
from train.errors import USAGE, UserError
from train.record_files import write
from train.tasks import build_model


def export(path: Path, folder: Path) -> None:
    """Write the export.

    Raises:
        UserError: the checkpoint is damaged, or no pre-training's.
    """
    state = checkpoint.load(path)
    if "tokenizer" not in (state.get("task") or {}):
        raise UserError(f"{path} is not the checkpoint of a pre-training: it holds no tokenizer")
    model = build_model(OmegaConf.create(state["config"]))
    model.load_state_dict(state["model"])
    crammed_bert.save(specattn.fold(model), folder)
    write(folder / "tokenizer.json", state["task"]["tokenizer"])


def main() -> int:
    """Export and say where; 2 for a mistake."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    try:
        export(chosen.checkpoint, chosen.folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    print(f"export: {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
