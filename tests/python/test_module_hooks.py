"""Hooks of modules, their own and global ones. What fires when, and with what, was recorded from PyTorch 2.13."""

import copy
import warnings
from collections import namedtuple

import pytest

import rustgrad as torch
from rustgrad import nn
from rustgrad.nn.modules import module as modules

pytestmark = pytest.mark.row("A14.module_hooks")


class Mul(nn.Module):
    def forward(self, a, b=None, *, k=None):
        result = a * 2
        if isinstance(b, torch.Tensor):
            result = result * b
        return result if k is None else result + k


class Pair(nn.Module):
    def forward(self, a, b):
        return a * b, a + b


def leaf(*values):
    return torch.tensor([float(v) for v in values], requires_grad=True)


def plain(value):
    """Tensors as lists, in tuples."""
    return tuple(plain(v) for v in value) if isinstance(value, tuple) else None if value is None else value.tolist()


@pytest.fixture
def seen():
    return []


@pytest.fixture
def record(seen):
    return lambda module, grad_input, grad_output: seen.append((plain(grad_input), plain(grad_output)))


@pytest.fixture
def everywhere():
    """Registers global hooks and takes them out afterwards."""
    handles = []

    def register(kind, *args, **kwargs):
        handles.append(getattr(modules, f"register_module_{kind}")(*args, **kwargs))
        return handles[-1]

    yield register
    for handle in handles:
        handle.remove()


# ---- full backward hooks -------------------------------------------------------------------------------------------


def test_full_backward_hook_sees_all_inputs_and_outputs(seen, record):
    net, (a, b) = Mul(), (leaf(1, 2), leaf(3, 4))
    handle = net.register_full_backward_hook(record)
    net(a, b).sum().backward()
    assert seen == [(([6, 8], [2, 4]), ([1, 1],))]
    assert a.grad.tolist() == [6, 8] and b.grad.tolist() == [2, 4]
    handle.remove()
    net(a, b).sum().backward()
    assert len(seen) == 1


def test_inputs_without_gradient(seen, record):
    net, a, fixed = Mul(), leaf(1, 2), torch.tensor([3.0, 4.0])
    net.register_full_backward_hook(record)
    net(a, fixed).sum().backward()  # a tensor that needs none gets zeros, whatever is no tensor None
    net(a, 5).sum().backward()
    assert [grad_input for grad_input, _ in seen] == [([6, 8], [0, 0]), ([2, 2], None)]


def test_no_input_requires_a_gradient(seen, record):
    net = nn.Linear(2, 1)
    net.register_full_backward_hook(record)
    out = net(torch.tensor([1.0, 2.0])).sum()
    with pytest.warns(UserWarning, match="Full backward hook is firing when gradients are computed with respect to"):
        out.backward()
    assert seen == [((None,), ([1],))] and net.weight.grad.tolist() == [[1, 2]]
    net.register_full_backward_hook(lambda m, gi, go: (None,))
    net.register_full_backward_hook(lambda m, gi, go: (torch.ones(2),))
    out = net(torch.tensor([1.0, 2.0])).sum()
    with (
        pytest.warns(UserWarning, match="is firing"),
        pytest.raises(RuntimeError, match="Backward hook for Modules where no input requires gradient should always"),
    ):
        out.backward()


def test_keyword_inputs_do_not_count(seen, record):
    net = Mul()
    net.register_full_backward_hook(record)
    with pytest.warns(UserWarning, match="is firing"):
        net(a=leaf(1)).sum().backward()
    assert seen == [((), ([1],))]


def test_pre_hook_alone_changes_the_gradient_of_the_output():
    net = nn.Linear(2, 1)
    net.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no hook fires early, so there is nothing to warn of
        net(torch.tensor([1.0, 2.0])).sum().backward()
    assert net.weight.grad.tolist() == [[3, 6]]


def test_order_and_replacement(seen):
    net, a = Mul(), leaf(1)

    def step(name, change):
        def hook(module, *grads):
            seen.append((name, plain(grads[0])))
            return tuple(change(grad) for grad in grads[0])

        return hook

    net.register_full_backward_hook(step("h2", lambda g: g * 10))
    net.register_full_backward_hook(step("h1", lambda g: g + 1), prepend=True)
    net.register_full_backward_pre_hook(step("p2", lambda g: g + 2))
    net.register_full_backward_pre_hook(step("p1", lambda g: g * 5), prepend=True)
    net.register_full_backward_hook(lambda m, gi, go: seen.append(("last", plain(gi), plain(go))))
    net(a).sum().backward()
    assert seen == [("p1", ([1],)), ("p2", ([5],)), ("h1", ([14],)), ("h2", ([15],)), ("last", ([150],), ([7],))]
    assert a.grad.tolist() == [150]


