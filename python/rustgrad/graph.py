"""Pictures of a computation graph: walk it from a result, lay it out in layers, write DOT, SVG or HTML.

Everything is read from the public face of the graph (`grad_fn`, `next_functions`, `variable`), iteratively, so that
deep graphs do not exhaust the stack. Nothing here computes with tensors or needs more than a plain Python.

    from rustgrad import graph
    pathlib.Path("graph.svg").write_text(graph.svg(loss, model.named_parameters()))
"""

from __future__ import annotations

import html as _html
import re
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

__all__ = ["Graph", "Node", "dot", "html", "svg", "trace"]

Kind = Literal["result", "op", "parameter", "leaf", "cut"]
Named: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str, Any]] | Any | None"
"""Names for leaves: a mapping of names to tensors, or such pairs, or a module with `named_parameters`."""

LIMIT = 400
"""Nodes drawn unless the caller asks for more: a picture of thousands shows nothing."""


@dataclass
class Node:
    """One box: an operation, a leaf tensor, a result, or the mark `...` where the walk stopped."""

    kind: Kind
    label: str
    shape: str = ""
    detail: str = ""
    inputs: list[int] = field(default_factory=list)
    """Positions in `Graph.nodes` of the nodes whose values this one reads, in argument order."""


@dataclass
class Graph:
    """What was found, results first; every node comes before those it reads along some path."""

    nodes: list[Node]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """(from, to), in the direction in which values flow; gradients flow against it."""
        return [(source, target) for target, node in enumerate(self.nodes) for source in node.inputs]


def trace(loss: Any, params: Named = None, *, limit: int = LIMIT) -> Graph:
    """The graph behind `loss`, a tensor or a sequence of tensors.

    Nearest nodes come first; where more than `limit` operations and leaves are found, a node `...` stands for the rest.
    Raises `ValueError` for a tensor that has no history.
    """
    if limit < 1:
        raise ValueError(f"limit must be positive, got {limit}")
    names = _names(params)
    results = list(loss) if isinstance(loss, (list, tuple)) else [loss]
    nodes: list[Node] = []
    # Keyed by the node object itself: holding it keeps its identity from being given to another object.
    seen: dict[Any, int] = {}
    queue: deque[Any] = deque()

    def visit(function: Any) -> int:
        if function not in seen:
            seen[function] = len(nodes)
            nodes.append(_describe(function, names))
            queue.append(function)
        return seen[function]

    for i, result in enumerate(results):
        function = getattr(result, "grad_fn", None)
        if function is None:
            raise ValueError("the tensor has no grad_fn: nothing that requires a gradient went into it")
        label = "result" if len(results) == 1 else f"result {i}"
        end = Node("result", label, _shape(result))
        nodes.append(end)
        end.inputs.append(visit(function))

    while queue:
        function = queue.popleft()
        node = nodes[seen[function]]
        for previous, _ in function.next_functions:
            if previous is None:
                continue
            if previous in seen or len(seen) < limit:
                node.inputs.append(visit(previous))
            else:
                node.inputs.append(len(nodes))
                nodes.append(Node("cut", "...", detail=f"more than {limit} nodes: not drawn"))
                break
    return Graph(nodes)


def dot(loss: Any, params: Named = None, *, limit: int = LIMIT) -> str:
    """The graph in Graphviz's DOT language."""
    graph = trace(loss, params, limit=limit)
    lines = ["digraph {", '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11]']
    for i, node in enumerate(graph.nodes):
        text = "\\n".join(_quoted(part) for part in (node.label, node.shape) if part)
        fill, stroke = _COLOURS[node.kind]
        lines.append(f'  n{i} [label="{text}", fillcolor="{fill}", color="{stroke}", tooltip="{_quoted(node.detail)}"]')
    lines += [f"  n{source} -> n{target}" for source, target in graph.edges]
    return "\n".join([*lines, "}", ""])


def svg(loss: Any, params: Named = None, *, limit: int = LIMIT) -> str:
    """The graph as a self-contained SVG picture: leaves above, the result below, arrows along the values."""
    return _draw(trace(loss, params, limit=limit))


def html(loss: Any, params: Named = None, *, limit: int = LIMIT, title: str = "Computation graph") -> str:
    """The SVG picture in a page of its own, with nothing loaded from elsewhere."""
    picture = svg(loss, params, limit=limit)
    name = _html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title></head>\n'
        f'<body style="margin:1rem;background:#fff"><h1 style="font:600 1.1rem sans-serif">{name}</h1>\n'
        f"{picture}</body></html>\n"
    )


# ---- reading the graph ---------------------------------------------------------------------------------------------


def _names(params: Named) -> dict[int, str]:
    if params is None:
        return {}
    if hasattr(params, "named_parameters"):
        params = params.named_parameters()
    pairs = params.items() if isinstance(params, Mapping) else params
    return {id(tensor): name for name, tensor in pairs}


