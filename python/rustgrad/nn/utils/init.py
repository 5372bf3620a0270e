"""`skip_init`: making a module whose parameters are about to be overwritten."""

from __future__ import annotations

import inspect
from typing import TypeVar

from rustgrad.nn.modules.module import Module
from rustgrad.random import get_rng_state, set_rng_state

__all__ = ["skip_init"]

_M = TypeVar("_M", bound=Module)


def skip_init(module_cls: type[_M], *args: object, **kwargs: object) -> _M:
    """`module_cls(*args, **kwargs)` with parameters of any value, and without touching the random numbers.

    Nothing is promised about the values. (At present they are the usual ones: there is no device on which they would
    not have to be computed.)

    Raises:
        RuntimeError: `module_cls` is no class of modules, or takes no argument `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    state = get_rng_state()
    try:
        return module_cls(*args, **kwargs)
    finally:
        set_rng_state(state)
