"""The computation graph behind a result: as a picture, a page or data; what it keeps in memory; why a gradient is missing.

    from rustgrad import graph
    pathlib.Path("graph.html").write_text(graph.html(loss, model))
    print(graph.saved_memory(loss, model))
    print(graph.explain_grad(model.weight, loss))

Nothing here runs a hook, brings a saved value back or reads an element, and every walk is iterative. In a notebook a
cell that ends in `graph.trace(loss, model)` shows the page.
"""

from __future__ import annotations

from typing import Any

from rustgrad.graph import _json, _page, _picture, _text
from rustgrad.graph._explain import Explanation as Explanation
from rustgrad.graph._explain import explain_grad as explain_grad
from rustgrad.graph._json import JSON_SCHEMA as JSON_SCHEMA
from rustgrad.graph._memory import ModuleMemory as ModuleMemory
from rustgrad.graph._memory import NodeMemory as NodeMemory
from rustgrad.graph._memory import SavedMemory as SavedMemory
from rustgrad.graph._memory import saved_memory as saved_memory
from rustgrad.graph._modules import ModuleCall as ModuleCall
from rustgrad.graph._modules import ModuleRecord as ModuleRecord
from rustgrad.graph._modules import record_modules as record_modules
from rustgrad.graph._walk import LIMIT, Named
from rustgrad.graph._walk import Edge as Edge
from rustgrad.graph._walk import Graph as Graph
from rustgrad.graph._walk import Hooks as Hooks
from rustgrad.graph._walk import Line as Line
from rustgrad.graph._walk import Node as Node
from rustgrad.graph._walk import Output as Output
from rustgrad.graph._walk import Saved as Saved
from rustgrad.graph._walk import trace as trace

__all__ = [
    "JSON_SCHEMA",
    "Edge",
    "Explanation",
    "Graph",
    "Hooks",
    "Line",
    "ModuleCall",
    "ModuleMemory",
    "ModuleRecord",
    "Node",
    "NodeMemory",
    "Output",
    "Saved",
    "SavedMemory",
    "dot",
    "explain_grad",
    "html",
    "json",
    "mermaid",
    "record_modules",
    "saved_memory",
    "svg",
    "trace",
]


def dot(loss: Any, params: Named = None, *, limit: int | None = LIMIT, modules: ModuleRecord | None = None) -> str:
    """The graph in Graphviz's DOT language. Arguments and errors are those of `trace`."""
    return _text.dot_text(trace(loss, params, limit=limit, modules=modules))


def mermaid(loss: Any, params: Named = None, *, limit: int | None = LIMIT, modules: ModuleRecord | None = None) -> str:
    """The graph as a Mermaid flowchart, which Markdown pages draw. Arguments and errors are those of `trace`."""
    return _text.mermaid_text(trace(loss, params, limit=limit, modules=modules))


def json(loss: Any, params: Named = None, *, limit: int | None = None, modules: ModuleRecord | None = None) -> str:
    """The graph as JSON in the form of `JSON_SCHEMA`, all of it unless `limit` says otherwise.

    Arguments and errors are those of `trace`.
    """
    return _json.json_text(trace(loss, params, limit=limit, modules=modules))


def svg(loss: Any, params: Named = None, *, limit: int | None = LIMIT, modules: ModuleRecord | None = None) -> str:
    """The graph as a self-contained SVG picture: leaves above, the result below, arrows along the values.

    Arguments and errors are those of `trace`.
    """
    return _picture.picture(trace(loss, params, limit=limit, modules=modules))


def html(
    loss: Any,
    params: Named = None,
    *,
    limit: int | None = LIMIT,
    title: str = "Computation graph",
    modules: ModuleRecord | None = None,
) -> str:
    """The graph as a page with nothing loaded from elsewhere: picture, search, details, the nodes that keep most.

    Arguments and errors are those of `trace`; `title` is the page's heading.
    """
    return _page.page(trace(loss, params, limit=limit, modules=modules), title=title)
