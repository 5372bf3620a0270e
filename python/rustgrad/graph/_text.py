"""The graph as text that other programs draw: Graphviz's DOT and Mermaid's flowcharts."""

from __future__ import annotations

from rustgrad.graph._style import COLOURS, lines_of
from rustgrad.graph._walk import Graph, Kind

__all__ = ["dot_text", "mermaid_text"]


def dot_text(graph: Graph) -> str:
    """The graph in the DOT language."""
    lines = ["digraph {", '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11]']
    for i, node in enumerate(graph.nodes):
        label = "\\n".join(_dot_quoted(part) for part in (node.label, node.shape) if part)
        tip = "\\n".join(map(_dot_quoted, lines_of(node)))
        fill, stroke = COLOURS[node.kind]
        lines.append(f'  n{i} [label="{label}", fillcolor="{fill}", color="{stroke}", tooltip="{tip}"]')
    lines += [f"  n{source} -> n{target}" for source, target in graph.edges]
    return "\n".join([*lines, "}", ""])


def _dot_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_MERMAID_BOX: dict[Kind, tuple[str, str]] = {
    "op": ("[", "]"),
    "parameter": ("(", ")"),
    "leaf": ("(", ")"),
    "result": ("([", "])"),
    "cut": ("((", "))"),
}


def mermaid_text(graph: Graph) -> str:
    """The graph as a Mermaid flowchart."""
    lines = ["flowchart TD"]
    for i, node in enumerate(graph.nodes):
        before, after = _MERMAID_BOX[node.kind]
        label = "<br/>".join(_mermaid_quoted(part) for part in (node.label, node.shape) if part)
        lines.append(f'  n{i}{before}"{label}"{after}:::{node.kind}')
    for source, target, output in graph.numbered_edges:
        several = len(graph.nodes[source].outputs) > 1
        lines.append(f"  n{source} -->{f'|{output}|' if several else ''} n{target}")
    lines += [
        f"  classDef {kind} fill:{fill},stroke:{stroke},color:#1d2430" for kind, (fill, stroke) in COLOURS.items()
    ]
    return "\n".join([*lines, ""])


def _mermaid_quoted(text: str) -> str:
    """Mermaid's own way to write characters that mean something to it, or to Markdown, inside quotes: `#38;`."""
    return "".join(c if c.isalnum() or c in " ._-" or ord(c) > 127 else f"#{ord(c)};" for c in text)
