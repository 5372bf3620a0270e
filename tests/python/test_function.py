"""`autograd.Function`, row by row of table A2. What is expected was read off PyTorch 2.13; values are derived by hand."""

from __future__ import annotations

import gc
import traceback
import warnings
import weakref

import pytest

import rustgrad as torch
from rustgrad.autograd import Function
from rustgrad.autograd.function import (
    BackwardCFunction,
    FunctionCtx,
    FunctionMeta,
    InplaceFunction,
    once_differentiable,
)


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor([float(v) for v in values], requires_grad=True)


def function(forward, backward=lambda ctx, *grads: grads[0], name="F", **more):
    """A custom function of two plain functions."""
    methods = {"forward": forward, "backward": backward, **more}
    return FunctionMeta(name, (Function,), {key: staticmethod(value) for key, value in methods.items()})


# ---- apply -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("A2.apply")
@pytest.mark.row("A1.function")
def test_the_node_is_the_context_and_named_after_the_function():
    seen = []
    fn = function(lambda ctx, x: seen.append(ctx) or x * 2, name="Double")
    node = fn.apply(leaf(1)).grad_fn
    assert seen == [node] and node.name() == type(node).__name__ == "DoubleBackward"
    assert isinstance(node, BackwardCFunction) and isinstance(node, FunctionCtx)
    assert isinstance(node, torch.autograd.graph.Node)
    assert type(node) is fn._backward_cls and node._forward_cls is fn
    assert repr(node).startswith("<rustgrad.autograd.function.DoubleBackward object at 0x")


@pytest.mark.row("A2.apply")
def test_a_subclass_takes_over_what_it_does_not_define():
    base = function(lambda ctx, x: x * 2, lambda ctx, g: g * 2)

    class Changed(base):
        @staticmethod
        def backward(ctx, g):
            return g * 20

    for fn, name, expected in ((base, "FBackward", 2.0), (Changed, "ChangedBackward", 20.0)):
        x = leaf(1)
        y = fn.apply(x)
        assert y.grad_fn.name() == name and torch.autograd.grad(y, x)[0].item() == expected


