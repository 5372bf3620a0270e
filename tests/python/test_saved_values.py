"""What nodes saved, as attributes; hooks on one saved value; changes in place of what was saved."""

import gc
import weakref

import pytest

import rustgrad as torch
from rustgrad.autograd import graph

SECOND_TIME = "Trying to backward through the graph a second time"
HOOKS_SET = "Calling register_hooks on a saved tensor whose hooks have already been set"
FREED = "Calling register_hooks on a saved tensor after it has been freed"
OUTSIDE = "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"


@pytest.fixture
def x():
    return torch.tensor([1.0, 2.0], requires_grad=True)


class Both(torch.autograd.Function):
    """Saves its input, nothing, and its output."""

    @staticmethod
    def forward(ctx, x):
        output = x.exp()
        ctx.save_for_backward(x, None, output)
        return output

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[2]


# ---- attributes ---------------------------------------------------------------------------------------------------------

# What PyTorch 2.13 shows of tensors; but layer_norm's `self` is `input` there.
ATTRIBUTES = {
    "mul": (lambda x: x * (x + 1), {"self", "other"}),
    "div": (lambda x: x / (x + 1), {"self", "other"}),
    "exp": (lambda x: x.exp(), {"result"}),
    "log": (lambda x: x.log(), {"self"}),
    "sqrt": (lambda x: x.sqrt(), {"result"}),
    "rsqrt": (lambda x: x.rsqrt(), {"result"}),
    "reciprocal": (lambda x: x.reciprocal(), {"result"}),
    "sin": (lambda x: x.sin(), {"self"}),
    "tanh": (lambda x: x.tanh(), {"result"}),
    "sigmoid": (lambda x: x.sigmoid(), {"result"}),
    "relu": (lambda x: x.relu(), {"result"}),
    "abs": (lambda x: x.abs(), {"self"}),
    "pow": (lambda x: x**3, {"self"}),
    "mm": (lambda x: x.reshape(1, 2) @ (x + 1).reshape(2, 1), {"self", "mat2"}),
    "softmax": (lambda x: x.softmax(0), {"result"}),
    "log_softmax": (lambda x: x.log_softmax(0), {"result"}),
    "cumprod": (lambda x: x.cumprod(0), {"self", "result"}),
    "sort": (lambda x: x.sort()[0], {"indices"}),
    "max": (lambda x: x.max(0)[0], {"indices"}),
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, (2,)), {"self", "result1", "result2"}),
    "add": (lambda x: x + x, set()),
    "neg": (lambda x: -x, set()),
    "view": (lambda x: x.view(2, 1), set()),
    "sum": (lambda x: x.sum(), set()),
}


@pytest.mark.row("A3.saved_attributes")
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_names_of_saved_tensors(x, name):
    compute, expected = ATTRIBUTES[name]
    node = compute(x).grad_fn
    names = {each.removeprefix("_saved_") for each in dir(node) if each.startswith("_saved_")}
    assert names == expected
    assert {each for each in dir(node) if each.startswith("_raw_saved_")} == {f"_raw_saved_{n}" for n in expected}


@pytest.mark.row("A3.saved_attributes")
def test_a_saved_input_is_the_input_and_a_saved_result_has_its_history(x):
    y = x * x
    assert y.grad_fn._saved_self is x and y.grad_fn._saved_other is x
    z = x.exp()
    assert z.grad_fn._saved_result is not z and z.grad_fn._saved_result.grad_fn is z.grad_fn
    index = torch.tensor([1, 0])
    assert x[index].grad_fn._saved_indices == (index,)
    first, second = x.reshape(2, 1)[:, torch.tensor([0])].grad_fn._saved_indices
    assert first is None and second.tolist() == [0]


