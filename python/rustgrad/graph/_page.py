"""The graph as a page: the picture, to be moved and enlarged, beside a search, a table of the heaviest nodes and details.

The page loads nothing from elsewhere. What it does is in `page.js`, how it looks in `page.css`; both are put into it.
"""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files

from rustgrad.graph._json import as_data
from rustgrad.graph._picture import picture
from rustgrad.graph._style import LEGEND, size_text
from rustgrad.graph._walk import Graph

__all__ = ["embedded", "page"]


def page(graph: Graph, *, title: str) -> str:
    """The whole page as HTML."""
    folder = files("rustgrad.graph")
    parts = {
        "title": escape(title),
        "summary": escape(_summary(graph)),
        "style": (folder / "page.css").read_text("utf-8"),
        "script": (folder / "page.js").read_text("utf-8"),
        "legend": _legend(graph),
        "picture": picture(graph, legend=False, tips=False),
        # In a script element nothing is special but `</`.
        "data": json.dumps(as_data(graph), ensure_ascii=False).replace("<", "\\u003c"),
    }
    template = (folder / "page.html").read_text("utf-8")
    # In one pass, so that nothing that was put in is looked through.
    return re.sub(r"<!--(\w+)-->|/\*style\*/", lambda found: parts[found[1] or "style"], template)


def embedded(graph: Graph, *, title: str) -> str:
    """The page in a frame, for notebooks: its style and its script stay inside."""
    return (
        f'<iframe title="{escape(title)}" srcdoc="{escape(page(graph, title=title))}" '
        'style="width:100%;height:640px;border:1px solid #8884;border-radius:6px"></iframe>'
    )


def _summary(graph: Graph) -> str:
    counts = {kind: sum(node.kind == kind for node in graph.nodes) for kind in ("op", "parameter", "leaf", "cut")}
    words = {"op": "operation", "parameter": "parameter", "leaf": "other leaf"}
    parts = [_counted(counts[kind], word) for kind, word in words.items() if counts[kind]]
    kept = {entry.storage: entry.bytes for node in graph.nodes for entry in node.saved if not entry.owned}
    parts.append(f"{size_text(sum(kept.values()))} kept for backward")
    if counts["cut"]:
        parts.append("not all is drawn")
    return " · ".join(parts)


def _counted(count: int, word: str) -> str:
    plural = word.replace("leaf", "leave") + "s"
    return f"{count:,} {word if count == 1 else plural}"


def _legend(graph: Graph) -> str:
    kinds = [(kind, text) for kind, text in LEGEND.items() if any(node.kind == kind for node in graph.nodes)]
    items = [f'<li><i class="{kind}"></i>{text}</li>' for kind, text in kinds]
    if any(node.saved_bytes for node in graph.nodes):
        items.append('<li><i class="kept"></i>kept for backward</li>')
    return "".join(items)
