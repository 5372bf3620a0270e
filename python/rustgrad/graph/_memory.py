"""What is kept for backward: how many bytes, by which nodes and modules, and what a checkpoint would give back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple

from rustgrad import _core
from rustgrad.graph._modules import ModuleCall, ModuleRecord
from rustgrad.graph._style import size_text
from rustgrad.graph._walk import Line, Named, Saved, functions, line_of, named, roots_of, saved_by

__all__ = ["ModuleMemory", "NodeMemory", "SavedMemory", "saved_memory"]

Role = Literal["parameter", "constant", "activation"]


class Storage(NamedTuple):
    """A piece of memory that the graph keeps."""

    bytes: int
    role: Role


@dataclass(slots=True)
class NodeMemory:
    """What one node keeps."""

    name: str
    sequence: int
    saved: list[Saved]
    line: Line | None
    call: ModuleCall | None
    bytes: int = 0
    """Of the memory it keeps that is no parameter's, each piece once. Others may keep the same."""
    own: int = 0
    """Of those, bytes that no other node keeps."""

    @property
    def storages(self) -> set[int]:
        """The numbers of the memories it keeps."""
        return {entry.storage for entry in self.saved if entry.storage is not None}


class ModuleMemory(NamedTuple):
    """What the nodes made in one module keep, those in its children included."""

    path: str
    kind: str
    calls: int
    nodes: int
    bytes: int
    """Of memory that is no parameter's, each piece once."""
    checkpoint: int
    """What would be freed if every call of the module were checkpointed."""