@pytest.mark.row("A2.apply")
def test_keyword_arguments_have_the_place_of_their_parameter():
    needs = []

    def forward(ctx, x, factor=2.0, *, shift=0.0):
        needs.append(ctx.needs_input_grad)
        return x * factor + shift

    fn = function(forward, lambda ctx, g: (g, g * 10))
    x, factor = leaf(1), leaf(3)
    fn.apply(factor=factor, x=x).backward()
    assert x.grad.item() == 1.0 and factor.grad.item() == 10.0
    assert fn.apply(x, factor=3.0, shift=0.5).item() == 3.5
    fn.apply(x)
    # Without keywords the arguments are those given.
    assert needs == [(True, True), (True, False), (True,)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        fn.apply(x, other=1)


@pytest.mark.row("A2.apply")
def test_grad_mode_is_off_in_forward_and_follows_create_graph_in_backward():
    modes = []
    fn = function(
        lambda ctx, x: modes.append(torch.is_grad_enabled()) or x * 2,
        lambda ctx, g: modes.append(torch.is_grad_enabled()) or g,
    )
    x = leaf(1)
    fn.apply(x).backward()
    torch.autograd.grad(fn.apply(x), x, create_graph=True)
    assert modes == [False, False, False, True]
    with torch.no_grad():
        y = fn.apply(x)
    assert y.grad_fn is None and not y.requires_grad


@pytest.mark.row("A2.apply")
def test_only_tensors_that_are_arguments_themselves_are_tracked():
    fn = function(lambda ctx, items: items[0] * 2)
    x = leaf(1)
    for items in ([x], (x,)):
        assert not fn.apply(items).requires_grad


@pytest.mark.row("A2.apply")
def test_results_that_are_no_tensors_pass_through_and_are_counted():
    grads = []
    fn = function(lambda ctx, x: (x * 2, 5, None, x * 3, [x]), lambda ctx, *g: grads.append(g) or g[0] * 2 + g[3] * 3)
    x = leaf(1)
    first, number, nothing, second, items = fn.apply(x)
    assert (number, nothing, items) == (5, None, [x])
    assert (first.output_nr, second.output_nr) == (0, 3)
    second.backward()
    assert grads == [(torch.zeros(1), None, None, torch.ones(1), None)] and x.grad.item() == 3.0
    assert all(not t.requires_grad for t in function(lambda ctx, x: [x * 2, x * 3]).apply(x))
    assert function(lambda ctx, x: None).apply(x) is None
    assert function(lambda ctx, *xs: tuple(xs)).apply() == ()


@pytest.mark.row("A2.apply")
def test_what_forward_recorded_for_itself_gives_way_to_the_function():
    kept = []

    def forward(ctx, x):
        with torch.enable_grad():
            kept.append(x * x)
        return kept[0]

    x = leaf(3)
    y = function(forward, lambda ctx, g: g * 100).apply(x)
    assert y is kept[0] and y.grad_fn.name() == "FBackward" and not y._is_view()
    y.backward()
    assert x.grad.item() == 100.0


# ---- the two forms, and the names of backward --------------------------------------------------------------------------


@pytest.mark.row("A2.two_forms")
def test_setup_context_sees_every_argument_by_position():
    seen = []

    def setup_context(ctx, inputs, output):
        seen.append(inputs)
        ctx.factor = inputs[1]
        ctx.save_for_backward(inputs[0], output)

    def backward(ctx, g):
        assert ctx.saved_tensors[1].grad_fn is ctx
        return g * ctx.factor, None

    fn = function(lambda x, factor=2.0: x * factor, backward, setup_context=setup_context)
    x = leaf(1)
    for call in (lambda: fn.apply(x), lambda: fn.apply(x, 4.0), lambda: fn.apply(factor=5.0, x=x)):
        call().backward()
    assert seen == [(x, 2.0), (x, 4.0), (x, 5.0)] and x.grad.item() == 11.0


@pytest.mark.row("A2.vjp_alias")
def test_backward_is_called_vjp_too_but_not_both():
    x = leaf(1)
    methods = {"forward": staticmethod(lambda ctx, x: x * 2), "vjp": staticmethod(lambda ctx, g: g * 7)}
    FunctionMeta("V", (Function,), methods).apply(x).backward()
    assert x.grad.item() == 7.0
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        function(lambda ctx, x: x * 2, vjp=lambda ctx, g: g).apply(x).backward()
    neither = FunctionMeta("N", (Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp method"):
        neither.apply(x).backward()
    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        FunctionMeta("E", (Function,), {}).apply(x)


@pytest.mark.row("A2.legacy_forms")
def test_old_forms_are_refused():
    class Old(Function):
        def forward(self, x):
            return x

    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Old()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        instance(leaf(1))
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        assert InplaceFunction(inplace=True).inplace
    with pytest.raises(NotImplementedError, match="To use autograd.Function with vmap"):
        Old.vmap(None, None)


# ---- what backward returns ---------------------------------------------------------------------------------------------


@pytest.mark.row("A2.number_of_grads")
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda g: g, r"incorrect number of gradients \(expected 2, got 1\)"),
        (lambda g: (g, g, g), r"incorrect number of gradients \(expected 2, got 3\)"),
        (lambda g: (), r"incorrect number of gradients \(expected 2, got 0\)"),
        (lambda g: (g, g, None, None), None),
        (lambda g: (None, g), None),
        (lambda g: (None, None), None),
    ],
)
def test_one_gradient_for_each_argument(returned, message):
    y = function(lambda ctx, a, b: a + b, lambda ctx, g: returned(g)).apply(leaf(1), leaf(2))
    if message is None:
        y.backward()
        return
    with pytest.raises(RuntimeError, match="function FBackward returned an " + message):
        y.backward()


@pytest.mark.row("A2.number_of_grads")
def test_no_gradient_for_what_is_no_tensor():
    fn = function(lambda ctx, a, k: a * k, lambda ctx, g: (g, g))
    with pytest.raises(RuntimeError, match="returned a gradient different than None at position 2, but the corr"):
        fn.apply(leaf(1), 2.0).backward()