def test_wrong_numbers_of_gradients():
    net = Mul()
    handle = net.register_full_backward_hook(lambda m, gi, go: (gi[0],))
    with pytest.raises(RuntimeError, match="Backward hook returned an invalid number of grad_input, got 1, but expect"):
        net(leaf(1), leaf(2)).sum().backward()
    handle.remove()
    net.register_full_backward_pre_hook(lambda m, go: (go[0], go[0]))
    with pytest.raises(RuntimeError, match="Backward pre hook returned an invalid number of grad_output, got 2, but"):
        net(leaf(1), leaf(2)).sum().backward()


def test_several_outputs(seen, record):
    net, (a, b) = Pair(), (leaf(1, 2), leaf(3, 4))
    net.register_full_backward_hook(record)
    net(a, b)[0].sum().backward()
    product, total = net(a, b)
    (product.sum() + 3 * total.sum()).backward()
    assert seen == [(([3, 4], [1, 2]), ([1, 1], None)), (([6, 7], [4, 5]), ([1, 1], [3, 3]))]


def test_outputs_that_are_no_tensors_or_need_no_gradient(seen, record):
    Named = namedtuple("Named", "x y z")

    class Odd(nn.Module):
        def forward(self, a):
            return Named(a * 2, "text", a.detach())

    net = Odd()
    net.register_full_backward_hook(record)
    out = net(leaf(1))
    assert type(out) is Named and out.y == "text" and out.x.requires_grad and not out.z.requires_grad
    out.x.sum().backward()
    assert seen == [(([2],), ([1], None, None))]


def test_other_results_are_refused_with_a_warning(seen, record):
    class Dict(nn.Module):
        def forward(self, a):
            return {"x": a * 2}

    net, a = Dict(), leaf(1)
    net.register_full_backward_hook(record)
    with pytest.warns(
        UserWarning, match="For backward hooks to be called, module output should be a Tensor or a tuple"
    ):
        net(a)["x"].sum().backward()
    assert seen == [] and a.grad.tolist() == [2]


def test_gradients_that_do_not_pass_the_output_fire_nothing(seen, record):
    class Leaking(nn.Module):
        def forward(self, a):
            self.inside = a**3
            return self.inside

    net, a = Leaking(), leaf(2)
    net.register_full_backward_hook(record)
    out = net(a)
    net.inside.sum().backward(retain_graph=True)
    assert seen == [] and a.grad.tolist() == [12]
    a.grad = None
    (grad,) = torch.autograd.grad(out.sum(), a, create_graph=True)
    grad.sum().backward()  # the second derivative, 6 a
    assert seen == [(([12],), ([1],))] and a.grad.tolist() == [12]


def test_hooks_fire_at_every_backward(seen, record):
    net = Mul()
    net.register_full_backward_hook(record)
    out = net(leaf(1)).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert len(seen) == 2
    with torch.no_grad():
        assert net(leaf(1)).grad_fn is None


def test_modifying_in_place_what_a_hooked_module_returned():
    net = Mul()
    net.register_full_backward_hook(lambda m, gi, go: None)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        net(leaf(1)).add_(1)


def test_nested_modules_and_copies(seen):
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    net.register_full_backward_hook(lambda m, gi, go: seen.append(type(m).__name__))
    net[0].register_full_backward_hook(lambda m, gi, go: seen.append("first"))
    net[1].register_full_backward_pre_hook(lambda m, go: seen.append("second"))
    twin = copy.deepcopy(net)
    for each in (net, twin):
        each(leaf(1)).sum().backward()
    assert seen == ["second", "first", "Sequential"] * 2


# ---- the old backward hooks ----------------------------------------------------------------------------------------


def test_old_hooks_see_the_last_operation(seen, record):
    net = Mul()
    net.register_backward_hook(record)
    with pytest.warns(
        FutureWarning, match="Using a non-full backward hook when the forward contains multiple autograd"
    ):
        out = net(leaf(1, 2), leaf(3, 4))
    out.sum().backward()
    assert seen == [(([3, 4], [2, 4]), ([1, 1],))]
    assert net(torch.ones(1)).grad_fn is None  # nothing to hang on


@pytest.mark.parametrize(
    ("forward", "args", "text"),
    [
        (lambda a: {"x": a * 2}, (leaf(1),), "does not return a single Tensor or a tuple of Tensors"),
        (lambda a: a[0] * 2, ([leaf(1)],), "does not take as input a single Tensor or a tuple of Tensors"),
        (lambda a: (a * 2, a * 3), (leaf(1),), "when outputs are generated by different autograd Nodes"),
    ],
)
def test_old_hooks_say_what_they_miss(forward, args, text, record):
    net = nn.Module()
    net.forward = forward
    net.register_backward_hook(record)
    with pytest.warns(FutureWarning, match=text):
        net(*args)


