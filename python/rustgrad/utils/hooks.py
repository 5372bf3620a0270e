"""`RemovableHandle`: what registering a hook returns. The hooks themselves live with whoever calls them."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, Self

__all__ = ["RemovableHandle"]


class RemovableHandle:
    """Takes a hook out of the dictionary it was put into.

    Args:
        hooks_dict: the dictionary (weakly referencable) that holds the hook under `handle.id`.
        extra_dict: further dictionaries keyed by the same id, such as a hook's options.

    A context manager: leaving the block removes the hook. Removing twice, or too late, does nothing.
    """

    next_id: int = 0

    id: int

    def __init__(
        self,
        hooks_dict: MutableMapping[int, Any],
        *,
        extra_dict: MutableMapping[int, Any] | list[MutableMapping[int, Any]] | None = None,
    ) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.reserve(self.id)
        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self._tables = tuple(weakref.ref(table) for table in (hooks_dict, *extra))

    @staticmethod
    def reserve(hook_id: int) -> None:
        """Give the next handle a greater id: `hook_id` came out of a file, and its hook must not be overwritten."""
        RemovableHandle.next_id = max(RemovableHandle.next_id, hook_id + 1)

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        for table in self._tables:
            hooks = table()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __getstate__(self) -> int:
        return self.id

    def __setstate__(self, state: int) -> None:
        self.id = state
        self.reserve(state)
        self._tables = ()
