"""Pictures and report: the same bytes from the same records, whole files or none, and a link for each number."""

import json
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

from scripts import plotting
from scripts.entry import ran, write_all
from scripts.figures import over_lam
from scripts.figures.every import pictures
from scripts.plotting import figure, finish, source_of, style
from scripts.report import __main__ as command
from scripts.report.blocks import blocks, filled, outside, written
from scripts.report.document import documents
from scripts.tables.pages import pages
from scripts.tables.settings import Source
from tests.conftest import REPOSITORY
from tests.scripts.recorded import ACCURACIES, curve, record, results, row
from train.errors import UserError

README = "# A\n\n<!-- made by make report: paper-rows -->\nold\n<!-- end -->\nprose\n\
<!-- made by make report: reduced-rows -->\n<!-- end -->\n<!-- made by make report: evidence -->\n<!-- end -->\nlast\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A λ ablation, conditioning along training, and a failed run; pictures drawn."""
    source = Source(results(tmp_path_factory.mktemp("project")))
    row(source.results, accuracies=ACCURACIES | {"identity-lam1": [53.0, 54.0, 55.5]})
    for tag, value in (("baseline", 30.0), ("svd-lam1", 35.0)):
        record(source.results, "reduced/curves_vit", tag, 0, value, events=curve(value))
    record(source.results, "reduced/imagenet_swin", "svd-lam1", 0, status="diverged", error="loss <nan> at step 3")
    (source.results / "theory.md").write_text("# Theorems\n\ntext\n")
    (source.results.parent / "README.md").write_text(README)
    (source.results / "figures").mkdir()
    for picture in pictures(source):
        picture.write(source.results / "figures")
    return source


def test_pictures_are_the_same_bytes_and_know_their_records(source, tmp_path):
    drawn = pictures(source)
    assert [picture.name for picture in drawn] == [
        "over_lambda_reduced",
        "training_curves_reduced",
        "training_imagenet_reduced",
        "conditioning_reduced_curves_vit",
    ]
    for picture in drawn[:2]:
        for path in picture.write(tmp_path):
            assert path.read_bytes() == (source.results / "figures" / path.name).read_bytes()
            assert source_of(path) == picture.digest
    assert len({picture.digest for picture in drawn}) == 4
    assert {path.suffix for path in (source.results / "figures").iterdir()} == {".svg", ".png"}


def test_curves_differ_in_more_than_colour():
    looks = [style(place) for place in range(len(plotting.COLOURS))]
    for key in ("color", "linestyle", "marker"):
        assert len({look[key] for look in looks}) == len(looks)


