"""`rustgrad.utils`: hook handles here; checkpointing, data loading and TensorBoard are loaded when first asked for."""

from __future__ import annotations

import importlib
from typing import Any

from rustgrad.utils import hooks

__all__ = ["checkpoint", "data", "hooks", "tensorboard"]


def __getattr__(name: str) -> Any:
    if name in {"checkpoint", "data", "tensorboard"}:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
