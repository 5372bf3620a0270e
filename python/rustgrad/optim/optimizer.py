"""`Optimizer`: parameter groups, state, hooks and state dictionaries. What a step computes is elsewhere."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from rustgrad import _core
from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import enable_grad
from rustgrad.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "ParamsT"]

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Closure: TypeAlias = Callable[[], Any]


class _Required:
    """Stands for "every group must give this option" among the defaults."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _typename(value: Any) -> str:
    return str(value.type()) if isinstance(value, Tensor) else type(value).__name__


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the pre- and post-hooks of the optimiser around it."""

    @functools.wraps(step)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for hook in list(self._optimizer_step_pre_hooks.values()):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                args, kwargs = changed
        result = step(self, *args, **kwargs)
        for hook in list(self._optimizer_step_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    run._rustgrad_hooked = True  # type: ignore[attr-defined]
    return run


class Optimizer:
    """The base class of all optimisers.

    Args:
        params: tensors, pairs of name and tensor, or dictionaries with those under "params" and options of their own.
        defaults: the options of groups that do not give them.

    Raises:
        TypeError: `params` is a single tensor, or has something else than tensors in it.
        ValueError: there are no parameters, one is no leaf, or one comes twice.

    A subclass defines `step`. `state` holds what it keeps per parameter, `param_groups` the groups.
    """

    state: defaultdict[Tensor, dict[str, Any]]
    param_groups: list[dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not hasattr(step, "_rustgrad_hooked"):
            cls.step = _hooked(step)  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_typename(params)}"
            )
        self.defaults = defaults
        self._make_hook_tables()
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hook_tables(self) -> None:
        self._optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._optimizer_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._optimizer_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self._make_hook_tables()

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for place, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {place}"] if place else [f"Parameter Group {place}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # ---- parameters -------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; what a group does not say comes from the defaults.

        Raises:
            TypeError: the group is no dictionary, its parameters are a set or no tensors.
            ValueError: a required option is missing; a parameter is no leaf, or is in a group already; some parameters
                have names and others have not.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but "
                "the ordering of tensors in sets will change between runs. Please use a list instead."
            )
        listed = [given] if isinstance(given, Tensor) else list(given)
        named = [item for item in listed if isinstance(item, tuple)]
        if named:
            if len(named) != len(listed):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = [name for name, _ in named]
            listed = [tensor for _, tensor in named]
        param_group["params"] = listed
        for param in listed:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(param)}")
            if not (self.defaults.get("differentiable") or param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if self.param_groups and ("param_names" in self.param_groups[0]) != bool(named):
            kind = "with names" if named else "without names"
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {kind} to the optimizer"
            )
        # By identity: `==` of tensors compares elements.
        new = [id(param) for param in listed]
        known = {id(param) for group in self.param_groups for param in group["params"]}
        if len(set(new)) != len(new) or known.intersection(new):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient of every parameter, or with `set_to_none=False` fill it with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                if set_to_none:
                    param.grad = None
                else:
                    if param.grad.grad_fn is not None:
                        param.grad.detach_()
                    else:
                        param.grad.requires_grad_(False)
                    param.grad.zero_()

    # ---- stepping ---------------------------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Any:
        """Change the parameters by one step.

        Args:
            closure: computes the loss anew, runs backward and returns the loss. Run with gradients enabled.

        Returns:
            What the closure returned, or `None`.
        """
        raise NotImplementedError

    def _loss_of(self, closure: Closure | None) -> Any:
        if closure is None:
            return None
        with enable_grad():
            return closure()

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new `(args, kwargs)`."""
        return self._add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._add_hook(self._optimizer_step_post_hooks, hook)

    @staticmethod
    def _add_hook(
        table: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        handle = RemovableHandle(table)
        table[handle.id] = hook
        if prepend:
            table.move_to_end(handle.id, last=False)
        return handle

    # ---- state dictionaries -----------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[[Optimizer], None], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return self._add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[[Optimizer, dict[str, Any]], dict[str, Any] | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; what it returns, if anything, is the result."""
        return self._add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[[Optimizer, dict[str, Any]], dict[str, Any] | None], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before `load_state_dict`; what it returns, if anything, is loaded."""
        return self._add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[[Optimizer], None], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return self._add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self) -> dict[str, Any]:
        """The state and the options, with parameters replaced by their position counted through all groups.

        Returns:
            `{"state": {position: {...}}, "param_groups": [{..., "params": [positions]}]}`.
        """
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        places: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                places.setdefault(id(param), len(places))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [places[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {(places[id(key)] if isinstance(key, Tensor) else key): value for key, value in self.state.items()}
        made: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            made = hook(self, made) or made
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the state and options of a `state_dict` of an optimiser with groups of the same sizes.

        Floating-point state is converted to the dtype of its parameter, except the step count.

        Raises:
            ValueError: the number of groups, or the size of one, differs.
        """
        given = dict(state_dict)
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            given = hook(self, given) or given
        own, saved = self.param_groups, copy.deepcopy(given["param_groups"])
        if len(own) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(mine["params"]) != len(theirs["params"]) for mine, theirs in zip(own, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params: dict[Any, Tensor] = {}
        for mine, theirs in zip(own, saved, strict=True):
            params.update(zip(theirs["params"], mine["params"], strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in given["state"].items():
            if key in params:
                state[params[key]] = _state_for(params[key], value)
            else:
                state[key] = copy.deepcopy(value)
        groups = []
        for mine, theirs in zip(own, saved, strict=True):
            theirs["params"] = mine["params"]
            if "param_names" in mine and "param_names" not in theirs:
                theirs["param_names"] = mine["param_names"]
            groups.append(theirs)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)


def _state_for(param: Tensor, value: Any, key: str | None = None) -> Any:
    """A copy of loaded state that fits `param`: its dtype for floats, its device; the step count stays as it is."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.detach().clone()
        dtype = param.dtype if param.is_floating_point() else value.dtype
        moved = value.to(device=param.device, dtype=dtype)
        return moved.detach().clone() if moved is value else moved
    if isinstance(value, dict):
        return {name: _state_for(param, item, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_state_for(param, item) for item in value)
    return copy.deepcopy(value)


def _number(value: float | Tensor) -> float:
    """A hyperparameter as a Python number. A one-element tensor may stand for a learning rate."""
    return float(value.item()) if isinstance(value, Tensor) else value


def _step_counter() -> Tensor:
    """A step count at 0: a tensor, as PyTorch keeps it, of the wider of float32 and the default dtype."""
    dtype = _core.float64 if _core.get_default_dtype() == _core.float64 else _core.float32
    return _core.zeros((), dtype=dtype)


def _check_flags(differentiable: bool, fused: bool | None, foreach: bool | None) -> None:
    """Refuse what cannot be honoured. `foreach` and `fused` only choose an implementation, and there is one.

    Raises:
        NotImplementedError: `differentiable` is set.
        RuntimeError: `fused` and `foreach` are both set.
    """
    if differentiable:
        raise NotImplementedError("differentiable=True is not supported: steps record no graph.")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _check_lr(lr: float | Tensor) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not _number(lr) >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def _gradient(param: Tensor, maximize: bool) -> Tensor:
    """The direction to go down; `param.grad` is known to be there."""
    grad = cast(Tensor, param.grad)
    return -grad if maximize else grad
