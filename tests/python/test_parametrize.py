"""`nn.utils.parametrize` and ready-made parametrizations. Texts and behaviour were recorded from PyTorch 2.13."""

import copy
import pickle
from collections import OrderedDict

import pytest

import rustgrad as torch
from rustgrad import nn
from rustgrad.nn.utils import parametrizations, parametrize
from rustgrad.nn.utils.parametrize import register_parametrization, remove_parametrizations

pytestmark = pytest.mark.row("A14.parametrize")


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


class Invertible(Symmetric):
    def right_inverse(self, value):
        return value.triu()


class Double(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, value):
        return value / 2


class Split(nn.Module):
    def forward(self, a, b):
        return a + b

    def right_inverse(self, value):
        return value * 0.25, value * 0.75


class Free(nn.Module):
    """Any forward and, optionally, any right inverse."""

    def __init__(self, forward, right_inverse=None):
        super().__init__()
        self.forward = forward
        if right_inverse is not None:
            self.right_inverse = right_inverse


def linear():
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return net


def test_a_parametrized_weight_is_computed_from_the_original():
    net = linear()
    weight = net.weight
    assert not parametrize.is_parametrized(net)
    assert register_parametrization(net, "weight", Symmetric()) is net
    assert parametrize.is_parametrized(net) and parametrize.is_parametrized(net, "weight")
    assert not parametrize.is_parametrized(net, "bias")
    assert net.weight.tolist() == [[1, 2], [2, 4]] and not isinstance(net.weight, nn.Parameter)
    assert net.parametrizations.weight.original is weight  # optimisers hold it
    net(torch.tensor([1.0, 2.0])).sum().backward()
    assert weight.grad.tolist() == [[1, 3], [0, 2]]  # d/dw01 also reaches through the mirrored entry: 2 + 1
    assert list(net.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert [name for name, _ in net.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert repr(net) == (
        "ParametrizedLinear(\n  in_features=2, out_features=2, bias=True\n  (parametrizations): ModuleDict(\n"
        "    (weight): ParametrizationList(\n      (0): Symmetric()\n    )\n  )\n)"
    )
    assert isinstance(net, nn.Linear) and parametrize.type_before_parametrizations(net) is nn.Linear


def test_assignment_goes_through_the_right_inverses_of_a_chain():
    net = linear()
    register_parametrization(net, "weight", Invertible())
    register_parametrization(net, "weight", Double())
    assert net.weight.tolist() == [[2, 4], [4, 8]]
    original = net.parametrizations.weight.original
    net.weight = torch.tensor([[1.0, 5.0], [5.0, 2.0]])
    assert net.weight.tolist() == [[1, 5], [5, 2]] and original.tolist() == [[0.5, 2.5], [0, 1]]
    assert net.parametrizations.weight.original is original and original.requires_grad
    assert remove_parametrizations(net, "weight") is net
    assert type(net) is nn.Linear and net.weight is original and net.weight.tolist() == [[1, 5], [5, 2]]
    assert list(net.state_dict()) == ["bias", "weight"] and repr(net).startswith("Linear(")


def test_removal_may_leave_the_original():
    net = register_parametrization(linear(), "weight", Symmetric())
    register_parametrization(net, "bias", Double())
    remove_parametrizations(net, "weight", leave_parametrized=False)
    assert net.weight.tolist() == [[1, 2], [3, 4]] and parametrize.is_parametrized(net, "bias")
    remove_parametrizations(net, "bias")
    assert type(net) is nn.Linear


def test_several_originals():
    net = register_parametrization(linear(), "weight", Split())
    assert list(net.state_dict()) == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1",
    ]  # fmt: skip
    assert net.weight.tolist() == [[1, 2], [3, 4]]
    assert not net.parametrizations.weight.is_tensor and net.parametrizations.weight.ntensors == 2
    net.weight.sum().backward()
    assert net.parametrizations.weight.original1.grad.tolist() == [[1, 1], [1, 1]]
    net.weight = torch.ones(2, 2)
    assert net.parametrizations.weight.original0.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        remove_parametrizations(net, "weight", leave_parametrized=False)
    remove_parametrizations(net, "weight")
    assert isinstance(net.weight, nn.Parameter) and net.weight.requires_grad and net.weight.is_leaf


def test_cached_computes_once():
    calls = []
    net = register_parametrization(linear(), "weight", Free(lambda x: calls.append(0) or x + 1))
    calls.clear()
    net.weight, net.weight  # noqa: B018
    assert len(calls) == 2
    with parametrize.cached():
        first = net.weight
        with parametrize.cached():
            assert net.weight is first
        assert net.weight is first
    assert len(calls) == 3 and net.weight is not first
    with pytest.raises(KeyError), parametrize.cached():
        raise KeyError
    assert net.weight is not net.weight


def test_buffers():
    net = nn.Module()
    net.register_buffer("b", torch.tensor([1.0, 2.0]))
    register_parametrization(net, "b", Double())
    assert list(net.state_dict()) == ["parametrizations.b.original"] and not list(net.parameters())
    net.b = torch.tensor([5.0, 6.0])
    assert net.b.tolist() == [5, 6] and net.parametrizations.b.original.tolist() == [2.5, 3]
    remove_parametrizations(net, "b")
    assert "b" in net._buffers and net.b.tolist() == [5, 6]


def test_a_frozen_parameter_stays_frozen():
    net = linear().requires_grad_(False)
    register_parametrization(net, "weight", Double())
    register_parametrization(net, "bias", Split())
    assert not any(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([("nope", Double())], r"Module 'Linear\(.*\)' does not have a parameter, a buffer, or a parametrized element"),
        ([("weight", Free(lambda x: x.reshape(-1)))], "may not change the shape of the tensor, unless `unsafe` flag"),
        ([("weight", Free(lambda x: x.double()))], "may not change the dtype of the tensor, unless `unsafe` flag"),
        ([("weight", Free(lambda x: 3))], "A parametrization must return a tensor. Got int."),
        ([("weight", Free(lambda x: x, lambda x: 3))], "'right_inverse' must return a Tensor or a Sequence of tensors"),
        ([("weight", Free(lambda x, y: x, lambda x: (x, 3)))], "Got element 1 of the sequence with type int"),
        ([("weight", Free(lambda x: x, lambda x: x.double()))],
         "When `right_inverse` outputs one tensor, it may not change the dtype"),
        ([("weight", Double()), ("weight", Free(lambda x: 3))], "A parametrization must return a tensor. Got int."),
        ([("weight", Double()), ("weight", Free(lambda x: x.reshape(-1)))],
         "may not change the shape of the tensor, unless the `unsafe` flag"),
        ([("weight", Double()), ("weight", Free(lambda x: x.double()))],
         "may not change the dtype of the tensor, unless the `unsafe` flag"),
        ([("weight", Double()), ("weight", Free(lambda x: x, lambda x: 3))],
         "parametrization.right_inverse must return a tensor. Got: int"),
        ([("weight", Double()), ("weight", Free(lambda x: x, lambda x: x.reshape(-1)))],
         "The tensor returned by parametrization.right_inverse must have the same shape as module.weight"),
        ([("weight", Double()), ("weight", Free(lambda x: x, lambda x: x.double()))],
         "The tensor returned by parametrization.right_inverse must have the same dtype as module.weight"),
    ],
)  # fmt: skip
def test_parametrizations_that_are_refused(steps, text):
    net = linear()
    for name, parametrization in steps[:-1]:
        register_parametrization(net, name, parametrization)
    before, kind = net.weight.tolist(), type(net)
    with pytest.raises(ValueError, match=text):
        register_parametrization(net, *steps[-1])
    assert type(net) is kind and net.weight.tolist() == before
    assert len(net.parametrizations.weight if len(steps) > 1 else ()) == len(steps) - 1


