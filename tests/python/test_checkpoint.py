"""`utils.checkpoint`: the same gradients, with less kept and more computed."""

import gc
import warnings
import weakref

import pytest

import rustgrad as torch
from rustgrad import nn
from rustgrad.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.row("A14.checkpoint")
@pytest.mark.row("A14.checkpoint_reentrant")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("_again", range(3))
def test_gradients_are_those_without(model, reentrant, _again):
    x = torch.randn(5, 4, requires_grad=True)
    plain = gradients(model, model(x).sum())
    inputs = x.grad.clone()
    x.grad = None
    again = gradients(model, checkpoint(model, x, use_reentrant=reentrant).sum())
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(x.grad, inputs)


@pytest.mark.row("A14.checkpoint")
def test_values_are_computed_again_once_in_each_backward(model):
    runs = 0

    def f(x):
        nonlocal runs
        runs += 1
        return model(x)

    x = torch.randn(5, 4)
    loss = checkpoint(f, x, use_reentrant=False).sum()
    assert runs == 1
    loss.backward(retain_graph=True)
    assert runs == 2
    loss.backward()
    assert runs == 3


@pytest.mark.row("A14.checkpoint")
def test_the_graph_is_the_functions_own():
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda a: a.sin().exp(), x, use_reentrant=False)
    assert y.grad_fn.name() == "ExpBackward0"
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(grad, (x.sin().exp() * x.cos()).detach())


@pytest.mark.row("A14.checkpoint")
def test_less_is_kept():
    x = torch.ones(1000, requires_grad=True)
    inner = []

    def f(a):
        b = a.exp()
        inner.append(weakref.ref(b))
        return b.sin()

    y = checkpoint(f, x, use_reentrant=False)
    gc.collect()
    assert inner[0]() is None
    y.sum().backward()
    assert torch.allclose(x.grad, (x.exp().cos() * x.exp()).detach())


@pytest.mark.row("A14.checkpoint")
def test_double_backward_and_nesting():
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)

    def inner(a):
        return (a * a).exp()

    def outer(a):
        return checkpoint(inner, a.sin(), use_reentrant=False) * a

    y = checkpoint(outer, x, use_reentrant=False).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    plain = ((x.sin() * x.sin()).exp() * x).sum()
    (want,) = torch.autograd.grad(plain, x, create_graph=True)
    (want_second,) = torch.autograd.grad(want.sum(), x)
    assert torch.allclose(first, want) and torch.allclose(second, want_second)


@pytest.mark.row("A14.checkpoint")
@pytest.mark.row("A14.checkpoint_reentrant")
@pytest.mark.parametrize("reentrant", [False, True])
def test_random_numbers_are_the_same_again(reentrant):
    x = torch.ones(1000, requires_grad=True)
    y = checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    state = torch.get_rng_state()
    y = checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)
    after = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), after) and not torch.equal(after, state)


@pytest.mark.row("A14.checkpoint")
def test_keyword_arguments_and_other_values():
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(
        lambda a, *, scale, flag: (a * scale if flag else a).exp(), x, use_reentrant=False, scale=2.0, flag=True
    )
    y.sum().backward()
    assert torch.allclose(x.grad, 2 * (2 * x).exp().detach())


@pytest.mark.row("A14.checkpoint")
def test_early_stop():
    ends = 0

    def f(a):
        nonlocal ends
        b = a.exp().sin()
        ends += 1
        return b

    for stop, want in [(True, 1), (False, 2)]:
        ends = 0
        x = torch.ones(3, requires_grad=True)
        with set_checkpoint_early_stop(stop):
            y = checkpoint(f, x, use_reentrant=False)
        y.sum().backward()
        assert ends == want


@pytest.mark.row("A14.checkpoint")
def test_another_second_run_is_an_error():
    calls = 0

    def fewer(a):
        nonlocal calls
        calls += 1
        return a.exp().exp() if calls == 1 else a.exp()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(CheckpointError, match="A different number of tensors was saved"):
        checkpoint(fewer, x, use_reentrant=False).sum().backward()
    calls = 0

    def other(a):
        nonlocal calls
        calls += 1
        return (a.exp() if calls == 1 else a[:2].exp()).sum()

    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(other, x, use_reentrant=False).backward()


@pytest.mark.row("A14.checkpoint_reentrant")
def test_the_reentrant_way_says_what_it_cannot():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="incompatible with .grad()"):
        torch.autograd.grad(checkpoint(torch.exp, x, use_reentrant=True).sum(), x)
    with pytest.raises(ValueError, match="Unexpected keyword arguments"):
        checkpoint(torch.exp, x, use_reentrant=True, other=1)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(torch.exp, x.detach(), use_reentrant=True)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        y = checkpoint(torch.exp, x)
    assert y.grad_fn.name() == "CheckpointFunctionBackward"


@pytest.mark.row("A14.checkpoint_sequential")
def test_sequential(model):
    x = torch.randn(5, 4, requires_grad=True)
    plain = gradients(model, model(x).sum())
    for segments in (1, 2, 5):
        for reentrant in (False, True):
            again = gradients(model, checkpoint_sequential(model, segments, x, use_reentrant=reentrant).sum())
            for one, other in zip(plain, again, strict=True):
                assert torch.equal(one, other)


@pytest.mark.row("A14.checkpoint")
def test_without_recording_nothing_is_kept():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not checkpoint(torch.exp, x, use_reentrant=False).requires_grad
