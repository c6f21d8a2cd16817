"""The mechanism: a module whose weight attribute reads W + C while its parameter stays W.

`attach` gives the owner of a weight (say the `qkv` linear layer) a child module `specattn`, which holds the
corrections, and changes the owner's class to a subclass of its own class in which the weight's attribute is a
property. Everything that goes through parameters (optimizers, `state_dict`, `.to`, DDP, EMA, `functional_call`)
meets W under its plain name; everything that reads `module.weight` to compute meets W + C, also where a model
calls `F.linear(x, self.qkv.weight)` itself or torch takes a fast path.

This is `torch.nn.utils.parametrize` with three of its limits removed: parameters keep their names (weight-decay
rules and parameter groups by name go on working), modules can be pickled whole, and a linear layer under a
diagonal correction adds λx to its output, so that W + C is never formed (docs/library.md has the measurements).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn

from specattn.state import CHILD, Conditioning


def attach(owner: nn.Module, conditioning: Conditioning) -> None:
    """Makes `owner` compute with W + C, in place."""
    if hasattr(owner, CHILD):
        raise ValueError(f"{type(owner).__name__} already has an attribute {CHILD!r}; it cannot be conditioned")
    owner.add_module(CHILD, conditioning)
    owner.__class__ = conditioned_class(type(owner), tuple(conditioning.parts))


def detach(owner: nn.Module) -> None:
    """Undoes `attach`, in place: the plain class, no child module; the parameters hold what they held."""
    delattr(owner, CHILD)
    owner.__class__ = type(owner).plain_class


def conditioning_of(module: nn.Module) -> Conditioning | None:
    """The corrections attached to this very module (not to one below it); None where it is plain."""
    child = module._modules.get(CHILD)
    return child if isinstance(child, Conditioning) else None


@cache
def conditioned_class(plain: type[nn.Module], parameters: tuple[str, ...]) -> type[nn.Module]:
    """The subclass of `plain` in which the attributes `parameters` read W + C."""
    members: dict[str, Any] = {name: _corrected(name) for name in parameters}
    members |= {"_load_from_state_dict": _load_into(plain)}
    members |= {"plain_class": plain, "__reduce_ex__": _reduce, "__module__": plain.__module__}
    if plain.forward is nn.Linear.forward:
        members["forward"] = _linear_forward
    members["_conditioned_parameters"] = parameters
    return type(f"Conditioned{plain.__name__}", (plain,), members)


def _corrected(name: str) -> property:
    def weight(self: nn.Module) -> Tensor:
        parameter = _parameter(self, name)
        return parameter + self._modules[CHILD].matrix(name, parameter)

    def set_on_replica(self: nn.Module, value: Tensor) -> None:
        # Reached in DataParallel's replicas alone, which have no parameters but copies of them as attributes.
        self._parameters[name] = value

    return property(weight, set_on_replica, doc=f"W + C, where W is the parameter {name!r} of this module.")


def _linear_forward(self: nn.Linear, input: Tensor) -> Tensor:
    return self._modules[CHILD].linear(input, _parameter(self, "weight"), self.bias)


def _parameter(module: nn.Module, name: str) -> nn.Parameter:
    parameter = module._parameters.get(name)
    if parameter is None:
        raise RuntimeError(
            f"the parameter {name!r} of this {type(module).__name__} is gone, so specattn cannot correct it; a weight "
            "cannot be parametrized after condition(): call specattn.fold(model) first"
        )
    return parameter


def _load_into(plain: type[nn.Module]) -> Callable:
    def _load_from_state_dict(self: nn.Module, state_dict: dict, prefix: str, *args: object) -> None:
        self._modules[CHILD].check_state(state_dict, prefix)  # before W is overwritten
        plain._load_from_state_dict(self, state_dict, prefix, *args)

    return _load_from_state_dict


def _reduce(self: nn.Module, protocol: int) -> tuple[Callable, tuple, Any]:
    # The class is made at run time; pickle and deepcopy rebuild it from the plain class.
    return _rebuild, (type(self).plain_class, type(self)._conditioned_parameters), self.__dict__.copy()


def _rebuild(plain: type[nn.Module], parameters: tuple[str, ...]) -> nn.Module:
    cls = conditioned_class(plain, parameters)
    return cls.__new__(cls)
