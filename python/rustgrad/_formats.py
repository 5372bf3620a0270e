"""Limits of dtypes, memory formats, and the small questions that are functions in PyTorch."""

from __future__ import annotations

import builtins

from rustgrad import _core

__all__ = [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "finfo",
    "iinfo",
    "is_complex",
    "is_floating_point",
    "is_inference",
    "is_nonzero",
    "is_signed",
    "memory_format",
    "numel",
    "preserve_format",
    "set_num_threads",
    "strided",
]


class finfo:  # PyTorch's name
    """Limits of a floating point dtype.

    Args:
        type: the dtype. Default: the default dtype.

    Raises:
        TypeError: the dtype is not a floating point one.
    """

    def __init__(self, type: _core.dtype | None = None) -> None:
        self._dtype = _core.get_default_dtype() if type is None else type
        self.bits, self.eps, self.max, self.tiny, self.smallest_subnormal, self.resolution = _core._float_limits(
            self._dtype
        )
        self.min = -self.max
        self.smallest_normal = self.tiny

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return str(self._dtype).removeprefix("torch.")

    def __repr__(self) -> str:
        fields = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        shown = ", ".join(f"{name}={getattr(self, name):g}" for name in fields)
        return f"finfo({shown}, dtype={self.dtype})"


class iinfo:  # PyTorch's name
    """Limits of an integer dtype.

    Raises:
        TypeError: the dtype is not an integer one.
    """

    def __init__(self, type: _core.dtype) -> None:
        if type.is_floating_point or str(type) == "torch.bool":
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        self._dtype = type
        self.bits = 8 * type.itemsize
        self.min = -(1 << (self.bits - 1)) if type.is_signed else 0
        self.max = (1 << (self.bits - type.is_signed)) - 1

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return str(self._dtype).removeprefix("torch.")

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


class memory_format(str):  # PyTorch's name
    """How dimensions lie in memory: an argument of `to`, `clone`, `contiguous`, `is_contiguous`."""

    def __repr__(self) -> str:
        return f"torch.{self!s}"


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = "torch.strided"


def numel(input: _core.Tensor) -> builtins.int:
    """The number of elements."""
    return input.numel()


def is_floating_point(input: _core.Tensor) -> builtins.bool:
    """Whether the dtype is a floating point one."""
    return input.is_floating_point()


def is_complex(input: _core.Tensor) -> builtins.bool:
    """Whether the dtype is a complex one. There are none yet."""
    return input.is_complex()


def is_signed(input: _core.Tensor) -> builtins.bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


def is_inference(input: _core.Tensor) -> builtins.bool:
    """Whether the tensor was made under `inference_mode`."""
    if not isinstance(input, _core.Tensor):
        raise TypeError(f"is_inference(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input.is_inference()


def is_nonzero(input: _core.Tensor) -> builtins.bool:
    """Whether the one element is not zero.

    Raises:
        RuntimeError: the tensor has another number of elements.
    """
    if input.numel() != 1:
        amount = "no values" if input.numel() == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {amount} is ambiguous")
    return builtins.bool(input)


def set_num_threads(threads: builtins.int) -> None:
    """Sets how many threads may work at once, the calling one included; for the whole program, from now on.

    To begin with there are as many as cores, or as the environment variable `RUSTGRAD_NUM_THREADS` says.
    Results have the same bits whatever the number.

    Raises:
        TypeError: the number is no integer.
        RuntimeError: it is not between 1 and 512.
    """
    if isinstance(threads, bool) or not isinstance(threads, builtins.int):
        raise TypeError(f"set_num_threads expects an int, but got {type(threads).__name__}")
    if threads <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {threads}")
    _core._set_num_threads(threads)