@pytest.mark.row("A2.grad_validation")
@pytest.mark.row("A12.function_texts")
@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda: 1, RuntimeError, r"expected Variable or None \(got int\)"),
        (lambda: "a", RuntimeError, r"expected Variable or None \(got str\)"),
        (lambda: torch.ones(3), RuntimeError, r"invalid gradient at index 0 - got \[3\] but expected shape compatible"),
        (lambda: torch.ones(3, 1), RuntimeError, r"invalid gradient at index 0 - got \[3, 1\] but expected shape comp"),
    ],
)
def test_gradients_must_fit(returned, error, message):
    y = function(lambda ctx, x: x * 2, lambda ctx, g: returned()).apply(leaf(1, 2))
    with pytest.raises(error, match=message):
        y.sum().backward()


@pytest.mark.row("A2.grad_validation")
@pytest.mark.parametrize(
    ("grad", "expected"),
    [
        (torch.ones(4, 2), [4.0, 4.0]),
        (torch.ones(2, dtype=torch.float64), [1.0, 1.0]),
        (torch.ones(2, dtype=torch.int64), [1.0, 1.0]),
        (torch.tensor([True, False]), [1.0, 0.0]),
    ],
)
def test_gradients_are_summed_and_cast_to_the_input(grad, expected):
    x = leaf(1, 2)
    function(lambda ctx, x: x * 2, lambda ctx, g: grad).apply(x).sum().backward()
    assert x.grad.tolist() == expected and x.grad.dtype == torch.float32


# ---- what is saved -----------------------------------------------------------------------------------------------------


@pytest.mark.row("A2.save_for_backward")
@pytest.mark.row("A2.saved_tensors")
@pytest.mark.parametrize("make", [lambda: leaf(2), lambda: leaf(2) * 1], ids=["leaf", "non-leaf"])
def test_inputs_come_back_as_themselves_and_results_with_their_history(make):
    def forward(ctx, x, w):
        y, inner = x * w, x * 3
        ctx.save_for_backward(x, None, w, y, inner)
        return y

    def backward(ctx, g):
        sx, nothing, sw, sy, inner = ctx.saved_tensors
        assert sx is x and sw is w and sy.grad_fn is ctx and nothing is None and not inner.requires_grad
        return g, None

    x, w = make(), torch.ones(1)
    y = function(forward, backward).apply(x, w)
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.grad_fn.saved_tensors  # noqa: B018


@pytest.mark.row("A2.save_for_backward")
def test_the_last_call_counts_and_only_in_forward():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_backward(x * 5, x * 6)
        assert ctx.saved_tensors == ()
        return x * 2

    def backward(ctx, g):
        ctx.save_for_backward(g)
        assert [t.item() for t in ctx.saved_tensors] == [5.0, 6.0]
        return g

    function(forward, backward).apply(leaf(1)).backward()


@pytest.mark.row("A2.save_for_backward")
@pytest.mark.parametrize(("values", "place", "kind"), [((1,), 0, "int"), ((torch.ones(1), [1]), 1, "list")])
def test_only_tensors_are_saved(values, place, kind):
    def forward(ctx, x):
        ctx.save_for_backward(*values)
        return x * 2

    fn = function(forward)
    with pytest.raises(
        TypeError, match=f"save_for_backward can only save variables, but argument {place} is of type {kind}"
    ):
        fn.apply(leaf(1))
    assert fn.apply(torch.ones(1)).item() == 2.0  # nothing is saved


