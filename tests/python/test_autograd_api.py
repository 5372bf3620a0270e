"""`autograd.backward` and `autograd.grad`: what they take and what they give. Values are derived by hand."""

import threading

import pytest

import rustgrad as torch


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


@pytest.mark.row("A1.backward")
def test_backward_of_one_and_of_several(x):
    torch.autograd.backward((x * x).sum())
    assert x.grad.tolist() == [2.0, 4.0]
    torch.autograd.backward([x.sum(), (3 * x).sum()])
    assert x.grad.tolist() == [6.0, 8.0]


@pytest.mark.row("A1.backward")
def test_backward_with_vectors_and_none(x):
    torch.autograd.backward([x * 2, x.sum()], [torch.tensor([1.0, 10.0]), None])
    assert x.grad.tolist() == [3.0, 21.0]


@pytest.mark.row("A1.backward")
def test_backward_restricted_to_inputs(x):
    y = torch.ones(2, requires_grad=True)
    torch.autograd.backward((x * y).sum(), inputs=x)
    assert x.grad.tolist() == [1.0, 1.0] and y.grad is None
    torch.autograd.backward((x * y).sum(), inputs={"y": y})
    assert y.grad.tolist() == [1.0, 2.0] and x.grad.tolist() == [1.0, 1.0]


@pytest.mark.row("A1.backward")
def test_backward_errors(x):
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x.sum(), x.sum()], [torch.tensor(1.0)])
    for empty in ([], (), {}):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty."):
            torch.autograd.backward(x.sum(), inputs=empty)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        torch.autograd.backward(x * 2)


@pytest.mark.row("A1.backward")
def test_old_name_of_grad_tensors(x):
    with pytest.warns(FutureWarning, match="grad_variables"):
        torch.autograd.backward(x * 2, grad_variables=torch.ones(2))
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="Please only use `grad_tensors`"):
        torch.autograd.backward(x * 2, torch.ones(2), grad_variables=torch.ones(2))


@pytest.mark.row("A1.grad")
def test_grad_gives_a_tuple_in_order_and_touches_no_grad(x):
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    gy, gx = torch.autograd.grad((x * y).sum(), [y, x])
    assert gy.tolist() == [1.0, 2.0] and gx.tolist() == [3.0, 4.0] and x.grad is None


@pytest.mark.row("A1.grad")
def test_grad_of_a_dict_is_a_dict(x):
    y = torch.ones(2, requires_grad=True)
    got = torch.autograd.grad(x.sum(), {"x": x, "y": y}, allow_unused=True)
    assert list(got) == ["x", "y"] and got["x"].tolist() == [1.0, 1.0] and got["y"] is None


@pytest.mark.row("A1.grad")
def test_unused_inputs(x):
    y = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(x.sum(), [x, y])
    assert torch.autograd.grad(x.sum(), [x, y], allow_unused=True)[1] is None
    assert torch.autograd.grad(x.sum(), [x, y], materialize_grads=True)[1].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        torch.autograd.grad(x.sum(), [x, y], materialize_grads=True, allow_unused=False)


@pytest.mark.row("A1.grad")
def test_grad_errors(x):
    for empty in ([], {}):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty."):
            torch.autograd.grad(x.sum(), empty)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        torch.autograd.grad(x * 2, x, torch.ones(3))
    with pytest.warns(FutureWarning, match="only_inputs"):
        torch.autograd.grad(x.sum(), x, only_inputs=False)


@pytest.mark.row("A1.grad")
def test_create_graph_keeps_the_graph(x):
    y = (x**3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3.0, 12.0] and second.tolist() == [6.0, 12.0]
    torch.autograd.grad(y, x)  # create_graph retained it


@pytest.mark.row("A1.grad")
def test_batched_vectors_give_a_jacobian(x):
    y = x * x
    (jacobian,) = torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    with pytest.raises(RuntimeError, match="is_grads_batched"):
        torch.autograd.grad(x * x, x, is_grads_batched=True)


# ---- what the arguments may be -----------------------------------------------------------------------------------------


@pytest.mark.row("A1.backward")
def test_tensor_backward_takes_inputs_and_gradients_in_every_form(x):
    edge = torch.autograd.graph.get_gradient_edge
    for inputs in (x, [x], (x,), {"x": x}, edge(x), [edge(x)]):
        (x * 2).sum().backward(inputs=inputs)
    assert x.grad.tolist() == [12.0, 12.0]
    x.grad = None
    for gradient in (torch.ones(2), [torch.ones(2)], (torch.ones(2),), torch.ones(2, dtype=torch.int64)):
        (x * 2).backward(gradient)
    assert x.grad.tolist() == [8.0, 8.0]
    with pytest.raises(TypeError, match="gradients can be either Tensors or None, but got float"):
        (x * 2).backward([1.0, 1.0])


