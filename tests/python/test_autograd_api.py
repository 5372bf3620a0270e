"""`autograd.backward` and `autograd.grad`: what they take and what they give. Values are derived by hand."""

import pytest

import rustgrad as torch


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


def test_backward_of_one_and_of_several(x):
    torch.autograd.backward((x * x).sum())
    assert x.grad.tolist() == [2.0, 4.0]
    torch.autograd.backward([x.sum(), (3 * x).sum()])
    assert x.grad.tolist() == [6.0, 8.0]


def test_backward_with_vectors_and_none(x):
    torch.autograd.backward([x * 2, x.sum()], [torch.tensor([1.0, 10.0]), None])
    assert x.grad.tolist() == [3.0, 21.0]


def test_backward_restricted_to_inputs(x):
    y = torch.ones(2, requires_grad=True)
    torch.autograd.backward((x * y).sum(), inputs=x)
    assert x.grad.tolist() == [1.0, 1.0] and y.grad is None
    torch.autograd.backward((x * y).sum(), inputs={"y": y})
    assert y.grad.tolist() == [1.0, 2.0] and x.grad.tolist() == [1.0, 1.0]


def test_backward_errors(x):
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x.sum(), x.sum()], [torch.tensor(1.0)])
    for empty in ([], (), {}):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty."):
            torch.autograd.backward(x.sum(), inputs=empty)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        torch.autograd.backward(x * 2)


def test_old_name_of_grad_tensors(x):
    with pytest.warns(FutureWarning, match="grad_variables"):
        torch.autograd.backward(x * 2, grad_variables=torch.ones(2))
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="Please only use `grad_tensors`"):
        torch.autograd.backward(x * 2, torch.ones(2), grad_variables=torch.ones(2))


def test_grad_gives_a_tuple_in_order_and_touches_no_grad(x):
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    gy, gx = torch.autograd.grad((x * y).sum(), [y, x])
    assert gy.tolist() == [1.0, 2.0] and gx.tolist() == [3.0, 4.0] and x.grad is None


def test_grad_of_a_dict_is_a_dict(x):
    y = torch.ones(2, requires_grad=True)
    got = torch.autograd.grad(x.sum(), {"x": x, "y": y}, allow_unused=True)
    assert list(got) == ["x", "y"] and got["x"].tolist() == [1.0, 1.0] and got["y"] is None


def test_unused_inputs(x):
    y = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(x.sum(), [x, y])
    assert torch.autograd.grad(x.sum(), [x, y], allow_unused=True)[1] is None
    assert torch.autograd.grad(x.sum(), [x, y], materialize_grads=True)[1].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        torch.autograd.grad(x.sum(), [x, y], materialize_grads=True, allow_unused=False)


def test_grad_errors(x):
    for empty in ([], {}):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty."):
            torch.autograd.grad(x.sum(), empty)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        torch.autograd.grad(x * 2, x, torch.ones(3))
    with pytest.warns(FutureWarning, match="only_inputs"):
        torch.autograd.grad(x.sum(), x, only_inputs=False)


def test_create_graph_keeps_the_graph(x):
    y = (x**3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3.0, 12.0] and second.tolist() == [6.0, 12.0]
    torch.autograd.grad(y, x)  # create_graph retained it


def test_batched_vectors_give_a_jacobian(x):
    y = x * x
    (jacobian,) = torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True)
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    with pytest.raises(RuntimeError, match="is_grads_batched"):
        torch.autograd.grad(x * x, x, is_grads_batched=True)