@pytest.mark.row("A2.save_for_backward")
def test_saved_values_are_checked_when_they_are_read():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    x = leaf(1)
    changed = x * 1
    y = function(forward, lambda ctx, g: g).apply(changed)
    z = function(forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(changed)
    changed.add_(1)
    y.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@pytest.mark.row("A2.saved_tensors")
def test_a_freed_node_says_so_and_one_that_reads_nothing_runs_again():
    seen = []

    def backward(ctx, g):
        seen.append(ctx)
        return g if len(seen) == 1 else g + len(ctx.saved_tensors)

    x = leaf(1)
    y = function(lambda ctx, x: x * 2, lambda ctx, g: g).apply(x)
    y.backward()
    y.backward()
    assert x.grad.item() == 2.0
    y = function(lambda ctx, x: x * 2, backward).apply(x)
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


@pytest.mark.row("A2.saved_tensors")
def test_the_old_name_of_saved_tensors():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    def backward(ctx, g):
        with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated; use 'saved_tensors'"):
            return g * ctx.saved_variables[0]

    x = leaf(3)
    function(forward, backward).apply(x).backward()
    assert x.grad.item() == 3.0


@pytest.mark.row("A2.ctx_attributes")
def test_attributes_live_on_the_node():
    def forward(ctx, x):
        ctx.kept = [1]
        return x * 2

    def backward(ctx, g):
        assert ctx.kept == [1] and ctx.added == 2 and not hasattr(ctx, "other")
        return g

    y = function(forward, backward).apply(leaf(1))
    y.grad_fn.added = 2
    y.backward()
    assert y.grad_fn.kept == [1]


@pytest.mark.row("A2.ctx_attributes")
def test_a_context_that_holds_its_output_is_collected():
    class Payload:
        pass

    def forward(ctx, x):
        ctx.y, ctx.payload = x * 2, Payload()
        return ctx.y

    y = function(forward).apply(leaf(1))
    alive = weakref.ref(y.grad_fn.payload)
    assert y.grad_fn.y is y
    del y
    gc.collect()
    assert alive() is None


@pytest.mark.row("A2.needs_input_grad")
def test_needs_input_grad_has_an_entry_for_each_argument():
    seen = []

    def forward(ctx, *args):
        seen.append(ctx.needs_input_grad)
        return args[0] * 2

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, None, None

    function(forward, backward).apply(leaf(1), torch.ones(1), "text").backward()
    assert seen == [(True, False, False)] * 2


# ---- marks -------------------------------------------------------------------------------------------------------------


def add_one(ctx, x):
    ctx.mark_dirty(x)
    return x.add_(1)


@pytest.mark.row("A2.mark_dirty")
def test_a_changed_input_is_the_result():
    fn = function(add_one, lambda ctx, g: g * 2)
    x = leaf(1)
    h = x * 1
    before = h._version
    y = fn.apply(h)
    assert y is h and h._version > before and h.grad_fn.name() == "FBackward"
    h.backward()
    assert x.grad.item() == 2.0


@pytest.mark.row("A2.mark_dirty")
def test_a_changed_view_changes_its_base():
    x = leaf(1, 2)
    h = x * 1
    view = h[0]
    assert function(add_one, lambda ctx, g: g * 2).apply(view) is view
    assert h.grad_fn.name() == "torch::autograd::CopySlices" and view._base is h
    h.sum().backward()
    assert x.grad.tolist() == [2.0, 1.0]


@pytest.mark.row("A2.mark_dirty")
def test_a_change_that_does_not_require_grad_may_begin_to():
    def forward(ctx, a, b):
        ctx.mark_dirty(a)
        return a.mul_(b)

    a, b = torch.ones(2), leaf(3, 4)
    assert function(forward, lambda ctx, g: (None, g * 7)).apply(a, b) is a
    assert a.requires_grad and not a.is_leaf
    a.sum().backward()
    assert b.grad.tolist() == [7.0, 7.0]


@pytest.mark.row("A2.mark_dirty")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: leaf(1), "a leaf Variable that requires grad has been used in an in-place operation"),
        (lambda: leaf(1, 2)[0], "a view of a leaf Variable that requires grad is being used in an in-place operation"),
        (lambda: (leaf(1, 2) * 1).unbind()[0], "This view is the output of a function that returns multiple views"),
    ],
)
def test_what_may_not_be_changed(make, message):
    with pytest.raises(RuntimeError, match=message):
        function(add_one).apply(make())


@pytest.mark.row("A2.mark_dirty")
def test_marks_are_checked():
    def mark(name, value):
        def forward(ctx, x):
            getattr(ctx, name)(value)
            return x * 1

        return function(forward)

    with pytest.raises(RuntimeError, match="mark_dirty can only accept variables, but argument 0 is of type int"):
        mark("mark_dirty", 5).apply(leaf(1))
    with pytest.raises(RuntimeError, match="mark_non_differentiable only accepts variable arguments, but got int"):
        mark("mark_non_differentiable", 5).apply(leaf(1))
    with pytest.raises(RuntimeError, match="Some elements marked as dirty during the forward method were not returned"):
        mark("mark_dirty", torch.ones(1)).apply(leaf(1))

    def forward(ctx, x):
        y = x + 1
        ctx.mark_dirty(y)
        return y

    with pytest.warns(UserWarning, match=r"ctx.mark_dirty\(\) received a tensor that was not an input"):
        function(forward).apply(leaf(1))


