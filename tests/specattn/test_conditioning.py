"""What `condition` computes, against weights that were replaced by W + C by hand, in float64."""

import copy
import subprocess
import sys

import pytest
import timm
import torch
from families import dense_correction
from torch import nn

import specattn
from specattn import condition, conditioned, corrections, find_projections, fold

METHODS = ("identity", "svd", "relative", "orthogonal", "rescale")


@pytest.fixture
def vit():
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=12, depth=2, num_heads=3, num_classes=4
    ).double()


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("targets", ["qkv", "v", "qv", "k"])
@pytest.mark.parametrize("layout", ["matrix", "head"])
@pytest.mark.parametrize("method", ["identity", "svd", "relative", "rescale"])
def test_outputs_and_gradients_are_those_of_w_plus_c(vit, images, method, layout, targets):
    reference = copy.deepcopy(vit)
    with torch.no_grad():
        for block in reference.blocks:
            for part, which in zip(block.attn.qkv.weight.split(12), "qkv", strict=True):
                if which in targets:
                    part += dense_correction(part, method, 0.7, 3 if layout == "head" else 1)
    condition(vit, 0.7, method, layout, targets)
    output, expected = vit(images), reference(images)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    for (name, p), (name_expected, q) in zip(vit.named_parameters(), reference.named_parameters(), strict=True):
        assert name == name_expected
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_lam_zero_changes_nothing_at_all(vit, images, method):
    plain = copy.deepcopy(vit)
    assert condition(vit, 0, method) is vit
    assert [type(m) for m in vit.modules()] == [type(m) for m in plain.modules()]
    assert list(vit.state_dict()) == list(plain.state_dict())
    assert conditioned(vit) is None
    output, expected = vit(images), plain(images)
    output.sum().backward()
    expected.sum().backward()
    assert torch.equal(output, expected)
    for (name, p), (name_plain, q) in zip(vit.named_parameters(), plain.named_parameters(), strict=True):
        assert name == name_plain
        assert torch.equal(p, q)
        assert torch.equal(p.grad, q.grad)


@pytest.mark.parametrize("method", METHODS)
def test_default_lam(vit, method):
    condition(vit, method=method)
    assert conditioned(vit) == {
        "method": method,
        "lam": 10.0 if method == "identity" else 1.0,
        "layout": "matrix",
        "targets": "qkv",
        "when": "persistent",
        "modules": ["blocks.0.attn", "blocks.1.attn"],
    }


@pytest.mark.parametrize("layout", ["matrix", "head"])
def test_theorem_3_5(vit, layout):
    condition(vit, method="svd", layout=layout)
    for projection in find_projections(vit):
        s = torch.linalg.svdvals(projection.blocks(projection.effective_weight, layout))
        assert (s[:, 0] / s[:, -1] <= 2 + 1e-12).all()


@pytest.mark.parametrize("layout", ["matrix", "head"])
def test_controls_have_the_norms_of_svd(vit, layout):
    blocks = {p.name: p.blocks(p.weight, layout) for p in find_projections(vit)}
    models = {m: condition(copy.deepcopy(vit), method=m, layout=layout) for m in ("svd", "orthogonal", "rescale")}
    svd, orthogonal, rescale = ({n: c.dense() for n, c in corrections(m).items()} for m in models.values())
    for projection in find_projections(vit):
        w = blocks[projection.name]
        c_svd, c_orthogonal, c_rescale = (
            projection.blocks(c[projection.name], layout) for c in (svd, orthogonal, rescale)
        )
        # All singular values of both are σ_max, so every unitarily invariant norm agrees; the directions do not.
        torch.testing.assert_close(torch.linalg.svdvals(c_orthogonal), torch.linalg.svdvals(c_svd))
        assert not torch.allclose(c_orthogonal, c_svd, atol=1e-2)
        torch.testing.assert_close((w + c_rescale).norm(dim=(1, 2)), (w + c_svd).norm(dim=(1, 2)))
        torch.testing.assert_close(torch.linalg.cond(w + c_rescale), torch.linalg.cond(w), rtol=1e-6, atol=0)


