"""`condition`: add the corrections C to W_Q, W_K and W_V of a model; `fold`: write W + C into its weights."""

import os
import warnings
from collections import defaultdict
from dataclasses import asdict

import torch
from torch import Tensor, nn

from specattn.correction import Correction, correction_from, taken_from_weight
from specattn.mechanism import attach, conditioning_of, detach
from specattn.projections import Projection, find_projections, unwrap
from specattn.setting import Setting
from specattn.state import Conditioning, Part

#: Where `when="init"` leaves its note on the model: no state, only a guard against conditioning twice.
_INIT_NOTE = "_specattn_init"


def condition(
    model: nn.Module,
    lam: float | None = None,
    method: str = "identity",
    layout: str = "matrix",
    targets: str = "qkv",
    when: str = "persistent",
    modules: str | None = None,
    probe: object = None,
) -> nn.Module:
    """Conditions the attention of `model` spectrally: W becomes W + C for the targets (Definition 3.6), in place.

    C is taken from the weights at the call and fixed after it: never trained, never decayed.

    Args:
        model: any model whose attention `specattn.families.FAMILIES` recognises.
        lam: λ. None: the method's default. 0: the model is left exactly as it is, bit for bit.
        method: "identity", C = λ I (default λ = 10, the paper's runs); "svd", C = λ σ_max U Vᵀ (default 1:
            Theorem 3.5, κ(W + C) ≤ 2); "relative", C = λ σ_max I (default 1); and the controls "orthogonal"
            (a random direction with svd's norm) and "rescale" (W as large as svd makes it, κ unchanged).
        layout: "matrix", one C for the whole projection (all heads stacked); "head", one for each head.
        targets: which projections, any of "q", "k", "v".
        when: "persistent", C is added at every use and the parameter stays W, so that weight decay acts on W
            alone; "init", C is added to the parameter once. The two are the same trajectory (to rounding) for
            optimizers whose step is a function of the gradients alone: SGD with or without momentum, Adam,
            RMSprop, without weight decay. They differ under weight decay, L2 or decoupled, which pulls W in one
            case and W + C in the other (by ηwC in the first decoupled step), and under optimizers with a trust
            ratio (LARS, LAMB), whose step is scaled by the norm of the parameter.
        modules: a glob on the attention modules' dotted names, e.g. "blocks.*.attn"; None takes all of them.
        probe: a batch to run once after conditioning (see `attention_statistics`); a UserWarning says where the
            softmax saturates, and what would not.

    Returns:
        The same model.

    Raises:
        ValueError: an argument is wrong, no attention is recognised, `modules` matches nothing, the model is
            conditioned already, a weight is shared with a layer that is not conditioned (`init`), or values are
            needed and the model is on the meta device.
    """
    setting = Setting.check(lam, method, layout, targets, when)
    existing = conditioned(model)
    if existing is not None:
        raise ValueError(f"the model is conditioned already ({existing}): call specattn.fold(model) first")
    chosen = [p for p in find_projections(model, modules) if p.which in setting.targets]
    if setting.lam == 0:
        return model
    taken = [_take(p, setting) for p in chosen]
    if setting.when == "init":
        _add_to_weights(model, chosen, taken, setting)
    else:
        _attach(chosen, taken, setting)
    if probe is not None:
        from specattn.attention import attention_statistics, saturation_warning

        message = saturation_warning(attention_statistics(model, probe, modules=modules), setting.lam)
        if message is not None:
            warnings.warn(message, stacklevel=2)
    return model


def fold(model: nn.Module, path: str | os.PathLike | None = None) -> nn.Module:
    """Writes W + C into the weights and removes every trace of the conditioning, in place.

    After it the modules have their plain types; a plain model is left as it is.

    Args:
        model: a model, conditioned or not.
        path: where to write an export as well: a safetensors file of the plain state dict, which the unmodified
            timm or transformers model loads with strict=True.

    Returns:
        The same model.
    """
    inner = unwrap(model)
    owners = [(owner, c) for owner in inner.modules() if (c := conditioning_of(owner)) is not None]
    values: dict[int, list[tuple[nn.Module, str, Tensor]]] = defaultdict(list)
    with torch.no_grad():
        for owner, corrections in owners:
            for name in corrections.parts:
                values[id(owner._parameters[name])].append((owner, name, getattr(owner, name)))
    holders = _holders(inner)
    for owner, _ in owners:
        detach(owner)
    for key, places in values.items():
        shared = len(places) == len(holders[key])
        if shared and all(torch.equal(value, places[0][2]) for _, _, value in places[1:]):
            owner, name, value = places[0]
            with torch.no_grad():
                owner._parameters[name].copy_(value)
        else:
            # Shared with a layer that computes with another sum, or with W itself: they part here.
            for owner, name, value in places:
                owner._parameters[name] = nn.Parameter(value, owner._parameters[name].requires_grad)
    inner.__dict__.pop(_INIT_NOTE, None)
    if path is not None:
        from specattn.export import save

        save(inner, path)
    return model


