"""A corpus from its text: tokenizer, near-duplicates, parts, the two files, the manifest; goes on where it stopped.

`prepared` is what a run calls: it opens the corpus, and makes it first where it is not there.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy

from train.data.corpus import cleaning, made, merging, packing, wordpiece
from train.data.corpus.documents import Source, Unit, documents, file_hash, sources, units
from train.data.corpus.manifest import FILES, FORMAT, NAME, Packed, load, read, settings, unigram_entropy
from train.errors import UserError
from train.progress import clock
from train.randomness import SUBSET, permutation
from train.record_files import write
from train.schema_language import Text


def cache_folder(options: Text, output_root: str) -> Path:
    """Where a run's corpus lies unless `corpus` says otherwise: named by what it is made of and how."""
    digest = hashlib.sha256(json.dumps([FORMAT, settings(options)], sort_keys=True).encode()).hexdigest()
    return Path(output_root).expanduser().absolute() / "corpus" / f"{options.name}-{digest[:10]}"


def prepared(options: Text, folder: Path, data_root: str | None) -> Packed:
    """Open a corpus; make it first where it is not finished.

    Raises:
        UserError: the text is missing, or the corpus is damaged or was made otherwise.
    """
    if not (folder / NAME).exists():
        make(options, folder, data_root)
    return load(folder, options)


def make(options: Text, folder: Path, data_root: str | None, workers: int | None = None) -> dict:
    """Make a corpus in `folder`, going on from the parts that are there; returns its manifest.

    Args:
        workers: processes; None: as many as this process may use cores.

    Raises:
        UserError: the text is missing or cannot be read, or leaves nothing to train on or to hold out.
    """
    if options.vocabulary > 1 << 16:
        raise UserError(f"dataset.vocabulary={options.vocabulary}: tokens are kept as 16 bits, so at most 65536")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (folder / NAME).exists():  # another process made it while this one waited
            return read(folder)
        if options.folder is None:
            (folder / "text").mkdir(exist_ok=True)
            made.make(folder / "text", options.made_megabytes)
            found = sources(_as_text(options, folder / "text"), None)
        else:
            found = sources(options, data_root)
        return _make(options, folder, found, workers or len(os.sched_getaffinity(0)))


def _as_text(options: Text, folder: Path) -> Text:
    return Text(**settings(options) | {"folder": str(folder)})


