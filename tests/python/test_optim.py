"""Optimisers: steps against recorded runs of PyTorch 2.13 (float64), groups, hooks, state dictionaries, error texts."""

import copy
import pickle

import pytest

import rustgrad as torch
from rustgrad import nn, optim

# Four steps on f(p, q) = q * sum(p * sin(p)) + q**3 from p = [1, -2, 0.5], q = 0.25: p and q as PyTorch 2.13 has them.
RUNS = {
    "sgd": (
        lambda p: optim.SGD(p, lr=0.1),
        [1.1125176831681272, -2.0061995041328182, 0.5749229966061488, -1.0887375430167965],
    ),
    "sgd_momentum": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.05),
        [1.1210285659669916, -1.9505157135774587, 0.5781816616369316, -2.6240964436639356],
    ),
    "sgd_nesterov_maximize": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
        [2.5146759590111363, -2.026650355174485, 3.0135165521524505, 27.814294959736632],
    ),
    "adam": (
        lambda p: optim.Adam(p, lr=0.1),
        [0.6626155343923896, -1.6768320599426898, 0.16846680832129343, -0.14605648531470006],
    ),
    "adam_amsgrad": (
        lambda p: optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, amsgrad=True),
        [0.6504854219011936, -1.6065433208991877, 0.1677407227477331, -0.14539757938913367],
    ),
    "adam_maximize": (
        lambda p: optim.Adam(p, lr=0.1, maximize=True),
        [1.3985400289183918, -1.9872024350465831, 0.8937811014214935, 0.6511091280880992],
    ),
    "adamw": (
        lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.2),
        [0.6013790926846517, -1.5494324548659129, 0.14540202122379986, -0.15257438354490988],
    ),
    "adamw_amsgrad": (
        lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
        [0.6594542129931749, -1.6703259493780422, 0.16727297141424147, -0.14640786201625702],
    ),
}


def start():
    double = torch.float64
    return [
        nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=double)),
        nn.Parameter(torch.tensor(0.25, dtype=double)),
    ]


def loss_of(params):
    p, q = params
    return (p.sin() * p).sum() * q + q * q * q


def step(opt, params):
    opt.zero_grad()
    loss_of(params).backward()
    opt.step()


def flat(params):
    return params[0].tolist() + [params[1].item()]


@pytest.mark.parametrize("name", RUNS)
def test_runs_as_recorded(name):
    make, want = RUNS[name]
    params = start()
    opt = make(params)
    for _ in range(4):
        step(opt, params)
    assert flat(params) == pytest.approx(want, rel=1e-12)
    assert all(p.is_leaf and p.requires_grad for p in params)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_continues_from_a_state_dict(name):
    make, want = RUNS[name]
    params = start()
    opt = make(params)
    for _ in range(2):
        step(opt, params)
    saved, values = copy.deepcopy(opt.state_dict()), [p.detach().clone() for p in params]
    others = [nn.Parameter(v) for v in values]
    fresh = make(others)
    fresh.load_state_dict(saved)
    for _ in range(2):
        step(fresh, others)
    assert flat(others) == pytest.approx(want, rel=1e-12)


def test_a_run_continues_from_a_pickle():
    make, want = RUNS["adam"]
    params = start()
    opt = make(params)
    step(opt, params)
    params, opt = pickle.loads(pickle.dumps((params, opt)))
    for _ in range(3):
        step(opt, params)
    assert flat(params) == pytest.approx(want, rel=1e-12)


def test_parameters_without_gradient_are_left_alone():
    p = nn.Parameter(torch.ones(2))
    for make in (optim.SGD, optim.Adam, optim.AdamW):
        opt = make([p], lr=0.1)
        opt.step()
        assert p.tolist() == [1.0, 1.0] and not opt.state


def test_groups_have_options_of_their_own():
    a, b = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    opt = optim.SGD([{"params": a}, {"params": [b], "lr": 10.0}], lr=1.0, momentum=0.5)
    assert [g["lr"] for g in opt.param_groups] == [1.0, 10.0] and opt.param_groups[1]["momentum"] == 0.5
    (a + b).sum().backward()
    opt.step()
    assert a.item() == -1.0 and b.item() == -10.0
    c = nn.Parameter(torch.zeros(1))
    opt.add_param_group({"params": c, "lr": 2.0})
    assert opt.param_groups[2]["params"] == [c]


def test_state_dict_numbers_parameters_through_the_groups():
    a, b, c = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    opt = optim.SGD([{"params": [b]}, {"params": [a, c]}], lr=0.1, momentum=0.9)
    for p in (a, b, c):
        p.grad = torch.ones(1)
    opt.step()
    state = opt.state_dict()
    assert [g["params"] for g in state["param_groups"]] == [[0], [1, 2]] and sorted(state["state"]) == [0, 1, 2]
    # the options in PyTorch 2.13's order
    assert list(state["param_groups"][0]) == [
        "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable", "fused",
        "params",
    ]  # fmt: skip


def test_adam_state_is_laid_out_as_in_pytorch():
    p = nn.Parameter(torch.ones(2, dtype=torch.float64))
    p.grad = torch.ones(2, dtype=torch.float64)
    opt = optim.Adam([p], amsgrad=True)
    opt.step()
    state = opt.state_dict()["state"][0]
    assert list(state) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert state["step"].dtype == torch.float32 and state["step"].shape == () and state["step"].item() == 1.0
    assert state["exp_avg"].dtype == torch.float64


