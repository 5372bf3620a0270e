"""Putting samples together: how a list of samples becomes one batch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rustgrad import _core
from rustgrad._core import Tensor

__all__ = ["default_collate", "default_convert"]


def _numpy() -> Any:
    return sys.modules.get("numpy")  # there is no array where nobody has imported it


def _is_array(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc"


def _is_array_scalar(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc"


def _like(kind: type, items: Any) -> Any:
    """A container of the class `kind`, or a plain one where that cannot be made from its items."""
    try:
        return kind(items)
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """The sample with arrays made tensors, also inside containers; everything else as it is."""
    if isinstance(data, Tensor):
        return data
    if _is_array(data) or _is_array_scalar(data):
        return _core.as_tensor(data)
    if isinstance(data, Mapping):
        return _like(type(data), {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        items = [default_convert(value) for value in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(type(data), [default_convert(value) for value in data])
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch of a list of samples.

    Tensors and arrays of one shape are stacked along a new first dimension; ints become an int64 tensor, floats a
    float64 one; strings stay a list; mappings, tuples and sequences are put together element by element.

    Raises:
        RuntimeError: sequences, or tensors, have different sizes.
        TypeError: samples of a kind that cannot be put together.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _core.stack(list(batch), 0)
    if _is_array(first):
        return _core.stack([_core.as_tensor(value) for value in batch], 0)
    if _is_array_scalar(first):
        return _core.as_tensor(_numpy().stack(batch))
    if isinstance(first, float):
        return _core.tensor(list(batch), dtype=_core.float64)
    if isinstance(first, int):
        return _core.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return _like(type(first), {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*columns)
        return columns if isinstance(first, tuple) else _like(type(first), columns)
    raise TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}"
    )
