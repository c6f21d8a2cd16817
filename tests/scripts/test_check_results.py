"""`make check-results` catches each thing that it says it catches, in one line, and nothing where all is well."""

import json
import shutil
import subprocess

import pytest

from scripts import check_results
from scripts.check_results import RESULT
from scripts.figures.every import pictures
from scripts.report import __main__ as report
from scripts.tables import __main__ as tables
from scripts.tables.settings import Source
from tests.scripts.recorded import record, results, row

README = "# A\n" + "".join(
    f"<!-- made by make report: {name} -->\n<!-- end -->\n" for name in ("evidence", "paper-rows", "reduced-rows")
)


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkout whose committed results are what its records give."""
    root = tmp_path_factory.mktemp("whole")
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "code")
    commit = git(root, "rev-parse", "HEAD").strip()
    folder = results(root)
    row(folder, git={"commit": commit, "dirty": False, "diff_sha256": None})
    (root / "README.md").write_text(README)
    (folder / "figures").mkdir()
    for picture in pictures(Source(folder)):
        picture.write(folder / "figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("sys.argv", ["tables"])
        assert tables.main() == 0
        patch.setattr("sys.argv", ["report"])
        assert report.main() == 0
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "results")
    return root


@pytest.fixture
def project(whole, tmp_path, monkeypatch):
    root = tmp_path / "project"
    shutil.copytree(whole, root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def check(monkeypatch, capsys):
    def checked():
        monkeypatch.setattr("sys.argv", ["check_results"])
        status = check_results.main()
        return status, capsys.readouterr().err.splitlines()

    return checked


def environment(root, change):
    path = root / "results/runs/reduced/imagenet_vit/baseline/seed0/environment.json"
    content = json.loads(path.read_text())
    change(content["sessions"][0])
    path.write_text(json.dumps(content))


def test_what_the_records_give_passes(project, check):
    assert check() == (0, [])


@pytest.mark.parametrize(
    "name", ["tables/imagenet_reduced.md", "tables/imagenet.csv", "tables/lra.tex", "README.md", "report.html"]
)
def test_a_file_changed_by_hand_is_named(project, check, name):
    path = project / "results" / name
    path.write_text(path.read_text().replace("ViT", "BiT").replace("ListOps", "LostOps"))
    status, [line] = check()
    assert status == 1
    assert line.startswith(f"error: results/{name} is not what the records give, from line ")


def test_a_block_of_the_readme_changed_by_hand_is_found(project, check):
    path = project / "README.md"
    path.write_text(path.read_text().replace("51.00", "61.00"))
    assert check()[0] == 1
    assert check()[1][0].startswith("error: README.md is not what the records give, from line ")


def test_missing_and_left_over_tables_are_named(project, check):
    (project / "results/tables/coco.csv").unlink()
    (project / "results/tables/old.md").write_text("x")
    status, lines = check()
    assert status == 1
    assert lines == ["error: results/tables/coco.csv is not there: make tables",
                     "error: results/tables/old.md is made by nothing: remove it"]  # fmt: skip


def test_a_new_record_outdates_tables_pictures_and_report(project, check):
    commit = git(project, "rev-parse", "HEAD").strip()
    record(project / "results", "reduced/imagenet_vit", "baseline", 3, 51.0, git={"commit": commit, "dirty": False})
    status, lines = check()
    assert status == 1
    for name in ("tables/imagenet_reduced.md", "figures/training_imagenet_reduced.svg", "README.md", "report.html"):
        assert any(f"results/{name} " in line for line in lines), name
    assert any(line.startswith("error: README.md is not") for line in lines)


def test_a_picture_that_is_missing_is_named(project, check):
    (project / "results/figures/training_imagenet_reduced.png").unlink()
    assert check() == (1, ["error: results/figures/training_imagenet_reduced.png is not there: make figures"])


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_that_is_cut_short_is_named(project, check, kind):
    path = project / f"results/figures/training_imagenet_reduced.{kind}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    status, lines = check()
    assert status == 1
    assert f"error: {path.relative_to(project)} is damaged: remove it, then make figures" in lines


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl"])
@pytest.mark.parametrize("content", [None, "", '{"step": 1, "ev'])
def test_a_record_with_a_damaged_file_is_named(project, check, name, content):
    path = project / "results/runs/reduced/imagenet_vit/baseline/seed0" / name
    path.unlink() if content is None else path.write_text(content)
    status, lines = check()
    assert status == 1
    assert any(str(path.relative_to(project)) in line for line in lines)


@pytest.mark.parametrize("text", ["it gains 3.1 points", "81.7 at last", "about 50 %", "46.66 ± 0.34", "1 point more"])
def test_a_result_outside_the_blocks_is_found_with_its_line(project, check, text):
    path = project / "README.md"
    path.write_text(path.read_text() + f"Seen: {text}\n")
    number = len(path.read_text().splitlines())
    status, [line] = check()
    assert status == 1
    assert line.startswith(f"error: README.md:{number}: a result outside the blocks of make report: ")


@pytest.mark.parametrize(
    "text", ["Python 3.11", "1.28 M / 50,000 images", "λ = 0, 0.1, 1, 10", "Theorem 3.5", "timm 1.0.31", "3 GB", "0.95"]
)
def test_what_is_no_result_is_left_alone(text):
    assert not RESULT.search(text)


def test_a_dirty_record_is_named(project, check):
    environment(project, lambda session: session["git"].update(dirty=True))
    lines = [line for line in check()[1] if "uncommitted" in line]
    assert len(lines) == 1
    assert "runs/reduced/imagenet_vit/baseline/seed0: made from a tree with uncommitted changes to" in lines[0]


def test_a_record_of_no_checkout_is_named(project, check):
    environment(project, lambda session: session.update(git=None))
    assert any("baseline/seed0: made outside a git checkout" in line for line in check()[1])


def test_a_commit_that_is_not_in_the_history_is_named(project, check):
    git(project, "checkout", "-q", "--orphan", "other")
    git(project, "commit", "-q", "-m", "another history")
    status, [line] = check()
    assert status == 1
    assert line.startswith("error: results/runs/reduced/imagenet_vit/baseline/seed0 and 8 more: commit ")
    assert line.endswith("is no ancestor of HEAD")


def test_a_shallow_clone_is_one_note(project, tmp_path, check, monkeypatch):
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    status, [line] = check()
    assert status == 0
    assert line.startswith("note: this clone is shallow (git fetch --unshallow): whether the records' commits")


def test_a_copy_without_git_is_one_note(project, check):
    shutil.rmtree(project / ".git")
    status, [line] = check()
    assert status == 0
    assert line.startswith("note: this is no git checkout")


def test_the_costs_tree_is_checked_as_well(project, check):
    commit = git(project, "rev-parse", "HEAD").strip()
    about = {"reduced": {"device": "a CPU", "git": {"commit": commit, "dirty": True}}}
    (project / "results/cost.json").write_text(json.dumps({"environment": about, "rows": []}))
    assert check()[1] == [
        f"error: results/cost.json (reduced): made from a tree with uncommitted changes to {commit[:10]}"
    ]


def test_metrics_that_the_events_do_not_end_with_are_named(project, check):
    path = next(project.glob("**/runs/reduced/**/seed0/metrics.jsonl"))
    path.unlink()
    status, said = check()
    assert status == 1
    assert any("seed0: summary.json's metrics are not what metrics.jsonl ends with" in line for line in said)