def test_a_refused_parametrization_leaves_the_value():
    net = linear()
    with pytest.raises(ValueError, match="may not change the shape"):
        register_parametrization(net, "weight", Free(lambda x: x.reshape(-1), lambda x: x * 7))
    assert net.weight.tolist() == [[1, 2], [3, 4]] and not parametrize.is_parametrized(net)


@pytest.mark.parametrize(
    ("right_inverse", "kind", "text"),
    [
        (None, RuntimeError, "parametrization Free does not implement right_inverse."),
        (lambda x: 3, ValueError, "`right_inverse` should return a tensor. Got int"),
        (lambda x: x.double(), ValueError,
         "The tensor returned by `right_inverse` has dtype torch.float64 while `original` has dtype torch.float32"),
    ],
)  # fmt: skip
def test_assignments_that_are_refused(right_inverse, kind, text):
    net = register_parametrization(linear(), "weight", Free(lambda x: x))
    if right_inverse is not None:
        net.parametrizations.weight[0].right_inverse = right_inverse
    with pytest.raises(kind, match=text):
        net.weight = torch.ones(2, 2)
    assert net.weight.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("right_inverse", "text"),
    [
        (lambda x: 3, "'right_inverse' must return a sequence of tensors. Got int."),
        (lambda x: (x,), "'right_inverse' must return a sequence of tensors of length 2. Got a sequence of length 1."),
        (lambda x: (x, 3), "'right_inverse' must return a sequence of tensors. Got element 1 of type int."),
        (lambda x: (x, x.double()), "Tensor 1 returned by `right_inverse` has dtype torch.float64 while `original1` has"),
    ],
)  # fmt: skip
def test_assignments_to_several_originals_that_are_refused(right_inverse, text):
    net = register_parametrization(linear(), "weight", Split())
    net.parametrizations.weight[0].right_inverse = right_inverse
    with pytest.raises(ValueError, match=text):
        net.weight = torch.ones(2, 2)
    assert net.weight.tolist() == [[1, 2], [3, 4]]


