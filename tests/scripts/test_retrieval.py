"""Retrieval's made pairs: documents about topics, and labels that follow from them."""

from pathlib import Path

import pytest
from generating import RETRIEVAL, made_of
from scipy import stats

from scripts.generators.topics import language


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    return made_of(tmp_path_factory.mktemp("made"), RETRIEVAL)


def test_pairs_are_about_what_their_label_says(made):
    """Who knows the topics' words tells every label; documents have the length and letters that were asked for."""
    topics = [set(words) for words in language(0, 8).topics]
    labels = []
    for split, count in (("train", 300), ("eval", 20), ("test", 20)):
        lines = (made["make_retrieval"] / f"new_aan_pairs.{split}.tsv").read_text().splitlines()
        assert len(lines) == count
        for line in lines:
            label, one, two, *texts = line.split("\t")
            assert one != two
            assert all(200 <= len(text.encode()) <= 1000 for text in texts)
            words = [text.lower().replace(".", "").split() for text in texts]
            guess = [max(range(8), key=lambda t, w=w: sum(word in topics[t] for word in w)) for w in words]
            assert float(label) == (guess[0] == guess[1])
            labels.append(float(label))
    assert stats.binomtest(int(sum(labels)), 340).pvalue > 0.01
