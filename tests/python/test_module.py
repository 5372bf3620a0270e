"""`nn.Module`: registration, traversal, state, hooks, conversion, printing, copying."""

import copy
import pickle
import weakref
from collections import OrderedDict

import pytest

import rustgrad as torch
from rustgrad import nn

pytestmark = pytest.mark.row("A14.module_protocol")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.act = nn.ReLU()
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x):
        return self.act(self.fc(x)) * self.scale


def test_attributes_go_to_their_tables():
    net = Net()
    assert list(net._parameters) == ["scale"] and list(net._modules) == ["fc", "act"]
    assert list(net._buffers) == ["count", "scratch"] and net._non_persistent_buffers_set == {"scratch"}
    net.scratch = torch.ones(2)
    assert "scratch" in net._buffers and net._non_persistent_buffers_set == {"scratch"}
    net.fc = None
    assert net._modules["fc"] is None and net.fc is None
    net.plain = 3
    assert net.__dict__["plain"] == 3
    net.plain = nn.Parameter(torch.ones(1))
    assert "plain" in net._parameters and "plain" not in net.__dict__
    del net.plain
    assert not hasattr(net, "plain")


def test_assigning_a_buffer_object():
    net = Net()
    net.mask = nn.Buffer(torch.ones(2))
    net.temporary = nn.Buffer(torch.ones(2), persistent=False)
    assert isinstance(net.mask, nn.Buffer) and isinstance(net.mask, torch.Tensor)
    assert {"mask", "temporary"} <= set(net._buffers)
    assert "mask" in net.state_dict() and "temporary" not in net.state_dict()


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda m: setattr(m, "scale", torch.ones(1)), TypeError,
         r"cannot assign 'torch.FloatTensor' as parameter 'scale' \(torch.nn.Parameter or None expected\)"),
        (lambda m: setattr(m, "fc", 3), TypeError,
         r"cannot assign 'int' as child module 'fc' \(torch.nn.Module or None expected\)"),
        (lambda m: setattr(m, "count", 3), TypeError,
         r"cannot assign 'int' as buffer 'count' \(torch.nn.Buffer, torch.Tensor or None expected\)"),
        (lambda m: m.register_parameter("a.b", None), KeyError, "parameter name can.+t contain"),
        (lambda m: m.register_parameter("", None), KeyError, "parameter name can.+t be empty string"),
        (lambda m: m.register_parameter("fc", None), KeyError, "attribute 'fc' already exists"),
        (lambda m: m.register_parameter(3, None), TypeError, "parameter name should be a string. Got int"),
        (lambda m: m.register_parameter("q", torch.ones(1)), TypeError, "object to parameter 'q'"),
        (lambda m: m.register_buffer("forward", None), KeyError, "attribute 'forward' already exists"),
        (lambda m: m.register_buffer("q", 3), TypeError, "cannot assign 'int' object to buffer 'q'"),
        (lambda m: m.add_module("q", 3), TypeError, "int is not a Module subclass"),
        (lambda m: m.add_module("q", nn.ReLU), TypeError, "activation.ReLU is not a Module subclass"),
        (lambda m: (m.add_module("a", nn.ReLU()), m.add_module("", nn.ReLU())), KeyError, "can.+t be empty string"),
        (lambda m: m.add_module("a.b", nn.ReLU()), KeyError, r"module name can.+t contain .*, got: a\.b"),
        (lambda m: m.nothing, AttributeError, "'Net' object has no attribute 'nothing'"),
        (lambda m: m.get_submodule("fc.x"), AttributeError, "Linear has no attribute `x`"),
        (lambda m: m.get_submodule("scale"), AttributeError, "`scale` is not an nn.Module"),
        (lambda m: m.get_parameter("count"), AttributeError, "`count` is not an nn.Parameter"),
        (lambda m: m.get_buffer("scale"), AttributeError, "`scale` is not a buffer"),
        (lambda m: m.set_submodule("", nn.ReLU()), ValueError, "Cannot set the submodule without a target name!"),
        (lambda m: m.train("yes"), ValueError, "training mode is expected to be boolean"),
        (lambda m: m.cuda(), AssertionError, "Torch not compiled with CUDA enabled"),
        (lambda m: nn.Module()(1), NotImplementedError, 'missing the required "forward" function'),
    ],
)  # fmt: skip
def test_error_texts(act, kind, text):
    with pytest.raises(kind, match=text):
        act(Net())


