"""`fold(model, path)`: a file that unmodified timm and transformers models load, and that computes the same."""

import json

import pytest
import safetensors
import safetensors.torch
import torch
from families import BY_NAME, build, conditioned_model, each_method, every_family, run
from timm.models import load_checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from specattn import condition, fold


@every_family
@pytest.mark.parametrize("method", ["identity", "svd"])
def test_export_loads_strictly_into_the_unmodified_model(case, method, tmp_path):
    model, inputs = build(case)
    expected = run(condition(model, 0.7, method), inputs)
    fold(model, tmp_path / "export.safetensors")
    plain = case.build().double().eval()
    state = safetensors.torch.load_file(tmp_path / "export.safetensors")
    assert plain.load_state_dict(state, strict=True) == ([], [])
    torch.testing.assert_close(run(plain, inputs), expected, rtol=0, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == ["export.safetensors"]


@each_method
def test_float32_to_rounding(method, tmp_path):
    model, inputs = conditioned_model("timm ViT", method, torch.float32)
    expected = run(model, inputs)
    torch.testing.assert_close(run(fold(model), inputs), expected, rtol=1e-5, atol=1e-5)


def test_timm_loads_it(tmp_path):
    model, inputs = conditioned_model("timm Swin", "svd", torch.float32)
    expected = run(model, inputs)
    fold(model, tmp_path / "export.safetensors")
    plain = BY_NAME["timm Swin"].build().eval()
    load_checkpoint(plain, str(tmp_path / "export.safetensors"), strict=True)
    torch.testing.assert_close(run(plain, inputs), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama (grouped queries)"])
def test_transformers_loads_it(name, tmp_path):
    model, inputs = conditioned_model(name, "identity", torch.float32)
    expected = run(model, inputs)
    fold(model, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    plain, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    torch.testing.assert_close(run(plain.eval(), inputs), expected, rtol=1e-4, atol=1e-4)


def test_tied_weights_are_written_under_each_name(tmp_path):
    model, _ = conditioned_model("BERT", "identity")
    fold(model, tmp_path / "export.safetensors")
    with safetensors.safe_open(tmp_path / "export.safetensors", "pt") as file:
        assert set(file.keys()) == set(model.state_dict())
        assert file.metadata() == {"format": "pt"}


class Operators(TorchDispatchMode):
    """Records the names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


@every_family
def test_folded_model_is_the_plain_one_in_types_size_and_operators(case):
    plain, inputs = build(case)
    model, _ = build(case)
    fold(condition(model, 0.7, "svd"))
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters())
    with Operators() as expected:
        run(plain, inputs).sum().backward()
    with Operators() as found:
        run(model, inputs).sum().backward()
    assert found.names == expected.names


def test_fold_of_a_plain_model_only_exports(tmp_path):
    plain, inputs = build(BY_NAME["timm ViT"])
    expected = run(plain, inputs)
    assert fold(plain, tmp_path / "plain.safetensors") is plain
    assert torch.equal(run(plain, inputs), expected)
    assert set(safetensors.torch.load_file(tmp_path / "plain.safetensors")) == set(plain.state_dict())


def test_export_of_a_compiled_model_has_plain_names(tmp_path):
    model, _ = conditioned_model("timm ViT", "identity")
    fold(torch.compile(model, backend="eager"), tmp_path / "export.safetensors")
    assert set(safetensors.torch.load_file(tmp_path / "export.safetensors")) == set(model.state_dict())
