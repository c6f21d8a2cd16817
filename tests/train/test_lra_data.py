"""The Long Range Arena's loaders: tokens, splits and subsets; every mistake in a file is named in one line."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from train.data.lra import image, load, missing
from train.data.lra.listops import VOCABULARY
from train.data.lra.tokens import Builder
from train.errors import UserError

LISTOPS = "Source\tTarget\n( ( ( [MIN 8 ) 2 ) ] )\t2\n7\t7\n( ( ( ( [MED ( ( ( [SM 4 ) 9 ) ] ) ) 1 ) 0 ) ] )\t1\n"
PAIR = "{}\tid1\tid2\t{}\t{}\n"
DEFAULTS = {"name": "x", "max_length": 100, "padded_length": 128, "train_size": None, "eval_size": None}


def asked(kind: str, folder: str = "set", **values) -> SimpleNamespace:
    return SimpleNamespace(**(DEFAULTS | {"kind": kind, "folder": folder} | values))


def listops(root: Path, **splits: str) -> None:
    for split in ("train", "val", "test"):
        (root / "set").mkdir(exist_ok=True)
        (root / "set" / f"basic_{split}.tsv").write_text(splits.get(split, LISTOPS))


def retrieval(root: Path, **splits: str) -> None:
    (root / "set").mkdir(exist_ok=True)
    for split in ("train", "eval", "test"):
        text = splits.get(split, PAIR.format("1.0", "one text", 'an "other') + PAIR.format("0.0", "x" * 300, "é"))
        (root / "set" / f"new_aan_pairs.{split}.tsv").write_text(text)


def reviews(root: Path, count: int = 5) -> None:
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            folder = root / "set" / split / label
            folder.mkdir(parents=True)
            for index in range(count):
                (folder / f"{index}_7.txt").write_text(f"{split} {label} {index} ÿ" + "!" * 200 * (index == 0))


def pathfinder(root: Path, batches: int = 3, size: int = 10) -> numpy.ndarray:
    """Random images [N, 1024], each with label (index mod 2); batch numbers that text order would mix up."""
    pixels = numpy.random.default_rng(0).integers(0, 256, (batches * size, 32, 32), dtype=numpy.uint8)
    (root / "set" / "metadata").mkdir(parents=True)
    for batch in range(batches):
        number, lines = batch * 5, []  # 0, 5, 10
        (root / "set" / "imgs" / str(number)).mkdir(parents=True)
        for index in range(size):
            Image.fromarray(pixels[batch * size + index]).save(root / f"set/imgs/{number}/sample_{index}.png")
            lines.append(f"imgs/{number} sample_{index}.png {index} {index % 2} 1.0 14 4 2 0.5 1 1\n")
        (root / f"set/metadata/{number}.npy").write_text("".join(lines))
    return pixels.reshape(-1, 1024)


def refused(options: SimpleNamespace, root: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(options, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_listops_tokens(tmp_path):
    listops(tmp_path)
    found = load(asked("listops"), tmp_path)
    assert list(found) == ["train", "dev", "test"]
    batch = found["train"].batch(torch.tensor([2, 0]))
    assert (batch.shape, batch.dtype) == ((2, 128), torch.int64)
    named = [[VOCABULARY[token - 1] for token in row[row > 0].tolist()] for row in batch]
    assert [" ".join(row) for row in named] == ["[MED [SM 4 9 X 1 0 X", "[MIN 8 2 X"]
    assert found["train"].labels.tolist() == [2, 7, 1]
    assert found["train"].labels.dtype == torch.int64
    assert found["train"].lengths().tolist() == [4, 1, 8]
    assert len(VOCABULARY) == 15
    assert load(asked("listops", max_length=5), tmp_path)["test"].lengths().tolist() == [4, 1, 5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Source\tTarget\n[MIN 1 [SUM 2 ] ]\t1\n", "basic_val.tsv, line 2: '[SUM' is not in the vocabulary"),
        ("Source\tTarget\n7\t7\n[MIN 12 ]\t1\n", "basic_val.tsv, line 3: '12' is not in the vocabulary"),
        ("Source\tTarget\n[MIN 1 2\t1\n", "line 2: an operator is never closed"),
        ("Source\tTarget\n( ( )\t1\n", "line 2: no token"),
        ("Source\tTarget\n7\t7\n\n7\t7\n", "line 3 is empty"),
        ("Source\tTarget\n7\n", "line 2: 1 tab-separated columns, not 2"),
        ("Source\tTarget\n7\t7\t7\n", "line 2: 3 tab-separated columns, not 2"),
        ("Source\tTarget\n7\t10\n", "line 2: the target is '10'"),
        ("Source\tTarget\n7\t7\n[MIN 1 2", "line 3: the file ends in the middle of a line"),
        ("Target\tSource\n7\t7\n", "the header is 'Target\\tSource'"),
        ("7\t7\n", "the header is"),
        ("Source\tTarget\n", "holds a header and no row"),
        ("", "is empty"),
    ],
)
def test_what_is_wrong_with_a_listops_file_is_named(tmp_path, text, says):
    listops(tmp_path, val=text)
    assert says in refused(asked("listops"), tmp_path)


def test_a_missing_file_is_named(tmp_path):
    for make, kind, name in (
        (listops, "listops", "basic_test.tsv"),
        (retrieval, "retrieval", "new_aan_pairs.test.tsv"),
    ):
        make(tmp_path)
        (tmp_path / "set" / name).unlink()
        assert f"{name} is not there" in refused(asked(kind), tmp_path)
        assert name in missing(asked(kind), tmp_path)


def test_the_original_listops_test_set(data_root):
    found = load(asked("listops", "lra/listops-d20s", max_length=2000, padded_length=2048), data_root)
    assert {split: len(samples) for split, samples in found.items()} == {"train": 8000, "dev": 1000, "test": 1000}
    batch = found["test"].batch(torch.arange(1000))
    assert batch.max() == 15
    assert torch.equal((batch > 0).sum(1), found["test"].lengths())


def test_text_tokens_and_that_dev_is_test(tmp_path):
    reviews(tmp_path)
    found = load(asked("text"), tmp_path)
    assert found["dev"] is found["test"]
    assert found["train"].labels.tolist() == [0] * 5 + [1] * 5
    row = found["train"].batch(torch.tensor([7]))[0]
    assert bytes((row[row > 0] - 1).tolist()).decode() == "train pos 2 ÿ"
    assert found["test"].lengths().max() == 100
    assert (found["test"].batch(torch.tensor([0]))[0, :100] > 0).all()
    (tmp_path / "set/test/neg/3_7.txt").write_text(" \n")
    assert "3_7.txt is empty" in refused(asked("text"), tmp_path)
    for file in (tmp_path / "set/test/neg").iterdir():
        file.unlink()
    assert "test/neg holds no .txt file" in refused(asked("text"), tmp_path)


def test_the_reviews(data_root):
    options = asked("text", "lra/imdb/aclImdb", max_length=4000, padded_length=4096, train_size=300, eval_size=200)
    found = load(options, data_root)
    assert (len(found["train"]), len(found["test"])) == (300, 200)
    assert found["train"].batch(torch.arange(300)).max() <= 256
    assert 0.35 < found["train"].labels.double().mean() < 0.65


def test_pairs(tmp_path):
    retrieval(tmp_path)
    found = load(asked("retrieval"), tmp_path)
    batch = found["dev"].batch(torch.tensor([1, 0, 1]))
    assert (batch.shape, batch.dtype) == ((3, 2, 128), torch.int64)
    assert bytes((batch[1, 1, :9] - 1).tolist()) == b'an "other'
    assert batch[1, 1, 9:].max() == 0
    assert batch[0, 0].tolist() == [ord("x") + 1] * 100 + [0] * 28
    assert batch[2, 1, :3].tolist() == [0xC3 + 1, 0xA9 + 1, 0]
    assert found["dev"].labels.tolist() == [1, 0]
    assert found["dev"].lengths().tolist() == [[8, 9], [100, 2]]
    long = load(asked("retrieval", max_length=20000, padded_length=20000), tmp_path)
    assert long["dev"].lengths().max() == 300
    retrieval(tmp_path, train=PAIR.format("1.0", "y" * 12000, "z"))
    long = load(asked("retrieval", max_length=20000, padded_length=20000), tmp_path)
    assert long["train"].lengths().tolist() == [[10000, 1]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1.0\tid1\tid2\tone text\n", "train.tsv, line 1: 4 tab-separated columns, not 5"),
        (PAIR.format("1.0", "a\tb", "c"), "line 1: 6 tab-separated columns, not 5"),
        (PAIR.format("0.0", "a", "b") + PAIR.format("2.0", "a", "b"), "line 2: the label is '2.0'"),
        (PAIR.format("label", "text1", "text2"), "line 1: the label is 'label'"),
        (PAIR.format("0.0", "a", ""), "line 1: a text is empty"),
        (PAIR.format("0.0", "a", "b").rstrip("\n"), "line 1: the file ends in the middle of a line"),
        (PAIR.format("0.0", "a", "b") + "\n", "line 2 is empty"),
        ("", "is empty"),
    ],
)
def test_what_is_wrong_with_pairs_is_named(tmp_path, text, says):
    retrieval(tmp_path, train=text)
    assert says in refused(asked("retrieval"), tmp_path)


def test_grey_cifar10(tmp_path, monkeypatch):
    """45,000 / 5,000 / 10,000 in little: 9 / 3 / 5; pixels against the weights, one by one."""
    monkeypatch.setattr(image, "TRAIN", 9)
    draw = numpy.random.default_rng(0)
    (tmp_path / "cifar10").mkdir()
    held = {}
    for split, count in (("train", 12), ("test", 5)):
        held[split] = draw.integers(0, 256, (count, 32, 32, 3), dtype=numpy.uint8)
        held[split][0, 0, :2] = [[255, 255, 255], [0, 0, 0]]
        cells = []
        for pixels in held[split]:
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG")
            cells.append({"bytes": buffer.getvalue(), "path": None})
        labels = pyarrow.array(numpy.arange(count) % 10, pyarrow.int64())
        table = pyarrow.table({"img": cells, "label": labels})
        pyarrow.parquet.write_table(table, tmp_path / "cifar10" / f"{split}-0.parquet")
    options = asked("image", "cifar10", max_length=1024, padded_length=1024)
    assert missing(options, tmp_path) is None
    found = load(options, tmp_path)
    assert {split: len(samples) for split, samples in found.items()} == {"train": 9, "dev": 3, "test": 5}
    assert found["dev"].labels.tolist() == [9, 0, 1]
    row = found["dev"].batch(torch.tensor([2]))[0]
    exact = held["train"][11].reshape(-1, 3) @ numpy.array([0.2989, 0.587, 0.114])
    assert row.shape == (1024,)
    assert numpy.abs(row.numpy() - exact).max() < 1
    first = found["test"].batch(torch.tensor([0]))[0]
    assert first[:2].tolist() == [255, 0]
    assert "an image has 1024" in refused(asked("image", "cifar10"), tmp_path)
    monkeypatch.setattr(image, "TRAIN", 12)
    assert "12 training images" in refused(options, tmp_path)


@pytest.mark.parametrize("split", ["nystromformer", "google"])
def test_pathfinder_splits(tmp_path, split):
    pixels = pathfinder(tmp_path)
    options = asked("pathfinder", max_length=1024, padded_length=1024, split=split)
    found = load(options, tmp_path)
    assert {name: len(samples) for name, samples in found.items()} == {"train": 24, "dev": 3, "test": 3}
    rows = torch.cat([samples.batch(torch.arange(len(samples))) for samples in found.values()])
    labels = torch.cat([samples.labels for samples in found.values()])
    places = [int(numpy.flatnonzero((pixels == row.numpy()).all(1))[0]) for row in rows]
    assert sorted(places) == list(range(30))
    assert labels.tolist() == [place % 2 for place in places]
    assert (places == list(range(30))) == (split == "google")
    again = load(options, tmp_path)
    assert torch.equal(again["test"].batch(torch.arange(3)), rows[-3:])


def test_pathfinder_pngs_of_zero_bytes(tmp_path, capsys):
    """One in 1,100 is left out and said; one in 30 is an error; any other damage is one."""
    options = asked("pathfinder", max_length=1024, padded_length=1024, split="google", train_size=5, eval_size=5)
    pathfinder(tmp_path / "many", 1, 1100)
    (tmp_path / "many/set/imgs/0/sample_3.png").write_bytes(b"")
    found = load(options, tmp_path / "many")
    assert len(found["test"]) == 5
    assert capsys.readouterr().err.count("1 of 1100 images have zero bytes and are left out") == 1
    options = asked("pathfinder", max_length=1024, padded_length=1024, split="google")
    pathfinder(tmp_path / "few")
    damaged = tmp_path / "few/set/imgs/5/sample_3.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(b"")
    assert "imgs/5/sample_3.png has zero bytes" in refused(options, tmp_path / "few")
    damaged.write_bytes(whole[: len(whole) // 2])
    assert "imgs/5/sample_3.png cannot be read" in refused(options, tmp_path / "few")
    Image.new("L", (16, 16)).save(damaged)
    assert "sample_3.png is 16 x 16, mode L" in refused(options, tmp_path / "few")
    damaged.unlink()
    assert "5.npy, line 4" in refused(options, tmp_path / "few")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("imgs/0 sample_0.png 0\n", "line 2: 3 fields"),
        ("imgs/0 sample_0.png 0 2 1.0\n", "line 2: the label is '2'"),
        ("\n", "line 2 is empty"),
        ("imgs/0 sample_0.pn", "line 2: the file ends in the middle of a line"),
    ],
)
def test_what_is_wrong_with_metadata_is_named(tmp_path, line, says):
    pathfinder(tmp_path, 1, 2)
    options = asked("pathfinder", max_length=1024, padded_length=1024, split="google")
    path = tmp_path / "set/metadata/0.npy"
    path.write_text(path.read_text().splitlines()[0] + "\n" + line)
    assert says in refused(options, tmp_path)
    path.unlink()
    assert "holds no .npy file" in refused(options, tmp_path)
    assert "dataset.split=mine: there are" in refused_split(tmp_path)


def refused_split(root: Path) -> str:
    pathfinder(root / "other", 1, 2)
    return refused(asked("pathfinder", max_length=1024, padded_length=1024, split="mine"), root / "other")


def test_a_subset_is_the_same_every_time_and_part_of_the_whole(tmp_path):
    reviews(tmp_path)
    whole, part = (load(asked("text", train_size=size, eval_size=size), tmp_path) for size in (10, 4))
    texts = whole["train"].batch(torch.arange(10)), part["train"].batch(torch.arange(4))
    for text, label in zip(texts[1], part["train"].labels, strict=True):
        [place] = (texts[0] == text).all(1).nonzero().flatten().tolist()
        assert whole["train"].labels[place] == label
    assert torch.equal(load(asked("text", train_size=4), tmp_path)["train"].batch(torch.arange(4)), texts[1])
    assert "dataset.eval_size=11: there are 10 samples" in refused(asked("text", eval_size=11), tmp_path)
    retrieval(tmp_path)
    pairs = load(asked("retrieval"), tmp_path)["train"]
    turned = pairs.subset(torch.tensor([1, 0]))
    assert torch.equal(turned.batch(torch.tensor([1, 0])), pairs.batch(torch.tensor([0, 1])))
    assert turned.labels.tolist() == [0, 1]


def test_lengths_that_do_not_fit_are_refused(tmp_path):
    listops(tmp_path)
    assert "max_length=200 is more than" in refused(asked("listops", max_length=200), tmp_path)
    assert "dataset.kind=lisp: there are listops, text" in refused(asked("lisp"), tmp_path)


def test_documents_are_held_as_one_byte_a_token():
    built = Builder(4000, 4096, shift=1, documents=2)
    for _ in range(50):
        built.add(1, b"a" * 9000, b"b" * 3000)
    found = built.done()
    assert found.bytes_.dtype == numpy.uint8
    assert found.bytes_.nbytes == 50 * 7000
    assert found.batch(torch.tensor([49]))[0, 0, 3999:4001].tolist() == [98, 0]


def test_what_is_missing_names_the_remedy(tmp_path):
    remedies = {"listops": "scripts.make_listops", "retrieval": "scripts.make_retrieval", "text": "aclImdb"}
    for kind, remedy in remedies.items():
        assert "DATA_ROOT" in missing(asked(kind), None)
        assert remedy in missing(asked(kind), tmp_path)
    level = asked("pathfinder", "lra_release/pathfinder32/curv_contour_length_9")
    assert missing(level, tmp_path).endswith("curv_contour_length_9 --contour-length 9")
    assert "cifar10" in missing(asked("image", "cifar10"), tmp_path)
    listops(tmp_path)
    assert missing(asked("listops"), tmp_path) is None
    (tmp_path / "set/basic_val.tsv").unlink()
    assert "set lacks basic_val.tsv" in missing(asked("listops"), tmp_path)
    (tmp_path / "set/manifest.json").write_text(json.dumps({"complete": False}))
    assert "is not finished" in missing(asked("listops"), tmp_path)
