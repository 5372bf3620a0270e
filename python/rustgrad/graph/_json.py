"""The graph as data: nodes, edges and saved values as JSON, with the schema that describes it."""

from __future__ import annotations

import json
from typing import Any

from rustgrad.graph._walk import Graph, Node

__all__ = ["JSON_SCHEMA", "as_data", "json_text"]

_NUMBER = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_SHAPE = {"type": "array", "items": _NUMBER}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_OUTPUT = _object(shape=_SHAPE, dtype=_TEXT)
_LINE = {**_object(file=_TEXT, line=_NUMBER, function=_TEXT), "type": ["object", "null"]}
_HOOKS = _object(tensor=_NUMBER, pre=_NUMBER, post=_NUMBER, accumulate=_NUMBER)
_SAVED = _object(
    name=_TEXT,
    shape=_SHAPE,
    dtype=_TEXT,
    origin={"enum": ["leaf", "value", "constant", "result", "packed", "context"]},
    storage={"type": ["string", "null"]},
    bytes=_NUMBER,
    shared={"type": "boolean"},
    owned={"type": "boolean"},
)

JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A computation graph, as rustgrad.graph.json writes it",
    **_object(
        format={"const": "rustgrad-graph"},
        version={"const": 1},
        nodes={
            "type": "array",
            "items": _object(
                id=_TEXT,
                kind={"enum": ["result", "op", "parameter", "leaf", "cut"]},
                name=_TEXT,
                label=_TEXT,
                sequence={"type": ["integer", "null"]},
                outputs={"type": "array", "items": _OUTPUT},
                line=_LINE,
                module={"type": ["string", "null"]},
                hooks=_HOOKS,
                retained={"type": "array", "items": _NUMBER},
                freed={"type": "boolean"},
                saved_bytes=_NUMBER,
                saved={"type": "array", "items": _SAVED},
            ),
        },
        edges={
            "type": "array",
            "items": _object(**{"from": _TEXT, "output": _NUMBER, "to": _TEXT, "input": _NUMBER}),
        },
    ),
}
"""What `json` writes, as a JSON Schema.

Nodes are numbered `n0`, `n1`, ... as the walk meets them, nearest to the result first, and memories `s0`, `s1`, ... as
they come up, so that the same program gives the same ids in every run. An edge leads along a value, from output number
`output` of the node that made it to argument number `input` (counted among those that have a gradient) of the one that
read it. A saved value is `shared` if another entry lies in the same memory, and `owned` if that is a leaf's; `saved_bytes`
is what a node keeps of memory that no leaf owns.
"""


def as_data(graph: Graph) -> dict[str, Any]:
    """The graph in the form of `JSON_SCHEMA`, as Python objects."""
    holders: dict[int, int] = {}
    for node in graph.nodes:
        for entry in node.saved:
            if entry.storage is not None:
                holders[entry.storage] = holders.get(entry.storage, 0) + 1
    ids = {storage: f"s{k}" for k, storage in enumerate(holders)}
    edges = [
        {"from": f"n{source}", "output": output, "to": f"n{target}", "input": place}
        for target, node in enumerate(graph.nodes)
        for place, (source, output) in enumerate(zip(node.inputs, node.numbers, strict=True))
    ]
    nodes = [_node(k, node, ids, holders) for k, node in enumerate(graph.nodes)]
    return {"format": "rustgrad-graph", "version": 1, "nodes": nodes, "edges": edges}


def _node(place: int, node: Node, ids: dict[int, str], holders: dict[int, int]) -> dict[str, Any]:
    line = node.line
    return {
        "id": f"n{place}",
        "kind": node.kind,
        "name": node.name or node.label,
        "label": node.label,
        "sequence": node.sequence,
        "outputs": [{"shape": list(output.shape), "dtype": output.dtype} for output in node.outputs],
        "line": None if line is None else {"file": line.file, "line": line.number, "function": line.function},
        "module": node.module,
        "hooks": node.hooks._asdict(),
        "retained": node.retained,
        "freed": node.freed,
        "saved_bytes": node.saved_bytes,
        "saved": [
            {
                "name": entry.name,
                "shape": list(entry.shape),
                "dtype": entry.dtype,
                "origin": entry.origin,
                "storage": None if entry.storage is None else ids[entry.storage],
                "bytes": entry.bytes,
                "shared": entry.storage is not None and holders[entry.storage] > 1,
                "owned": entry.owned,
            }
            for entry in node.saved
        ],
    }


def json_text(graph: Graph) -> str:
    """The graph as JSON, a node and an edge a line."""
    data = as_data(graph)

    def rows(key: str) -> str:
        return ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in data[key])

    head = f'"format": {json.dumps(data["format"])}, "version": {data["version"]}'
    return f'{{{head},\n "nodes": [\n  {rows("nodes")}\n ],\n "edges": [\n  {rows("edges")}\n ]}}\n'