@pytest.mark.row("A3.saved_attributes")
def test_saved_tensors_of_a_custom_function(x):
    y = Both.apply(x)
    node = y.grad_fn
    assert node.saved_tensors[0] is x and node.saved_tensors[1] is None
    assert len(node._raw_saved_tensors) == 3
    node._raw_saved_tensors[0].register_hooks(lambda value: value * 2, lambda packed: packed)
    assert node.saved_tensors[0].tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="Calling register_hooks on a saved tensor with value None is forbidden"):
        node._raw_saved_tensors[1].register_hooks(lambda value: value, lambda packed: packed)


@pytest.mark.row("A3.saved_attributes", "A9.freeing")
@pytest.mark.parametrize("attribute", ["_saved_self", "_saved_other", "saved_tensors", "_raw_saved_tensors"])
def test_freed_values(x, attribute):
    y = Both.apply(x) if attribute.endswith("tensors") else x * x
    y.sum().backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        getattr(y.grad_fn, attribute)
    with pytest.raises(AttributeError, match="no attribute '_saved_nothing'"):
        _ = y.grad_fn._saved_nothing


# ---- hooks on one value -------------------------------------------------------------------------------------------------


@pytest.mark.row("A3.saved_attributes")
def test_hooks_on_one_value(x):
    y, calls = x * x, []

    def pack(value):
        calls.append(("pack", value is x, value.requires_grad, torch.is_grad_enabled()))
        return value * 10

    y.grad_fn._raw_saved_self.register_hooks(pack, lambda packed: calls.append("unpack") or packed)
    assert calls == [("pack", False, False, False)]
    assert y.grad_fn._saved_self.tolist() == [10, 20] and y.grad_fn._saved_self.requires_grad
    assert y.grad_fn._saved_other is x
    y.sum().backward()
    assert x.grad.tolist() == [11, 22] and calls[1:] == ["unpack"] * 3


@pytest.mark.row("A3.saved_attributes")
def test_hooks_on_a_result_keep_its_history(x):
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda value: value.clone(), lambda packed: packed)
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, x.exp().detach())


@pytest.mark.row("A3.saved_attributes")
def test_hooks_let_the_value_go():
    kept = torch.ones(2)
    gone = weakref.ref(kept)
    y = torch.ones(2, requires_grad=True) * kept
    y.grad_fn._raw_saved_other.register_hooks(lambda value: 0, lambda _: torch.zeros(2))
    del kept
    gc.collect()
    assert gone() is None


@pytest.mark.row("A3.saved_attributes")
def test_hooks_may_be_set_once(x):
    def same(value):
        return value

    saved = (y := x * x).grad_fn._raw_saved_self
    saved.register_hooks(same, same)
    for again in (saved, y.grad_fn._raw_saved_self):
        with pytest.raises(RuntimeError, match=HOOKS_SET):
            again.register_hooks(same, same)
    with graph.saved_tensors_hooks(same, same):
        packed = x * x
    with pytest.raises(RuntimeError, match=HOOKS_SET):
        packed.grad_fn._raw_saved_self.register_hooks(same, same)


@pytest.mark.row("A3.saved_attributes")
def test_hooks_on_what_is_gone(x):
    def same(value):
        return value

    saved = (y := x * x).grad_fn._raw_saved_self
    y.sum().backward()
    with pytest.raises(RuntimeError, match=FREED):
        saved.register_hooks(same, same)
    saved = (x * x).grad_fn._raw_saved_self
    with pytest.raises(RuntimeError, match=FREED):
        saved.register_hooks(same, same)


@pytest.mark.row("A3.saved_attributes")
def test_wrong_hooks(x):
    def same(value):
        return value

    saved = (y := x * x).grad_fn._raw_saved_self
    for wrong in ((1, same), (same, 1), (same,)):
        with pytest.raises(TypeError):
            saved.register_hooks(*wrong)
    with pytest.raises(ZeroDivisionError):
        saved.register_hooks(lambda value: 1 / 0, same)
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"):
        saved.register_hooks(lambda value: value.add_(1), same)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda value: 3, same)
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        y.sum().backward()


# ---- changes in place of what was saved ----------------------------------------------------------------------------------


