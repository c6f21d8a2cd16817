"""ListOps: expressions, their values and their distribution."""

import random
from collections import Counter
from pathlib import Path

import numpy
import pytest
from generating import LISTOPS, generate, made_of, manifest, rows
from scipy import stats

from scripts.generators.listops_language import evaluate, tokens
from scripts.generators.listops_trees import Shape, draw, expressions

TINY = ["--min-length", "0", "--max-length", "5", "--max-depth", "2", "--max-args", "2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    return made_of(tmp_path_factory.mktemp("made"), LISTOPS)


def test_the_evaluator_agrees_with_the_original_test_set(data_root):
    count = 0
    for split in ("train", "val", "test"):
        for source, target in rows(data_root / "lra" / "listops-d20s", split):
            assert evaluate(source) == int(target)
            count += 1
    assert count == 10000


@pytest.mark.parametrize(
    ("source", "value"),
    [("7", 7), ("[MED 1 2 ]", 1), ("[MED 9 1 4 ]", 4), ("( ( ( [SM 8 ) 7 ) ] )", 5), ("[MAX [MIN 3 1 ] 0 ]", 1)],
)
def test_values_by_hand(source, value):
    assert evaluate(source) == value


@pytest.mark.parametrize("source", ["", "1 2", "[MIN ]", "[MIN 1", "[MIN 1 ] ]", "]", "12", "[SUM 1 ]"])
def test_what_is_no_expression_is_refused(source):
    with pytest.raises(ValueError):
        evaluate(source)


def naive(source: random.Random, shape: Shape, depth: int = 1) -> tuple[list[str], int]:
    """The recursion as described, token by token; the value by other means than the generator's."""
    u = source.random() if depth < shape.max_depth else 1
    if u > 0.25:
        digit = source.randrange(10)
        return [str(digit)], digit
    operator = source.choice(["[MIN", "[MAX", "[MED", "[SM"])
    found, values = [operator], []
    for _ in range(source.randint(2, shape.max_args)):
        more, value = naive(source, shape, depth + 1)
        found += more
        values.append(value)
    value = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(numpy.median(v)), "[SM": lambda v: sum(v) % 10}[operator]
    return [*found, "]"], int(value(values))


@pytest.mark.parametrize(("shape", "count"), [(Shape(), 60), (Shape(4, 60, 4, 5), 1500), (Shape(10, 40, 5, 8), 500)])
def test_listops_has_the_distribution_of_the_naive_recursion(shape, count):
    """Lengths, values, operators and numbers of arguments of as many trees drawn both ways."""
    source, reference = random.Random(1), []
    while len(reference) < count:
        found, value = naive(source, shape)
        if shape.min_length < len(found) < shape.max_length:
            reference.append((found, value))
    stream = expressions(numpy.random.default_rng(2), shape)
    ours = [(tokens(written), value) for written, value in (next(stream) for _ in range(count))]
    lengths = [[len(found) for found, _ in trees] for trees in (ours, reference)]
    assert stats.ks_2samp(*lengths).pvalue > 0.005
    assert abs(numpy.mean(lengths[0]) - numpy.mean(lengths[1])) < 3 * numpy.std(lengths[1]) * (2 / count) ** 0.5
    counts = [Counter(value for _, value in trees) for trees in (ours, reference)]
    assert stats.chi2_contingency([[c[v] for v in range(10)] for c in counts]).pvalue > 0.005
    assert max(lengths[0]) < shape.max_length
    assert min(lengths[0]) > shape.min_length
    operators = [
        [sum(token in ("[MIN", "[MAX", "[MED", "[SM") for token in f) for f, _ in t] for t in (ours, reference)
    ]
    assert stats.ks_2samp(*operators).pvalue > 0.005


def test_operators_and_their_arguments_are_as_frequent_as_described():
    """At the root and below it, of 20,480 trees whose length excludes none: 0.25, and uniform from 2 to 10."""
    shape, stream = Shape(0, 10**6, 3, 10), numpy.random.default_rng(4)
    trees = [tree for _ in range(5) for tree in draw(stream, shape)]
    assert len(trees) == 20480
    for level, count in ((0, 20480), (1, 20000)):
        arity, symbol = numpy.concatenate([numpy.array(tree[level], int) for tree in trees if len(tree) > level], 1)
        operators = arity > 0
        assert len(arity) >= count
        assert stats.binomtest(int(operators.sum()), len(arity), 0.25).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(arity[operators], minlength=11)[2:]).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(symbol[operators], minlength=4)).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(symbol[~operators], minlength=10)).pvalue > 0.005
    assert not any(any(tree[2][0]) for tree in trees if len(tree) > 2)


def test_listops_files_are_what_they_say(made):
    folder = made["make_listops"]
    said = manifest(folder)
    assert said["settings"]["min_length"] == 50
    seen = []
    for split, count in (("train", 500), ("val", 30), ("test", 30)):
        found, of = rows(folder, split), said["statistics"][split]
        lengths = [len(tokens(source)) for source, _ in found]
        assert len(found) == of["rows"] == count
        assert (min(lengths), max(lengths)) == (of["length"]["shortest"], of["length"]["longest"])
        assert of["length"]["median"] == numpy.median(lengths)
        assert of["length"]["mean"] == round(float(numpy.mean(lengths)), 1)
        assert of["labels"] == {str(v): sum(t == str(v) for _, t in found) for v in range(10)}
        assert of["majority"] == round(max(of["labels"].values()) / count, 4)
        assert all(evaluate(source) == int(target) for source, target in found)
        seen += [source for source, _ in found]
    assert len(set(seen)) == 560
    assert seen[0].startswith("( ( ( ")
    assert (folder / "basic_train.tsv").read_text().startswith("Source\tTarget\n")


def test_no_expression_comes_twice_in_any_split(tmp_path):
    """Of the 4·100 + 10 expressions of that shape nearly all are asked for."""
    words = ["make_listops", *TINY, "--train", "300", "--val", "10", "--test", "20"]
    assert generate(words, tmp_path / "a", 2).returncode == 0
    found = [source for split in ("train", "val", "test") for source, _ in rows(tmp_path / "a", split)]
    assert len(found) == len(set(found)) == 330
