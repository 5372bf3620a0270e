"""`autograd.graph`: hooks on saved values, gradient edges, hooks on several gradients, version counters."""

import gc
import weakref

import pytest

import rustgrad as torch
from rustgrad.autograd import graph


@pytest.fixture(params=[2, 20_000], ids=["small", "large"])
def x(request):
    return torch.linspace(0.5, 1.5, request.param, requires_grad=True)


def close(a, b):
    assert torch.allclose(a, b), (a, b)


# ---- saved_tensors_hooks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("_again", range(3))
@pytest.mark.row("A3.saved_tensors_hooks")
def test_hooks_see_each_value_once_and_bring_it_back(x, _again):
    packed, unpacked = [], []

    def pack(value):
        assert not torch.is_grad_enabled()
        packed.append(value)
        return len(packed) - 1

    def unpack(key):
        unpacked.append(key)
        return packed[key]

    with graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp()
    # Two slots of the product, and the result of exp.
    assert len(packed) == 3 and unpacked == []
    (grad,) = torch.autograd.grad(y.sum(), x)
    close(grad, (2 * x * (x * x).exp()).detach())
    assert sorted(unpacked) == [0, 1, 2]


@pytest.mark.row("A3.saved_tensors_hooks")
def test_what_hooks_return_is_what_backward_uses(x):
    with graph.saved_tensors_hooks(lambda v: v.numpy().copy(), lambda a: torch.from_numpy(a) * 10):
        y = x * x
    (grad,) = torch.autograd.grad(y.sum(), x)
    close(grad, (20 * x).detach())


@pytest.mark.row("A3.saved_tensors_hooks")
def test_hooks_on_every_kind_of_node(x):
    def compute():
        a = torch.ones(4, 3, requires_grad=True)
        b = torch.arange(6.0).reshape(3, 2).requires_grad_()
        c = (a @ b).softmax(-1)[torch.tensor([0, 2])].prod(0).sqrt()
        return torch.autograd.grad(c.sum() + x.sin().sum(), (a, b, x))

    plain = compute()
    count = 0

    def pack(value):
        nonlocal count
        count += 1
        return value.clone()

    with graph.saved_tensors_hooks(pack, lambda v: v):
        hooked = compute()
    assert count >= 6
    for one, other in zip(plain, hooked, strict=True):
        close(one, other)


@pytest.mark.row("A3.saved_tensors_hooks")
def test_double_backward_goes_through_hooks(x):
    with graph.saved_tensors_hooks(lambda v: v.clone(), lambda v: v.clone()):
        y = x * x * x
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    close(second, (6 * x).detach())


@pytest.mark.row("A3.saved_tensors_hooks")
def test_hooks_let_values_go(x):
    kept = (x * 2).exp().detach()
    ref = weakref.ref(kept)
    with graph.saved_tensors_hooks(lambda v: None, lambda _: torch.zeros_like(x)):
        y = x * kept
    del kept
    gc.collect()
    assert ref() is None
    (grad,) = torch.autograd.grad(y.sum(), x)
    close(grad, torch.zeros_like(x))


@pytest.mark.row("A3.saved_tensors_hooks")
def test_the_innermost_hooks_win_and_end_with_their_block(x):
    outer, inner = [], []
    with graph.saved_tensors_hooks(lambda v: outer.append(1) or v, lambda v: v):
        x.exp()
        with graph.saved_tensors_hooks(lambda v: inner.append(1) or v, lambda v: v):
            x.exp()
        x.exp()
    x.exp()
    assert (len(outer), len(inner)) == (2, 1)


@pytest.mark.row("A3.saved_tensors_hooks")
def test_hooks_may_run_operations_and_look_at_the_node(x):
    with graph.saved_tensors_hooks(lambda v: (v * 1.0, v.sum().item()), lambda p: p[0] + 0):
        y = x * x
    close(y.grad_fn._saved_self, x.detach())
    y.sum().backward()
    close(x.grad, (2 * x).detach())


@pytest.mark.row("A3.saved_tensors_hooks", "A12.saved_hooks_texts")
def test_errors_of_hooks(x):
    with (
        graph.saved_tensors_hooks(lambda v: v.add_(1), lambda v: v),
        pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"),
    ):
        (x.detach().clone().requires_grad_() * 1).exp()
    with graph.saved_tensors_hooks(lambda v: v, lambda v: 1):
        y = x.exp()
    with pytest.raises(
        TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"
    ):
        y.sum().backward()
    with graph.saved_tensors_hooks(lambda v: 1 / 0, lambda v: v), pytest.raises(ZeroDivisionError):
        x.exp()
    with graph.saved_tensors_hooks(lambda v: v, lambda v: v[:1]):
        y = x.exp()
    with pytest.raises(RuntimeError, match="unpack hook returned a tensor of shape"):
        y.sum().backward()
    close(torch.autograd.grad(x.exp().sum(), x)[0], x.exp().detach())


