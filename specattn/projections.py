"""W_Q, W_K and W_V of every attention module of a model, found by the table in `families.py`.

Shapes: D_in inputs, D_out = heads · d outputs. Weights are in `nn.Linear` orientation [D_out, D_in], the
transpose of the paper's W ∈ R^{D×d}: singular values and condition numbers are the same.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from specattn.families import FAMILIES, WRAPPED_LAYER, Family, Place


@dataclass(frozen=True)
class Projection:
    """One of W_Q, W_K, W_V of one attention module.

    attention: dotted name of the attention module, without wrappers' prefixes (`module.`, `_orig_mod.`).
    which: "q", "k" or "v".
    owner, parameter: the module that holds the parameter, and the parameter's name in it.
    owner_name: dotted name of the owner.
    outputs: which of the parameter's outputs belong to this projection (rows; columns where `transposed`).
    heads: number of heads of this projection (grouped queries: fewer for k and v); None where unknown.
    family: the line of `FAMILIES` that matched.
    """

    attention: str
    which: str
    owner: nn.Module = field(repr=False)
    owner_name: str
    parameter: str
    outputs: slice
    transposed: bool
    heads: int | None
    family: str

    @property
    def name(self) -> str:
        """`<attention module>.<q, k or v>`, the key used in records."""
        return f"{self.attention}.{self.which}" if self.attention else self.which

    @property
    def stored(self) -> nn.Parameter:
        """The whole parameter this projection is part of: W, never W + C."""
        return self.owner._parameters[self.parameter]

    @property
    def weight(self) -> Tensor:
        """Plain W: a live view [D_out, D_in] of the parameter; gradients and in-place writes reach it."""
        return self.select(self.stored)

    @property
    def effective_weight(self) -> Tensor:
        """W + C, [D_out, D_in]: what the model computes with. W itself where nothing is conditioned."""
        return self.select(getattr(self.owner, self.parameter))

    @property
    def d_out(self) -> int:
        """Number of outputs, heads · d."""
        return self.outputs.stop - self.outputs.start

    @property
    def d_in(self) -> int:
        """Number of inputs D."""
        return self.stored.shape[0 if self.transposed else 1]

    def select(self, parameter: Tensor) -> Tensor:
        """This projection's part of a tensor shaped as the parameter, as a view [D_out, D_in]."""
        return (parameter.mT if self.transposed else parameter)[self.outputs]

    def blocks(self, weight: Tensor, layout: str) -> Tensor:
        """[D_out, D_in] -> [n, D_out/n, D_in]: n = 1 for "matrix", n = heads for "head".

        Raises:
            ValueError: `layout` is "head" and the number of heads is not known.
        """
        if layout == "matrix":
            return weight[None]
        if self.heads is None:
            raise ValueError(
                f"layout='head' needs the number of heads of {self.name}, and no attribute of its module gives it: "
                "use layout='matrix', or name the attribute in the module's line of specattn.families.FAMILIES"
            )
        return weight.unflatten(0, (self.heads, -1))


def find_projections(model: nn.Module, modules: str | None = None) -> list[Projection]:
    """W_Q, W_K and W_V of every attention module, in the order of `model.named_modules()`.

    Args:
        model: any module; DDP and `torch.compile` wrappers are looked through.
        modules: a glob on the attention module's dotted name, e.g. "blocks.*.attn"; None takes all.

    Raises:
        ValueError: no attention module is recognised, or the pattern matches none of them.
    """
    model = unwrap(model)
    found: list[Projection] = []
    seen: set[tuple[int, str, int]] = set()
    for name, module in model.named_modules():
        for projection in _recognise(name.replace("_orig_mod.", "").removesuffix("_orig_mod"), module):
            # A wrapper inside a wrapper, or q and k sharing one layer, must not be corrected twice.
            key = (id(projection.owner), projection.parameter, projection.outputs.start)
            if key not in seen:
                seen.add(key)
                found.append(projection)
    if not found:
        raise ValueError(_nothing_recognised(model))
    if modules is None:
        return found
    matching = [projection for projection in found if fnmatchcase(projection.attention, modules)]
    if not matching:
        names = list(dict.fromkeys(projection.attention for projection in found))
        shown = ", ".join(names[:4]) + (f", … ({len(names)} in all)" if len(names) > 4 else "")
        raise ValueError(f"modules={modules!r} matches no attention module; there are: {shown}")
    return matching


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DataParallel, DistributedDataParallel and `torch.compile`."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model._orig_mod
        else:
            return model


