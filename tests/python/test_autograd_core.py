"""The graph from Python: leaves, hooks, in-place changes, views, freed graphs, identity, double backward."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import warnings
import weakref

import pytest

import rustgrad as torch


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(list(values), requires_grad=True)


# ---- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.grad_attribute", "A3.identity")
def test_objects_keep_their_identity() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    y.sum().backward()
    assert x.grad is x.grad
    assert y.grad_fn is y.grad_fn
    accumulate, nr = y.grad_fn.next_functions[0]
    assert accumulate.variable is x and nr == 0 and accumulate.next_functions == ()
    assert accumulate.name() == "torch::autograd::AccumulateGrad" and type(accumulate).__name__ == "AccumulateGrad"
    assert y.grad_fn._saved_self is x if hasattr(y.grad_fn, "_saved_self") else True


@pytest.mark.row("A3.next_functions")
def test_next_functions_are_per_operand() -> None:
    x = leaf(1.0)
    y = (x * 2) + 1
    assert [(type(f).__name__ if f else None, nr) for f, nr in y.grad_fn.next_functions] == [
        ("MulBackward0", 0),
        (None, 0),
    ]


def test_attributes_weak_references_and_subclasses() -> None:
    x = torch.ones(2)
    x.tag = "kept"
    assert x.tag == "kept"
    alive = weakref.ref(x)
    del x
    assert alive() is None
    p = torch.nn.Parameter(torch.ones(2))
    assert isinstance(p, torch.Tensor) and type(p) is torch.nn.Parameter and repr(p).startswith("Parameter containing")


# ---- accumulation ------------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.grad_attribute")
def test_second_backward_adds_in_place_and_create_graph_does_not() -> None:
    x = leaf(1.0, 2.0)
    (x * 3).sum().backward()
    first, address = x.grad, x.grad.data_ptr()
    (x * 3).sum().backward()
    assert x.grad is first and x.grad.data_ptr() == address and x.grad.tolist() == [6.0, 6.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x).sum().backward(create_graph=True)
    assert x.grad is not first and x.grad.requires_grad and x.grad.tolist() == [8.0, 10.0]


def test_gradients_do_not_share_memory() -> None:
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    (a + b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0]


@pytest.mark.row("A9.accumulation")
def test_gradient_of_an_expanded_result_is_dense() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    x.sum().backward()
    assert x.grad.is_contiguous()
    (g,) = torch.autograd.grad(x.sum(), x)
    assert g.stride() == (0, 0)


# ---- hooks -------------------------------------------------------------------------------------------------------------


def test_a_retained_gradient_has_memory_of_its_own() -> None:
    x = torch.ones(3, requires_grad=True)
    given = torch.ones(3)
    y = x * 2
    z = y + 0
    y.retain_grad()
    z.retain_grad()
    assert y.grad_fn is not None
    # Whoever changes it changes nothing that flows on.
    y.grad_fn.register_prehook(lambda grads: (y.grad.zero_(), None)[1])
    z.backward(given)
    assert y.grad is not None and z.grad is not None
    z.grad.mul_(7)
    assert given.tolist() == [1.0] * 3 and y.grad.tolist() == [0.0] * 3 and x.grad.tolist() == [2.0] * 3
    w = x * 2
    w.retain_grad()
    w.sum().backward()
    assert w.grad.stride() == (1,) and w.grad.mul_(7).tolist() == [7.0] * 3


@pytest.mark.row("A8.register_hook", "A8.retain_grad", "A8.post_accumulate_hook")
def test_hooks_run_in_order_and_replace() -> None:
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(("first", g.item())))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(("third", g.item())))
    y.retain_grad()
    handle = x.register_hook(lambda g: seen.append(("leaf", g.item())))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("post", p.grad.item())))
    y.sum().backward()
    assert seen == [("first", 1.0), ("third", 10.0), ("leaf", 20.0), ("post", 20.0)]
    assert y.grad.tolist() == [10.0]
    handle.remove()
    handle.remove()
    seen.clear()
    (x * 1).sum().backward()
    assert seen == [("post", 21.0)]


@pytest.mark.row("A3.node")
def test_node_hooks_see_inputs_and_outputs() -> None:
    x = leaf(3.0)
    y = x * x
    calls = []
    y.grad_fn.register_prehook(lambda go: calls.append(("pre", go[0].item())))
    y.grad_fn.register_hook(lambda gi, go: calls.append(("post", [g.item() for g in gi], go[0].item())))
    y.sum().backward()
    assert calls == [("pre", 1.0), ("post", [3.0, 3.0], 1.0)]


@pytest.mark.row("A12.hook_texts")
def test_wrong_hook_results_are_errors() -> None:
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g[:1])
    with pytest.raises(RuntimeError, match="has changed the size of value"):
        x.sum().backward()
    x = leaf(1.0)
    x.register_hook(lambda g: 3)
    with pytest.raises(TypeError, match="expected Variable, but hook returned 'int'"):
        x.sum().backward()
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
        torch.ones(1).register_hook(print)


def test_an_exception_in_a_hook_passes_unchanged() -> None:
    class Special(Exception):
        pass

    def fail(_: torch.Tensor) -> None:
        raise Special("mine")

    x = leaf(1.0)
    y = x * 2
    y.register_hook(fail)
    with pytest.raises(Special, match="mine"):
        y.sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0]


def test_a_hook_that_refers_to_its_tensor_is_collected() -> None:
    class Payload:
        pass

    x, payload = leaf(1.0), Payload()
    alive = weakref.ref(payload)
    x.register_hook(lambda g, x=x, payload=payload: None)
    del x, payload
    gc.collect()
    assert alive() is None


# ---- in-place changes and views ----------------------------------------------------------------------------------------


@pytest.mark.row("A11.leaf")
def test_leaves_may_not_be_modified() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        x += 1
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0] = 1.0
    with torch.no_grad():
        x += 1
    assert x.tolist() == [2.0, 3.0] and x._version == 1


@pytest.mark.row("A11.view_of_non_leaf")
def test_history_follows_in_place_changes() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    y.mul_(3)
    y[0] = 5.0
    assert type(y.grad_fn).__name__ == "CopySlices"
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]


@pytest.mark.row("A11.change_of_base")
def test_views_share_history_and_versions() -> None:
    x = leaf(1.0, 2.0, 3.0, 4.0)
    base = x * 1
    view = base.view(2, 2)
    assert view._base is base and view._is_view()
    base.mul_(2)
    assert view._version == base._version == 1
    assert type(view.grad_fn).__name__ == "AsStridedBackward0"
    (view * view).sum().backward()
    assert x.grad.tolist() == [8.0, 16.0, 24.0, 32.0]


@pytest.mark.row("A11.multi_output_views")
@pytest.mark.parametrize("split", [lambda t: t.unbind(), lambda t: t.split(1), lambda t: t.chunk(2)])
def test_views_that_come_together_may_not_be_modified(split) -> None:
    y = leaf(1.0, 2.0) * 1
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        split(y)[0].add_(1)


@pytest.mark.row("A11.view_of_non_leaf", "A12.inplace_texts")
def test_views_made_without_recording_may_not_be_modified_with_it() -> None:
    y = leaf(1.0, 2.0) * 1
    with torch.no_grad():
        v = y[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        v.mul_(2)


@pytest.mark.row("A11.version_message", "A12.version_text", "A8.data")
def test_saved_values_are_checked() -> None:
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.detach().zero_()
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \[torch.FloatTensor \[2\]\]"):
        y.sum().backward()
    y = x.exp()
    y.data.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.row("A8.data")
def test_new_data_does_not_reach_saved_values() -> None:
    # Differs from PyTorch on purpose: backward uses what forward saw.
    x = leaf(2.0)
    y = x * x
    x.data = torch.tensor([100.0])
    y.sum().backward()
    assert x.grad.tolist() == [4.0]


# ---- grad, modes, double backward --------------------------------------------------------------------------------------


def test_grad_of_intermediates_and_unused() -> None:
    x, other = leaf(1.0, 2.0), leaf(1.0)
    mid = x * 2
    out = (mid * mid).sum()
    gx, gm = torch.autograd.grad(out, (x, mid), retain_graph=True)
    assert gx.tolist() == [8.0, 16.0] and gm.tolist() == [4.0, 8.0] and x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(out, other, retain_graph=True)
    assert torch.autograd.grad(out, other, allow_unused=True, retain_graph=True) == (None,)
    (zeros,) = torch.autograd.grad(out, other, materialize_grads=True)
    assert zeros.tolist() == [0.0]


@pytest.mark.row("A10.node_names")
def test_double_backward_names() -> None:
    x = leaf(0.5)
    (g,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x, create_graph=True)
    assert type(g.grad_fn).__name__ == "GeluBackwardBackward0"
    (gg,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (ggg,) = torch.autograd.grad(gg.sum(), x)
    # From PyTorch 2.13 in float64, rounded.
    assert abs(gg.item() - 0.616114) < 1e-5 and abs(ggg.item() + 0.660122) < 1e-4


@pytest.mark.row("A4.managers_and_decorators")
def test_modes_are_per_thread() -> None:
    x = leaf(1.0)
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        thread.start()
        thread.join()
        assert not (x * 2).requires_grad
    assert seen == [True]


@pytest.mark.row("A9.threads")
def test_threads_accumulate_without_loss() -> None:
    x = leaf(0.0)

    def work() -> None:
        for _ in range(200):
            (x * 1).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.grad.item() == 800.0


@pytest.mark.row("B2.deep_graphs", "A9.deep_graphs")
def test_a_million_nodes() -> None:
    x = torch.tensor(1.0, requires_grad=True)
    y = x * 1.0
    for _ in range(200_000):
        y = y + x
    y.backward()
    assert x.grad.item() == 200_001.0


# ---- custom functions --------------------------------------------------------------------------------------------------


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def test_custom_functions_differentiate_twice() -> None:
    x = leaf(2.0)
    y = Cube.apply(x)
    assert type(y.grad_fn).__name__ == "CubeBackward" and y.grad_fn.saved_tensors[0] is x
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [12.0]
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [12.0]


def test_custom_functions_are_checked() -> None:
    class Few(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match=r"function FewBackward returned an incorrect number of gradients"):
        Few.apply(leaf(1.0), leaf(1.0)).sum().backward()

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 1

        @staticmethod
        def backward(ctx, g):
            return torch.ones(3)

    with pytest.raises(RuntimeError, match=r"Function BadBackward returned an invalid gradient at index 0 - got \[3\]"):
        Bad.apply(leaf(1.0, 2.0)).sum().backward()


def test_an_input_returned_as_it_is_becomes_a_view() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(1.0)
    y = Same.apply(x * 1)
    y.sum().backward()
    assert x.grad.tolist() == [5.0]


# ---- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.row("A8.deepcopy", "A8.pickling")
def test_copies_and_pickles() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.tolist() == x.tolist() and twin.grad.tolist() == x.grad.tolist() and twin.requires_grad
    twin.grad.zero_()
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)
    back = pickle.loads(pickle.dumps((x * 2).view(1, 2).t()))
    assert back.is_leaf and back.requires_grad and tuple(back.shape) == (2, 1) and back.tolist() == [[2.0], [4.0]]


# ---- tensors that were given other data, sizes that nobody has memory for -------------------------------------------


@pytest.mark.row("A8.data")
@pytest.mark.parametrize("n", [2, 20_000])
def test_data_of_another_shape_is_an_error_in_backward(n):
    for _ in range(3):
        for shape in ((n + 1,), (1,), (0,), (2, n + 1)):
            x = torch.ones(n, requires_grad=True)
            y = x * 2
            y.data = torch.ones(shape)
            z = y * y
            with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
                z.sum().backward()
            assert x.grad is None
        x = torch.ones(n, requires_grad=True)
        y = x.neg()
        x.data = torch.ones(n + 1)
        z = x.neg()
        with pytest.raises(RuntimeError, match="invalid gradient"):
            (z.sum() + y.sum()).backward()
        y = torch.ones(n, requires_grad=True) * 2
        y.data = torch.ones(n + 2)
        with pytest.raises(RuntimeError, match="invalid gradient"):
            y.backward(torch.ones(n + 2))


def test_a_leaf_may_be_told_to_need_no_gradient():
    x = torch.ones(2, requires_grad=True)
    y = x * x
    x.requires_grad_(False)
    y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.randperm(1 << 44),
        lambda: torch.multinomial(torch.ones(3), 1 << 45, True),
        lambda: torch.histc(torch.ones(3), 1 << 45),
        lambda: torch.ones(0).chunk(1 << 45),
        lambda: torch.ones(1).expand(1 << 45).split(1),
        lambda: torch.ones(1).expand(1 << 45).unbind(0),
        lambda: torch.ones(1).expand(1 << 45).topk(1),
        lambda: torch.ones(1).expand(1 << 45).kthvalue(1),
        lambda: torch.ones(1).expand(1 << 45).sort(),
        lambda: torch.ones(1).expand(1 << 45).masked_select(torch.tensor(True)),
        lambda: torch.ones(1).expand(1 << 45).bernoulli(),
        lambda: torch.ones(4).tensor_split(1 << 62),
        lambda: torch.tril_indices(1 << 40, 1 << 40),
        lambda: torch.ones(3).repeat_interleave(torch.tensor([1 << 62, 1 << 62, 1])),
    ],
)
def test_sizes_beyond_memory_are_errors(call):
    with pytest.raises(RuntimeError, match=r"memory|alloc"):
        call()


def test_triangles_of_rows_without_columns_are_empty_at_once():
    assert torch.tril_indices(1 << 40, 0).shape == (2, 0)
    assert torch.triu_indices(1 << 40, 2).tolist() == [[0, 0, 1], [0, 1, 1]]
    assert torch.tril_indices(3, 3, -1).tolist() == [[1, 2, 2], [0, 0, 1]]


def test_a_tensor_without_dimensions_has_no_stride_to_ask_for():
    for dim in (0, -1):
        with pytest.raises(IndexError, match="tensor has no dimensions"):
            torch.tensor(2).stride(dim)


@pytest.mark.row("A11.version_message")
def test_operations_are_named_without_their_suffix():
    x = torch.ones(3, 2, requires_grad=True)
    y = x.exp()
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="which is output 0 of Add,"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="Output 0 of Unbind is a view"):
        (x * 1).unbind()[0].add_(1)


def test_heaviside_of_nan_is_zero():
    values = torch.tensor([float("nan"), -1.0, 0.0, 2.0])
    assert torch.heaviside(values, torch.full((4,), 5.0)).tolist() == [0.0, 0.0, 5.0, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (16, 16), (257,), (100_000,), (0,), (3, 1, 2)])
def test_one_gradient_for_all_elements_is_taken_over_and_added(shape: tuple[int, ...], dtype: str) -> None:
    x = torch.ones(shape, dtype=getattr(torch, dtype), requires_grad=True)
    seen: list[torch.Tensor] = []
    x.register_hook(seen.append)
    for times in (1, 2, 3):
        (x.sum() * 0.5).backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape and x.grad.dtype == x.dtype and x.grad.is_contiguous()
        assert (x.grad == 0.5 * times).all()
    # What a hook kept is not what was added to.
    assert all((grad == 0.5).all() for grad in seen)