def _describe(function: Any, names: Mapping[int, str]) -> Node:
    full = function.name() if callable(getattr(function, "name", None)) else type(function).__name__
    full = full.rsplit("::", 1)[-1]
    variable = getattr(function, "variable", None)
    if variable is not None:
        name = names.get(id(variable))
        kind: Kind = "leaf" if name is None else "parameter"
        return Node(kind, name or "leaf", _shape(variable), f"{full} of {name or 'an unnamed leaf'}")
    metadata = getattr(function, "_input_metadata", None) or ()
    shape = ", ".join(text for text in map(_shape, metadata) if text)
    return Node("op", re.sub(r"Backward\d*$", "", full) or full, shape, full)


def _shape(tensor: Any) -> str:
    shape = getattr(tensor, "shape", None)
    if shape is None:
        return ""
    return "\N{MULTIPLICATION SIGN}".join(str(int(n)) for n in shape) or "scalar"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# ---- layout: layers by longest path, order by barycentre, places by least squares ----------------------------------


@dataclass
class _Layout:
    """Layer 0 is at the bottom. Items are node positions, or, past the last node, bends of edges that cross layers."""

    layers: list[list[int]]
    paths: list[list[int]]
    """One list of items an edge, from its source to its target."""
    above: dict[int, list[int]]
    below: dict[int, list[int]]


def _ranks(graph: Graph) -> list[int]:
    """Longest path to a result, so that a parameter stands just above what reads it."""
    readers = [0] * len(graph.nodes)
    for node in graph.nodes:
        for i in node.inputs:
            readers[i] += 1
    ranks = [0] * len(graph.nodes)
    ready = [i for i, count in enumerate(readers) if count == 0]
    while ready:
        i = ready.pop()
        for source in graph.nodes[i].inputs:
            ranks[source] = max(ranks[source], ranks[i] + 1)
            readers[source] -= 1
            if readers[source] == 0:
                ready.append(source)
    return ranks


def _layered(graph: Graph) -> _Layout:
    ranks = _ranks(graph)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=0) + 1)]
    for i, rank in enumerate(ranks):
        layers[rank].append(i)
    count = len(graph.nodes)
    paths = []
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in graph.edges:
        path = [source]
        for rank in range(ranks[source] - 1, ranks[target], -1):
            layers[rank].append(count)
            path.append(count)
            count += 1
        path.append(target)
        for upper, lower in pairwise(path):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
        paths.append(path)
    layout = _Layout(layers, paths, above, below)
    _untangle(layout)
    return layout


def _untangle(layout: _Layout, sweeps: int = 16) -> None:
    """Sorts every layer by the mean position of its neighbours, up and down; the order with fewest crossings stays."""
    layers = layout.layers
    best = [list(layer) for layer in layers]
    fewest = _crossings(layout)
    for sweep in range(sweeps):
        if fewest == 0:
            break
        upwards = sweep % 2 == 0
        order = range(1, len(layers)) if upwards else range(len(layers) - 2, -1, -1)
        neighbours = layout.below if upwards else layout.above
        for rank in order:
            place = {item: i for i, item in enumerate(layers[rank - 1 if upwards else rank + 1])}
            here = {item: float(i) for i, item in enumerate(layers[rank])}
            for item in layers[rank]:
                there = [place[n] for n in neighbours.get(item, ())]
                if there:
                    here[item] = sum(there) / len(there)
            layers[rank].sort(key=here.__getitem__)
        crossings = _crossings(layout)
        if crossings < fewest:
            fewest, best = crossings, [list(layer) for layer in layers]
    layers[:] = best


def _crossings(layout: _Layout) -> int:
    total = 0
    for lower, upper in pairwise(layout.layers):
        place = {item: i for i, item in enumerate(lower)}
        passed: list[int] = []
        for item in upper:
            ends = sorted(place[n] for n in layout.below.get(item, ()))
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total


def _places(
    layout: _Layout, bends: set[int], widths: Mapping[int, float], gap: float, rounds: int = 80
) -> dict[int, float]:
    """Horizontal centres: each layer in turn moves as near to its neighbours' centres as its order and widths allow.

    Bends of one edge pull at each other harder than boxes do, so that long edges run straight.
    """
    x: dict[int, float] = {}
    offsets: list[list[float]] = []
    for layer in layout.layers:
        at, row = 0.0, []
        for left, item in zip([None, *layer], layer, strict=False):
            at += 0.0 if left is None else (widths[left] + widths[item]) / 2 + gap
            row.append(at)
        offsets.append(row)
        x.update({item: place - at / 2 for item, place in zip(layer, row, strict=True)})
    for step in range(rounds):
        down = step % 2 == 1
        ranks = range(len(layout.layers) - 1, -1, -1) if down else range(len(layout.layers))
        for rank in ranks:
            layer = layout.layers[rank]
            wanted = []
            for item, offset in zip(layer, offsets[rank], strict=True):
                near = (*layout.above.get(item, ()), *layout.below.get(item, ()))
                pull = [8.0 if item in bends and n in bends else 1.0 for n in near]
                total = sum(p * x[n] for p, n in zip(pull, near, strict=True))
                wanted.append((total / sum(pull) if near else x[item]) - offset)
            for item, offset, place in zip(layer, offsets[rank], _nondecreasing(wanted), strict=True):
                x[item] = place + offset
    return x