def test_assigning_before_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.value = value

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Early(nn.Parameter(torch.ones(1)))
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Early(nn.ReLU())
    with pytest.raises(AttributeError, match=r"cannot assign buffer before Module.__init__\(\) call"):
        Early(nn.Buffer(torch.ones(1)))


def test_calling_before_init():
    class Early(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match="'Early' object has no attribute '_backward_hooks'"):
        Early()(1)


def test_a_result_is_no_parameter():
    p = nn.Parameter(torch.ones(1))
    with pytest.raises(TypeError, match="object to parameter 'q'"):
        nn.Module().register_parameter("q", p * 2)


def test_init_refuses_arguments():
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'size'"):
        nn.Module(size=1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(1)


def test_names_with_prefix_and_without_duplicates():
    shared = nn.Linear(1, 1)
    tree = nn.Sequential(shared, nn.Sequential(shared))
    tree.alias = shared.weight
    assert [n for n, _ in tree.named_modules()] == ["", "0", "1"]
    assert [n for n, _ in tree.named_modules(remove_duplicate=False)] == ["", "0", "1", "1.0"]
    assert [n for n, _ in tree.named_parameters()] == ["alias", "0.bias"]
    assert [n for n, _ in tree.named_parameters(prefix="net", recurse=False)] == ["net.alias"]
    every = [n for n, _ in tree.named_parameters(remove_duplicate=False)]
    assert every == ["alias", "0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert len(list(tree.parameters())) == 2 and len(list(tree.children())) == 2 and len(list(tree.modules())) == 3


def test_lookup_by_path():
    tree = nn.Sequential(Net(), nn.ReLU())
    assert tree.get_submodule("") is tree and tree.get_submodule("0.fc") is tree[0].fc
    assert tree.get_parameter("0.fc.weight") is tree[0].fc.weight and tree.get_buffer("0.count") is tree[0].count
    tree.set_submodule("0.act", nn.Tanh())
    assert isinstance(tree[0].act, nn.Tanh)


def test_state_dict_round_trip():
    net, other = Net(), Net()
    state = net.state_dict()
    assert list(state) == ["scale", "count", "fc.weight", "fc.bias"]
    assert state._metadata == {"": {"version": 1}, "fc": {"version": 1}, "act": {"version": 1}}
    assert not state["scale"].requires_grad and state["scale"].data_ptr() == net.scale.data_ptr()
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.state_dict(prefix="a.")) == ["a.scale", "a.count", "a.fc.weight", "a.fc.bias"]
    assert repr(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert torch.equal(other.fc.weight, net.fc.weight) and other.fc.weight is not net.fc.weight
    assert other.fc.weight.requires_grad and other.fc.weight.is_leaf


def test_load_state_dict_reports_everything_at_once():
    state = Net().state_dict()
    del state["scale"]
    state["extra"] = torch.ones(1)
    state["fc.weight"] = torch.ones(1, 2)
    state["fc.bias"] = 3
    with pytest.raises(RuntimeError) as error:
        Net().load_state_dict(state)
    lines = str(error.value).split("\n\t")
    assert lines[0] == "Error(s) in loading state_dict for Net:"
    assert lines[1] == 'Missing key(s) in state_dict: "scale". '
    assert lines[2] == 'Unexpected key(s) in state_dict: "extra". '
    assert lines[3] == (
        "size mismatch for fc.weight: copying a param with shape torch.Size([1, 2]) from checkpoint, "
        "the shape in current model is torch.Size([3, 2])."
    )
    assert lines[4].startswith('While copying the parameter named "fc.bias", expected torch.Tensor')
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got"):
        Net().load_state_dict([1])


def test_load_state_dict_not_strict():
    state = {"scale": torch.full((1,), 5.0), "other": torch.ones(1)}
    net = Net()
    keys = net.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["count", "fc.weight", "fc.bias"] and keys.unexpected_keys == ["other"]
    assert repr(keys) == "_IncompatibleKeys(missing_keys=['count', 'fc.weight', 'fc.bias'], unexpected_keys=['other'])"
    assert net.scale.item() == 5.0


def test_load_state_dict_assign():
    net = Net()
    net.scale.requires_grad_(False)
    state = {key: value.double() for key, value in Net().state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.fc.weight.dtype == torch.float64 and net.fc.weight.data_ptr() == state["fc.weight"].data_ptr()
    assert isinstance(net.fc.weight, nn.Parameter) and net.fc.weight.requires_grad and not net.scale.requires_grad


def test_state_hooks_and_extra_state():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    net, calls = Extra(1, 1), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append("pre"))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: calls.append("post"))
    net.register_load_state_dict_pre_hook(lambda m, state, *rest: state.setdefault("bias", torch.ones(1)))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    state = net.state_dict()
    assert calls == ["pre", "post"] and state["_extra_state"] == {"seen": 3}
    del state["bias"]
    state["odd"] = torch.ones(1)
    net.load_state_dict(state)
    assert net.seen == 3 and net.bias.item() == 1.0
    net.register_state_dict_post_hook(lambda *args: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()


def test_state_hooks_that_private_methods_register():
    net, hook = nn.Linear(1, 1), lambda *args: None
    net._register_state_dict_hook(lambda m, state, prefix, meta: {"only": prefix})
    assert net.state_dict(prefix="a.") == {"only": "a."}
    net.register_state_dict_post_hook(hook)
    with pytest.raises(RuntimeError, match="Cannot register the same function as the state dict post hook"):
        net._register_state_dict_hook(hook)


def test_a_load_hook_of_a_copy_is_told_the_copy():
    net, seen = nn.Linear(1, 1), []
    net.register_load_state_dict_pre_hook(lambda module, *args: seen.append(module))
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    assert seen == [twin]


def test_modules_are_freed_at_once():
    net = nn.Linear(1, 1)
    net.register_load_state_dict_pre_hook(lambda *args: None)
    net.register_full_backward_hook(lambda *args: None)
    net(torch.ones(1, requires_grad=True)).sum().backward()
    alive = weakref.ref(net)
    del net
    assert alive() is None


def test_train_and_eval_reach_everything():
    net = nn.Sequential(Net(), nn.Dropout())
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert all(m.training for m in net.train().modules())


def test_apply_goes_children_first():
    seen = []
    net = Net().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "ReLU", "Net"] and isinstance(net, Net)


def test_conversion_keeps_objects_and_gradients():
    net = Net()
    weight, count = net.fc.weight, net.count
    net(torch.ones(1, 2)).sum().backward()
    assert net.to(torch.float64) is net
    assert net.fc.weight is weight and weight.dtype == torch.float64 and weight.grad.dtype == torch.float64
    assert net.count.dtype == torch.int64 and count.dtype == torch.int64
    assert net.float().fc.weight.dtype == torch.float32
    assert net.half().fc.weight.dtype == torch.float16 and net.bfloat16().fc.weight.dtype == torch.bfloat16
    assert net.double().scratch.dtype == torch.float64
    assert net.to("cpu", torch.float32).fc.weight.dtype == torch.float32
    assert net.to(torch.ones(1, dtype=torch.float64)).scale.dtype == torch.float64
    assert net.to(dtype=torch.float32).scale.dtype == torch.float32
    net.image = nn.Buffer(torch.zeros(2, 3, 4, 5))
    assert net.to(memory_format=torch.channels_last) is net and net.image.shape == (2, 3, 4, 5)
    with pytest.raises(TypeError, match="nn.Module.to only accepts floating point"):
        net.to(torch.int64)
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        net.to(torch.float32, False, 3)


def test_zero_grad_and_requires_grad():
    net = Net()
    net(torch.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0.0]
    net.zero_grad()
    assert net.scale.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_forward_hooks_in_order_and_replacing():
    net, order = nn.Identity(), []
    net.register_forward_pre_hook(lambda m, args: order.append("pre 2"))
    net.register_forward_pre_hook(lambda m, args: (args[0] + 1,), prepend=True)
    net.register_forward_hook(lambda m, args, out: order.append(("post", args[0], out)))
    handle = net.register_forward_hook(lambda m, args, out: out * 10)
    assert net(1) == 20 and order == ["pre 2", ("post", 2, 2)]
    handle.remove()
    handle.remove()
    assert net(1) == 2
    with net.register_forward_hook(lambda m, args, out: out * 10, prepend=True):
        assert net(1) == 20
    assert net(1) == 2


def test_pre_hook_may_return_a_bare_value():
    net = nn.Identity()
    net.register_forward_pre_hook(lambda m, args: 7)
    assert net(1) == 7


def test_hooks_with_keyword_arguments():
    class Two(nn.Module):
        def forward(self, a, b=0):
            return a + b

    net, seen = Two(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"b": kwargs["b"] * 2}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append((args, kwargs, out)), with_kwargs=True)
    assert net(1, b=3) == 7 and seen == [((1,), {"b": 6}, 7)]
    net.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple"):
        net(1, b=3)


