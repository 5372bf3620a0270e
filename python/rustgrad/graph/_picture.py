"""The graph as an SVG picture: leaves above, the result below, arrows along the values.

It stands alone; a page that holds it may restyle it by its classes and find nodes (`g.node`, `data-id`) and edges
(`path.edge`, `data-from`, `data-to`) in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rustgrad.graph._layout import layered, places
from rustgrad.graph._style import COLOURS, LEGEND, lines_of
from rustgrad.graph._walk import Graph, Kind, Node

__all__ = ["picture"]

_HEIGHT = {True: 38.0, False: 24.0}  # with and without a line for the shape
_LAYER, _GAP, _MARGIN, _CHARACTER = 64.0, 18.0, 16.0, 7.4
_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i"}


def picture(graph: Graph, *, legend: bool = True, tips: bool = True) -> str:
    """The picture, with a legend above it and what is known of a node as its title, if these are wanted."""
    layout = layered(graph)
    bends = {item for path in layout.paths for item in path[1:-1]}
    widths = {i: _width(node) for i, node in enumerate(graph.nodes)} | dict.fromkeys(bends, 8.0)
    x = places(layout, bends, widths, _GAP)
    entries = [(kind, text) for kind, text in LEGEND.items() if legend and any(n.kind == kind for n in graph.nodes)]
    legend_width = sum(30 + _CHARACTER * len(text) for _, text in entries)
    left = min(x[i] - widths[i] / 2 for i in x) - _MARGIN
    width = max(max(x[i] + widths[i] / 2 for i in x) + _MARGIN - left, legend_width + 2 * _MARGIN)
    top = _MARGIN + (42 if legend else 19)
    height = top + _LAYER * (len(layout.layers) - 1) + 19 + _MARGIN
    y = {item: top + _LAYER * (len(layout.layers) - 1 - rank) for rank, row in enumerate(layout.layers) for item in row}
    x = {item: place - left for item, place in x.items()}
    heaviest = max((node.saved_bytes for node in graph.nodes), default=0)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="DejaVu Sans, Verdana, sans-serif" '
        'font-size="12" text-anchor="middle">',
        "<title>Computation graph</title>" if tips else "",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8.5" markerHeight="8.5" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0.5 L8 4 L0 7.5 Z" fill="#5b6675"/></marker></defs>',
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *_legend(entries),
        '<g fill="none" stroke="#5b6675" stroke-width="1.2">',
    ]
    for path in layout.paths:
        ends = f'data-from="n{path[0]}" data-to="n{path[-1]}"'
        out.append(f'<path class="edge" {ends} d="{_curve(path, graph, x, y)}" marker-end="url(#arrow)"/>')
    out.append("</g>")
    for i, node in enumerate(graph.nodes):
        tip = "\n".join(lines_of(node)) if tips else ""
        share = node.saved_bytes / heaviest if heaviest else 0.0
        out.append(_box(i, node, x[i], y[i], widths[i], tip, share))
    return "\n".join([*filter(None, out), "</svg>", ""])


def _dtypes(node: Node) -> str:
    return " ".join(dict.fromkeys(_short(output.dtype) for output in node.outputs))


def _short(dtype: str) -> str:
    """`float32` as `f32`."""
    stem = dtype.rstrip("0123456789")
    return _SHORT.get(stem, stem) + dtype[len(stem) :]


def _width(node: Node) -> float:
    return max(len(node.label), len(f"{node.shape} {_dtypes(node)}") * 0.9, 3) * _CHARACTER + 18


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


def _box(place: int, node: Node, x: float, y: float, width: float, tip: str, share: float) -> str:
    fill, stroke = COLOURS[node.kind]
    height = _HEIGHT[bool(node.shape)]
    radius = 4 if node.kind == "op" else height / 2 if node.kind in ("result", "cut") else 10
    title = f"<title>{escape(tip)}</title>" if tip else ""
    label = f'<text x="{x:.1f}" y="{y - 2 if node.shape else y + 4:.1f}" fill="#1d2430">{escape(node.label)}</text>'
    caption = (
        f'<text class="caption" x="{x:.1f}" y="{y + 13:.1f}" font-size="10" fill="#4a5361">{node.shape}'
        f"<tspan> {_dtypes(node)}</tspan></text>"
    )
    parts = [
        f'<g class="node {node.kind}" data-id="n{place}">{title}',
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" ',
        f'rx="{radius:.0f}" fill="{fill}" stroke="{stroke}"/>',
    ]
    if share:  # how much is kept, beside the others: a line along the lower edge
        start, length = f"{x - width / 2 + 4:.1f} {y + height / 2 - 2:.1f}", max(share * (width - 8), 2)
        parts.append(f'<path class="bar" d="M{start}h{length:.1f}" stroke="#d9822b" stroke-width="2"/>')
    parts += [label, caption if node.shape else "", "</g>"]
    return "".join(parts)


def _legend(entries: Sequence[tuple[Kind, str]]) -> list[str]:
    out, at = [], _MARGIN
    for kind, text in entries:
        fill, stroke = COLOURS[kind]
        out.append(f'<rect x="{at:.1f}" y="10" width="12" height="12" rx="3" fill="{fill}" stroke="{stroke}"/>')
        out.append(f'<text x="{at + 17:.1f}" y="20" text-anchor="start" font-size="11" fill="#4a5361">{text}</text>')
        at += 30 + _CHARACTER * len(text)
    return out