def gradient(change, save=lambda b: (b * b).sum()):
    """The gradient of a leaf of ones, where `change` ran between forward and backward."""
    a = torch.ones(4, requires_grad=True)
    b = a.clone()
    out = save(b)
    change(b)
    out.backward()
    return a.grad.tolist()


CHANGES = {
    "in place": (lambda b: b.sin_(), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "twice": (lambda b: b.mul_(3).add_(1), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "through a view": (lambda b: b[:2].mul_(3), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "a view was saved": (lambda b: b.mul_(3), lambda b: (b[:2] * b[:2]).sum(), [2, 2, 0, 0]),
    "setitem": (lambda b: b.__setitem__(0, 9.0), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "index": (lambda b: b.index_fill_(0, torch.tensor([1]), 0.0), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "copy": (lambda b: b.copy_(torch.zeros(4)), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "fill": (lambda b: b.zero_().fill_(3.0), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "random": (lambda b: b.normal_(), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "detached": (lambda b: b.detach().mul_(3), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "data": (lambda b: b.data.mul_(3), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "out=": (lambda b: torch.add(torch.ones(4), 1, out=b.detach()), lambda b: (b * b).sum(), [2, 2, 2, 2]),
    "relu_": (lambda b: torch.relu_(b.mul_(-1)), lambda b: (b * b).sum(), [2, 2, 2, 2]),
}


@pytest.mark.row("A3.allow_mutation_on_saved_tensors")
@pytest.mark.parametrize("how", CHANGES)
def test_what_was_saved_may_be_changed(how):
    change, save, expected = CHANGES[how]
    with graph.allow_mutation_on_saved_tensors():
        assert gradient(change, save) == expected


@pytest.mark.row("A3.allow_mutation_on_saved_tensors")
def test_each_save_keeps_the_values_it_saw():
    with graph.allow_mutation_on_saved_tensors():
        a = torch.ones(2, requires_grad=True)
        b = a.clone()
        first = (b**2).sum()
        b.mul_(3)
        second = (b**2).sum()
        b.mul_(2)
        (first + second).backward()
        assert a.grad.tolist() == [20, 20]


@pytest.mark.row("A3.allow_mutation_on_saved_tensors")
def test_nothing_is_copied_that_is_not_changed():
    with graph.allow_mutation_on_saved_tensors() as context:
        a = torch.ones(2)
        y = torch.ones(2, requires_grad=True) * a
        assert y.grad_fn._saved_other.data_ptr() == a.data_ptr()
        torch.ones(2).mul_(2)
        assert y.grad_fn._saved_other.data_ptr() == a.data_ptr()
        a.mul_(2)
        assert y.grad_fn._saved_other.data_ptr() != a.data_ptr()
        assert context.clear() is None


@pytest.mark.row("A3.allow_mutation_on_saved_tensors")
def test_mutation_contexts_end_with_their_block():
    a = torch.ones(2, requires_grad=True)
    with graph.allow_mutation_on_saved_tensors():
        y = (a.clone() ** 2).sum()
        with (
            pytest.raises(RuntimeError, match="allow_mutation_on_saved_tensors contexts cannot be nested"),
            graph.allow_mutation_on_saved_tensors(),
        ):
            pass
    with pytest.raises(AssertionError, match=OUTSIDE):
        y.backward()
    with graph.allow_mutation_on_saved_tensors() as context:
        y = (a.clone() ** 2).sum()
        context.clear()
        with pytest.raises(AssertionError, match=OUTSIDE):
            y.backward()
    with pytest.raises(ZeroDivisionError), graph.allow_mutation_on_saved_tensors():
        _ = 1 / 0
    b = a.clone()
    y = (b * b).sum()
    b.sin_()
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        y.backward()


@pytest.mark.row("A3.allow_mutation_on_saved_tensors")
def test_values_saved_before_the_context_are_not_its_business():
    b = torch.ones(2, requires_grad=True).clone()
    y = (b * b).sum()
    with graph.allow_mutation_on_saved_tensors():
        b.sin_()
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            y.backward()
