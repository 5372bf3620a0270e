"""The switches that say whether operations record a graph: `no_grad` and its kin.

The modes themselves are thread-local flags of the core; this file only saves, sets and restores them, as context
managers and as decorators. Nothing here looks at a tensor.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from rustgrad import _core

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

_F = TypeVar("_F", bound=Callable[..., Any])


_CO_GENERATOR = (
    0x20  # the flag of a generator's code, as in `inspect`, which would be most of this package's import time
)


def _makes_generator(func: Callable[..., Any]) -> bool:
    while isinstance(func, functools.partial):
        func = func.func
    return bool(getattr(getattr(func, "__code__", None), "co_flags", 0) & _CO_GENERATOR)


class _ModeGuard:
    """A context manager that can also decorate a function: each call, and each step of a generator, runs inside.

    One instance may be entered again while it is active: what to restore is kept on a stack.
    """

    def __init__(self) -> None:
        self._restore: list[Any] = []

    def _clone(self) -> Self:
        """A fresh guard with the same settings: every call of a decorated function gets its own."""
        return type(self)()

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def __call__(self, func: _F) -> _F:
        """Decorate `func`. A generator function is entered at each `next`, `send` and `throw`, left at each yield.

        A coroutine function gets no special treatment: the mode covers the making of the coroutine, not its running.
        A class becomes a function that makes its instances inside; better decorate its `__init__`.
        """
        if isinstance(func, type):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly decorate "
                "the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
        if _makes_generator(func):
            return cast(_F, self._wrap_generator(func))

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._clone():
                return func(*args, **kwargs)

        return cast(_F, call)

    def _wrap_generator(self, func: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Generator[Any, Any, Any]]:
        @functools.wraps(func)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            inner = func(*args, **kwargs)
            try:
                with self._clone():
                    item = next(inner)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        # Python closes us: let the generator clean up inside the mode too.
                        with self._clone():
                            inner.close()
                        raise
                    except BaseException as error:
                        with self._clone():
                            item = inner.throw(error)
                    else:
                        with self._clone():
                            item = inner.send(sent)
            except StopIteration as stop:
                return stop.value

        return steps


class _GradMode(_ModeGuard):
    """Sets the grad mode on entry and puts back on exit what was there."""

    _enabled: bool

    def __enter__(self) -> None:
        self._restore.append(_core.is_grad_enabled())
        _core._set_grad_enabled(self._enabled)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core._set_grad_enabled(self._restore.pop())


class no_grad(_GradMode):
    """Operations inside record no graph; their results do not require grad.

    A context manager and a decorator, with or without parentheses. Thread-local. Factory functions still honour
    `requires_grad=True`.

    Example:
        >>> import rustgrad as torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> with torch.no_grad():
        ...     (x * 2).requires_grad
        False
    """

    _enabled = False

    @overload
    def __new__(cls, func: None = None) -> Self: ...
    @overload
    def __new__(cls, func: _F) -> _F: ...  # type: ignore[misc]  # a decorator without parentheses
    def __new__(cls, func: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if func is None else cls()(func)


class enable_grad(_GradMode):
    """Operations inside record a graph again, also within `no_grad`; a context manager and a decorator, per thread."""

    _enabled = True

    @overload
    def __new__(cls, func: None = None) -> Self: ...
    @overload
    def __new__(cls, func: _F) -> _F: ...  # type: ignore[misc]  # a decorator without parentheses
    def __new__(cls, func: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if func is None else cls()(func)


class set_grad_enabled(_GradMode):
    """Turns recording on or off: at once when called as a function, until the end of the block in a `with` statement.

    Args:
        mode: whether operations record a graph.

    As a decorator it restores the mode first, so that only calls of the decorated function are affected.

    Raises:
        TypeError: `mode` is no bool.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        if not isinstance(mode, bool):
            raise TypeError(
                f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}"
            )
        self.mode = self._enabled = mode
        self._before: bool | None = _core.is_grad_enabled()
        _core._set_grad_enabled(self._enabled)

    def _clone(self) -> Self:
        return type(self)(self._enabled)

    def __call__(self, func: _F) -> _F:
        if self._before is not None:
            _core._set_grad_enabled(self._before)
        return super().__call__(func)

    def __enter__(self) -> None:
        if self._before is None:
            super().__enter__()
        else:  # set at construction: leaving the block restores what was there before it
            self._restore.append(self._before)
            self._before = None
            _core._set_grad_enabled(self._enabled)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self._enabled})"


class inference_mode(_ModeGuard):
    """Like `no_grad`, and the tensors made inside stay out of autograd for good: no version, no recording.

    Args:
        mode: `False` leaves inference mode (and turns recording on) for the block.

    A context manager and a decorator, with or without parentheses. Thread-local.
    """

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: _F) -> _F: ...  # type: ignore[misc]  # a decorator without parentheses
    def __new__(cls, mode: Any = True) -> Any:
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = bool(mode)

    def _clone(self) -> Self:
        return type(self)(self.mode)

    def __enter__(self) -> None:
        self._restore.append((_core.is_inference_mode_enabled(), _core.is_grad_enabled()))
        _core._set_inference_mode(self.mode)
        _core._set_grad_enabled(not self.mode)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        inference, grad = self._restore.pop()
        _core._set_inference_mode(inference)
        _core._set_grad_enabled(grad)


class _Switch(_ModeGuard):
    """A flag that is set when the guard is made, and put back on leaving the block of a `with` statement."""

    _set: Callable[[bool], bool]

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = mode
        self._restore.append(type(self)._set(mode))

    def _clone(self) -> Self:
        return type(self)(self.mode)

    def clone(self) -> Self:
        """Another guard with the same setting, which is made at once."""
        return self._clone()

    def __enter__(self) -> None:
        """Nothing more: the flag was set when the guard was made."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        type(self)._set(self._restore[-1])


class set_multithreading_enabled(_Switch):
    """Whether backwards started on this thread may run on several threads: at once, or for the block of a `with`.

    Gradients have the same bits either way, and hooks run on the thread that started the backward, in the same order.
    Kernels of operations are not concerned; for those see `set_num_threads`. Thread-local, on at first.

    Args:
        mode: whether other threads may be used.
    """

    _set = staticmethod(_core._set_multithreading_enabled)


class enforce_grad_layout_policy(_Switch):
    """Whether a new `.grad` is given its leaf's layout on this thread: at once, or for the block of a `with`.

    If not, a gradient that nobody else holds becomes `.grad` with the strides that it has. Thread-local, on at first.

    Args:
        enable: whether the layout is that of the leaf.
    """

    _set = staticmethod(_core._set_grad_layout_policy)

    def __init__(self, enable: bool = True) -> None:
        super().__init__(enable)