@pytest.mark.row("A2.mark_non_differentiable")
def test_results_without_gradient_get_zeros():
    grads = []

    def forward(ctx, x):
        order, triple = x.argsort(), x * 3
        ctx.mark_non_differentiable(order, triple)
        return x * 2, order, triple

    y, order, triple = function(forward, lambda ctx, *g: grads.append(g) or g[0]).apply(leaf(1, 2))
    assert not order.requires_grad and not triple.requires_grad and triple.is_leaf
    y.sum().backward()
    ((_, second, third),) = grads
    assert second.tolist() == [0, 0] and second.dtype == torch.int64 and third.tolist() == [0.0, 0.0]


@pytest.mark.row("A2.mark_non_differentiable")
def test_integer_results_are_never_differentiable():
    y, order = function(lambda ctx, x: (x * 2, x.argsort())).apply(leaf(1, 2))
    assert y.requires_grad and not order.requires_grad and order.grad_fn is None


@pytest.mark.row("A2.set_materialize_grads")
@pytest.mark.parametrize("materialize", [True, False])
def test_missing_gradients_are_zeros_or_none(materialize):
    grads = []

    def forward(ctx, x):
        ctx.set_materialize_grads(materialize)
        return x * 2, x * 3, x.long()

    fn = function(forward, lambda ctx, *g: grads.append(g) or g[1])
    fn.apply(leaf(1))[1].backward()
    ((first, second, third),) = grads
    assert second.item() == 1.0
    if materialize:
        assert first.item() == 0.0 and third.item() == 0 and third.dtype == torch.int64
    else:
        assert first is None and third is None


@pytest.mark.row("A2.once_differentiable")
def test_a_result_that_may_not_be_differentiated_again():
    modes = []

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @once_differentiable
    def backward(ctx, g):
        modes.append(torch.is_grad_enabled())
        return g * 2 * ctx.saved_tensors[0]

    fn, x = function(forward, backward), leaf(3)
    (plain,) = torch.autograd.grad(fn.apply(x), x, create_graph=True)
    assert plain.item() == 6.0 and not plain.requires_grad  # the gradient that came in requires none
    (found,) = torch.autograd.grad(fn.apply(x) ** 2, x, create_graph=True)
    assert found.requires_grad and modes == [False, False]
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_diff"):
        found.backward()


# ---- inputs that come back ---------------------------------------------------------------------------------------------


@pytest.mark.row("A2.returning_an_input")
@pytest.mark.parametrize("forward", [lambda ctx, x: x, lambda ctx, x: x.view(-1)], ids=["itself", "a view"])
def test_an_input_that_comes_back_is_a_view_that_may_not_be_changed(forward):
    x = leaf(1, 2)
    y = function(forward, lambda ctx, g: g * 10).apply(x)
    assert y is not x and y._is_view() and y._base is x and y.grad_fn.name() == "FBackward"
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        y[0].add_(1)
    y.sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


@pytest.mark.row("A2.returning_an_input")
def test_views_that_come_back_together_may_not_be_changed():
    for forward in (lambda ctx, x: (x, x), lambda ctx, x: (x[:1], x[1:]), lambda ctx, x: (x * 2, x.view(-1))):
        results = function(forward, lambda ctx, g, h: torch.zeros(2)).apply(leaf(1, 2) * 1)
        with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views"):
            results[1].add_(1)


@pytest.mark.row("A2.returning_an_input")
def test_inputs_come_back_in_another_order():
    x, y = leaf(1), leaf(2)
    a, b = function(lambda ctx, x, y: (y, x), lambda ctx, g, h: (h * 2, g * 3)).apply(x, y)
    (a * 5 + b * 7).backward()
    assert (a.item(), b.item(), x.grad.item(), y.grad.item()) == (2.0, 1.0, 14.0, 15.0)


