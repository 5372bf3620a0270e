"""`queue_callback`: functions that run when a whole backward is done."""

import threading

import pytest

import rustgrad as torch
from rustgrad.autograd import Variable

queue = Variable._execution_engine.queue_callback


def backward(hook, **options):
    """Runs a backward with `hook` in the middle and returns its leaf."""
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    y.sum().backward(**options)
    return x


@pytest.mark.row("A9.queue_callback")
def test_callbacks_run_in_order_after_everything_else():
    order = []
    x = torch.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: order.append("leaf"))
    y = x * 2

    def hook(grad):
        queue(lambda: order.append("first"))
        queue(lambda: order.append(("second", x.grad.tolist())))
        order.append("hook")

    y.register_hook(hook)
    y.sum().backward()
    assert order == ["hook", "leaf", "first", ("second", [2, 2])]


@pytest.mark.row("A9.queue_callback")
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_callback_runs_inside_the_backward_and_may_queue_another(create_graph):
    seen = []

    def first():
        seen.append(torch.is_grad_enabled())
        queue(lambda: seen.append("second"))

    backward(lambda grad: queue(first), create_graph=create_graph)
    assert seen == [create_graph, "second"]


@pytest.mark.row("A9.queue_callback")
def test_grad_runs_callbacks_too():
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: queue(lambda: seen.append(1)))
    torch.autograd.grad(y.sum(), x)
    assert seen == [1]


@pytest.mark.row("A9.queue_callback", "A9.reentrant")
def test_an_inner_backward_runs_its_own():
    order = []

    def outer(grad):
        queue(lambda: order.append("outer"))
        with torch.enable_grad():
            backward(lambda grad: queue(lambda: order.append("inner")))
        order.append("inner is done")

    backward(outer)
    assert order == ["inner", "inner is done", "outer"]


@pytest.mark.row("A9.queue_callback")
def test_errors_of_callbacks_are_the_backwards():
    later = []

    def hook(grad):
        queue(lambda: {}["boom"])
        queue(lambda: later.append(1))

    with pytest.raises(KeyError, match="boom"):
        backward(hook)
    assert later == []
    with pytest.raises(TypeError, match="'int' object is not callable"):
        backward(lambda grad: queue(3))


@pytest.mark.row("A9.queue_callback")
def test_a_backward_that_fails_runs_none():
    seen = []

    def hook(grad):
        queue(lambda: seen.append(1))
        raise ValueError("hook")

    with pytest.raises(ValueError, match="hook"):
        backward(hook)
    assert seen == []


@pytest.mark.row("A9.queue_callback", "A9.threads")
def test_outside_of_a_backward():
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        queue(lambda: None)
    errors = []

    def other():
        try:
            queue(lambda: None)
        except RuntimeError as error:
            errors.append(error)

    def hook(grad):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    backward(hook)
    assert len(errors) == 1
    with pytest.raises(TypeError):
        queue()


@pytest.mark.row("A9.queue_callback")
def test_variable_is_a_tensor():
    x = torch.ones(2, requires_grad=True)
    assert isinstance(x, Variable) and not isinstance(1, Variable)
    assert type(Variable(x)) is torch.Tensor and not Variable(x).requires_grad
    assert Variable(torch.ones(2), requires_grad=True).requires_grad
    assert Variable._execution_engine.is_checkpoint_valid()
