"""Nothing but detection needs mmdet: every other row takes a step where its packages cannot be imported."""

import subprocess
import sys

import numpy
import pytest
from conftest import REPOSITORY
from language import MODEL, books, pretraining
from PIL import Image

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
ONE_STEP = ("schedule.steps=1", "evaluate.steps=1", "runtime.log_steps=1", "runtime.workers=0", "runtime.wandb=off")
ONE_STEP += ("runtime.device=cpu", "runtime.threads=1")
NO_EPOCHS = ("schedule.epochs=null", "schedule.warmup_epochs=null", "schedule.warmup_steps=0", "evaluate.epochs=null")
PIXELS = ("embed_dim=16", "depth=1", "num_heads=2", "patch_size=8", "img_size=32")


def imagenet(root):
    """Two classes of four photographs; the words of a step of ImageNet's ViT row, small."""
    draw = numpy.random.default_rng(0)
    for path in (root / "imagenet" / split / name for split in ("train", "val") for name in ("n01440764", "n02102040")):
        path.mkdir(parents=True)
        for index in range(4):
            Image.fromarray(draw.integers(0, 255, (48, 40, 3), dtype=numpy.uint8)).save(path / f"{index}.JPEG")
    words = ["experiment=paper/imagenet_vit", "dataset.classes=2", "dataset.image_size=32", "dataset.repeats=1"]
    words += [f"++model.args.{word}" for word in PIXELS]
    yield [*words, "batch_size=4", *NO_EPOCHS]


def long_range(root):
    """Eight reviews; the words of a step of the Long Range Arena's Text row, small."""
    for split in ("train", "test"):
        for name in ("pos", "neg"):
            path = root / "lra" / "imdb" / "aclImdb" / split / name
            path.mkdir(parents=True)
            for index in range(8):
                (path / f"{index}_1.txt").write_text(f"film {index} was {name} " * 4)
    words = ["experiment=reduced/lra_text", "dataset.train_size=null", "dataset.eval_size=null", "batch_size=4"]
    yield [
        *words,
        "dataset.max_length=64",
        "dataset.padded_length=64",
        "model.args.landmarks=8",
        "schedule.warmup_steps=0",
    ]


def glue(root):
    """Some text and a CoLA of sixteen sentences; the words of a step of pre-training and one of fine-tuning."""
    books(root / "text")
    (root / "glue" / "CoLA").mkdir(parents=True)
    for split in ("train", "dev"):
        lines = [f"gj04\t{index % 2}\t\tthe cat sat {index}" for index in range(16)]
        (root / "glue" / "CoLA" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    yield pretraining(root)
    [found] = (root / "outputs/reduced/glue_pretrain").rglob("checkpoint-*.pt")
    words = ["experiment=reduced/glue_cola", *MODEL, f"task.pretrained={found}", "dataset.length=16", "batch_size=8"]
    words += ["dataset.rows=null", "dataset.train_size=null"]
    yield [*words, *NO_EPOCHS]


ROWS = {"imagenet": imagenet, "lra": long_range, "glue": glue}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_trains_without_mmdet(row, tmp_path):
    place = [f"data_root={tmp_path}", f"output_root={tmp_path / 'outputs'}"]
    runs = 0
    for words in ROWS[row](tmp_path):
        command = [sys.executable, "-c", CODE, *words, *ONE_STEP, *place]
        shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240)
        assert shown.returncode == 0, shown.stderr
        runs += 1
    assert len(list(tmp_path.rglob("summary.json"))) == runs


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
