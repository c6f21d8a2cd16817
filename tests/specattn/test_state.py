"""State dicts: plain keys hold W, entries named specattn the rest; nothing is loaded into the wrong model."""

import copy
import io

import pytest
import safetensors.torch
import torch
from families import BY_NAME, build, conditioned_model, each_method, one_of_each, run
from torch import nn

from specattn import condition, corrections


@one_of_each
@each_method
def test_plain_keys_hold_w(name, method):
    plain, _ = build(BY_NAME[name])
    state = condition(copy.deepcopy(plain), 0.7, method).state_dict()
    added = {key for key in state if key not in plain.state_dict()}
    assert added
    assert all(".specattn." in key for key in added)
    for key, value in plain.state_dict().items():
        assert torch.equal(state[key], value), key


def test_what_each_method_writes():
    expected = {
        "identity": {},
        "relative": {"weight_sigma_max": (3,)},
        "svd": {"weight_correction": (36, 12)},
        "orthogonal": {"weight_correction": (36, 12)},
        "rescale": {"weight_correction": (36, 12)},
    }
    for method, entries in expected.items():
        state = conditioned_model("timm ViT", method)[0].state_dict()
        prefix = "blocks.0.attn.qkv.specattn."
        found = {key.removeprefix(prefix): tuple(value.shape) for key, value in state.items() if prefix in key}
        found.pop("_extra_state")
        assert found == entries


def test_partial_targets_write_no_row_more():
    state = conditioned_model("timm ViT", "svd", targets="kv")[0].state_dict()
    assert state["blocks.0.attn.qkv.specattn.weight_correction"].shape == (24, 12)


@pytest.mark.parametrize(
    "arguments", [{"lam": 0.0}, {"lam": 0.5, "when": "init"}, {"lam": 0.5, "method": "svd", "when": "init"}]
)
def test_lam_zero_and_init_add_no_entry(arguments):
    model, _ = build(BY_NAME["timm ViT"])
    keys = list(model.state_dict())
    assert list(condition(model, **arguments).state_dict()) == keys


@one_of_each
@pytest.mark.parametrize("method", ["identity", "relative", "svd", "orthogonal", "rescale"])
def test_round_trip_through_files_takes_the_saved_correction(name, method, tmp_path):
    model, inputs = conditioned_model(name, method)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))  # trained on: the corrections are no longer those of the weights
    torch.save(model.state_dict(), tmp_path / "state.pt")
    tensors = {key: value.clone() for key, value in model.state_dict().items()}
    safetensors.torch.save_file(tensors, tmp_path / "state.safetensors")
    for state in (
        torch.load(tmp_path / "state.pt", weights_only=True),
        safetensors.torch.load_file(tmp_path / "state.safetensors"),
    ):
        torch.manual_seed(99)
        fresh = condition(BY_NAME[name].build().double().eval(), 0.7, method)
        assert fresh.load_state_dict(state, strict=True) == ([], [])
        assert torch.equal(run(fresh, inputs), run(model, inputs))
        for key, correction in corrections(model).items():
            assert torch.equal(corrections(fresh)[key].dense(), correction.dense())


@each_method
def test_strict_load_into_a_plain_model_fails_by_name(method):
    model, _ = conditioned_model("timm ViT", method)
    plain, _ = build(BY_NAME["timm ViT"])
    with pytest.raises(RuntimeError, match=r"Unexpected key.*blocks\.0\.attn\.qkv\.specattn"):
        plain.load_state_dict(model.state_dict())


@pytest.mark.parametrize("strict", [True, False])
def test_plain_state_into_a_conditioned_model_says_what_to_call(strict):
    plain, _ = build(BY_NAME["timm ViT"])
    model = condition(copy.deepcopy(plain), 0.5, "svd", "head", "qk")
    with pytest.raises(ValueError, match="plain") as error:
        model.load_state_dict(plain.state_dict(), strict=strict)
    call = "specattn.condition(model, lam=0.5, method='svd', layout='head', targets='qk')"
    assert str(error.value) == (
        "this state is that of a plain model (no specattn entry at 'blocks.0.attn.qkv'): load it into the plain model "
        f"first, then call {call}"
    )


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "other", [{"lam": 1.0}, {"method": "relative"}, {"layout": "head"}, {"targets": "v"}, {"method": "svd"}]
)
def test_state_of_another_conditioning_says_what_to_call(other, strict):
    model, _ = build(BY_NAME["timm ViT"])
    saved = condition(copy.deepcopy(model), **{"lam": 0.5} | other).state_dict()
    with pytest.raises(ValueError, match=r"another conditioning at 'blocks\.0\.attn\.qkv'") as error:
        condition(model, 0.5).load_state_dict(saved, strict=strict)
    wanted = {"lam": 0.5, "method": "identity", "layout": "matrix", "targets": "qkv"} | other
    call = ", ".join(f"{k}={v:g}" if k == "lam" else f"{k}={v!r}" for k, v in wanted.items())
    assert f"specattn.condition(model, {call}) before loading" in str(error.value)


def test_lam_is_written_exactly():
    model, _ = build(BY_NAME["timm ViT"])
    state = condition(copy.deepcopy(model), 1 / 3).state_dict()
    condition(copy.deepcopy(model), 1 / 3).load_state_dict(state)
    with pytest.raises(ValueError, match="another conditioning"):
        condition(copy.deepcopy(model), 1 / 3 + 1e-12).load_state_dict(state)


def test_state_of_other_modules_fails_by_name():
    model, _ = build(BY_NAME["timm ViT"])
    saved = condition(copy.deepcopy(model), 0.5).state_dict()
    with pytest.raises(RuntimeError, match=r"Unexpected key.*blocks\.1\.attn\.qkv\.specattn"):
        condition(model, 0.5, modules="blocks.0.*").load_state_dict(saved)


def test_state_without_the_attention_loads_when_not_strict():
    model, _ = conditioned_model("timm ViT", "svd")
    head = nn.Linear(12, 3, dtype=torch.float64).state_dict()
    model.load_state_dict({f"head.{key}": value for key, value in head.items()}, strict=False)
    assert torch.equal(model.head.weight, head["weight"])


def test_damaged_entry_is_named():
    model, _ = conditioned_model("timm ViT", "identity")
    state = model.state_dict()
    state["blocks.0.attn.qkv.specattn._extra_state"] = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(ValueError, match="specattn entry cannot be read"):
        model.load_state_dict(state)


def test_states_are_tensors_alone_and_load_with_weights_only():
    model, _ = conditioned_model("timm ViT", "svd")
    assert all(isinstance(value, torch.Tensor) for value in model.state_dict().values())
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True).keys() == model.state_dict().keys()


def test_identity_keeps_no_matrix():
    plain, _ = build(BY_NAME["timm ViT"])
    model = condition(copy.deepcopy(plain), 0.5)
    assert len(list(model.buffers())) == len(list(plain.buffers()))
    written = sum(value.nbytes for key, value in model.state_dict().items() if "specattn" in key)
    assert written < 150 * len(model.blocks)  # the setting as text