def _nondecreasing(values: Sequence[float]) -> list[float]:
    """The nearest nondecreasing sequence in least squares (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


# ---- drawing -------------------------------------------------------------------------------------------------------

_COLOURS: dict[Kind, tuple[str, str]] = {
    "op": ("#eef1f5", "#7a8699"),
    "parameter": ("#cfe3fb", "#2f6fb7"),
    "leaf": ("#fbeed0", "#b8862f"),
    "result": ("#d5efd8", "#3f8f4d"),
    "cut": ("#ffffff", "#b3b3b3"),
}
_LEGEND: dict[Kind, str] = {"parameter": "parameter", "leaf": "other leaf", "op": "operation", "result": "result"}
_HEIGHT = {True: 38.0, False: 24.0}  # with and without a line for the shape
_LAYER, _GAP, _MARGIN, _CHARACTER = 64.0, 18.0, 16.0, 7.4


def _draw(graph: Graph) -> str:
    layout = _layered(graph)
    bends = {item for path in layout.paths for item in path[1:-1]}
    widths = {i: _width(node) for i, node in enumerate(graph.nodes)} | dict.fromkeys(bends, 8.0)
    x = _places(layout, bends, widths, _GAP)
    legend = [(kind, text) for kind, text in _LEGEND.items() if any(n.kind == kind for n in graph.nodes)]
    legend_width = sum(30 + _CHARACTER * len(text) for _, text in legend)
    left = min(x[i] - widths[i] / 2 for i in x) - _MARGIN
    width = max(max(x[i] + widths[i] / 2 for i in x) + _MARGIN - left, legend_width + 2 * _MARGIN)
    top = _MARGIN + 42
    height = top + _LAYER * (len(layout.layers) - 1) + 19 + _MARGIN
    y = {item: top + _LAYER * (len(layout.layers) - 1 - rank) for rank, row in enumerate(layout.layers) for item in row}
    x = {item: place - left for item, place in x.items()}

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="DejaVu Sans, Verdana, sans-serif" '
        'font-size="12" text-anchor="middle">',
        "<title>Computation graph</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0.5 L8 4 L0 7.5 Z" fill="#5b6675"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *_legend(legend),
        '<g fill="none" stroke="#5b6675" stroke-width="1.2">',
    ]
    for path in layout.paths:
        out.append(f'<path d="{_curve(path, graph, x, y)}" marker-end="url(#arrow)"/>')
    out.append("</g>")
    for i, node in enumerate(graph.nodes):
        out.append(_box(node, x[i], y[i], widths[i]))
    return "\n".join([*out, "</svg>", ""])


def _width(node: Node) -> float:
    return max(len(node.label), len(node.shape) * 0.9, 3) * _CHARACTER + 18


def _curve(path: list[int], graph: Graph, x: Mapping[int, float], y: Mapping[int, float]) -> str:
    half = [_HEIGHT[bool(graph.nodes[end].shape)] / 2 for end in (path[0], path[-1])]
    x0, y0 = x[path[0]], y[path[0]] + half[0]
    text = f"M{x0:.1f} {y0:.1f}"
    for item in path[1:]:
        x1, y1 = x[item], y[item] - (half[1] if item == path[-1] else _HEIGHT[True] / 2)
        middle = (y0 + y1) / 2
        text += f" C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        if item != path[-1]:  # straight down between the boxes of the layer it crosses
            y1 = y[item] + _HEIGHT[True] / 2
            text += f" V{y1:.1f}"
        x0, y0 = x1, y1
    return text


def _box(node: Node, x: float, y: float, width: float) -> str:
    fill, stroke = _COLOURS[node.kind]
    height = _HEIGHT[bool(node.shape)]
    radius = 4 if node.kind == "op" else height / 2 if node.kind in ("result", "cut") else 10
    title = f"<title>{_html.escape(node.detail)}</title>" if node.detail else ""
    shape = (
        f'<text x="{x:.1f}" y="{y + 13:.1f}" font-size="10" fill="#4a5361">{node.shape}</text>' if node.shape else ""
    )
    return (
        f'<g>{title}<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius:.0f}" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{x:.1f}" y="{y - 2 if node.shape else y + 4:.1f}" fill="#1d2430">{_html.escape(node.label)}</text>'
        f"{shape}</g>"
    )


def _legend(entries: Sequence[tuple[Kind, str]]) -> list[str]:
    out, at = [], _MARGIN
    for kind, text in entries:
        fill, stroke = _COLOURS[kind]
        out.append(f'<rect x="{at:.1f}" y="10" width="12" height="12" rx="3" fill="{fill}" stroke="{stroke}"/>')
        out.append(f'<text x="{at + 17:.1f}" y="20" text-anchor="start" font-size="11" fill="#4a5361">{text}</text>')
        at += 30 + _CHARACTER * len(text)
    return out
