"""Packed text: what a sequence holds, what is left out, that making goes on and gives the same, what is refused."""

import gzip
import json
import math
from collections import Counter

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from language import books, options

from train.data.corpus import cleaning, making, merging, packing, wordpiece
from train.data.corpus.documents import documents, sources, units
from train.data.corpus.manifest import load
from train.errors import UserError


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return books(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def corpus(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "packed"
    making.make(options(text), folder, None, workers=1)
    return making.prepared(options(text), folder, None)


def content(folder):
    return {name: (folder / name).read_bytes() for name in ("train.bin", "held_out.bin", "tokenizer.json")}


def test_sequences_are_the_documents_with_separators_sorted_by_full_stops(corpus, text):
    """Packed again by hand, from the tokenizer and the files."""
    tokenizer = corpus.tokenizer
    expected = []
    for path in sorted(text.glob("*.txt")):
        stream = []
        for paragraph in path.read_text().split("\n\n"):
            if paragraph.strip():
                stream += [*tokenizer.encode(paragraph, add_special_tokens=False).ids, wordpiece.SEP]
        rows = [stream[i : i + 16] for i in range(0, len(stream) - 15, 16)]
        if path.name == "book-11.txt":
            assert corpus.held_out.tolist() == rows
        else:
            expected += rows
    full_stop = tokenizer.token_to_id(".")
    expected.sort(key=lambda row: -row.count(full_stop))  # stable, as the file is
    assert corpus.train.tolist() == expected
    assert corpus.train.dtype == numpy.uint16
    assert isinstance(corpus.train, numpy.memmap)


def test_the_manifest_tells_counts_hashes_and_the_entropy(corpus, text):
    manifest = json.loads((corpus.folder / "manifest.json").read_text())
    assert manifest["counts"]["documents"] == 12 * 60
    assert manifest["files"]["train.bin"]["sequences"] == len(corpus.train)
    assert manifest["settings"]["vocabulary"] == 300
    assert [source["name"] for source in manifest["sources"]] == [f"book-{i:02d}.txt" for i in range(12)]
    counts = Counter(token for row in corpus.held_out.tolist() for token in row if token >= 7)
    total = sum(counts.values())
    entropy = -math.fsum(n / total * math.log(n / total) for n in counts.values())
    assert corpus.unigram_entropy == pytest.approx(entropy, rel=1e-12)
    assert sorted(path.name for path in corpus.folder.iterdir()) == sorted(
        ["held_out.bin", "lock", "manifest.json", "tokenizer.json", "train.bin"]
    )


def test_an_interrupted_making_goes_on_and_any_number_of_workers_gives_the_same(corpus, text, tmp_path, monkeypatch):
    pack, done = packing.pack, []

    def interrupted(index, unit):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(index)
        return pack(index, unit)

    with monkeypatch.context() as patch:
        patch.setattr(packing, "pack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            making.make(options(text), tmp_path / "again", None, workers=1)
    parts = tmp_path / "again" / "parts"
    first = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.train.bin")}
    assert len(first) == 5
    (parts / "000001.train.bin").write_bytes(b"damaged")
    making.make(options(text), tmp_path / "again", None, workers=2)
    assert content(tmp_path / "again") == content(corpus.folder)


@pytest.mark.parametrize("name", ["train.bin", "held_out.bin", "tokenizer.json", "manifest.json"])
def test_a_damaged_corpus_is_refused_by_name(corpus, text, tmp_path, name):
    for path in corpus.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(UserError, match=name):
        load(tmp_path, options(text))
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        load(tmp_path, options(text))


def test_a_corpus_of_other_settings_is_refused_by_key(corpus, text):
    with pytest.raises(UserError, match=r"manifest\.json.*dataset\.length: 16 there, 32 asked"):
        load(corpus.folder, options(text, length=32))


def test_what_is_wrong_with_the_text_is_one_line(text, tmp_path):
    for asked, said in (
        (options(tmp_path / "none"), "is not there"),
        (options(text, files="*.md"), "no file of it matches"),
        (options(text, held_out=["book-99*"]), "book-99"),
        (options(text, held_out=["*"]), "every file"),
        (options(text, held_out=[]), "nothing is held out"),
        (options(text, vocabulary=70000), "65536"),
        (options(text, length=100000), "not one sequence"),
    ):
        with pytest.raises(UserError, match=said):
            making.make(asked, tmp_path / said.replace(" ", "_"), None, workers=1)


def test_text_files_are_cut_between_documents(tmp_path, monkeypatch):
    paragraphs = [f"Paragraph {i}\nbroken in two." + " Long." * (i % 7) for i in range(200)]
    (tmp_path / "a.txt").write_bytes("\r\n \r\n".join(paragraphs).replace("\n", "\r\n").encode())
    monkeypatch.setattr("train.data.corpus.documents.UNIT_BYTES", 500)
    for kind, count in (("paragraph", 200), ("line", 400), ("file", 1)):
        asked = options(tmp_path, documents=kind, held_out=[], held_out_share=0.1)
        listed = units(sources(asked, None), asked)
        found = [text for unit in listed for text in documents(unit, asked)]
        assert len(found) == count
        assert len(listed) > 5 or kind == "file"
        if kind == "paragraph":
            assert found == [" ".join(p.split()) for p in paragraphs]


def test_json_lines_and_parquet_hold_what_text_holds(tmp_path):
    texts = ["First  document.", "Second\ndocument."]
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "b.parquet")
    for name in ("a.json.gz", "b.parquet"):
        asked = options(tmp_path, files=name, held_out=[], held_out_share=0.1)
        [unit] = units(sources(asked, None), asked)
        assert list(documents(unit, asked)) == ["First document.", "Second document."]
    (tmp_path / "c.jsonl").write_text('{"text": "good"}\n{"body": "no text"}\n')
    asked = options(tmp_path, files="c.jsonl", held_out=[], held_out_share=0.1)
    with pytest.raises(UserError, match=r"c\.jsonl, line 2"):
        list(documents(units(sources(asked, None), asked)[0], asked))


def test_the_filter_leaves_out_what_needs_many_tokens(text, tmp_path):
    other = tmp_path / "text"
    other.mkdir()
    for path in text.glob("*.txt"):
        (other / path.name).write_text(path.read_text())
    with open(other / "book-00.txt", "a") as file:
        file.write("\n\n" + "#$%^&*()" * 20 + "\n")
    manifest = making.make(options(other, filter_ratio=0.9), tmp_path / "out", None, workers=1)
    assert manifest["counts"]["trash"] == 1
    assert manifest["filter_tokenizer"] == "own"
    assert cleaning.is_trash(25, 100, 0.25)
    assert not cleaning.is_trash(24, 100, 0.25)


def test_a_filter_tokenizer_that_cannot_be_had_is_said_and_replaced(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(wordpiece, "for_filter", lambda name: None)
    asked = options(text, filter_ratio=0.9, filter_tokenizer="albert/albert-base-v2")
    manifest = making.make(asked, tmp_path / "out", None, workers=1)
    assert manifest["filter_tokenizer"] == "own"
    assert "albert/albert-base-v2 cannot be loaded" in capsys.readouterr().err


def test_near_duplicates_of_held_out_and_earlier_text_are_left_out(text, tmp_path):
    other = tmp_path / "text"
    other.mkdir()
    (other / "book-11.txt").write_text((text / "book-11.txt").read_text())
    paragraphs = (text / "book-03.txt").read_text().split("\n\n")
    copied = paragraphs[5].replace(" ", "  ", 1)
    leaked = (other / "book-11.txt").read_text().split("\n\n")[7]
    (other / "book-00.txt").write_text("\n\n".join([*paragraphs, copied, leaked]) + "\n")
    manifest = making.make(options(other, drop_near_duplicates=True), tmp_path / "out", None, workers=1)
    assert manifest["counts"]["duplicates"] == 2
    assert (cleaning.signature(leaked) != cleaning.signature(paragraphs[5])).any()
    changed = leaked[:-10] + "otherwise."
    assert (cleaning.signature("Some words before it. " + changed) == cleaning.signature(leaked)).any()


def test_sorting_in_blocks_is_sorting(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "BLOCK", 7)
    draw = numpy.random.default_rng(0)
    parts, rows = [], []
    for index, count in enumerate((20, 0, 33)):
        tokens = draw.integers(0, 4, (count, 8)).astype(numpy.uint16)
        path = tmp_path / f"{index}.bin"
        path.write_bytes(tokens.tobytes())
        parts.append(path)
        rows += tokens.tolist()
    assert merging.merge(parts, tmp_path / "all", 8, 3) == 53
    found = numpy.fromfile(tmp_path / "all", numpy.uint16).reshape(-1, 8).tolist()
    assert found == sorted(rows, key=lambda row: -row.count(3))
    merging.merge(parts, tmp_path / "plain", 8, None)
    assert numpy.fromfile(tmp_path / "plain", numpy.uint16).reshape(-1, 8).tolist() == rows


def test_the_tokenizer_is_the_recipes(corpus):
    tokenizer = corpus.tokenizer
    assert [tokenizer.id_to_token(i) for i in range(7)] == list(wordpiece.SPECIALS)
    plain = tokenizer.encode("the old", add_special_tokens=False)
    assert plain.tokens[0] == "the"
    assert tokenizer.encode("Thé 漢 OLD", add_special_tokens=False).ids == plain.ids
    one, pair = tokenizer.encode("the"), tokenizer.encode("the", "the .")
    assert one.tokens == ["<cls>", "the", "<sep>", "<sep>"]
    assert pair.tokens == ["<cls>", "the", "<sep>", "the", ".", "<sep>"]
    assert all(encoding.ids[0] == wordpiece.CLS for encoding in (one, pair))


def test_books_of_the_data_root(data_root, tmp_path):
    folder = data_root / "text" / "gutenberg"
    if not folder.is_dir():
        pytest.skip("needs data: text/gutenberg under DATA_ROOT")
    asked = options(folder, held_out=["bryant-*"], max_files=5, vocabulary=500, length=128, min_characters=32)
    manifest = making.make(asked, tmp_path / "out", None, workers=1)
    assert manifest["counts"]["short"] > 0
    assert manifest["counts"]["unknown"] == 0
    assert 4.5 < manifest["unigram_entropy"] < 6
