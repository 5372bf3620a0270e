"""Nodes of the graph as objects, handles of hooks, questions about the mode, and what a backward does not walk."""

from __future__ import annotations

import gc
import threading
import time

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
