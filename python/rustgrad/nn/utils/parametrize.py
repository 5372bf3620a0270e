"""Parametrizations: a parameter or buffer computed from another one each time it is read.

A module with parametrized tensors gets a class of its own in which each of them is a property; what they are computed from
is in `module.parametrizations`. Ready-made parametrizations are in `parametrizations.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import no_grad
from rustgrad.nn.modules.container import ModuleDict, ModuleList
from rustgrad.nn.modules.module import Module
from rustgrad.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside the block each parametrized tensor is computed once, when it is first read; blocks may be nested."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _check_same(before: dict[str, Any], after: Tensor, rule: str, labels: tuple[str, str]) -> None:
    """Raise `ValueError` with `rule`, in which {} stands for what differs, unless dtype and shape are as before."""
    for what, old in before.items():
        new = getattr(after, what)
        if old != new:
            raise ValueError(f"{rule.format(what)}\n{labels[0].format(what)}: {old}\n{labels[1].format(what)}: {new}")


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first to last, and what the first one reads: `original`, or `original0`,
    `original1` ... if it takes several tensors.

    Args:
        modules: the parametrizations. `right_inverse` of each, where there is one, is used to find the first values.
        original: the parameter or buffer as it is now.
        unsafe: allow dtype and shape to change, and do not check.

    Raises:
        ValueError: there are no modules, or one of them breaks the rules.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Iterable[Module], original: Tensor, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before, dtype, shape = original.data, original.dtype, original.shape

        new: Any = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # as good as none
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)

        if isinstance(new, Tensor):
            if new.dtype != dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            original.data = new.data  # the object stays, for optimisers that hold it
            _register(self, "original", original)
        else:
            for place, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {place} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, requires_grad=original.requires_grad)
                _register(self, f"original{place}", part)

        if not unsafe:
            try:
                self._check(dtype, shape)
            except Exception:
                original.data = before
                raise

    def _check(self, dtype: Any, shape: Any) -> None:
        value = self()
        if not isinstance(value, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
        rule = "Registering a parametrization may not change the {} of the tensor, unless `unsafe` flag is enabled."
        _check_same({"dtype": dtype, "shape": shape}, value, rule, ("unparametrized {}", "parametrized {}"))

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrized tensor becomes `value`: what assigning to it does.

        Raises:
            RuntimeError: a parametrization has no `right_inverse`.
            ValueError: one returned something that does not fit the originals.
        """
        new: Any = value
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                new = module.right_inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(new).__name__}")
                names, tensors = ["original"], [new]
            else:
                if not isinstance(new, Sequence):
                    raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}.")
                if len(new) != self.ntensors:
                    raise ValueError(
                        f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                        f"Got a sequence of length {len(new)}."
                    )
                names, tensors = [f"original{place}" for place in range(self.ntensors)], list(new)
            # All are checked before the first is set.
            for place, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a sequence of tensors. "
                        f"Got element {place} of type {type(tensor).__name__}."
                    )
                if tensor.dtype != getattr(self, name).dtype:
                    whose = "The tensor" if self.is_tensor else f"Tensor {place}"
                    raise ValueError(
                        f"{whose} returned by `right_inverse` has dtype {tensor.dtype} "
                        f"while `{name}` has dtype {getattr(self, name).dtype}"
                    )
            for name, tensor in zip(names, tensors, strict=True):
                getattr(self, name).data = tensor.data

    def forward(self) -> Any:
        """The parametrized tensor."""
        first, *rest = self
        value = (
            first(self.original)
            if self.is_tensor
            else first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        )
        for module in rest:
            value = module(value)
        return value


# ---- the module's class --------------------------------------------------------------------------------------------


