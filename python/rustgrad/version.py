"""What `rustgrad.__version__` is made of."""

from __future__ import annotations

from rustgrad import _core

__all__ = ["__version__", "cuda", "rustgrad", "torch"]

rustgrad: str = _core.__version__
"""The version of this package."""

torch: str = "2.13.0"
"""The version of PyTorch whose behaviour is followed."""

cuda: str | None = None
"""There is no CUDA."""

# PyTorch's version first, so that scripts which compare it take the branch they should.
__version__: str = f"{torch}+rustgrad.{rustgrad}"