def test_lambda_is_drawn_where_the_records_have_it(source):
    canvas, [axis] = over_lam.pictures(source)[0].draw()
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0", "1", "10"]
    line = axis.get_lines()[0]
    assert line.get_xdata().tolist() == [0, 1, 10]
    assert line.get_ydata().tolist() == pytest.approx([51, 162.5 / 3, 62.5 / 3])
    plotting.pyplot.close(canvas)


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    path.write_text("old")
    canvas, axes = figure(1)
    monkeypatch.setattr(canvas, "savefig", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        finish(canvas, axes, path)
    plotting.pyplot.close(canvas)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.svg", "old")]


def test_the_report_is_the_same_bytes_and_says_what_was_run_found_and_failed(source):
    made = documents(source, pages(source))
    assert made == documents(source, pages(source))
    text = made["README.md"]
    assert "| [reduced/imagenet_vit](runs/reduced/imagenet_vit) | reduced | baseline, λ = 0; " in text
    assert "reduced/imagenet_swin, svd, λ = 1, seed 0: [diverged](runs/" in text
    assert r"loss \<nan> at step 3" in text
    assert "[λ ablation, reduced](tables/ablation_lambda_reduced.md): ViT: of λ = 0, 1, 10 the mean is highest" in text
    assert "| torch | 2.0 |" in text
    assert "[Theorems](theory.md)" in text
    assert "Not run: [ImageNet-1k, top-1 in percent (paper scale)](tables/imagenet.md)" in text


def test_every_link_of_the_report_leads_to_a_record(source):
    made = documents(source, pages(source))
    markdown = re.findall(r"\]\(([^)]+)\)", made["README.md"])
    page = re.findall(r'href="([^"#][^"]*)"', made["report.html"])
    links = {link for link in [*markdown, *page] if link.startswith(("runs/", "figures/", "theory"))}
    assert len(links) > 15
    assert [link for link in links if not (source.results / link).exists()] == []
    for number in re.findall(r"[^\[(]\b\d\d\.\d\d ± ", made["README.md"]):
        pytest.fail(f"{number!r} is not linked")


def test_the_html_needs_nothing_besides_itself(source):
    class Reader(HTMLParser):
        tags, sources = [], []

        def handle_starttag(self, tag, attributes):
            self.tags.append(tag)
            self.sources += [value for key, value in attributes if key == "src"]

    text = documents(source, pages(source))["report.html"]
    reader = Reader()
    reader.feed(text)
    assert reader.tags.count("img") == 4
    assert all(one.startswith("data:image/svg+xml;base64,") for one in reader.sources)
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert not re.search(r"https?://", re.sub(r'src="[^"]*"', "", text))
    assert "loss &lt;nan&gt; at step 3" in text


def test_without_the_pictures_one_line_says_so(tmp_path):
    source = Source(results(tmp_path))
    row(source.results)
    with pytest.raises(UserError, match="training_imagenet_reduced is not there: make figures"):
        documents(source, pages(source))


def test_blocks_are_filled_and_the_rest_is_left(source):
    readme = source.results.parent / "README.md"
    text = filled(readme, blocks(source))
    assert written(source, readme) == {readme: text}
    assert text.startswith("# A\n\n<!-- made by make report: paper-rows -->\n\n| table |")
    assert text.endswith("<!-- end -->\nlast\n")
    assert "| ImageNet top-1 | ViT-B | 80.7 ± 0.41 → 81.7 ± 0.38 | not run | `make imagenet-vit` |" in text
    paper, reduced = text.split("prose")
    assert "51.00" not in paper
    assert "[51.00 ± 1.00](results/runs/reduced/imagenet_vit/baseline) | [-30.17 (" in reduced
    assert "old" not in text
    assert outside(text).split() == ["#", "A", "prose", "last"]
    assert outside(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (README.replace("paper-rows", "rows"), "no block is called 'rows'"),
        (README.replace("<!-- end -->\nlast", "last"), "has no '<!-- end -->'"),
        ("# A\n", "lacks the block '<!-- made by make report: evidence -->'"),
    ],
)
def test_a_readme_without_its_blocks_is_refused_and_untouched(source, tmp_path, text, message, monkeypatch, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    monkeypatch.setattr("sys.argv", ["report", "--results", str(source.results), "--readme", str(readme)])
    assert ran(command.main) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said
    assert readme.read_text() == text
    assert not (source.results / "report.html").exists()


def test_the_readme_of_this_repository_has_its_blocks():
    text = (REPOSITORY / "README.md").read_text()
    assert re.findall(r"<!-- made by make report: (\S+) -->", text) == ["evidence", "paper-rows", "reduced-rows"]
    study = (REPOSITORY / "docs" / "evidence.md").read_text()
    assert re.findall(r"<!-- made by make report: (\S+) -->", study) == ["evidence"]


def test_files_are_written_where_they_differ_and_what_else_is_there_is_named_and_left(tmp_path, capsys):
    (tmp_path / "kept.md").write_text("same")
    (tmp_path / "other.md").write_text("x")
    before = (tmp_path / "kept.md").stat().st_mtime_ns
    write_all(tmp_path, {"kept.md": "same", "new.md": "new"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.md", "new.md", "other.md"]
    assert "other.md is made by nothing" in capsys.readouterr().err
    assert (tmp_path / "kept.md").stat().st_mtime_ns == before


def test_a_mistake_and_ctrl_c_are_one_line(capsys):
    def broken(error):
        raise error

    assert ran(lambda: broken(UserError("wrong"))) == 2
    assert ran(lambda: broken(OSError(28, "No space left on device"))) == 1
    assert ran(lambda: broken(KeyboardInterrupt())) == 130
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "error", "interrupted"]


def test_ctrl_c_in_the_midst_leaves_whole_files_and_no_traceback(source, tmp_path):
    """A real process, stopped while it draws."""
    folder = tmp_path / "results"
    subprocess.run(["cp", "-r", source.results, folder], check=True)
    subprocess.run(["rm", "-r", folder / "figures"], check=True)
    process = subprocess.Popen([sys.executable, "-m", "scripts.figures", "--results", folder], cwd=REPOSITORY,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    until = time.monotonic() + 300  # a starved machine draws slowly
    while not list(folder.glob("figures/*.svg")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said.startswith("interrupted:")
    assert said.count("\n") == 1
    written = list((folder / "figures").iterdir())
    assert written
    for path in written:
        assert path.read_bytes() == (source.results / "figures" / path.name).read_bytes()


def test_numbers_of_a_summary_change_the_picture_digest(source):
    [picture, *_] = pictures(source)
    path = picture.runs[0].folder / "summary.json"
    kept, before = path.read_text(), picture.digest
    path.write_text(json.dumps(json.loads(kept) | {"metrics": {"top1": 1.0}}))
    try:
        assert pictures(source)[0].digest != before
    finally:
        path.write_text(kept)
