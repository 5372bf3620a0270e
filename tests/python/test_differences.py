"""Differences from PyTorch: each entry of docs/differences.md names the test here that holds it."""

import math

import numpy as np
import pytest

import rustgrad as torch
from rustgrad.nn import functional as F


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


def name(t):
    return type(t.grad_fn).__name__


def test_names_in_place(x):
    assert name(F.elu_(x * 1)) == "EluBackward0" and name((x * 1).asinh_()) == "AsinhBackward0"


def test_losses_are_one_node(x):
    assert (
        name(F.l1_loss(x, torch.ones(2))) == "L1LossBackward0" and name(torch.special.ndtr(x)) == "SpecialNdtrBackward0"
    )


def test_nodes_of_second_order(x):
    (first,) = torch.autograd.grad((x.exp()).sum(), x, create_graph=True)
    assert name(first) == "ExpBackwardBackward0"


def test_nodes_save_less(x):
    assert not hasattr(x.gather(0, torch.tensor([0])).grad_fn, "_saved_self")
    assert [a for a in dir(x[torch.tensor([0])].grad_fn) if a.startswith("_saved")] == ["_saved_indices"]


def test_in_place_with_itself_can_be_differentiated(x):
    y = x * 1
    y.mul_(y)
    y.addcmul_(y, y)
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 36.0]  # of x**2 + x**4


def test_overlapping_copies():
    t = torch.arange(4.0)
    t[1:].copy_(t[:-1])
    assert t.tolist() == [0.0, 0.0, 1.0, 2.0]


def test_writing_to_expanded_memory():
    wide = torch.ones(1).expand(3)
    for change in (wide.zero_, lambda: wide.fill_(2)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            change()


def test_strided_view_of_expanded_memory():
    wide = torch.ones(2, requires_grad=True).expand(2, 2)
    with pytest.raises(RuntimeError, match="not dense in memory"):
        wide.as_strided((2,), (1,)).sum().backward()


def test_new_data_between_forward_and_backward(x):
    y = x * x
    x.data = torch.tensor([50.0, 50.0])
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_resize_of_a_view():
    base = torch.ones(4)
    view = base[1:3]
    assert view.resize_(6).data_ptr() != base.data_ptr() + 4
    assert view[:3].tolist() == [1.0, 1.0, 1.0] and base.tolist() == [1.0] * 4


def test_hooks_are_callable(x):
    for register in (x.register_hook, x.register_post_accumulate_grad_hook):
        with pytest.raises(TypeError, match="a hook must be callable, got int"):
            register(3)


def test_removed_hooks_are_not_listed(x):
    x.register_hook(print).remove()
    assert x._backward_hooks is None


def test_operators_with_arrays(x):
    assert name(x * np.ones(2)) == name(np.ones(2) * x) == "MulBackward0"


def test_lists_of_floats_are_no_indices(x):
    with pytest.raises(IndexError, match="tensors used as indices must be long, int, byte or bool tensors"):
        x[[0.0, 1.0]]


def test_small_sigmoids():
    assert torch.tensor([-100.0]).sigmoid().item() == pytest.approx(math.exp(-100), rel=0.02)  # a subnormal float32


def test_relu_of_negative_zero():
    assert math.copysign(1.0, torch.tensor(-0.0).relu().item()) == 1.0


def test_polygamma_at_poles():
    assert torch.polygamma(1, torch.tensor([-1.0, 0.0])).tolist() == [math.inf, math.inf]


def test_copysign_at_infinity():
    c = torch.tensor([math.inf, math.nan], requires_grad=True)
    torch.copysign(c, torch.tensor(-1.0)).sum().backward()
    assert c.grad.tolist() == [-1.0, -1.0]


def test_linalg_results_are_row_major():
    assert torch.linalg.inv(torch.eye(2) + 1).stride() == (2, 1)


def test_state_of_the_generator():
    assert torch.get_rng_state().numel() == 16


def test_results_are_plain_tensors():
    class Mine(torch.Tensor):
        pass

    mine = torch.Tensor._make_subclass(Mine, torch.ones(2))
    assert type(mine) is Mine and type(mine + 1) is torch.Tensor and not hasattr(mine, "as_subclass")


def test_numbers_are_not_saved(x):
    for y in (x * 2, x / 2):
        y.sum().backward()
        y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("f", [lambda t: torch.clamp(t, 0, 1.5), torch.nn.functional.hardtanh, torch.relu, torch.abs])
def test_constant_derivatives_are_zero(x, f):
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == [0.0, 0.0]


class Scale(torch.autograd.Function):
    surplus = False

    @staticmethod
    def forward(ctx, x, *, by=1.0):
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.by, None, grad) if Scale.surplus else grad * ctx.by


def test_arguments_of_custom_functions(x, monkeypatch):
    Scale.apply(x, by=3.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    monkeypatch.setattr(Scale, "surplus", True)
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Scale.apply(x).sum().backward()


def test_multi_grad_hooks_under_grad(x):
    seen = []
    torch.autograd.graph.register_multi_grad_hook([x], lambda grads: seen.append(len(grads)))
    torch.autograd.grad((x * x).sum(), x)
    assert seen == [1]


def test_packed_results_have_no_history(x):
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.requires_grad) or t, lambda t: t):
        x.exp()
        x * x
    assert seen == [False, True, True]


def test_nodes_have_no_attributes_for_numbers(x):
    for node in (x.softmax(0).grad_fn, (x**2).grad_fn, x.sum().grad_fn):
        assert not any(hasattr(node, f"_saved_{name}") for name in ("dim", "exponent", "self_sym_sizes"))


def test_detaching_what_was_saved(x):
    t = x * torch.ones(2)
    y = t * t
    t.detach_()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_graphs_of_the_block_that_allows_changes(x):
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        t = x * 1
        y = t * t
        t.mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_messages_go_on_after_the_first_line():
    with pytest.raises(RuntimeError) as raised:
        torch.ones(3) + torch.ones(2)
    first, *more = str(raised.value).split("\n")
    assert first == "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0" and more


def test_what_there_is_not():
    assert not any(hasattr(torch, n) for n in ("complex64", "qint8", "sparse_coo_tensor", "quantize_per_tensor"))
    with pytest.raises(TypeError):
        torch.ones(2).view(torch.int32)
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.ones(2).cuda()