class SavedMemory:
    """A report of the memory that a graph keeps for backward. `print` it, or let a notebook show it.

    Memory is counted in whole storages, each once, however many nodes keep it and whatever part of it they look at.
    `activations` is what was computed on the way, `constants` what has no history (data, targets, masks), and
    `parameters` what lies in the memory of leaves that require grad, or of tensors named by `params`: it is there with
    or without the graph. `packed` is the number of values that `saved_tensors_hooks` keep in a form that says nothing of
    its size, as checkpoints do.
    """

    def __init__(self, nodes: list[NodeMemory], storages: dict[int, Storage], modules: ModuleRecord | None) -> None:
        self.nodes = nodes
        """Those that keep something, in the order of the walk: nearest to the result first."""
        self.storages = storages
        self.packed = sum(entry.storage is None for node in nodes for entry in node.saved)
        self.parameters = self._total(storages, "parameter")
        self.constants = self._total(storages, "constant")
        self.activations = self._total(storages, "activation")
        self._record = modules
        self._kept_by: dict[int, int] = {}
        for node in nodes:
            for storage in node.storages:
                self._kept_by[storage] = self._kept_by.get(storage, 0) + 1
        for node in nodes:
            kept = {s for s in node.storages if storages[s].role != "parameter"}
            node.bytes = self._size(kept)
            node.own = self._size(s for s in kept if self._kept_by[s] == 1)
        self.modules: list[ModuleMemory] = [] if modules is None else [self._module(path) for path in modules.paths]
        """What was called, in the order of the first calls; empty without a record."""

    @property
    def total(self) -> int:
        """Bytes kept that are no parameter's."""
        return self.constants + self.activations

    def heaviest(self, count: int = 10) -> list[NodeMemory]:
        """The nodes that keep most, most first."""
        return sorted(self.nodes, key=lambda node: -node.bytes)[:count]

    def checkpoint(self, path: str) -> int:
        """Bytes that would be freed if each call of a module went through `utils.checkpoint.checkpoint`.

        What only nodes made in it keep would be computed again; its inputs would be kept instead, where nothing else
        does. What the program itself still holds (a result in a variable) is not seen, and stays.

        Raises:
            ValueError: the report was made without a record of modules, or none with this path was called.
        """
        if self._record is None:
            raise ValueError("the report knows no modules: give saved_memory the record of record_modules")
        if path not in self._record.paths:
            raise ValueError(f"no module {path!r} was called; there are {self._record.paths}")
        return self._freed(path)

    # ---- sums ------------------------------------------------------------------------------------------------------

    def _size(self, storages: Iterable[int]) -> int:
        return sum(self.storages[storage].bytes for storage in storages)

    @staticmethod
    def _total(storages: dict[int, Storage], role: Role) -> int:
        return sum(storage.bytes for storage in storages.values() if storage.role == role)

    def _within(self, path: str) -> Iterator[NodeMemory]:
        return (node for node in self.nodes if node.call is not None and node.call.is_within(path))

    def _module(self, path: str) -> ModuleMemory:
        assert self._record is not None
        calls = [call for call in self._record.calls if call.path == path]
        nodes = list(self._within(path))
        kept = {s for node in nodes for s in node.storages if self.storages[s].role != "parameter"}
        return ModuleMemory(path, calls[0].kind, len(calls), len(nodes), self._size(kept), self._freed(path))

    def _freed(self, path: str) -> int:
        assert self._record is not None
        inside: dict[int, int] = {}
        for node in self._within(path):
            for storage in node.storages:
                inside[storage] = inside.get(storage, 0) + 1
        # A call inside another call of the same module is part of that one's checkpoint.
        outermost = [
            call
            for call in self._record.calls
            if call.path == path and not (call.parent is not None and call.parent.is_within(path))
        ]
        inputs = {memory.id: memory for call in outermost for memory in call.inputs}
        gone = {
            storage
            for storage, count in inside.items()
            if count == self._kept_by[storage] and self.storages[storage].role != "parameter" and storage not in inputs
        }
        held_anew = sum(memory.bytes for memory in inputs.values() if not memory.alive)
        return self._size(gone) - held_anew

    # ---- showing ---------------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """The report as objects that JSON can write."""
        return {
            "total": self.total,
            "activations": self.activations,
            "constants": self.constants,
            "parameters": self.parameters,
            "packed": self.packed,
            "modules": [module._asdict() for module in self.modules],
            "nodes": [
                {
                    "name": node.name,
                    "sequence": node.sequence,
                    "module": None if node.call is None else node.call.path,
                    "line": None if node.line is None else node.line._asdict(),
                    "bytes": node.bytes,
                    "own": node.own,
                    "saved": [
                        {"name": e.name, "shape": list(e.shape), "dtype": e.dtype, "origin": e.origin, "bytes": e.bytes}
                        for e in node.saved
                    ],
                }
                for node in self.nodes
            ],
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_data(), indent=1)

    def _summary(self) -> str:
        parts = [f"{size_text(self.activations)} of activations"]
        if self.constants:
            parts.append(f"{size_text(self.constants)} of constants")
        text = f"{size_text(self.total)} kept for backward: {' and '.join(parts)}"
        if self.parameters:
            text += f"; {size_text(self.parameters)} in parameters, which are there anyway"
        if self.packed:
            text += f"; {self.packed} values put away by hooks, of unknown size"
        return text

    def _tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """(title, heads of columns, rows): sizes last, as text."""
        tables: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = []
        if self.modules:
            rows: list[tuple[str, ...]] = [
                (m.path or "(the model)", m.kind, str(m.calls), size_text(m.bytes), _signed(m.checkpoint))
                for m in self.modules
            ]
            tables.append(("Modules", ("module", "class", "calls", "keeps", "checkpoint frees"), rows))
        heaviest = [node for node in self.heaviest() if node.bytes]
        nodes: list[tuple[str, ...]] = [
            (node.name, _place(node), ", ".join(_value(entry) for entry in node.saved), _two_sizes(node))
            for node in heaviest
        ]
        if nodes:
            tables.append(("Heaviest nodes", ("node", "where", "values", "keeps"), nodes))
        return tables

    def __str__(self) -> str:
        lines = [self._summary()]
        for title, heads, rows in self._tables():
            widths = [max(len(row[k]) for row in (heads, *rows)) for k in range(len(heads))]
            lines += ["", title]
            lines += [
                "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                for row in (heads, *rows)
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<SavedMemory: {self._summary()}>"

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self._summary())}</p>"]
        for title, heads, rows in self._tables():
            head = "".join(f'<th style="text-align:left">{escape(text)}</th>' for text in heads)
            body = "".join(
                "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) + "</tr>"
                for row in rows
            )
            caption = f'<caption style="text-align:left;font-weight:600">{escape(title)}</caption>'
            parts.append(f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        return "<div>" + "".join(parts) + "</div>"


def _signed(count: int) -> str:
    return size_text(count) if count >= 0 else "-" + size_text(-count)


def _value(entry: Saved) -> str:
    return f"{entry.name} {list(entry.shape)}"


def _place(node: NodeMemory) -> str:
    module = "" if node.call is None else node.call.path or "(the model)"
    return " ".join(text for text in (module, "" if node.line is None else str(node.line)) if text)


def _two_sizes(node: NodeMemory) -> str:
    return size_text(node.bytes) + ("" if node.own == node.bytes else f" ({size_text(node.own)} of it alone)")


def saved_memory(loss: Any, params: Named = None, *, modules: ModuleRecord | None = None) -> SavedMemory:
    """The memory that the graph behind `loss` keeps for backward.

    Nothing is brought back, no hook runs and no element is read. The walk is iterative.

    Args:
        loss: a tensor, or a sequence of tensors.
        params: tensors that are there with or without the graph, beside the leaves that require grad: a mapping of
            names to tensors, such pairs, or a module, whose buffers count too.
        modules: what `record_modules` recorded, for sums by module; its model is `params` unless these are given.

    Raises:
        ValueError: a tensor that has no history.

    Example:
        >>> import rustgrad as torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh())
        >>> with torch.graph.record_modules(model) as modules:
        ...     loss = model(torch.ones(4, 2)).sum()
        >>> report = torch.graph.saved_memory(loss, modules=modules)
        >>> report.activations, report.constants
        (48, 32)
    """
    if params is None and modules is not None:
        params = modules.model
    owned = {_core._storage_of(tensor).id for _, tensor in named(params)}
    nodes: list[NodeMemory] = []
    for function in functions(root for _, root in roots_of(loss)):
        variable = getattr(function, "variable", None)
        if variable is not None:
            owned.add(_core._storage_of(variable).id)
            continue
        saved = saved_by(function)
        if saved:
            sequence = function._sequence_nr()
            call = None if modules is None else modules.call_of(sequence)
            nodes.append(NodeMemory(type(function).__name__, sequence, saved, line_of(function), call))
    return SavedMemory(nodes, _storages(nodes, owned), modules)


def _storages(nodes: Iterable[NodeMemory], owned: Collection[int]) -> dict[int, Storage]:
    storages: dict[int, Storage] = {}
    for entry in (entry for node in nodes for entry in node.saved):
        if entry.storage is None:
            continue
        role: Role = "constant" if entry.origin == "constant" else "activation"
        if entry.storage in owned:
            role = "parameter"
        elif entry.storage in storages and role == "constant":
            role = storages[entry.storage].role
        storages[entry.storage] = Storage(entry.bytes, role)
    return storages
