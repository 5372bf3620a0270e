"""`rustgrad.random`: the state of the default random generator. The generator itself is the core's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rustgrad import _core
from rustgrad._core import Generator, Tensor

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def manual_seed(seed: int) -> Generator:
    """Start the default generator anew from `seed` (taken modulo 2**64) and return it."""
    return _core.manual_seed(int(seed))


def seed() -> int:
    """Start the default generator anew from a seed of the operating system's, and return that seed."""
    return _core.seed()


def initial_seed() -> int:
    """The seed from which the default generator was started."""
    return _core.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator as a uint8 tensor."""
    return _core.get_rng_state()


def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state that `get_rng_state` returned."""
    _core.set_rng_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Sequence[Any] | None = None,
    enabled: bool = True,
    device_type: str = "cpu",
) -> Iterator[None]:
    """Put the state of the default generator back at the end of the block.

    Args:
        devices: accepted; there is one generator for all devices.
        enabled: with `False` the block is an ordinary block.
        device_type: accepted.
    """
    if not enabled:
        yield
        return
    state = _core.get_rng_state()
    try:
        yield
    finally:
        _core.set_rng_state(state)
