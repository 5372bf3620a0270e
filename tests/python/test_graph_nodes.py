"""Nodes of the graph as objects, handles of hooks, questions about the mode, and what a backward does not walk."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

import rustgrad as torch
from rustgrad.autograd.graph import Node
from rustgrad.utils.hooks import RemovableHandle


@pytest.fixture
def x() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


@pytest.mark.row("A3.node")
def test_a_node_says_what_it_is(x: torch.Tensor) -> None:
    product, total = (y := x * 3).grad_fn, y.sum().grad_fn
    assert isinstance(product, Node) and issubclass(type(product), Node) and not isinstance(x, Node)
    assert product.name() == type(product).__name__ == "MulBackward0"
    assert total.next_functions[0][0] is product
    assert total._sequence_nr() > product._sequence_nr()
    (meta,) = product._input_metadata
    assert tuple(meta.shape) == (2,) and meta.dtype is torch.float32 and meta.device == torch.device("cpu")
    leaf = product.next_functions[0][0]
    assert leaf.name() == "torch::autograd::AccumulateGrad" and leaf.variable is x and leaf._sequence_nr() == 2**64 - 1
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        product.nonsense  # noqa: B018


@pytest.mark.row("A3.node", "A3.identity")
def test_metadata_hooks_and_attributes_stay_with_the_node(x: torch.Tensor) -> None:
    y = x * 3
    y.grad_fn.metadata["tag"] = "here"
    y.grad_fn.mine = 5
    seen: list[str] = []
    y.grad_fn.register_prehook(lambda outputs: seen.append(f"before {len(outputs)}"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(f"after {len(inputs)} {len(outputs)}"))
    assert y.grad_fn is y.grad_fn
    gc.collect()
    z = y.sum()
    del y
    node = z.grad_fn.next_functions[0][0]
    assert node.metadata == {"tag": "here"}
    z.backward()
    assert seen == ["before 1", "after 2 1"]


@pytest.mark.row("A3.next_functions")
def test_next_functions_stand_for_the_operands(x: torch.Tensor) -> None:
    assert [edge[0] and edge[0].name() for edge in (x * 2 + 1).grad_fn.next_functions] == ["MulBackward0", None]
    a, b = torch.ones(4, requires_grad=True).mul(2).split(2)
    assert [(a + b).grad_fn.next_functions[k][1] for k in (0, 1)] == [0, 1]
    accumulate = (x + x).grad_fn.next_functions[0][0]
    assert accumulate is (x * 5).grad_fn.next_functions[0][0] and accumulate.next_functions == ()


@pytest.mark.row("A3.removable_handle")
@pytest.mark.parametrize("kind", ["tensor", "post", "node", "prehook", "module"])
def test_handles_remove_once_and_end_with_their_block(kind: str, x: torch.Tensor) -> None:
    calls: list[int] = []
    layer = torch.nn.Linear(2, 1)
    y = x * 2

    def register() -> RemovableHandle:
        note = lambda *_: calls.append(1)  # noqa: E731
        if kind == "tensor":
            return y.register_hook(note)
        if kind == "post":
            return x.register_post_accumulate_grad_hook(note)
        if kind == "node":
            return y.grad_fn.register_hook(note)
        if kind == "prehook":
            return y.grad_fn.register_prehook(note)
        return layer.register_forward_hook(note)

    def run() -> int:
        calls.clear()
        layer(y).sum().backward(retain_graph=True)
        return len(calls)

    handle, other = register(), register()
    assert isinstance(handle.id, int) and handle.id != other.id
    assert run() == 2
    handle.remove()
    handle.remove()
    assert run() == 1
    with register():
        assert run() == 2
    assert run() == 1
    other.remove()
    assert run() == 0


@pytest.mark.row("A4.queries")
def test_modes_can_be_asked_for() -> None:
    seen: list[tuple[bool, bool]] = []

    def ask() -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert ask() == (True, False)
    with torch.no_grad():
        assert ask() == (False, False)
        thread = threading.Thread(target=lambda: seen.append(ask()))
        thread.start()
        thread.join()
        assert seen == [(True, False)]
        with torch.enable_grad():
            assert ask() == (True, False)
    with torch.inference_mode():
        assert ask() == (False, True)
        made = torch.ones(1)
    assert torch.is_inference(made) and made.is_inference() and not torch.is_inference(torch.ones(1))
    assert ask() == (True, False)


@pytest.mark.row("B2.prune")
def test_what_is_older_than_the_inputs_is_not_walked(x: torch.Tensor) -> None:
    """A thousand gradients over a short end of a long past: walking the past would take seconds."""
    past = x
    for _ in range(100_000):
        past = past * 1.0
    started = time.perf_counter()
    for _ in range(1000):
        middle = past * 2
        (gradient,) = torch.autograd.grad(middle.sum(), middle)
    assert gradient.tolist() == [1, 1]
    assert time.perf_counter() - started < 1.0


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return grad * 2


@pytest.mark.row("A3.node", "A2.ctx_attributes", "B2.cycles")
@pytest.mark.parametrize("cycle", [False, True])
def test_a_custom_functions_node_keeps_its_graph_and_is_collected(cycle: bool, x: torch.Tensor) -> None:
    output = Double.apply(x)
    node = output.grad_fn
    if cycle:
        node.output = output
    gone = weakref.ref(node)
    del output
    gc.collect()
    assert node.next_functions[0][0].variable is x and node.saved_tensors[0] is x
    edge = torch.autograd.graph.GradientEdge(node, 0)
    assert torch.autograd.grad(edge, x, torch.ones(2), retain_graph=True)[0].tolist() == [2, 2]
    del node, edge
    gc.collect()
    assert gone() is None


@pytest.mark.row("A3.node", "B2.cycles")
def test_a_held_context_keeps_alive_what_its_node_holds(x: torch.Tensor) -> None:
    seen: list[str] = []
    node = Double.apply(x).grad_fn
    later = (middle := Double.apply(x)).exp()
    context = middle.grad_fn
    for n in (node, context):
        n.register_hook(lambda *_, mine=n: seen.append(mine.name()))
    del middle
    gc.collect()
    later.sum().backward()
    torch.autograd.grad(torch.autograd.graph.GradientEdge(node, 0), x, torch.ones(2))
    assert seen == ["DoubleBackward", "DoubleBackward"]
    gone = [weakref.ref(node), weakref.ref(context)]
    del node, context, later, n
    for _ in range(3):
        gc.collect()
    assert [ref() for ref in gone] == [None, None]


@pytest.mark.row("A3.saved_tensors_hooks")
def test_pack_hooks_see_the_tensors_that_are_saved() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    seen: list[torch.Tensor] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        middle = p * p
        y = middle * middle
    assert [t is p for t in seen] == [True, True, False, False] and seen[2] is seen[3] is middle
    saved = middle.grad_fn._saved_self
    assert saved is not p and saved.is_leaf and saved.requires_grad and saved.grad_fn is None
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        saved.add_(1)
    y.sum().backward()
    assert p.grad is not None and p.grad.tolist() == [4, 4]


@pytest.mark.row("A1.hooks_under_grad")
def test_a_gradient_that_goes_on_is_captured_before_hooks_replace_it(x: torch.Tensor) -> None:
    b = x * 2
    c = b * 3
    b.register_hook(lambda grad: grad * 10)
    assert [g.tolist() for g in torch.autograd.grad(c.sum(), [x, b], retain_graph=True)] == [[60, 60], [3, 3]]
    assert torch.autograd.grad(c.sum(), b)[0].tolist() == [30, 30]


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[no-untyped-def]
        x.mul_(2)
        y.mul_(3)
        ctx.mark_dirty(x, y)
        return x, y

    @staticmethod
    def backward(ctx, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[no-untyped-def]
        return a * 2, b * 3


@pytest.mark.row("A2.mark_dirty")
def test_a_changed_view_is_returned_alone_or_the_graph_stays_as_it_was(x: torch.Tensor) -> None:
    whole = x * 1
    with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
        Both.apply(whole[:1], whole[1:])
    assert whole.grad_fn.name() == "MulBackward0"
    whole.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
        Both.apply(torch.ones(2)[:1], x[1:] * 2)


@pytest.mark.row("A12.conversion_texts", "A4.queries")
def test_values_leave_the_graph_where_nothing_is_recorded(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="Can't call numpy\\(\\) on Tensor that requires grad"):
        x.numpy()
    with torch.no_grad():
        assert x.numpy().tolist() == [1, 2]