def corrections(model: nn.Module) -> dict[str, Correction]:
    """The corrections of a conditioned model by name: `<attention module>.<q, k or v>` -> C.

    A correction is a small object (`DiagonalCorrection` or `DenseCorrection`); its `dense()` makes the matrix,
    [D_out, D_in] in `nn.Linear` orientation. Empty where the model is plain (also after λ = 0 or `init`).
    """
    found = {}
    if any(conditioning_of(module) is not None for module in model.modules()):
        for projection in find_projections(model):
            correction = correction_of(projection)
            if correction is not None:
                found[projection.name] = correction
    return found


def correction_of(projection: Projection) -> Correction | None:
    """The correction that is added to one projection; None where it is plain."""
    held = conditioning_of(projection.owner)
    if held is None or projection.which not in [part.which for part in held.parts.get(projection.parameter, ())]:
        return None
    return held.correction(projection.parameter, projection.which, projection.d_in)


def conditioned(model: nn.Module) -> dict[str, object] | None:
    """What `model` is conditioned with, for a record: None for a plain model, else a dict of plain values.

    Keys: method, lam, layout, targets, when, and modules, the dotted names of the attention modules concerned.
    `when="init"` is remembered by the model object only; a state dict holds no trace of it.
    """
    inner = unwrap(model)
    note = inner.__dict__.get(_INIT_NOTE)
    if note is not None:
        return {**note, "modules": list(note["modules"])}
    setting, names = None, []
    if any(conditioning_of(module) is not None for module in inner.modules()):
        for projection in find_projections(inner):
            if correction_of(projection) is not None:
                setting = conditioning_of(projection.owner).setting
                names.append(projection.attention)
    return None if setting is None else {**asdict(setting), "modules": list(dict.fromkeys(names))}


def _take(projection: Projection, setting: Setting) -> Tensor | None:
    blocks = projection.blocks(projection.weight, setting.layout)
    return taken_from_weight(blocks, setting.method, setting.lam, projection.name)


def _attach(chosen: list[Projection], taken: list[Tensor | None], setting: Setting) -> None:
    by_owner: dict[int, dict[str, list]] = defaultdict(lambda: defaultdict(list))
    for projection, tensor in zip(chosen, taken, strict=True):
        by_owner[id(projection.owner)][projection.parameter].append((projection, tensor))
    for by_parameter in by_owner.values():
        parts, kept = {}, {}
        for parameter, pairs in by_parameter.items():
            pairs.sort(key=lambda pair: pair[0].outputs.start)
            parts[parameter] = tuple(
                Part(
                    which=p.which,
                    start=p.outputs.start,
                    stop=p.outputs.stop,
                    blocks=p.heads if setting.layout == "head" else 1,
                    transposed=p.transposed,
                )
                for p, _ in pairs
            )
            kept[parameter] = None if pairs[0][1] is None else torch.cat([tensor for _, tensor in pairs])
            owner = pairs[0][0].owner
        attach(owner, Conditioning(setting, parts, kept))


def _add_to_weights(model: nn.Module, chosen: list[Projection], taken: list, setting: Setting) -> None:
    holders = _holders(unwrap(model))
    places = {(id(p.owner), p.parameter) for p in chosen}
    for projection in chosen:
        if projection.stored.is_meta:
            raise ValueError(
                f"when='init' adds C to the values of {projection.name}, which is on the meta device: "
                "materialise the model and load its weights before condition()"
            )
        for owner, name, path in holders[id(projection.stored)]:
            if (id(owner), name) not in places:
                raise ValueError(
                    f"when='init' would change {path} as well, which shares its weight with {projection.name}: "
                    "use when='persistent', or untie them first"
                )
    written = set()
    with torch.no_grad():
        for projection, tensor in zip(chosen, taken, strict=True):
            # Two layers that share one parameter start from one W + C, not from W + 2C.
            key = (id(projection.stored), projection.outputs.start)
            if key not in written:
                written.add(key)
                weight = projection.weight
                blocks = projection.blocks(weight, setting.layout)
                correction = correction_from(tensor, setting.method, setting.lam, tuple(blocks.shape))
                weight.add_(correction.dense(weight.dtype, weight.device))
    names = list(dict.fromkeys(projection.attention for projection in chosen))
    unwrap(model).__dict__[_INIT_NOTE] = {**asdict(setting), "modules": names}


def _holders(model: nn.Module) -> dict[int, list[tuple[nn.Module, str, str]]]:
    """id of each parameter -> every (module, parameter name, dotted name) that holds it."""
    holders = defaultdict(list)
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                holders[id(parameter)].append((module, name, f"{path}.{name}" if path else name))
    return holders