def test_unsafe_allows_another_dtype_and_shape():
    net = register_parametrization(linear(), "weight", Free(lambda x: x.double().reshape(-1)), unsafe=True)
    assert net.weight.dtype == torch.float64 and net.weight.shape == (4,) and net.parametrizations.weight.unsafe


def test_what_is_not_parametrized_cannot_be_removed():
    with pytest.raises(ValueError, match=r"Module Linear\(.*\) does not have a parametrization on weight"):
        remove_parametrizations(linear(), "weight")
    with pytest.raises(ValueError, match="ParametrizationList requires one or more modules."):
        parametrize.ParametrizationList([], torch.ones(1))


def test_copies_and_pickles():
    net = register_parametrization(linear(), "weight", Double())
    twin = copy.deepcopy(net)
    twin.weight = torch.ones(2, 2)
    assert net.weight.tolist() == [[1, 2], [3, 4]] and twin.weight.tolist() == [[1, 1], [1, 1]]
    remove_parametrizations(twin, "weight")  # in PyTorch this breaks the module that was copied
    assert type(twin) is nn.Linear and net.weight.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(RuntimeError, match=r"Serialization of parametrized modules is only supported through state_d"):
        pickle.dumps(net)


def test_state_dict_conversion_and_modes():
    net, other = (register_parametrization(linear(), "weight", Double()) for _ in range(2))
    other.weight = torch.zeros(2, 2)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.weight, net.weight)
    assert net.double().weight.dtype == torch.float64
    assert not net.eval().parametrizations.weight[0].training
    register_parametrization(net, "bias", Double())
    assert not net.parametrizations.bias[0].training


@pytest.mark.parametrize("parametrization", [Double, Split])
def test_transfer_shares_everything(parametrization):
    source = register_parametrization(linear(), "weight", parametrization())
    register_parametrization(source, "bias", Double())
    for goal in (nn.Linear(2, 2), nn.Module()):
        assert parametrize.transfer_parametrizations_and_params(source, goal, "weight") is goal
        assert torch.equal(goal.weight, source.weight) and not parametrize.is_parametrized(goal, "bias")
        given, made = source.parametrizations.weight, goal.parametrizations.weight
        assert made[0] is given[0] and all(a is b for a, b in zip(made.parameters(), given.parameters(), strict=True))
    assert parametrize.transfer_parametrizations_and_params(source, nn.Linear(2, 2)).parametrizations.keys() == {
        "weight",
        "bias",
    }
    plain = nn.Linear(2, 2)
    assert parametrize.transfer_parametrizations_and_params(plain, source) is source
    with pytest.raises(KeyError):
        parametrize.transfer_parametrizations_and_params(source, plain, "nothing")


