"""`rustgrad.cuda`: there is no CUDA. What scripts ask before they use it is answered here."""

from __future__ import annotations

from typing import Any

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "synchronize",
]


def is_available() -> bool:
    """Always `False`."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def current_device() -> int:
    """Raises: AssertionError, as PyTorch built without CUDA does."""
    raise AssertionError("Torch not compiled with CUDA enabled")


def synchronize(device: Any = None) -> None:
    """Raises: AssertionError, as PyTorch built without CUDA does."""
    raise AssertionError("Torch not compiled with CUDA enabled")


def empty_cache() -> None:
    """Does nothing."""


def manual_seed(seed: int) -> None:
    """Does nothing; PyTorch ignores it without CUDA too."""


def manual_seed_all(seed: int) -> None:
    """Does nothing; PyTorch ignores it without CUDA too."""