@pytest.mark.row("A3.save_on_cpu")
def test_save_on_cpu_keeps_a_copy(x):
    a = (x * 1).detach()
    with graph.save_on_cpu():
        y = x * a
    a.zero_()
    (grad,) = torch.autograd.grad(y.sum(), x)
    close(grad, (x * 1).detach())


@pytest.mark.row("A3.disable_saved_tensors_hooks")
def test_hooks_can_be_forbidden(x):
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        graph.saved_tensors_hooks(lambda v: v, lambda v: v),
    ):
        pass
    with graph.saved_tensors_hooks(lambda v: v, lambda v: v):
        x.exp()


@pytest.mark.row("A3.saved_tensors_hooks", "A2.save_for_backward")
def test_hooks_of_a_custom_function(x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return 2 * a * g

    seen = []
    with graph.saved_tensors_hooks(lambda v: seen.append(v) or v, lambda v: v):
        y = Square.apply(x)
    assert len(seen) == 1
    (grad,) = torch.autograd.grad(y.sum(), x)
    close(grad, (2 * x).detach())


# ---- gradient edges --------------------------------------------------------------------------------------------------


@pytest.mark.row("A3.gradient_edge")
def test_an_edge_stands_for_a_tensor(x):
    y = x * 3
    edge = graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    z = (y * y).sum()
    (by_edge,) = torch.autograd.grad(z, edge, retain_graph=True)
    (by_tensor,) = torch.autograd.grad(z, y, retain_graph=True)
    close(by_edge, by_tensor)
    del y
    (by_x,) = torch.autograd.grad(edge, x, torch.ones_like(x))
    close(by_x, torch.full_like(x, 3.0))


@pytest.mark.row("A3.gradient_edge")
def test_edges_of_leaves_and_of_changed_tensors(x):
    edge = graph.get_gradient_edge(x)
    assert type(edge.node).__name__ == "AccumulateGrad" and edge.node.variable is x
    torch.autograd.backward((x * 2).sum(), inputs=edge)
    close(x.grad, torch.full_like(x, 2.0))
    y = x * 2
    before = graph.get_gradient_edge(y)
    y.mul_(5)
    (grad,) = torch.autograd.grad(y.sum(), before)
    close(grad, torch.full_like(x, 5.0))


@pytest.mark.row("A3.gradient_edge")
def test_edges_are_refused_where_there_is_none():
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(torch.ones(2))
    with pytest.raises(TypeError):
        torch.autograd.grad([1.0], [torch.ones(2, requires_grad=True)])


# ---- several gradients at once ---------------------------------------------------------------------------------------


@pytest.mark.row("A3.register_multi_grad_hook")
def test_a_hook_on_all_of_several_gradients():
    a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
    calls = []
    handle = graph.register_multi_grad_hook([a, b, c], calls.append)
    (a * 2 + b * 3).sum().backward()
    ((ga, gb, gc_),) = calls
    assert ga.tolist() == [2.0, 2.0] and gb.tolist() == [3.0, 3.0] and gc_ is None
    (a * c).sum().backward()
    assert len(calls) == 2 and calls[1][1] is None
    torch.autograd.grad((a * b).sum(), [b])
    assert len(calls) == 3 and calls[2][0] is None and calls[2][1] is not None
    handle.remove()
    a.sum().backward()
    assert len(calls) == 3


@pytest.mark.row("A3.register_multi_grad_hook")
def test_a_hook_on_any_of_several_gradients():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    calls = []
    graph.register_multi_grad_hook([a, b], calls.append, mode="any")
    (a * 2 + b * 3).sum().backward()
    (b * 4).sum().backward()
    assert len(calls) == 2 and calls[1].tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook([a], calls.append, mode="some")


# ---- version counters ------------------------------------------------------------------------------------------------


@pytest.mark.row("A3.increment_version")
def test_increment_version(x):
    a = (x * 1).detach()
    y = x * a
    before = a._version
    graph.increment_version(a)
    graph.increment_version([a, a])
    assert a._version == before + 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        frozen = torch.ones(2)
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        graph.increment_version(frozen)
