"""How tensors go into pickles and come out: the functions that `pickle` calls, and the checks on sizes from a file.

`serialization.py` reads and writes PyTorch's files with these; plain `pickle` of a tensor uses `reduce_tensor` and
`rebuild_tensor`. The bytes themselves are the core's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rustgrad import _core
from rustgrad._core import Tensor, dtype

__all__ = ["check_layout", "dtype_name", "rebuild_tensor", "reduce_tensor"]

_MAX_ELEMENTS = 2**62


def dtype_name(kind: dtype) -> str:
    """The dtype's name without the module: "float32"."""
    return str(kind).rpartition(".")[2]


def check_layout(sizes: Any, strides: Any, offset: Any, elements: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and offset that came from a file, if they describe a tensor inside a storage of `elements`.

    Raises:
        ValueError: they are no integers, negative, too large, or reach beyond the storage.
    """
    if not isinstance(sizes, (tuple, list)) or not isinstance(strides, (tuple, list)) or len(sizes) != len(strides):
        raise ValueError("a tensor needs as many strides as sizes")
    for number in (*sizes, *strides, offset):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MAX_ELEMENTS:
            # Nothing from the file goes into the message: printing a nest of tuples could take for ever.
            raise ValueError("sizes, strides and offset of a tensor must be integers, not negative and not huge")
    total = 1
    for size in sizes:
        total *= size
    if total >= _MAX_ELEMENTS:
        raise ValueError("the tensor has too many elements")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if offset > elements or (total and last >= elements):
        raise ValueError(f"the tensor reaches beyond its storage of {elements} elements")
    return tuple(sizes), tuple(strides), offset


def rebuild_tensor(
    data: bytes, name: str, sizes: Sequence[int], strides: Sequence[int], requires_grad: bool, attributes: Any = None
) -> Tensor:
    """What unpickling a tensor calls.

    Raises:
        ValueError: the layout does not fit the data, or the dtype is unknown.
    """
    kind = getattr(_core, name, None)
    if not isinstance(kind, dtype):
        raise ValueError(f"{name!r} is no dtype")
    shape, steps, offset = check_layout(sizes, strides, 0, len(data) // kind.itemsize)
    tensor = _core._tensor_from_bytes(data, kind, shape, steps, offset)
    if requires_grad:
        tensor.requires_grad_(True)
    if attributes:
        tensor.__dict__.update(attributes)
    return tensor


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """The answer of `Tensor.__reduce_ex__`: a function and its arguments. History, `.grad` and hooks are left out."""
    plain = tensor.detach()
    data = plain._storage_bytes()
    if plain.storage_offset() != 0 or len(data) != plain.numel() * plain.element_size():
        plain = plain.clone().contiguous()  # only what is looked at, not the whole storage
        data = plain._storage_bytes()
    attributes = dict(tensor.__dict__) or None
    name = dtype_name(tensor.dtype)
    return rebuild_tensor, (data, name, tuple(plain.shape), tuple(plain.stride()), tensor.requires_grad, attributes)
