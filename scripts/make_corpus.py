"""Pack a pre-training's text beforehand: tokenizer, sequences and manifest, in parallel; goes on where it stopped.

    python -m scripts.make_corpus experiment=reduced/glue_pretrain            # where that run will look for it
    python -m scripts.make_corpus --text FOLDER --out FOLDER [dataset.files='**/*.parquet' ...]
    python -m scripts.make_corpus --check --out FOLDER                         # hashes and counts of one that is there

A corpus under --out is used by a run with `corpus=FOLDER` and the same dataset keys. Without an experiment it is packed
for the paper's model.
"""

import argparse
import sys
from pathlib import Path

from omegaconf import OmegaConf

from train.compose import resolve
from train.data.corpus import making, manifest
from train.errors import USAGE, UserError
from train.schema_language import Text

DEFAULT = "experiment=paper/glue_pretrain_legacy"
LOCAL = ("dataset=text_gutenberg", "dataset.name=text", "dataset.files='**/*.*'", "dataset.held_out=[]",
         "dataset.held_out_share=0.01")  # fmt: skip


def main() -> int:
    """Make or check a corpus and print its counts; 2 for a mistake."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="key=value words of a pre-training's config")
    parser.add_argument("--text", help="the folder that holds the text; 1 %% of the documents are held out")
    parser.add_argument("--out", help="the folder to write into (default: where the experiment's runs look)")
    parser.add_argument("--workers", type=int, help="processes (default: the cores)")
    parser.add_argument("--check", action="store_true", help="compare every hash; make nothing")
    chosen = parser.parse_intermixed_args()
    words = list(chosen.words)
    if not any(word.startswith("experiment=") for word in words):
        words.insert(0, DEFAULT)
    if chosen.text:
        words[1:1] = [*LOCAL, f"dataset.folder={Path(chosen.text).absolute()}"]
    try:
        config = resolve(words)
        if config.task.name != "language_modeling":
            raise UserError(f"{config.experiment} is no pre-training: there is no text to pack")
        options = Text(**OmegaConf.to_container(config.dataset, resolve=True))
        folder = Path(chosen.out).absolute() if chosen.out else making.cache_folder(options, config.output_root)
        if chosen.check:
            told = manifest.read(folder)
            manifest.load(folder, Text(**told["settings"]))
        else:
            making.make(options, folder, config.data_root, chosen.workers)
            told = manifest.load(folder, options).manifest
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    counts = told["counts"]
    print(f"{folder}: sound")
    print(
        f"{counts['documents']} documents, {counts['characters'] / 1e6:.1f} M characters; left out: {counts['short']} "
        f"short, {counts['trash']} trash ({told['filter_tokenizer']}), {counts['duplicates']} near-duplicates"
    )
    train, held_out = (told["files"][manifest.FILES[split]]["sequences"] for split in ("train", "held_out"))
    print(
        f"{counts['tokens']} tokens ({counts['unknown']} unknown) -> {train} sequences, {held_out} held out with a "
        f"unigram entropy of {told['unigram_entropy']:.4f} nats"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
