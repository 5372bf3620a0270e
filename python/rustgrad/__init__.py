"""rustgrad: PyTorch's autograd as a small, fast library. `import rustgrad as torch` runs ordinary autograd code.

This file only gathers names. Tensors, operators and the engine come from the extension `rustgrad._core`; submodules
that not every script needs are loaded when they are first asked for, which keeps the import short.
"""

from __future__ import annotations

import importlib
import math as _math
import sys as _sys
from typing import TYPE_CHECKING, Any

from rustgrad import _core
from rustgrad import autograd as autograd
from rustgrad import random as random
from rustgrad._core import *
from rustgrad._formats import channels_last as channels_last
from rustgrad._formats import channels_last_3d as channels_last_3d
from rustgrad._formats import contiguous_format as contiguous_format
from rustgrad._formats import finfo as finfo
from rustgrad._formats import iinfo as iinfo
from rustgrad._formats import is_complex as is_complex
from rustgrad._formats import is_floating_point as is_floating_point
from rustgrad._formats import is_inference as is_inference
from rustgrad._formats import is_nonzero as is_nonzero
from rustgrad._formats import is_signed as is_signed
from rustgrad._formats import memory_format as memory_format
from rustgrad._formats import numel as numel
from rustgrad._formats import preserve_format as preserve_format
from rustgrad._formats import set_num_threads as set_num_threads
from rustgrad._formats import strided as strided
from rustgrad._size import Size as Size
from rustgrad.autograd.grad_mode import enable_grad as enable_grad
from rustgrad.autograd.grad_mode import inference_mode as inference_mode
from rustgrad.autograd.grad_mode import no_grad as no_grad
from rustgrad.autograd.grad_mode import set_grad_enabled as set_grad_enabled
from rustgrad.autograd.nonfinite import trace_nonfinite as trace_nonfinite
from rustgrad.random import get_rng_state as get_rng_state
from rustgrad.random import initial_seed as initial_seed
from rustgrad.random import manual_seed as manual_seed
from rustgrad.random import seed as seed
from rustgrad.random import set_rng_state as set_rng_state
from rustgrad.version import __version__ as __version__

if TYPE_CHECKING:
    from rustgrad import cuda as cuda
    from rustgrad import graph as graph
    from rustgrad import nn as nn
    from rustgrad import optim as optim
    from rustgrad import safetensors as safetensors
    from rustgrad import serialization as serialization
    from rustgrad import testing as testing
    from rustgrad import utils as utils
    from rustgrad import version as version
    from rustgrad.graph import explain_grad as explain_grad
    from rustgrad.serialization import load as load
    from rustgrad.serialization import save as save

# The submodule of an extension module is an attribute; `from rustgrad._core._nn import x` needs it here too.
for _name in ("_nn", "_linalg", "_special"):
    _sys.modules.setdefault(f"rustgrad._core.{_name}", getattr(_core, _name))
_core._set_size_type(Size)

e = _math.e
inf = _math.inf
nan = _math.nan
pi = _math.pi
newaxis = None

_SUBMODULES = frozenset(
    {
        "cuda",
        "graph",
        "linalg",
        "nn",
        "optim",
        "safetensors",
        "serialization",
        "special",
        "testing",
        "utils",
        "version",
    }
)
_ELSEWHERE = {"explain_grad": "rustgrad.graph", "load": "rustgrad.serialization", "save": "rustgrad.serialization"}


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, _core.Tensor)


def __getattr__(name: str) -> Any:
    """A submodule or function that is loaded when it is first used."""
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f"rustgrad.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"rustgrad.{name}":  # it is there, and something that it needs is not
                raise
    elif name in _ELSEWHERE:
        found = globals()[name] = getattr(importlib.import_module(_ELSEWHERE[name]), name)
        return found
    raise AttributeError(f"module 'rustgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_ELSEWHERE})


# PyTorch's short names of dtypes. Last, because they hide builtins from here on.
double = _core.float64
half = _core.float16
long = _core.int64
short = _core.int16
float = _core.float32
int = _core.int32
