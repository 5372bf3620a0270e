"""The safetensors format: named tensors in one file, without anything that could be executed.

A file is the length of a header (8 bytes, little endian), the header (JSON: name to dtype, shape and data offsets), and
the bytes of all tensors one after the other. This reader checks all of it before it touches the data.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rustgrad import _core
from rustgrad._rebuild import dtype_name

if TYPE_CHECKING:
    from rustgrad._core import Tensor, device, dtype

__all__ = ["load", "load_file", "save", "save_file"]

_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}
_CODES = {name: code for code, name in _NAMES.items()}
_METADATA = "__metadata__"
_MAX_HEADER = 100_000_000  # as the reference implementation has it
_ALIGNMENT = 8


class _Entry(NamedTuple):
    kind: dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file.

    Args:
        tensors: names to tensors; views and strided tensors are written as contiguous ones.
        metadata: strings to keep in the header.

    Raises:
        ValueError: two tensors share memory (the format would separate them), a name is reserved, or a dtype is not
            part of the format.
        TypeError: a value is no tensor, or metadata are no strings.
    """
    if sys.byteorder != "little":
        raise ValueError("safetensors files are little endian; this machine is not")
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()):
            raise TypeError("safetensors metadata must be strings")
        header[_METADATA] = dict(metadata)
    _refuse_shared(tensors)
    # Widest elements first, so that every tensor is aligned; then by name, so that equal input gives equal files.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    parts: list[bytes] = []
    place = 0
    for name, tensor in ordered:
        code = _CODES.get(dtype_name(tensor.dtype))
        if name == _METADATA or code is None:
            raise ValueError(f"{name!r}: the safetensors format has no {tensor.dtype} tensor of this name")
        data = _contiguous_bytes(tensor)
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _refuse_shared(tensors: Mapping[str, Tensor]) -> None:
    seen: dict[int, str] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, _core.Tensor):
            raise TypeError(f"{name!r}: expected a tensor, got {type(tensor).__name__}")
        if tensor.numel() == 0:
            continue
        identity = tensor._storage_id()
        if identity in seen:
            raise ValueError(
                f"{seen[identity]!r} and {name!r} share memory, which the format cannot express: "
                "save one of them, or a clone"
            )
        seen[identity] = name


def _contiguous_bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu()
    size = plain.numel() * plain.element_size()
    if not (plain.is_contiguous() and plain.storage_offset() == 0 and len(plain._storage_bytes()) == size):
        plain = plain.contiguous().clone()
    return plain._storage_bytes()[:size]


def save_file(
    tensors: Mapping[str, Tensor], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a file; as `save`.

    Raises:
        ValueError, TypeError: as `save`.
    """
    data = save(tensors, metadata)
    with open(filename, "wb") as file:
        file.write(data)


def load(data: bytes, device: device | str | None = None) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file.

    Args:
        data: the whole file.
        device: where to put the tensors. Default: the CPU.

    Raises:
        ValueError: the data are no safetensors file, damaged, or of a dtype that is not known here.
    """
    entries, begin = _read_header(data)
    tensors = {}
    for name, entry in entries.items():
        part = bytes(data[begin + entry.start : begin + entry.stop])
        tensor = _core._tensor_from_bytes(part, entry.kind, entry.shape, _row_major(entry.shape), 0)
        tensors[name] = tensor if device is None else tensor.to(device)
    return tensors


def load_file(filename: str | os.PathLike[str], device: device | str | None = None) -> dict[str, Tensor]:
    """The tensors in a file; as `load`.

    Raises:
        ValueError: as `load`.
    """
    with open(filename, "rb") as file:
        return load(file.read(), device)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("safetensors: a name comes twice in the header")
    return made


def _read_header(data: bytes) -> tuple[dict[str, _Entry], int]:
    """The entries of the header, all checked, and where the data begin."""
    if sys.byteorder != "little":
        raise ValueError("safetensors files are little endian; this machine is not")
    if len(data) < 8:
        raise ValueError("safetensors: the file has no header")
    length = int.from_bytes(data[:8], "little")
    if length > _MAX_HEADER or 8 + length > len(data):
        raise ValueError("safetensors: the header is longer than the file, or than is allowed")
    text = bytes(data[8 : 8 + length])
    if not text.startswith(b"{"):
        raise ValueError("safetensors: the header is no JSON object")
    try:
        header = json.loads(text, object_pairs_hook=_no_duplicates)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"safetensors: the header is no JSON object ({error})") from error
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("safetensors: the metadata must be strings")
    entries = {name: _check_entry(name, entry) for name, entry in header.items()}
    # The tensors must fill the rest of the file, without gaps and without overlap.
    place = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != place:
            raise ValueError("safetensors: the tensors' data overlap, or leave gaps")
        place = entry.stop
    if 8 + length + place != len(data):
        raise ValueError("safetensors: the data are not as long as the header says")
    return entries, 8 + length


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _check_entry(name: str, entry: Any) -> _Entry:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"safetensors: {name!r} needs dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    kind = getattr(_core, _NAMES.get(code, ""), None) if isinstance(code, str) else None
    if not isinstance(kind, _core.dtype):
        raise ValueError(f"safetensors: {name!r} has a dtype that is not known here")
    if not (isinstance(shape, list) and all(map(_is_size, shape))):
        raise ValueError(f"safetensors: {name!r} has no valid shape")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(map(_is_size, offsets))):
        raise ValueError(f"safetensors: {name!r} has no valid data_offsets")
    size = kind.itemsize
    for length in shape:
        size *= length
    start, stop = offsets
    if stop - start != size:
        raise ValueError(f"safetensors: {name!r} has {stop - start} bytes of data, its shape needs {size}")
    return _Entry(kind, tuple(shape), start, stop)