def _recognise(name: str, module: nn.Module) -> list[Projection]:
    for family in FAMILIES:
        owners = [_owner(module, place) for place in family.places]
        if all(owner is not None for owner in owners):
            return _projections(name, module, family, owners)
    return []


def _projections(name: str, module: nn.Module, family: Family, owners: list) -> list[Projection]:
    sizes = []
    for place, (owner, _, parameter) in zip(family.places, owners, strict=True):
        outputs = owner._parameters[parameter].shape[1 if place.transposed else 0]
        if outputs % place.parts:
            return []
        sizes.append(outputs // place.parts)
    q_heads = _number_of_heads(module, family)
    if q_heads and sizes[0] % q_heads:
        return []
    # q and k meet in a scalar product, so they have the same d; v is grouped as k is.
    kv_heads = None
    if q_heads:
        d = sizes[0] // q_heads
        kv_heads = sizes[1] // d if sizes[1] % d == 0 else None
        kv_heads = kv_heads if kv_heads and sizes[2] % kv_heads == 0 else None
    return [
        Projection(
            attention=name,
            which=which,
            owner=owner,
            owner_name=".".join(part for part in (name, path) if part),
            parameter=parameter,
            outputs=slice(place.part * size, (place.part + 1) * size),
            transposed=place.transposed,
            heads=heads,
            family=family.name,
        )
        for which, place, size, heads, (owner, path, parameter) in zip(
            "qkv", family.places, sizes, (q_heads, kv_heads, kv_heads), owners, strict=True
        )
    ]


def _owner(module: nn.Module, place: Place) -> tuple[nn.Module, str, str] | None:
    """(owner, its name below `module`, parameter name) of a weight that is a matrix; None where there is none."""
    *path, parameter = place.path.split(".")
    names = []
    for step in path:
        module = module._modules.get(step)
        if module is None:
            return None
        names.append(step)
    while parameter not in module._parameters:
        if is_parametrized(module, parameter):
            raise ValueError(
                f"{place.path} of a {type(module).__name__} is parametrized (torch.nn.utils.parametrize), and specattn "
                "corrects plain parameters only: remove the parametrization first"
            )
        step = next((s for s in (*names[-1:], *WRAPPED_LAYER) if isinstance(module._modules.get(s), nn.Module)), None)
        if step is None or not path:
            return None
        module = module._modules[step]
        names.append(step)
    weight = module._parameters[parameter]
    if weight is None or weight.ndim != 2 or not torch.is_floating_point(weight):
        return None
    return module, ".".join(names), parameter


def _number_of_heads(module: nn.Module, family: Family) -> int | None:
    for path in family.heads:
        value: object = module
        for step in path.split("."):
            value = getattr(value, step, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _nothing_recognised(model: nn.Module) -> str:
    seen = [
        f"{name or '(the model)'}: {type(module).__name__}({', '.join(n for n, _ in module.named_children())})"
        for name, module in model.named_modules()
        if "attn" in type(module).__name__.lower() or "attention" in type(module).__name__.lower()
    ]
    shown = "; ".join(seen[:5]) + (f"; … ({len(seen)} in all)" if len(seen) > 5 else "")
    return (
        f"no attention weights recognised in {type(model).__name__}; attention-like modules seen: {shown or 'none'}. "
        "To support it, append a line naming its q, k and v weights to specattn.families.FAMILIES, e.g. "
        "Family('mine', separate('wq.weight', 'wk.weight', 'wv.weight'))"
    )