def test_orthogonal_is_a_function_of_name_and_shape(vit):
    first = {n: c.dense() for n, c in corrections(condition(copy.deepcopy(vit), method="orthogonal")).items()}
    torch.manual_seed(123)
    again = {n: c.dense() for n, c in corrections(condition(vit, method="orthogonal")).items()}
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.allclose(first["blocks.0.attn.q"], first["blocks.0.attn.k"])


def test_init_adds_to_the_weight_and_leaves_no_entry(vit, images):
    persistent = condition(copy.deepcopy(vit), 0.5)
    keys = list(vit.state_dict())
    condition(vit, 0.5, when="init")
    assert list(vit.state_dict()) == keys
    assert corrections(vit) == {}
    assert conditioned(vit)["when"] == "init"
    torch.testing.assert_close(vit(images), persistent(images), rtol=0, atol=1e-12)


def test_fold_gives_back_the_plain_model(vit, images):
    plain = copy.deepcopy(vit)
    condition(vit, 0.5)
    expected = vit(images)
    assert fold(vit) is vit
    assert [type(m) for m in vit.modules()] == [type(m) for m in plain.modules()]
    assert list(vit.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(vit(images), expected, rtol=0, atol=1e-12)
    assert conditioned(condition(vit, 0.5)) is not None


def test_modules_takes_a_pattern(vit):
    condition(vit, 0.5, modules="blocks.1.*")
    assert conditioned(vit)["modules"] == ["blocks.1.attn"]
    assert type(vit.blocks[0].attn.qkv) is nn.Linear


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "svdd"}, "method must be one of identity, svd, relative, orthogonal, rescale; got 'svdd'"),
        ({"layout": "heads"}, "layout must be one of matrix, head; got 'heads'"),
        ({"when": "always"}, "when must be one of persistent, init; got 'always'"),
        ({"targets": "qkx"}, "targets must name some of q, k and v once each"),
        ({"targets": ""}, "targets must name some of q, k and v once each"),
        ({"targets": "qq"}, "targets must name some of q, k and v once each"),
        ({"lam": float("nan")}, "lam must be a finite number"),
        ({"lam": float("inf")}, "lam must be a finite number"),
        ({"lam": "10"}, "lam must be a finite number"),
        ({"lam": True}, "lam must be a finite number"),
        ({"modules": "layers.*"}, r"modules='layers.\*' matches no attention module; there are: blocks.0.attn"),
    ],
)
def test_wrong_arguments(vit, arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        condition(vit, **arguments)
    assert "\n" not in str(error.value)
    assert conditioned(vit) is None


@pytest.mark.parametrize("when", ["persistent", "init"])
def test_conditioning_twice_is_an_error(vit, when):
    condition(vit, 0.5, when=when)
    with pytest.raises(ValueError, match=r"conditioned already.*specattn.fold"):
        condition(vit, 0.5)


def test_unrecognised_model_lists_what_was_seen():
    class StrangeAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.wq = nn.Linear(4, 4)

    with pytest.raises(ValueError, match=r"0: StrangeAttention\(wq\).*FAMILIES"):
        condition(nn.Sequential(StrangeAttention()))


def test_import_loads_torch_and_nothing_heavier():
    code = (
        "import sys, torch; before = {m.split('.')[0] for m in sys.modules}; import specattn; "
        "specattn.condition, specattn.fold, specattn.corrections; "
        "print(sorted({m.split('.')[0] for m in sys.modules} - before))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "['specattn']"


def test_public_names_resolve():
    assert {"condition", "conditioned", "corrections", "fold", "find_projections", "Projection"} < set(specattn.__all__)
    for name in specattn.__all__:
        assert callable(getattr(specattn, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = specattn.nothing
