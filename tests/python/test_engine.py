"""The engine, row by row of table A9: order, hooks, missing gradients, what is freed, re-entrance, threads, state.

What is expected was read off PyTorch 2.13; values are derived by hand.
"""

from __future__ import annotations

import threading

import pytest

import rustgrad as torch
from rustgrad.autograd import Function


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values], requires_grad=True)


class Cut(Function):
    """The identity, with no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return None


# ---- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("A9.ready_order")
def test_the_newest_node_runs_first_whatever_the_order_of_use():
    x, order = leaf(1), []
    parts = [x.exp() for _ in range(4)]
    for k, part in enumerate(parts):
        part.register_hook(lambda _, k=k: order.append(k))
    (parts[2] + parts[0] + parts[3] + parts[1]).backward()
    assert order == [3, 2, 1, 0]


@pytest.mark.row("A9.ready_order")
def test_a_leaf_runs_as_soon_as_it_is_ready():
    x, w, order = leaf(1), leaf(2), []
    x.register_post_accumulate_grad_hook(lambda _: order.append("x"))
    w.register_post_accumulate_grad_hook(lambda _: order.append("w"))
    h = x.exp()
    h.register_hook(lambda _: order.append("h"))
    (h * w).backward()
    assert order == ["w", "h", "x"]


@pytest.mark.row("A9.hook_order")
def test_hooks_at_a_node_and_at_a_leaf():
    x, order = leaf(1), []
    h = x * 2
    node, accumulation = h.grad_fn, h.grad_fn.next_functions[0][0]
    h.register_hook(lambda _: order.append("tensor 1"))
    node.register_prehook(lambda _: order.append("pre"))
    node.register_hook(lambda *_: order.append("post"))
    h.retain_grad()
    h.register_hook(lambda g: order.append("tensor 2") or g * 3)
    accumulation.register_hook(lambda gi, go: order.append(("leaf post", gi)))
    accumulation.register_prehook(lambda _: order.append(("leaf pre", x.grad)))
    x.register_hook(lambda _: order.append(("leaf tensor", x.grad)))
    x.register_post_accumulate_grad_hook(lambda p: order.append(("accumulated", p.grad.item())))
    h.backward()
    assert h.grad.item() == 3.0  # after all tensor hooks, whenever they were registered
    assert order == [
        "tensor 1",
        "tensor 2",
        "pre",
        "post",
        ("leaf tensor", None),
        ("leaf pre", None),
        ("accumulated", 6.0),
        ("leaf post", ()),
    ]


# ---- hooks that come and go --------------------------------------------------------------------------------------------


@pytest.mark.row("A9.hooks_changed_in_backward")
def test_a_hook_may_remove_itself_and_those_of_nodes_that_are_to_run():
    x, seen, handles = leaf(1), [], []
    a = x * 2
    b = a * 2
    later = a.register_hook(lambda _: seen.append("removed"))
    b.register_hook(lambda _: later.remove())
    handles.append(a.register_hook(lambda _: [handle.remove() for handle in handles] and None))
    handles.append(a.register_hook(lambda _: seen.append("of this round")))
    handles.append(x.register_hook(lambda _: handles[-1].remove()))
    handles.append(x.register_post_accumulate_grad_hook(lambda _: seen.append("removed")))
    b.backward(retain_graph=True)
    assert seen == ["of this round"]
    b.backward()
    assert seen == ["of this round"]


@pytest.mark.row("A9.hooks_changed_in_backward")
def test_a_hook_registered_in_a_backward_runs_from_the_next_on():
    x, seen = leaf(1), []
    x.register_hook(lambda _: x.register_hook(lambda _: seen.append("new")) and None)
    (x * 1).backward()
    assert seen == []
    (x * 1).backward()
    assert seen == ["new"]


@pytest.mark.row("A9.hooks_changed_in_backward")
def test_a_prehook_may_remove_the_hook_of_its_own_node():
    y, seen = leaf(1) * 2, []
    y.grad_fn.register_prehook(lambda _: post.remove())
    post = y.grad_fn.register_hook(lambda *_: seen.append("removed"))
    y.backward()
    assert seen == []


@pytest.mark.row("A9.hook_order")
@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda g: g[0], TypeError, "expected tuple, but hook returned 'Tensor'"),
        (lambda g: list(g), TypeError, "expected tuple, but hook returned 'list'"),
        (lambda g: 5, TypeError, "expected tuple, but hook returned 'int'"),
        (lambda g: (5,) * len(g), TypeError, "expected Variable, but hook returned 'int'"),
        (lambda g: (), RuntimeError, r"hook '<lambda>' has returned an incorrect number of values \(got 0, but"),
        (lambda g: (torch.ones(3),) * len(g), RuntimeError, "hook '<lambda>' has changed the size of value"),
        (lambda g: (g[0].double(),) * len(g), RuntimeError, r"changed the type of value \(was torch.FloatTensor got"),
    ],
)
@pytest.mark.parametrize("pre", [True, False])
def test_what_node_hooks_return_is_checked(returned, error, message, pre):
    y = leaf(1, 2) * leaf(3, 4)
    if pre:
        y.grad_fn.register_prehook(lambda grads: returned(grads))
    else:
        y.grad_fn.register_hook(lambda grads, _: returned(grads))
    with pytest.raises(error, match=message):
        y.sum().backward()


# ---- accumulation ------------------------------------------------------------------------------------------------------


@pytest.mark.row("A9.accumulation")
def test_a_gradient_that_others_hold_is_copied():
    w, g, seen = leaf(1, 2), torch.ones(2), []
    (w * 1).backward(g)
    assert w.grad.data_ptr() != g.data_ptr()
    w = leaf(1, 2)
    w.register_hook(seen.append)
    (w * 2).sum().backward()
    (w * 2).sum().backward()
    assert [s.tolist() for s in seen] == [[2.0, 2.0]] * 2 and w.grad.tolist() == [4.0, 4.0]


@pytest.mark.row("A9.accumulation")
@pytest.mark.row("A1.grad")
def test_the_layout_of_a_gradient_is_that_of_its_leaf():
    column = torch.ones(2, 3).t().requires_grad_()
    (column.t() * torch.arange(6.0).view(2, 3)).sum().backward()
    assert column.grad.stride() == column.stride()
    row = torch.ones(3, 2, requires_grad=True)
    (row.t() * torch.arange(6.0).view(2, 3)).sum().backward()
    assert row.grad.is_contiguous() and row.grad.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    gapped = torch.ones(6)[::2].requires_grad_()
    gapped.sum().backward()
    assert gapped.grad.is_contiguous()


@pytest.mark.row("A9.accumulation")
def test_the_layout_of_a_gradient_may_be_left_as_it_is():
    policy = torch.autograd.enforce_grad_layout_policy

    def stride():
        row = torch.ones(3, 2, requires_grad=True)
        row.register_hook(lambda g: torch.ones(2, 3).t() * 1)
        row.sum().backward()
        return row.grad.stride()

    with policy(False):
        assert stride() == (1, 3)
    assert stride() == (2, 1)


# ---- missing gradients -------------------------------------------------------------------------------------------------


@pytest.mark.row("A9.undefined_gradients")
def test_hooks_run_without_a_gradient_and_may_not_invent_one():
    x, seen = leaf(1), []
    x.register_hook(lambda g: seen.append(("leaf", g)))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("accumulated", p.grad)))
    h = x * 2
    h.register_hook(lambda g: seen.append(("tensor", g)))
    h.grad_fn.register_prehook(lambda go: seen.append(("pre", go)))
    h.grad_fn.register_hook(lambda gi, go: seen.append(("post", gi, go)))
    Cut.apply(h).backward()
    assert x.grad is None and seen == [
        ("tensor", None),
        ("pre", (None,)),
        ("post", (None, None), (None,)),
        ("leaf", None),
        ("accumulated", None),
    ]
    for register in (
        lambda h: h.register_hook(lambda _: torch.ones(1)),
        lambda h: h.grad_fn.register_prehook(lambda _: (torch.ones(1),)),
        lambda h: h.grad_fn.register_hook(lambda *_: (torch.ones(1), None)),
    ):
        h = leaf(1) * 2
        register(h)
        with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
            Cut.apply(h).backward()


@pytest.mark.row("A9.undefined_gradients")
def test_a_hook_of_a_result_that_is_not_used_sees_none():
    seen = []
    a, b = (leaf(1, 2) * 1).unbind()
    b.register_hook(seen.append)
    a.backward()
    assert seen == [None]


@pytest.mark.row("A9.undefined_gradients")
@pytest.mark.parametrize(
    "f",
    [
        torch.sqrt,
        lambda x: x.softmax(0),
        lambda x: x.sum(),
        lambda x: x[0],
        lambda x: x.sort()[0],
        lambda x: torch.cat([x, x]),
        lambda x: x @ torch.ones(2, 2),
        lambda x: torch.where(x > 1, x, x * 2),
        lambda x: torch.nn.functional.layer_norm(x, (2,)),
        lambda x: x.double(),
    ],
)
def test_every_kind_of_node_takes_a_missing_gradient(f):
    x = leaf(1, 2)
    Cut.apply(f(x * 1)).sum().backward()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.autograd.grad(Cut.apply(f(x)).sum(), x)
    (zeros,) = torch.autograd.grad(Cut.apply(f(x)).sum(), x, materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0]


# ---- what is freed -----------------------------------------------------------------------------------------------------


@pytest.mark.row("A9.freeing")
@pytest.mark.parametrize(
    ("f", "saves"),
    [
        (lambda x: x + 1, False),
        (lambda x: x.sum(), False),
        (lambda x: -x, False),
        (lambda x: x.view(1), False),
        (lambda x: x.clone(), False),
        (lambda x: x[0], False),
        (lambda x: x * x, True),
        (lambda x: x.exp(), True),
        (lambda x: x.relu(), True),
        (lambda x: x / x, True),
        (lambda x: x.pow(2), True),
        (lambda x: x @ x, True),
    ],
)
def test_a_second_backward_fails_where_something_was_saved(f, saves):
    y = f(leaf(1))
    y.backward()
    if saves:
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            y.backward()
    else:
        y.backward()


@pytest.mark.row("A9.freeing")
def test_only_what_ran_is_freed():
    x = leaf(2)
    h = x.exp()
    y = h * h
    torch.autograd.grad(y, h)
    assert torch.autograd.grad(h, x)[0].tolist() == h.tolist()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, h)
    y = x * x
    torch.autograd.grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


# ---- inside one another, at the same time ------------------------------------------------------------------------------


@pytest.mark.row("A9.reentrant")
def test_a_backward_inside_a_hook_may_end_at_the_same_leaf_and_pass_the_same_node():
    x = leaf(1)
    y = x.exp()
    shared = y.detach().item()

    def hook(_):
        with torch.enable_grad():
            (x * 5).backward()
        y.backward(retain_graph=True)

    z = y * 1
    z.register_hook(hook)
    z.backward()
    assert x.grad.item() == pytest.approx(5 + 2 * shared)


@pytest.mark.row("A9.reentrant")
def test_an_error_in_an_inner_backward_ends_all_and_leaves_nothing_behind():
    def fail(_):
        raise ValueError("inner")

    def inner(_):
        w = leaf(1)
        with torch.enable_grad():
            v = w * 2
        v.register_hook(fail)
        v.backward()

    x = leaf(1)
    y = x * 2
    y.register_hook(inner)
    with pytest.raises(ValueError, match="inner"):
        y.backward()
    assert x.grad is None and torch.is_grad_enabled()
    (x * 2).backward()
    assert x.grad.item() == 2.0


@pytest.mark.row("A9.threads")
def test_threads_may_walk_one_retained_graph():
    x, errors = torch.zeros(1, requires_grad=True), []
    y = (x * 2 + x.sin()).sum()

    def work():
        try:
            for _ in range(50):
                y.backward(retain_graph=True)
        except Exception as error:  # shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and x.grad.item() == 600.0


@pytest.mark.row("A9.deep_graphs")
def test_a_long_chain_is_walked_and_freed():
    x = leaf(1)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1.0


# ---- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("A9.thread_local_state")
@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_mode_in_a_backward_is_create_graph_whatever_hooks_do(create_graph):
    x, modes = leaf(1), []
    y = x * 2
    y.register_hook(
        lambda _: modes.append(torch.is_grad_enabled()) or (torch.set_grad_enabled(not create_graph) and None)
    )
    y.grad_fn.register_hook(lambda *_: modes.append(torch.is_grad_enabled()))
    x.register_hook(lambda _: modes.append(torch.is_grad_enabled()))
    with torch.no_grad():
        torch.autograd.grad(y, x, create_graph=create_graph)
        assert not torch.is_grad_enabled()
    assert modes == [create_graph] * 3 and torch.is_grad_enabled()


@pytest.mark.row("A9.thread_local_state")
def test_a_backward_runs_on_the_thread_that_started_it():
    seen = []
    y = leaf(1) * 2
    y.register_hook(lambda _: seen.append(threading.current_thread()))
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert seen == [thread]


@pytest.mark.row("A9.thread_local_state")
def test_an_error_leaves_the_engine_as_it_was():
    x, w, fails = leaf(1), leaf(2), [True]
    h = x * w

    def hook(_):
        if fails:
            raise ValueError("not yet")

    h.register_hook(hook)
    y = h * w
    with pytest.raises(ValueError, match="not yet"):
        y.backward(retain_graph=True)
    assert x.grad is None and w.grad is None and torch.is_grad_enabled()
    fails.clear()
    y.backward()
    assert x.grad.item() == 4.0 and w.grad.item() == 4.0


@pytest.mark.row("A12.hook_texts")
def test_a_post_accumulate_hook_returns_nothing():
    x = leaf(1)
    x.register_post_accumulate_grad_hook(lambda _: 5)
    with pytest.raises(TypeError, match="expected Variable, but hook returned 'int'"):
        (x * 2).backward()
    assert x.grad.item() == 2.0