def test_always_called_hooks_run_after_an_error_too():
    class Bad(nn.Module):
        def forward(self):
            raise KeyError("bad")

    net, seen = Bad(), []
    net.register_forward_hook(lambda m, args, out: seen.append("usual"))
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    net.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
    with pytest.warns(UserWarning, match="was silenced as another error was raised"), pytest.raises(KeyError):
        net()
    assert seen == [None]


def test_repr_is_a_tree():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 2), nn.ReLU())

        def extra_repr(self):
            return "one\ntwo"

    assert repr(Odd()) == (
        "Odd(\n  one\n  two\n  (net): Sequential(\n    (0): Linear(in_features=1, out_features=2, bias=True)\n"
        "    (1): ReLU()\n  )\n)"
    )
    assert repr(nn.Module()) == "Module()"


def test_copies_are_independent_and_keep_sharing():
    net = nn.Sequential(Net(), nn.Linear(3, 3))
    net[1].weight2 = net[0].scale
    net[0](torch.ones(1, 2)).sum().backward()
    twin = copy.deepcopy(net)
    assert twin[0].scale is twin[1].weight2 and twin[0].scale is not net[0].scale
    assert torch.equal(twin[0].fc.weight, net[0].fc.weight)
    with torch.no_grad():
        twin[0].fc.weight.fill_(9.0)
    assert not torch.equal(twin[0].fc.weight, net[0].fc.weight)


