"""Nothing but detection needs mmdet: every other row takes a step where its packages cannot be imported."""

import subprocess
import sys

import pytest
from conftest import REPOSITORY, TINY

BLOCKED = ("mmdet", "mmengine", "mmcv", "pycocotools", "cv2", "shapely")
CODE = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocked())
from train.command import main
status = main(sys.argv[1:])
assert not any(name.split(".")[0] in {BLOCKED!r} for name in sys.modules)
sys.exit(status)
"""
ONE_STEP = ("schedule.steps=1", "schedule.warmup_steps=0", "evaluate.steps=1", "runtime.log_steps=1")
# A row of each table: the words of a run that takes seconds.
ROWS = {
    "imagenet": [*TINY, *ONE_STEP],
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_trains_without_mmdet(row, tmp_path):
    words = [*ROWS[row], f"output_root={tmp_path}", "runtime.keep_checkpoints=false"]
    shown = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240
    )
    assert shown.returncode == 0, shown.stderr
    assert list(tmp_path.rglob("summary.json"))


def test_detection_without_mmdet_is_one_line(tmp_path):
    """Blocked as if it were not installed: what to do is said, and nothing is trained."""
    for split in ("train", "val"):
        (tmp_path / "coco" / f"{split}2017").mkdir(parents=True)
        (tmp_path / "coco" / "annotations").mkdir(exist_ok=True)
        (tmp_path / "coco" / "annotations" / f"instances_{split}2017.json").write_text("{}")
    code = CODE.replace('raise ModuleNotFoundError(f"{name} is blocked")', "return None").replace(
        "from train",
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *r: None if name == 'mmengine' else find(name, *r)\nfrom train",
    )
    words = [
        "experiment=paper/coco_xcit",
        f"data_root={tmp_path}",
        f"output_root={tmp_path / 'out'}",
        "runtime.device=cpu",
    ]
    shown = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240
    )
    assert shown.returncode == 2, shown.stderr
    assert "error: detection needs mmengine: make coco-xcit installs it" in shown.stderr
    assert "Traceback" not in shown.stderr
