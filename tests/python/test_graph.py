"""`rustgrad.graph`: what is found behind a result, and that the pictures show it."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rustgrad as torch
from rustgrad import graph
from rustgrad.graph import _layout

SVG = "{http://www.w3.org/2000/svg}"
TIMES = "\N{MULTIPLICATION SIGN}"


def words(picture: str) -> list[str]:
    return [element.text or "" for element in xml.fromstring(picture).iter(SVG + "text")]


def small() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    w = torch.ones(2, 3, requires_grad=True)
    x = torch.ones(3, requires_grad=True)
    return (w * x).sum(), w, x


def test_trace_finds_operations_leaves_and_names() -> None:
    loss, w, _ = small()
    found = graph.trace(loss, {"w": w})
    kinds = {(node.kind, node.label, node.shape) for node in found.nodes}
    assert kinds == {
        ("result", "result", "scalar"),
        ("op", "Sum", "scalar"),
        ("op", "Mul", f"2{TIMES}3"),
        ("parameter", "w", f"2{TIMES}3"),
        ("leaf", "leaf", "3"),
    }
    label = [node.label for node in found.nodes]
    steps = {(label[a], label[b]) for a, b in found.edges}
    assert steps == {("Sum", "result"), ("Mul", "Sum"), ("w", "Mul"), ("leaf", "Mul")}


def test_names_come_from_pairs_mappings_and_modules() -> None:
    model = torch.nn.Linear(2, 3)
    loss = model(torch.ones(4, 2)).sum()
    for params in (model, model.named_parameters(), dict(model.named_parameters())):
        names = {node.label for node in graph.trace(loss, params).nodes if node.kind == "parameter"}
        assert names == {"weight", "bias"}


def test_a_shared_node_is_found_once_and_drawn_with_both_arrows() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    found = graph.trace(x * x)
    assert sum(node.kind == "leaf" for node in found.nodes) == 1
    assert len(found.edges) == 3
    picture = xml.fromstring(graph.svg(x * x))
    assert sum("marker-end" in path.attrib for path in picture.iter(SVG + "path")) == 3


def test_several_results() -> None:
    x = torch.ones(2, requires_grad=True)
    assert {"result 0", "result 1", "leaf"} <= set(words(graph.svg([x.exp(), x.sin()])))


def test_a_tensor_without_history_is_refused() -> None:
    with pytest.raises(ValueError, match="no grad_fn"):
        graph.svg(torch.ones(2))
    with pytest.raises(ValueError, match="positive"):
        graph.trace(small()[0], limit=0)


def test_deep_graphs_are_walked_without_recursion_and_cut_at_the_limit() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1
    assert len(graph.trace(y, limit=10**9).nodes) == 20_002
    cut = graph.trace(y, limit=50)
    assert [node.kind for node in cut.nodes].count("cut") == 1
    assert len(cut.nodes) == 52
    assert "..." in words(graph.svg(y, limit=50))


def test_pictures_are_well_formed_whatever_the_names() -> None:
    loss, w, x = small()
    names = {'<w & "co">': w, "b\\s": x}
    assert set(names) <= set(words(graph.svg(loss, names)))
    page = graph.html(loss, names, title="<title> & more")
    assert "&lt;title&gt; &amp; more" in page
    assert set(names) <= set(words(page[page.index("<svg") : page.index("</svg>") + 6]))
    text = graph.dot(loss, names)
    assert text.startswith("digraph {")
    assert '<w & \\"co\\">' in text
    assert "b\\\\s" in text
    assert text.count(" -> ") == 4


def test_boxes_of_a_layer_do_not_overlap() -> None:
    x = torch.ones(3, requires_grad=True)
    parts = [x.exp(), x.sin(), x * 2, (x + 1).tanh().exp(), x.abs()]
    total = parts[0]
    for part in parts[1:]:
        total = total * part
    boxes = []
    for group in xml.fromstring(graph.svg(total.sum())).iter(SVG + "g"):
        rect = group.find(SVG + "rect")
        if rect is not None:
            boxes.append([float(rect.attrib[key]) for key in ("x", "y", "width", "height")])
    assert len(boxes) > 10
    for (ax, ay, aw, ah), (bx, by, bw, bh) in itertools.combinations(boxes, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_crossings_are_removed_where_they_can_be() -> None:
    # Drawn in argument order, the two edges above would cross.
    nodes = [
        graph.Node("result", "result", inputs=[1]),
        graph.Node("op", "top", inputs=[2, 3]),
        graph.Node("op", "left", inputs=[5]),
        graph.Node("op", "right", inputs=[4]),
        graph.Node("leaf", "a"),
        graph.Node("leaf", "b"),
    ]
    layout = _layout.layered(graph.Graph(nodes))
    assert _layout.crossings(layout) == 0
    layout.layers[-1].reverse()
    assert _layout.crossings(layout) == 1


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_nondecreasing_is_the_nearest(values: list[float]) -> None:
    fitted = np.array(_layout.nondecreasing(values))
    assert (np.diff(fitted) >= -1e-9).all()
    # Least squares over a cone: the residual is orthogonal to the fit, and makes no acute angle with any other step.
    residual = np.array(values) - fitted
    assert abs(residual @ fitted) <= 1e-6 * len(values) * 100
    assert all(residual[i:].sum() <= 1e-7 for i in range(len(values)))
    assert abs(residual.sum()) <= 1e-7