def test_old_and_full_hooks_do_not_mix(everywhere):
    for first, second in (("full_backward", "backward"), ("backward", "full_backward")):
        net = Mul()
        getattr(net, f"register_{first}_hook")(print)
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full .* on a single Module"):
            getattr(net, f"register_{second}_hook")(print)
        handle = everywhere(f"{first}_hook", print)
        with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full .* global Module hook"):
            everywhere(f"{second}_hook", print)
        handle.remove()


# ---- global hooks --------------------------------------------------------------------------------------------------


def test_global_hooks_come_before_a_modules_own(everywhere, seen):
    def note(name):
        return lambda *args: seen.append(name)

    net = Mul()
    net.register_forward_pre_hook(note("pre"))
    net.register_forward_hook(note("forward"))
    net.register_full_backward_pre_hook(note("backward pre"))
    net.register_full_backward_hook(note("backward"))
    handles = [
        everywhere(f"{kind}_hook", note(f"global {kind}"))
        for kind in ("full_backward", "full_backward_pre", "forward", "forward_pre")
    ]
    everywhere("forward_hook", lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True).remove()
    net(leaf(1)).sum().backward()
    assert seen == [
        *("global forward_pre", "pre", "global forward", "forward"),
        *("global full_backward_pre", "backward pre", "global full_backward", "backward"),
    ]
    seen.clear()
    for handle in handles:
        handle.remove()
    net(leaf(1)).sum().backward()
    assert seen == ["pre", "forward", "backward pre", "backward"]


def test_global_hooks_replace(everywhere, seen):
    everywhere("forward_pre_hook", lambda m, args: args[0] + 1)
    everywhere("forward_hook", lambda m, args, out: out * 10)
    everywhere("forward_hook", lambda m, args, kwargs, out: seen.append((args, kwargs, out)), with_kwargs=True)
    assert nn.Identity()(1) == 20 and seen == [((2,), {}, 20)]


def test_global_hooks_always_called(everywhere, seen):
    class Bad(nn.Module):
        def forward(self):
            raise KeyError("bad")

    everywhere("forward_hook", lambda m, args, out: seen.append(out), always_call=True)
    everywhere("forward_hook", lambda m, args, out: 1 / 0, always_call=True)
    with pytest.warns(UserWarning, match="global module forward hook with"), pytest.raises(KeyError):
        Bad()()
    assert seen == [None]


def test_global_old_backward_hook(everywhere, seen, record):
    everywhere("backward_hook", record)
    with pytest.warns(FutureWarning, match="non-full"):
        Mul()(leaf(1)).sum().backward()
    assert seen == [(([2], None), ([1],))]


# ---- registration hooks --------------------------------------------------------------------------------------------


def test_registration_hooks_see_every_way_in(everywhere, seen):
    for kind in ("parameter", "buffer", "module"):
        everywhere(f"{kind}_registration_hook", lambda m, name, value: seen.append((name, type(value).__name__)))
    net = nn.Module()
    net.p = nn.Parameter(torch.ones(1))
    net.p = None  # for parameters None is not announced
    net.register_parameter("q", None)
    net.child = nn.ReLU()
    net.child = None
    net.add_module("other", nn.Tanh())
    net.register_buffer("b", torch.ones(1))
    net.b = None
    net.c = nn.Buffer(torch.ones(1))
    children = nn.Sequential(nn.ReLU())
    children.insert(0, nn.Tanh())  # takes an announced child along
    assert seen == [
        ("p", "Parameter"),
        ("child", "ReLU"),
        ("child", "NoneType"),
        ("other", "Tanh"),
        ("b", "Tensor"),
        ("b", "NoneType"),
        ("c", "Tensor"),
        ("0", "ReLU"),
    ]


def test_registration_hooks_replace(everywhere):
    everywhere("parameter_registration_hook", lambda m, name, value: nn.Parameter(value + 1))
    everywhere("buffer_registration_hook", lambda m, name, value: value * 7)
    everywhere("module_registration_hook", lambda m, name, value: nn.Tanh())
    net = nn.Module()
    net.p, net.child = nn.Parameter(torch.ones(1)), nn.ReLU()
    net.register_buffer("b", torch.ones(1))
    net.add_module("other", nn.ReLU())
    assert net.p.item() == 2 and net.b.item() == 7 and isinstance(net.child, nn.Tanh) and isinstance(net.other, nn.Tanh)
