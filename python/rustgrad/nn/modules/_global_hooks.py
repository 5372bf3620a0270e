"""Hooks that hold for every module: the tables, and what registers in them.

The tables are read where modules are called (`_calling.py`) and where they register members (`module.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rustgrad.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from rustgrad._core import Tensor
    from rustgrad.nn.modules.module import Module

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_Table: TypeAlias = OrderedDict[int, Callable[..., Any]]
_Grads: TypeAlias = "tuple[Tensor | None, ...]"
_Member = TypeVar("_Member")

forward_pre_hooks: _Table = OrderedDict()
forward_hooks: _Table = OrderedDict()
forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
backward_pre_hooks: _Table = OrderedDict()
backward_hooks: _Table = OrderedDict()
legacy_backward_hooks: _Table = OrderedDict()
# The ids of all of the above: a call of a module looks at one table, not at six.
around_calls: OrderedDict[int, bool] = OrderedDict()

buffer_registration_hooks: _Table = OrderedDict()
module_registration_hooks: _Table = OrderedDict()
parameter_registration_hooks: _Table = OrderedDict()


def registered(hooks: _Table, module: Module, name: str, member: _Member) -> _Member:
    """`member`, or what the registration hooks put in its place."""
    for hook in list(hooks.values()):
        replaced = hook(module, name, member)
        if replaced is not None:
            member = replaced
    return member


def _add(table: _Table, hook: Callable[..., Any], *extra: OrderedDict[int, bool]) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=[around_calls, *extra])
    table[handle.id] = hook
    for options in (around_calls, *extra):
        options[handle.id] = True
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the `forward` of every module, ahead of the module's own hooks.

    What it returns, if anything, replaces the positional arguments.
    """
    return _add(forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the `forward` of every module, ahead of the module's own hooks.

    Args:
        hook: the function; what it returns, if anything, replaces the output.
        with_kwargs: call `hook(module, args, kwargs, output)`.
        always_call: run also when `forward` raised.
    """
    extra = [forward_hooks_with_kwargs] * with_kwargs + [forward_hooks_always_called] * always_call
    return _add(forward_hooks, hook, *extra)


def register_module_full_backward_pre_hook(hook: Callable[[Module, _Grads], Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before gradients pass through any module; see `Module`'s method."""
    return _add(backward_pre_hooks, hook)


def _refuse_mixing(other: _Table) -> None:
    if other:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
            "Please use only one of them."
        )


def register_module_full_backward_hook(hook: Callable[[Module, _Grads, _Grads], Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` once gradients passed through any module; see `Module`'s method.

    Raises:
        RuntimeError: there are hooks of `register_module_backward_hook`.
    """
    _refuse_mixing(legacy_backward_hooks)
    return _add(backward_hooks, hook)


def register_module_backward_hook(hook: Callable[[Module, _Grads, _Grads], Any]) -> RemovableHandle:
    """The old form, which sees only the last operation of each module. Use `register_module_full_backward_hook`.

    Raises:
        RuntimeError: there are hooks of `register_module_full_backward_hook`.
    """
    _refuse_mixing(backward_hooks)
    return _add(legacy_backward_hooks, hook)


def _add_registration(table: _Table, hook: Callable[..., Any]) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a buffer is registered; what it returns is registered instead."""
    return _add_registration(buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when a child is registered; what it returns is registered instead."""
    return _add_registration(module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` when a parameter is registered; what it returns is registered instead."""
    return _add_registration(parameter_registration_hooks, hook)