@pytest.mark.row("A1.backward")
def test_inputs_that_are_no_leaves_retain_their_gradient_and_run(x):
    seen = []
    h = x.exp()
    h.grad_fn.register_hook(lambda gi, go: seen.append(gi))
    (h * 3).sum().backward(inputs=[h, h])
    assert h.retains_grad and h.grad.tolist() == [3.0, 3.0] and x.grad is None and seen == [(None,)]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        h.sum().backward()


@pytest.mark.row("A1.grad")
def test_the_same_input_twice_and_outputs_that_are_inputs(x):
    h = x.exp()
    found = torch.autograd.grad((h * h).sum(), [x, h, x, h], retain_graph=True)
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
    assert torch.autograd.grad(h, h, torch.ones(2))[0].tolist() == [1.0, 1.0]
    assert torch.autograd.grad(x, x, torch.ones(2))[0].tolist() == [1.0, 1.0]


@pytest.mark.row("A1.grad")
def test_materialized_zeros_can_be_differentiated_under_create_graph(x):
    unused = torch.ones(3, requires_grad=True)
    for create_graph in (False, True):
        (zeros,) = torch.autograd.grad(x.sum(), unused, materialize_grads=True, create_graph=create_graph)
        assert zeros.tolist() == [0.0] * 3 and zeros.requires_grad is create_graph
    edge = torch.autograd.graph.get_gradient_edge(unused)
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        torch.autograd.grad(x.sum(), edge, materialize_grads=True)


@pytest.mark.row("A1.grad")
def test_batched_vectors_must_fit_their_output(x):
    with pytest.raises(RuntimeError, match="we interpret the first dimension of each grad_output as the batch dim"):
        torch.autograd.grad(x * x, x, torch.ones(2, 3), is_grads_batched=True)


@pytest.mark.row("A1.hooks_under_grad")
@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda h, x: torch.autograd.grad(h.sum(), x), ["h", "h pre", "h post", "x"]),
        (lambda h, x: torch.autograd.grad(h.sum(), h), ["h"]),
        (lambda h, x: torch.autograd.grad(h.sum(), [x, h]), ["h", "h pre", "h post", "x"]),
        (
            lambda h, x: h.sum().backward(inputs=[x]),
            ["h", "h pre", "h post", "x", "x pre", "x accumulated", "x post"],
        ),
        (lambda h, x: h.sum().backward(inputs=[h]), ["h", "h pre", "h post"]),
    ],
)
def test_which_hooks_run(x, run, expected):
    seen = []

    def says(name):
        return lambda *_: seen.append(name)

    h = x * 2
    accumulation = h.grad_fn.next_functions[0][0]
    h.register_hook(says("h"))
    h.grad_fn.register_prehook(says("h pre"))
    h.grad_fn.register_hook(says("h post"))
    x.register_hook(says("x"))
    accumulation.register_prehook(says("x pre"))
    accumulation.register_hook(says("x post"))
    x.register_post_accumulate_grad_hook(says("x accumulated"))
    run(h, x)
    assert seen == expected


# ---- old names and switches --------------------------------------------------------------------------------------------


@pytest.mark.row("A1.variable")
def test_variable_makes_tensors_and_every_tensor_is_one(x):
    from rustgrad.autograd import Variable

    v = Variable(x, requires_grad=True)
    assert v is not x and v.data_ptr() == x.data_ptr() and v.is_leaf and v.requires_grad
    assert type(Variable(torch.nn.Parameter(x))) is torch.Tensor and not Variable(x * 2).requires_grad
    assert isinstance(x, Variable) and isinstance(torch.nn.Parameter(x), Variable) and not isinstance(5, Variable)
    assert Variable().numel() == 0
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
        Variable([1.0])
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        Variable(torch.tensor(1), requires_grad=True)
    with pytest.warns(UserWarning, match="volatile was removed"):
        Variable(x, volatile=True)


@pytest.mark.row("A1.multithreading")
def test_the_switch_of_multithreading_is_kept_per_thread():
    enabled, switch = torch.autograd.is_multithreading_enabled, torch.autograd.set_multithreading_enabled
    assert enabled()
    with switch(False):
        assert not enabled()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(enabled()))
        thread.start()
        thread.join()
        assert seen == [True]
    assert enabled()
    switch(False)
    assert not enabled()
    switch(True)
    assert enabled()
    with pytest.raises(TypeError):
        switch(1)
    assert enabled()
