"""The command line: what it prints agrees with the library, and bad input gets one line and exit status 2."""

import csv
import io
import subprocess
import sys

import pytest
import torch

from specattn.__main__ import main
from specattn.attention import attention_statistics
from specattn.conditioning import condition
from specattn.spectrum import weight_spectra

timm = pytest.importorskip("timm")


@pytest.fixture
def small(monkeypatch):
    """A timm model of no size under a name of its own."""

    def specattn_test_vit(pretrained=False, **kwargs):
        config = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3}
        model = timm.models.vision_transformer.VisionTransformer(
            img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=4
        )
        model.pretrained_cfg = model.default_cfg = config
        return model

    monkeypatch.setitem(timm.models._registry._model_entrypoints, "specattn_test_vit", specattn_test_vit)
    return "specattn_test_vit"


def expected(lam):
    torch.manual_seed(0)
    model = timm.create_model("specattn_test_vit")
    noise = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    plain = attention_statistics(model, noise)
    condition(model, lam=lam)
    return weight_spectra(model), plain, attention_statistics(model, noise)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_holds_the_library_s_figures(small, capsys):
    assert main(["report", small, "--lam", "10", "--csv"]) == 0
    out, err = capsys.readouterr()
    spectra, plain, after = expected(10.0)
    rows = rows_of(out)
    assert [(r["attention"], r["projection"]) for r in rows] == [(s["attention"], s["projection"]) for s in spectra]
    for row, record in zip(rows, spectra, strict=True):
        assert float(row["kappa"]) == pytest.approx(record["kappa"], rel=1e-9)
        assert float(row["kappa_conditioned"]) == pytest.approx(record["kappa_conditioned"], rel=1e-9)
        layer = record["layer"]
        assert float(row["max_probability_plain"]) == pytest.approx(plain[layer]["max_probability"], rel=1e-5)
        assert float(row["max_probability_conditioned"]) == pytest.approx(after[layer]["max_probability"], rel=1e-5)
        assert float(row["gradient_q_conditioned"]) == pytest.approx(after[layer]["gradient_q"], rel=1e-3, abs=1e-12)
    assert "λ = 10 saturates the softmax" in err
    assert "checked: λ = " in err


def test_the_table_names_the_source_of_weights_and_input_and_every_layer(small, capsys):
    assert main(["report", small, "--lam", "0.1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "timm's initialisation, seed 0; 4 images of Gaussian noise" in out
    assert "lam=0.1, method='identity'" in out
    for name in ("blocks.0.attn", "blocks.1.attn", "W_Q", "W_K", "W_V"):
        assert name in out
    assert "attention is in order: no layer saturates" in out


def test_the_default_lambda_is_the_method_s_own(small, capsys):
    assert main(["report", small, "--method", "svd"]) == 0
    assert "lam=1, method='svd'" in capsys.readouterr().out


def test_jacobian_columns_and_plot(small, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "report.png"
    assert main(["report", small, "--lam", "1", "--jacobian", "4", "--csv", "--plot", str(plot)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert {r["jacobian_path_plain"] for r in rows} == {"closed form"}
    assert all(float(r["jacobian_kappa_nonzero_conditioned"]) >= 1 for r in rows)
    assert {r["jacobian_count_plain"] for r in rows} == {str(4 * 16)}
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_photos_and_weights_are_read(small, capsys, tmp_path):
    image = pytest.importorskip("PIL.Image")
    from safetensors.torch import save_file

    (tmp_path / "cat").mkdir()
    for i in range(3):
        image.effect_noise((20, 20), 50 + i).save(tmp_path / "cat" / f"{i}.png")
    torch.manual_seed(5)
    save_file(timm.create_model(small).state_dict(), tmp_path / "w.safetensors")
    arguments = ["--images", str(tmp_path), "--count", "2", "--weights", str(tmp_path / "w.safetensors")]
    assert main(["report", small, "--lam", "0", *arguments]) == 0
    assert "weights of w.safetensors; 2 photos of" in capsys.readouterr().out


def test_a_local_transformers_model(capsys, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.save_pretrained(tmp_path / "config_alone")
    assert main(["report", str(tmp_path / "config_alone"), "--lam", "0.1", "--csv"]) == 0
    assert len(rows_of(capsys.readouterr().out)) == 3
    torch.manual_seed(1)
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path / "with_weights")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "with_weights"), "--lam", "0.1", "--csv"]) == 0
    rows = rows_of(capsys.readouterr().out)
    kappa = torch.linalg.cond(model.encoder.layer[0].attention.self.query.weight.detach().double())
    assert float(rows[0]["kappa"]) == pytest.approx(float(kappa), rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "required"),
        ([], "required"),
        (["report", "vit_bass_patch16_224"], "did you mean vit_base_patch16_224"),
        (["report", "NAME", "--lam", "ten"], "'ten' is not a finite number"),
        (["report", "NAME", "--lam", "nan"], "not a finite number"),
        (["report", "NAME", "--method", "magic"], "invalid choice"),
        (["report", "NAME", "--targets", "x"], "targets"),
        (["report", "NAME", "--count", "0"], "not a positive whole number"),
        (["report", "NAME", "--images", "/nowhere"], "there is no folder /nowhere"),
        (["report", "NAME", "--images", "."], "no images"),
        (["report", "NAME", "--weights", "/nowhere.safetensors"], "there is no file"),
        (["report", "NAME", "--plot", "/nowhere/a.png"], "does not exist"),
        (["report", "NAME", "--modules", "zzz"], "zzz"),
        (["report", "."], "no config.json"),
        (["report", "resnet10t"], "no attention"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(small, capsys, monkeypatch, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main([small if a == "NAME" else a for a in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert said in err


def test_damaged_files_get_one_line(small, capsys, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"not safetensors")
    (tmp_path / "a.png").write_bytes(b"no picture")
    (tmp_path / "config.json").write_text("{}")
    for arguments in (
        [small, "--weights", str(tmp_path / "w.safetensors")],
        [small, "--images", str(tmp_path)],
        [str(tmp_path)],
    ):
        assert main(["report", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_help_names_the_options(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["report", "--help"])
    assert "--jacobian" in capsys.readouterr().out


def test_the_command_and_the_imports_load_nothing_heavy_and_end_with_status_2_and_no_traceback():
    code = (
        "import sys, specattn, specattn.spectrum, specattn.attention, specattn.jacobian_layers, specattn.theorems; "
        "from specattn.__main__ import main; status = main(['report']); "
        "print([m for m in ('scipy', 'pandas', 'matplotlib', 'timm', 'transformers') if m in sys.modules]); "
        "sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
