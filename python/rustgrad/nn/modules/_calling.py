"""Calling a module: `forward` with the hooks around it.

`Hooked` is the half of `Module` that runs code; what a module holds is in `module.py` and `_state_dict.py`.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from rustgrad.nn.modules import _global_hooks as everywhere
from rustgrad.nn.modules._backward_hooks import Boundary, attach_legacy
from rustgrad.nn.modules._global_hooks import around_calls
from rustgrad.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from rustgrad._core import Tensor
    from rustgrad.nn.modules.module import Module

__all__ = ["Hooked"]

_Grads: TypeAlias = "tuple[Tensor | None, ...]"


class Hooked:
    """Something with a `forward` that is called through hooks."""

    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    # Of which kind the backward hooks are; None while there was none. A module has either full or old ones.
    _is_full_backward_hook: bool | None

    def _forward_missing(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # A variable, not a method, so that subclasses may give `forward` any signature.
    forward: Callable[..., Any] = _forward_missing

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before `forward`; what it returns, if anything, replaces the positional arguments.

        Args:
            hook: the function.
            prepend: run before the hooks that are there already.
            with_kwargs: call `hook(module, args, kwargs)`, which may return `(args, kwargs)`.
        """
        handle = RemovableHandle(self._forward_pre_hooks, extra_dict=self._forward_pre_hooks_with_kwargs)
        self._forward_pre_hooks[handle.id] = hook
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after `forward`; what it returns, if anything, replaces the output.

        Args:
            hook: the function.
            prepend: run before the hooks that are there already.
            with_kwargs: call `hook(module, args, kwargs, output)`.
            always_call: run also when `forward` raised, with the output so far (`None`).
        """
        handle = RemovableHandle(
            self._forward_hooks, extra_dict=[self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        )
        self._forward_hooks[handle.id] = hook
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[[Module, _Grads], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before gradients pass through the module.

        Args:
            hook: the function. `grad_output` has one entry for each output, None for what is no tensor; a tuple that the
                hook returns takes its place.
            prepend: run before the hooks that are there already.
        """
        handle = RemovableHandle(self._backward_pre_hooks)
        self._backward_pre_hooks[handle.id] = hook
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def _add_backward_hook(self, hook: Callable[..., Any], full: bool) -> RemovableHandle:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. "
                "Please use only one of them."
            )
        self._is_full_backward_hook = full
        handle = RemovableHandle(self._backward_hooks)
        self._backward_hooks[handle.id] = hook
        return handle

    def register_full_backward_hook(
        self, hook: Callable[[Module, _Grads, _Grads], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` once the gradients of all the module's inputs are known.

        Where no input requires a gradient the hook fires when those of the outputs are known, with a warning. Inputs and
        outputs of a module with such hooks must not be modified in place.

        Args:
            hook: the function. `grad_input` has one entry for each positional argument, None for what is no tensor; a
                tuple that the hook returns takes its place.
            prepend: run before the hooks that are there already.

        Raises:
            RuntimeError: the module has hooks of `register_backward_hook`.
        """
        handle = self._add_backward_hook(hook, full=True)
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook: Callable[[Module, _Grads, _Grads], Any]) -> RemovableHandle:
        """The old form, which sees the module's last operation only. Use `register_full_backward_hook`.

        Raises:
            RuntimeError: the module has full backward hooks.
        """
        return self._add_backward_hook(hook, full=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with the hooks around it."""
        own = self.__dict__  # asked once: each attribute of a class that has `__getattr__` costs a good 30 ns
        try:
            hooked = (
                own["_backward_hooks"]
                or own["_backward_pre_hooks"]
                or own["_forward_hooks"]
                or own["_forward_pre_hooks"]
                or around_calls
            )
        except KeyError as error:  # `Module.__init__` did not run
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{error.args[0]}'") from None
        if not hooked:
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the pre-hooks leave them."""
        own = list(self._forward_pre_hooks.items())
        hooks = [(hook, False) for hook in everywhere.forward_pre_hooks.values()]
        hooks += [(hook, hook_id in self._forward_pre_hooks_with_kwargs) for hook_id, hook in own]
        for hook, with_kwargs in hooks:
            changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if changed is None:
                continue
            if not with_kwargs:
                args = changed if isinstance(changed, tuple) else (changed,)
            elif isinstance(changed, tuple) and len(changed) == 2:
                args, kwargs = changed
            else:
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                )
        return args, kwargs

    def _after_forward_hooks(self) -> list[tuple[str, int, Callable[..., Any], bool, bool]]:
        """(whose, id, hook, with kwargs, always called) of what runs after `forward` as things stand."""
        tables = (
            (
                "global module",
                everywhere.forward_hooks,
                everywhere.forward_hooks_with_kwargs,
                everywhere.forward_hooks_always_called,
            ),
            ("module", self._forward_hooks, self._forward_hooks_with_kwargs, self._forward_hooks_always_called),
        )
        return [
            (whose, hook_id, hook, hook_id in with_kwargs, hook_id in always)
            for whose, hooks, with_kwargs, always in tables
            for hook_id, hook in hooks.items()
        ]

    def _backward_boundary(self) -> Boundary | None:
        """What runs the full backward hooks of one call, if there are any."""
        hooks = [*everywhere.backward_hooks.values()]
        if self._is_full_backward_hook:
            hooks += self._backward_hooks.values()
        pre_hooks = [*everywhere.backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        return Boundary(self, hooks, pre_hooks) if hooks or pre_hooks else None

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result: Any = None
        ran: set[tuple[str, int]] = set()

        def run(whose: str, hook_id: int, hook: Callable[..., Any], with_kwargs: bool) -> None:
            nonlocal result
            ran.add((whose, hook_id))
            replaced = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if replaced is not None:
                result = replaced

        try:
            args, kwargs = self._before_forward(args, kwargs)
            boundary = self._backward_boundary()
            if boundary is not None:
                args = boundary.enter(args)
            result = self.forward(*args, **kwargs)
            for whose, hook_id, hook, with_kwargs, _ in self._after_forward_hooks():
                run(whose, hook_id, hook, with_kwargs)
            if boundary is not None:
                result = boundary.leave(result)
            legacy = list(everywhere.legacy_backward_hooks.values())
            if self._is_full_backward_hook is False:
                legacy += self._backward_hooks.values()
            if legacy:
                attach_legacy(self, legacy, args, result)
        except Exception:
            for whose, hook_id, hook, with_kwargs, always in self._after_forward_hooks():
                if always and (whose, hook_id) not in ran:
                    try:
                        run(whose, hook_id, hook, with_kwargs)
                    except Exception as error:  # the first error is the one to report
                        warnings.warn(
                            f"{whose} forward hook with ``always_call=True`` raised an exception "
                            f"that was silenced as another error was raised in forward: {error}",
                            stacklevel=3,
                        )
            raise
        return result