def _make(options: Text, folder: Path, found: list[Source], workers: int) -> dict:
    parts = folder / "parts"
    plan = json.dumps({"settings": settings(options), "sources": [[s.name, s.bytes] for s in found]})
    if not (parts / "plan.json").exists() or (parts / "plan.json").read_text() != plan:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        write(parts / "plan.json", plan)
    listed = units(found, options)
    _say(f"corpus {options.name}: {len(found)} files, {sum(s.bytes for s in found) / 1e6:.0f} MB -> {folder}")
    if not (parts / "tokenizer.json").exists():
        began = time.monotonic()
        tokenizer = wordpiece.trained(_sample(listed, options), options.vocabulary)
        write(parts / "tokenizer.json", tokenizer.to_str())
        _say(f"tokenizer: {tokenizer.get_vocab_size()} tokens, trained in {clock(time.monotonic() - began)}")
    tokenizer = wordpiece.read(parts / "tokenizer.json")
    counting, counted_by = _filter(options)
    job = packing.Job(options, parts, tokenizer.to_str(), counting)
    if options.drop_near_duplicates:
        _each(packing.sign, listed, job, workers, "near-duplicates")
        _compare(parts, len(listed))
        job.keep = True
    notes = _each(packing.pack, listed, job, workers, "packing")
    counts = {key: sum(note["counts"][key] for note in notes) for key in packing.COUNTS}
    files = {}
    for split, name in FILES.items():
        unfinished = folder / f".{name}.tmp"
        paths = [parts / f"{index:06d}.{split}.bin" for index in range(len(listed))]
        full_stop = tokenizer.token_to_id(".") if options.sort and split == "train" else None
        sequences = merging.merge(paths, unfinished, options.length, full_stop)
        if not sequences:
            raise UserError(f"corpus {options.name}: {split} holds not one sequence of {options.length} tokens")
        unfinished.replace(folder / name)
        files[name] = _about(folder / name) | {"sequences": sequences}
    shutil.copyfile(parts / "tokenizer.json", folder / "tokenizer.json")
    files["tokenizer.json"] = _about(folder / "tokenizer.json") | {"tokens": tokenizer.get_vocab_size()}
    manifest = {
        "format": FORMAT,
        "settings": settings(options),
        "hub": [options.hub, options.revision] if options.hub else None,
        "filter_tokenizer": counted_by,
        "sources": [{"name": s.name, "bytes": s.bytes, "sha256": s.sha256()} for s in found],
        "files": files,
        "counts": counts,
        "unigram_entropy": unigram_entropy(folder / FILES["held_out"], options.length, options.vocabulary),
        "versions": {"tokenizers": importlib.metadata.version("tokenizers")},
    }
    if not math.isfinite(manifest["unigram_entropy"]):
        raise UserError(f"corpus {options.name}: the held-out text has no token but specials")
    write(folder / NAME, json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(parts)
    return manifest


def _sample(listed: list[Unit], options: Text) -> Iterator[str]:
    """Text to train the tokenizer on: units in a fixed drawn order until there is enough; nothing held out."""
    left = options.tokenizer_megabytes * 1_000_000
    for index in permutation(len(listed), SUBSET).tolist():
        for text in documents(listed[index], options):
            if left <= 0:
                return
            if not packing.is_held_out(listed[index], text, options):
                left -= len(text)
                yield text


def _filter(options: Text) -> tuple[str | None, str | None]:
    """The trash filter's tokenizer as JSON (None: the corpus's own), and which it is, for the manifest."""
    if options.filter_ratio is None:
        return None, None
    if options.filter_tokenizer != "own":
        if (tokenizer := wordpiece.for_filter(options.filter_tokenizer)) is not None:
            return tokenizer.to_str(), options.filter_tokenizer
        _say(f"warning: {options.filter_tokenizer} cannot be loaded: the trash filter counts our own tokens instead")
    return None, "own"


def _compare(parts: Path, count: int) -> None:
    """Decide which documents stay: those held out first, so that none of them is repeated in training."""
    seen = cleaning.Seen()
    keep: list[numpy.ndarray] = []
    for first in (True, False):
        for index in range(count):
            with numpy.load(parts / f"{index:06d}.signatures.npz", allow_pickle=False) as file:
                bands, held_out = file["bands"], file["held_out"]
            if first:
                keep.append(numpy.ones(len(bands), bool))
            for number in numpy.flatnonzero(held_out == first):
                keep[index][number] = not seen.repeated(bands[number])
    for index, kept in enumerate(keep):
        numpy.save(parts / f"{index:06d}.keep.npy", kept)


def _each(work: Callable, listed: list[Unit], job: packing.Job, workers: int, what: str) -> list:
    """`work(index, unit)` for every unit, side by side, with the time left; results in the units' order."""
    sizes = [(unit.stop or unit.source.bytes) - unit.start for unit in listed]
    total, done, results = sum(sizes), 0, [None] * len(listed)
    began = shown = time.monotonic()

    def tell(index: int) -> None:
        nonlocal done, shown
        done += sizes[index]
        if time.monotonic() - shown > (0.5 if sys.stderr.isatty() else 10) or done == total:
            shown = time.monotonic()
            spent = max(shown - began, 1e-9)
            rate, left = done / spent / 1e6, spent / done * (total - done)
            _say(f"{what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate:.1f} MB/s, left {clock(left)}")

    if min(workers, len(listed)) == 1:
        packing.prepare(job)
        for index, unit in enumerate(listed):
            results[index] = work(index, unit)
            tell(index)
        return results
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(listed)), context, packing.prepare, (job,)) as pool:
        futures = {pool.submit(work, index, unit): index for index, unit in enumerate(listed)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                tell(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _say(f"waiting for the process that makes {folder}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _about(path: Path) -> dict:
    return {"bytes": path.stat().st_size, "sha256": file_hash(path)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