def _property(name: str) -> property:
    def read(self: Any) -> Any:
        if not _cache_enabled:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _refuse_pickling(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy with a class of its own, so that parametrizations can be removed from either."""
    if id(self) not in memo:
        base: Any = type_before_parametrizations(self)
        twin = memo[id(self)] = base.__new__(base)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        _give_class(twin)
        for name in twin.parametrizations:
            setattr(type(twin), name, _property(name))
    return memo[id(self)]


def _give_class(module: Module) -> None:
    base = type(module)
    members: dict[str, Any] = {"__getstate__": _refuse_pickling}
    if not hasattr(base, "__deepcopy__"):  # a class's own way to copy itself comes first
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether `tensor_name`, or without a name anything, is parametrized in `module`."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before anything was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


# ---- adding and removing -------------------------------------------------------------------------------------------


def _check_further(module: Module, name: str, parametrization: Any) -> None:
    """Raise `ValueError` unless `parametrization` keeps dtype and shape of a tensor that is parametrized already."""
    value = getattr(module, name)
    before = {"dtype": value.dtype, "shape": value.shape}
    after = parametrization(value)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    _check_same(
        before,
        after,
        "Registering a parametrization may not change the {} of the tensor, unless the `unsafe` flag is enabled.",
        (f"module.{name}.{{}}", f"parametrization(module.{name}).{{}}"),
    )
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(after)
        except NotImplementedError:
            return
        if not isinstance(back, Tensor):
            raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
        _check_same(
            before,
            back,
            f"The tensor returned by parametrization.right_inverse must have the same {{}} as module.{name}, "
            "unless the `unsafe` flag is enabled.",
            (f"module.{name}.{{}}", "returned {}"),
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute `module.tensor_name` as `parametrization(original)` from now on; a later one is applied to the result.

    The parametrization may have a method `right_inverse(value)`: it turns the present value, and any value assigned later,
    into what `original` must be, or into a sequence of tensors that `forward` takes instead of one.

    Args:
        module: changed in place; its class becomes a subclass of the present one.
        tensor_name: a parameter or buffer, or a tensor that is parametrized already.
        parametrization: a module from tensor to tensor.
        unsafe: allow dtype and shape to change, and do not check.

    Returns:
        `module`.

    Raises:
        ValueError: there is no such tensor, or the parametrization changes dtype or shape.

    Example:
        >>> import rustgrad as torch
        >>> class Positive(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x.exp()
        >>> net = torch.nn.utils.parametrize.register_parametrization(torch.nn.Linear(2, 1), "weight", Positive())
        >>> bool((net.weight > 0).all()), list(net.state_dict())
        (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_further(module, tensor_name, parametrization)
        known: Any = module.parametrizations[tensor_name]
        known.append(parametrization)
        known.unsafe |= unsafe
    elif module._parameters.get(tensor_name) is not None or module._buffers.get(tensor_name) is not None:
        # Made first: if it refuses, the module stays as it was.
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_class(module)
            module.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _property(tensor_name))
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make `tensor_name` a plain parameter or buffer again; without parametrizations the class is the old one too.

    Args:
        module: changed in place.
        tensor_name: the parametrized tensor.
        leave_parametrized: keep its present value; otherwise it becomes `original`.

    Returns:
        `module`.

    Raises:
        ValueError: it is not parametrized, or there are several originals and `leave_parametrized` is false.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations: Any = module.parametrizations[tensor_name]
    tensor: Tensor
    if parametrizations.is_tensor:
        tensor = parametrizations.original
        if leave_parametrized:
            with no_grad():
                tensor.data = parametrizations().data
    elif leave_parametrized:
        value = parametrizations()
        tensor = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    _register(module, tensor_name, tensor)
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize `to_module` as `from_module` is; the two share parametrizations and originals afterwards.

    Args:
        from_module: where they come from; left as it is. If nothing is parametrized there, nothing happens.
        to_module: changed in place. Tensors that it lacks are made.
        tensor_name: transfer those of one tensor only.

    Returns:
        `to_module`.

    Raises:
        KeyError: `from_module` has others, but none for `tensor_name`.
    """
    if not is_parametrized(from_module):
        return to_module
    known: Any = from_module.parametrizations
    for name in list(known) if tensor_name is None else [tensor_name]:
        given = known[name]
        if not hasattr(to_module, name):
            value = getattr(from_module, name).detach().clone()
            _register(to_module, name, Parameter(value) if given._parameters else value)
        for parametrization in given:
            register_parametrization(to_module, name, parametrization, unsafe=given.unsafe)
        made: Any = to_module.parametrizations[name]
        for table in ("_parameters", "_buffers"):
            getattr(made, table).update(getattr(given, table))
    return to_module
