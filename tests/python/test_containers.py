"""Containers of modules and parameters. Printed forms are PyTorch 2.13's."""

from collections import OrderedDict

import pytest

import rustgrad as torch
from rustgrad import nn


def kinds(modules):
    return [type(m).__name__ for m in modules]


def test_sequential_is_a_list():
    net = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    assert len(net) == 3 and kinds(net) == ["ReLU", "Tanh", "Sigmoid"] and type(net[-1]) is nn.Sigmoid
    net[1] = nn.ELU()
    del net[0]
    assert kinds(net) == ["ELU", "Sigmoid"] and list(net._modules) == ["0", "1"]
    net.append(nn.ReLU()).insert(0, nn.Tanh()).extend([nn.SELU()])
    assert kinds(net) == ["Tanh", "ELU", "Sigmoid", "ReLU", "SELU"]
    assert kinds(net[1:3]) == ["ELU", "Sigmoid"] and type(net[1:3]) is nn.Sequential
    assert type(net.pop(0)) is nn.Tanh and len(net) == 4
    assert kinds(nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())) == ["ReLU", "Tanh"]
    assert len(nn.Sequential(nn.ReLU()) * 3) == 3
    with pytest.raises(IndexError, match="index 9 is out of range"):
        net[9]
    with pytest.raises(ValueError, match="Non-positive multiplication factor"):
        net * 0


def test_sequential_with_names():
    net = nn.Sequential(OrderedDict(first=nn.Linear(1, 2), second=nn.ReLU(), third=nn.Linear(2, 1)))
    assert list(net.state_dict()) == ["first.weight", "first.bias", "third.weight", "third.bias"]
    assert list(net[1:]._modules) == ["second", "third"] and net.first is net[0]
    assert net(torch.ones(4, 1)).shape == (4, 1)


def test_sequential_hands_on_and_may_be_empty():
    x = torch.ones(2)
    assert nn.Sequential()(x) is x
    assert nn.Sequential(nn.Threshold(5.0, 2.0), nn.Softsign())(x).tolist() == pytest.approx([2 / 3, 2 / 3])


def test_module_list():
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    assert len(layers) == 3 and len(list(layers.parameters())) == 6 and len(layers[:2]) == 2
    layers += [nn.ReLU()]
    layers.insert(0, nn.Tanh())
    assert kinds(layers) == ["Tanh", "Linear", "Linear", "Linear", "ReLU"]
    assert repr(layers) == (
        "ModuleList(\n  (0): Tanh()\n  (1-3): 3 x Linear(in_features=1, out_features=1, bias=True)\n  (4): ReLU()\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"
    with pytest.raises(TypeError, match="ModuleList.extend should be called with an iterable, but got int"):
        layers.extend(3)
    with pytest.raises(TypeError, match="is not a Module subclass"):
        layers.append(3)


def test_module_dict():
    layers = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    layers.update([("c", nn.Tanh())])
    assert list(layers) == ["a", "b", "c"] and "a" in layers and len(layers) == 3
    assert list(layers.keys()) == ["a", "b", "c"] and kinds(layers.values()) == ["ReLU", "Linear", "Tanh"]
    assert type(layers.pop("a")) is nn.ReLU and "a" not in layers
    assert [n for n, _ in layers.named_parameters()] == ["b.weight", "b.bias"]
    with pytest.raises(ValueError, match="has length 3; 2 is required"):
        layers.update([(1, 2, 3)])
    layers.clear()
    assert len(layers) == 0


def test_parameter_list():
    params = nn.ParameterList([torch.zeros(2, 3), nn.Parameter(torch.zeros(1, dtype=torch.float64)), 3])
    assert isinstance(params[0], nn.Parameter) and params[-1] == 3 and len(params) == 3
    assert [n for n, _ in params.named_parameters()] == ["0", "1"]
    assert repr(params) == (
        "ParameterList(\n    (0): Parameter containing: [torch.float32 of size 2x3]\n"
        "    (1): Parameter containing: [torch.float64 of size 1]\n    (2): Object of type: int\n)"
    )
    assert [type(p) for p in params[1:]] == [nn.Parameter, int]
    params[0] = torch.ones(1)
    assert params[0].tolist() == [1.0]
    with pytest.raises(RuntimeError, match="ParameterList should not be called."):
        params()


def test_parameter_dict():
    params = nn.ParameterDict({"a": torch.zeros(2, 3), "b": torch.zeros(())})
    assert repr(params) == (
        "ParameterDict(\n    (a): Parameter containing: [torch.FloatTensor of size 2x3]\n"
        "    (b): Parameter containing: [torch.FloatTensor of size ]\n)"
    )
    params["c"] = 5
    assert params.get("z", 1) == 1 and params.setdefault("d", torch.ones(1)).tolist() == [1.0]
    assert list(params) == ["a", "b", "c", "d"] and list(reversed(params)) == ["d", "c", "b", "a"]
    assert params.popitem()[0] == "d" and params.pop("c") == 5 and "c" not in params
    assert list((params | nn.ParameterDict({"x": torch.ones(1)})).keys()) == ["a", "b", "x"]
    assert [n for n, _ in params.named_parameters()] == ["a", "b"]
    with pytest.raises(KeyError):
        params["zzz"]
    with pytest.raises(TypeError, match="cannot be used as a key as it is not a string"):
        params[3] = torch.ones(1)


@pytest.mark.parametrize("kind", [nn.Sequential, nn.ModuleList])
def test_a_place_without_module_counts(kind):
    modules = [nn.ReLU(), nn.Tanh(), nn.Sigmoid()]
    net = nn.ModuleList(modules) if kind is nn.ModuleList else nn.Sequential(*modules)
    net.register_module("1", None)
    del net[2]
    assert list(net._modules) == ["0", "1"] and isinstance(net[0], nn.ReLU) and net[1] is None
    net.insert(2, nn.Tanh())
    assert len(net) == 3 and isinstance(net[2], nn.Tanh)
