"""Named tuples that operations return: `torch.return_types.max(values=..., indices=...)`."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any


@cache
def _class(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    named: Any = namedtuple  # the names are known at run time only, which a type checker does not follow
    base = named(name, fields)

    def __repr__(self: tuple[Any, ...]) -> str:
        rows = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{rows})"

    return type(name, (base,), {"__repr__": __repr__, "__slots__": (), "__module__": "rustgrad.return_types"})


def make(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of operation `name` under the names of its fields."""
    return _class(name, fields)(*values)