@pytest.mark.row("A2.returning_an_input")
def test_without_recording_an_input_comes_back_without_history():
    fn, x = function(lambda ctx, x: x), leaf(1)
    with torch.no_grad():
        y = fn.apply(x)
    assert y is not x and not y.requires_grad and x.requires_grad and y.data_ptr() == x.data_ptr()
    with torch.inference_mode():
        frozen = torch.ones(1)
        assert fn.apply(frozen).is_inference() and not fn.apply(x).is_inference()


# ---- errors, derivatives, hooks ----------------------------------------------------------------------------------------


class Special(BaseException):
    pass


@pytest.mark.row("A2.exceptions")
@pytest.mark.parametrize("error", [KeyError("mine"), Special("mine"), KeyboardInterrupt(), RuntimeError("two\nlines")])
def test_exceptions_pass_unchanged_with_their_traceback(error):
    def inner():
        raise error

    x = leaf(1)
    with pytest.raises(type(error)) as caught:
        function(lambda ctx, x: x * 2, lambda ctx, g: inner()).apply(x).backward()
    assert caught.value is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "inner"
    assert x.grad is None and torch.is_grad_enabled()
    with pytest.raises(type(error)):
        function(lambda ctx, x: inner()).apply(x)
    assert torch.is_grad_enabled()
    (x * 2).backward()
    assert x.grad.item() == 2.0


@pytest.mark.row("A2.exceptions")
def test_a_backward_that_failed_can_be_run_again_if_it_was_to_be_kept():
    calls = []

    def backward(ctx, g):
        calls.append(ctx)
        if len(calls) == 1:
            raise ValueError("the first time")
        return g * 2

    x = leaf(1)
    y = function(lambda ctx, x: x * 2, backward).apply(x)
    with pytest.raises(ValueError, match="the first time"):
        y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 2.0


@pytest.mark.row("A2.apply")
def test_functions_differentiate_to_any_order():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2

    x = leaf(2)
    y = function(forward, backward).apply(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second, x)
    assert (first.item(), second.item(), third.item()) == (12.0, 12.0, 6.0)


@pytest.mark.row("A2.apply")
def test_hooks_on_the_node_of_a_function():
    calls = []
    x, y = leaf(1), leaf(2)
    a, b = function(lambda ctx, x, y, k: (x * 2, y * 3), lambda ctx, g, h: (g * 2, h * 3, None)).apply(x, y, "k")
    node = a.grad_fn
    assert b.grad_fn is node
    node.register_prehook(lambda go: calls.append(go) or (go[0] * 10, go[1]))
    node.register_hook(lambda gi, go: calls.append((gi, go)) or (gi[0], gi[1] + 1))
    a.backward()
    assert calls == [
        (torch.ones(1), None),
        ((torch.tensor([20.0]), torch.zeros(1)), (torch.tensor([10.0]), None)),
    ]
    assert (x.grad.item(), y.grad.item()) == (20.0, 1.0)


@pytest.mark.row("A2.needs_input_grad")
def test_unused_inputs_have_no_gradient():
    fn = function(lambda ctx, x, y: x * 2, lambda ctx, g: (g * 2, None))
    x, y = leaf(1), leaf(2)
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 1 appears to not have been used"):
        torch.autograd.grad(fn.apply(x, y), (x, y))
    assert torch.autograd.grad(fn.apply(x, y), (x, y), allow_unused=True)[1] is None
    fn.apply(x, y).backward()
    assert x.grad.item() == 2.0 and y.grad is None


@pytest.mark.row("A9.reentrant")
@pytest.mark.parametrize("depth", [1, 59, 200, 5_000])
def test_backward_inside_backward(depth):
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x * 2

    def backward(ctx, g):
        if ctx.depth == 0:
            return g * 2, None
        inner = torch.ones(1, requires_grad=True)
        with torch.enable_grad():
            fn.apply(inner, ctx.depth - 1).backward(g)
        return inner.grad, None

    fn, x = function(forward, backward), leaf(1)
    fn.apply(x, depth).backward()
    assert x.grad.item() == 2.0


def test_nothing_warns_where_nothing_is_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(add_one).apply(leaf(1) * 1).backward()