def test_loading_converts_state_to_the_parameter():
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    opt = optim.Adam([p])
    opt.step()
    q = nn.Parameter(torch.ones(2, dtype=torch.float64))
    other = optim.Adam([q], lr=5.0)
    other.load_state_dict(opt.state_dict())
    assert other.state[q]["exp_avg"].dtype == torch.float64 and other.state[q]["step"].dtype == torch.float32
    assert other.param_groups[0]["lr"] == 1e-3 and other.param_groups[0]["params"][0] is q
    other.state[q]["exp_avg"].zero_()
    assert opt.state[p]["exp_avg"].tolist() != [0.0, 0.0]


def test_loading_what_does_not_fit():
    a, b = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    one, two = optim.SGD([a], lr=0.1), optim.SGD([a, b], lr=0.1)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        one.load_state_dict(two.state_dict())
    one.add_param_group({"params": [b]})
    with pytest.raises(ValueError, match="loaded state dict has a different number of parameter groups"):
        one.load_state_dict(two.state_dict())


def test_named_parameters():
    net = nn.Linear(1, 1)
    opt = optim.SGD(net.named_parameters(), lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["weight", "bias"]
    assert opt.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="cannot add param group without names to the optimizer"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(ValueError, match="Some param names are missing"):
        optim.SGD([("a", nn.Parameter(torch.ones(1))), nn.Parameter(torch.ones(1))], lr=0.1)


def test_closure_runs_with_gradients_on():
    p = nn.Parameter(torch.ones(1))
    opt = optim.SGD([p], lr=0.1)

    def closure():
        assert torch.is_grad_enabled()
        opt.zero_grad()
        loss = (p * 3).sum()
        loss.backward()
        return loss

    assert opt.step(closure).item() == 3.0 and p.item() == pytest.approx(0.7)
    assert opt.step() is None


def test_zero_grad():
    p = nn.Parameter(torch.ones(1))
    opt = optim.SGD([p], lr=0.1)
    p.sum().backward()
    opt.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    opt.zero_grad()
    assert p.grad is None


def test_step_hooks():
    p = nn.Parameter(torch.ones(1))
    opt, seen = optim.SGD([p], lr=0.1), []
    first = opt.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
    opt.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))
    opt.step()
    first.remove()
    opt.step()
    assert seen == ["pre", "post", "post"]
    opt.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        opt.step()


def test_state_dict_hooks():
    p = nn.Parameter(torch.ones(1))
    opt, seen = optim.SGD([p], lr=0.1), []
    opt.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    opt.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    opt.register_load_state_dict_pre_hook(lambda o, state: seen.append(state.pop("extra")))
    opt.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    opt.load_state_dict(opt.state_dict())
    assert seen == ["pre", 1, "loaded"]


def test_an_optimizer_of_the_users_own():
    class Sign(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad.sign() * group["lr"])

    p, seen = nn.Parameter(torch.ones(2)), []
    opt = Sign([p], 0.5)
    opt.register_step_post_hook(lambda *args: seen.append(1))
    (p * torch.tensor([3.0, -3.0])).sum().backward()
    opt.step()
    assert p.tolist() == [0.5, 1.5] and seen == [1]


def test_repr():
    opt = optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    # PyTorch 2.13's form
    assert repr(opt) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 0.1\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n)"
    )


def _leaf():
    return nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda: optim.SGD([], lr=0.1), ValueError, "optimizer got an empty parameter list"),
        (lambda: optim.SGD(_leaf(), lr=0.1), TypeError,
         "params argument given to the optimizer should be an iterable of Tensors or dicts, but got torch.FloatTensor"),
        (lambda: optim.SGD([_leaf() * 2], lr=0.1), ValueError, "can't optimize a non-leaf Tensor"),
        (lambda: optim.SGD([3], lr=0.1), TypeError, "can only optimize Tensors, but one of the params is int"),
        (lambda: optim.SGD([{"params": {_leaf()}}], lr=0.1), TypeError, "need to be organized in ordered collections"),
        (lambda: optim.SGD([_leaf()] * 2, lr=0.1).add_param_group([1]), ValueError, "appear in more than one"),
        (lambda: optim.SGD([_leaf()], lr=-0.1), ValueError, "Invalid learning rate: -0.1"),
        (lambda: optim.SGD([_leaf()], momentum=-1), ValueError, "Invalid momentum value: -1"),
        (lambda: optim.SGD([_leaf()], nesterov=True), ValueError, "Nesterov momentum requires a momentum and zero"),
        (lambda: optim.Adam([_leaf()], lr=-1), ValueError, "Invalid learning rate: -1"),
        (lambda: optim.Adam([_leaf()], eps=-1), ValueError, "Invalid epsilon value: -1"),
        (lambda: optim.Adam([_leaf()], betas=(0.9, 1.0)), ValueError, "Invalid beta parameter at index 1: 1.0"),
        (lambda: optim.AdamW([_leaf()], weight_decay=-1), ValueError, "Invalid weight_decay value: -1"),
        (lambda: optim.Adam([_leaf()], differentiable=True), NotImplementedError, "differentiable=True"),
        (lambda: optim.Adam([_leaf()], fused=True, foreach=True), RuntimeError, "cannot be `True` together"),
    ],
)  # fmt: skip
def test_error_texts(act, kind, text):
    with pytest.raises(kind, match=text):
        act()


def test_speed_flags_are_accepted():
    for flags in ({"foreach": True}, {"fused": True}, {"capturable": True}):
        p = _leaf()
        p.grad = torch.ones(1)
        optim.Adam([p], lr=0.1, **flags).step()
        assert p.item() == pytest.approx(0.9)


def test_a_tensor_learning_rate():
    p = _leaf()
    p.grad = torch.ones(1)
    lr = torch.tensor(0.5)
    opt = optim.SGD([p], lr=lr)
    opt.step()
    lr.fill_(0.25)
    opt.step()
    assert p.item() == 0.25