def test_training_a_parametrized_module():
    torch.manual_seed(0)
    net = register_parametrization(nn.Linear(3, 3, bias=False), "weight", Symmetric())
    goal = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        ((net.weight - goal) ** 2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(net.weight, goal)


def test_weight_norm():
    net = linear()
    assert parametrizations.weight_norm(net) is net
    length, direction = net.parametrizations.weight.original0, net.parametrizations.weight.original1
    assert length.tolist() == [[pytest.approx(5**0.5)], [5.0]] and direction.tolist() == [[1, 2], [3, 4]]
    torch.testing.assert_close(net.weight, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    net(torch.tensor([1.0, 2.0])).sum().backward()
    # the direction's gradient is perpendicular to it; x is parallel to the first row
    torch.testing.assert_close(direction.grad, torch.tensor([[0.0, 0.0], [-0.32, 0.24]]))
    torch.testing.assert_close(length.grad, torch.tensor([[5**0.5], [2.2]]))
    net.weight = torch.ones(2, 2)
    torch.testing.assert_close(net.weight, torch.ones(2, 2))


def test_weight_norm_along_each_dimension():
    def lengths(name="weight", **options):
        net = parametrizations.weight_norm(linear(), name, **options)
        return net.parametrizations[name].original0

    assert lengths(dim=None).item() == lengths(dim=-1).item() == pytest.approx(30**0.5)
    assert lengths(dim=1).shape == (1, 2) and lengths("bias").shape == (2,)
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 5\)"):
        lengths(dim=5)


def test_weight_norm_loads_the_older_names():
    net = parametrizations.weight_norm(linear())
    old = OrderedDict(weight_g=torch.ones(2, 1), weight_v=torch.ones(2, 2), bias=torch.zeros(2))
    assert repr(net.load_state_dict(old)) == "<All keys matched successfully>"
    torch.testing.assert_close(net.weight, torch.full((2, 2), 0.5**0.5))


def test_spectral_norm_converges_to_the_greatest_singular_value():
    torch.manual_seed(0)
    net = parametrizations.spectral_norm(nn.Linear(3, 4))
    assert list(net.state_dict())[1:] == [f"parametrizations.weight.{name}" for name in ("original", "0._u", "0._v")]
    for _ in range(200):
        net.weight  # noqa: B018
    numpy = pytest.importorskip("numpy")
    assert numpy.linalg.norm(net.weight.detach().numpy(), 2) == pytest.approx(1.0, rel=1e-5)
    u = net.parametrizations.weight[0]._u.clone()
    net.eval()
    assert torch.equal(net.weight, net.weight) and torch.equal(net.parametrizations.weight[0]._u, u)
    net.weight = torch.ones(4, 3)
    assert net.parametrizations.weight.original.tolist() == [[1.0] * 3] * 4


def test_spectral_norm_in_training():
    # d/dW of sum(W / sigma) for W = diag(2, 1), where u = v = e0 and sigma = 2: 1 / sigma, and -3 / sigma**2 more at [0, 0]
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    parametrizations.spectral_norm(net)
    spectral = net.parametrizations.weight[0]
    with torch.no_grad():
        spectral._u.copy_(torch.tensor([1.0, 0.0]))
        spectral._v.copy_(torch.tensor([1.0, 0.0]))
    first = net.weight
    net.weight  # noqa: B018  # moves the buffers on; the graph of the first reading must not notice
    first.sum().backward()
    assert net.parametrizations.weight.original.grad.tolist() == [[-0.25, 0.5], [0.5, 0.5]]


def test_spectral_norm_of_vectors_and_other_dimensions():
    net = parametrizations.spectral_norm(linear(), "bias")
    assert net.bias.norm().item() == pytest.approx(1.0)
    net = nn.Module()
    net.weight = nn.Parameter(torch.ones(2, 3, 4))
    parametrizations.spectral_norm(net, dim=-1)
    assert net.parametrizations.weight[0]._u.shape == (4,) and net.parametrizations.weight[0]._v.shape == (6,)
    # all rows are alike: sigma is the norm of everything
    torch.testing.assert_close(net.weight, torch.full((2, 3, 4), 24**-0.5))


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"name": "x"}, ValueError, r"Module 'Linear\(.*\)' has no parameter or buffer with name 'x'"),
        ({"n_power_iterations": 0}, ValueError, "Expected n_power_iterations to be positive, but got"),
        ({"dim": 4}, IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\] but got 4\)"),
    ],
)
def test_spectral_norm_refuses(options, kind, text):
    with pytest.raises(kind, match=text):
        parametrizations.spectral_norm(linear(), **options)