class Counted:
    def __init__(self, size):
        self.size = size


class Mixed(nn.Module, Counted):
    call_super_init = True

    def __init__(self, size):
        super().__init__(size=size)


def test_copies_do_not_initialise_the_other_base_again():
    for twin in (copy.copy(Mixed(3)), copy.deepcopy(Mixed(3)), pickle.loads(pickle.dumps(Mixed(3)))):
        assert twin.size == 3 and twin.training


def test_pickle_round_trip():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    net.register_forward_hook(_multiply)
    twin = pickle.loads(pickle.dumps(net))
    x = torch.ones(1, 2)
    assert torch.equal(twin(x), net(x)) and isinstance(twin[0].weight, nn.Parameter)


def test_new_hooks_leave_those_of_a_pickle_alone():
    net = nn.Identity()
    handle = net.register_forward_hook(_multiply)
    net._forward_hooks = OrderedDict({handle.id + 1: _multiply})  # as another process might have numbered it
    twin = pickle.loads(pickle.dumps(net))
    twin.register_forward_hook(_multiply)
    assert len(twin._forward_hooks) == 2


def _multiply(module, args, out):
    return out * 2


def test_parameter():
    data = torch.ones(2)
    p = nn.Parameter(data)
    assert isinstance(p, torch.Tensor) and isinstance(p, nn.Parameter) and not isinstance(data, nn.Parameter)
    assert p.requires_grad and p.is_leaf and p.data_ptr() == data.data_ptr()
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert not isinstance(p * 2, nn.Parameter)
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    with torch.no_grad():
        assert nn.Parameter(torch.ones(1)).requires_grad


def test_parameter_copy_and_pickle_keep_the_kind():
    p = nn.Parameter(torch.ones(2), requires_grad=False)
    p.tag = "x"
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is nn.Parameter and not twin.requires_grad and torch.equal(twin, p)
        assert twin.data_ptr() != p.data_ptr()
    assert pickle.loads(pickle.dumps(p)).tag == "x"
