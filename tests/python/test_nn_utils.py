"""`nn.utils`: clipping, flattening, `skip_init`. Values are derived by hand unless a comment says otherwise."""

import pytest

import rustgrad as torch
from rustgrad import nn
from rustgrad.nn import utils

pytestmark = pytest.mark.row("A14.gradient_utilities")


def params_with_grads():
    p, q, unused = (nn.Parameter(torch.zeros(n)) for n in (2, 1, 1))
    p.grad, q.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
    return [p, q, unused]


def test_clip_grad_norm_scales_all_by_one_factor():
    params = params_with_grads()
    assert utils.clip_grad_norm_(params, 6.5).item() == 13.0
    assert params[0].grad.tolist() == pytest.approx([1.5, 2.0]) and params[1].grad.tolist() == pytest.approx([6.0])
    # PyTorch 2.13 divides by the norm plus 1e-6
    assert params[0].grad.tolist() == pytest.approx([1.4999998807907104, 1.9999998807907104], rel=1e-7)


def test_clip_grad_norm_leaves_small_gradients_alone():
    params = params_with_grads()
    before = params[0].grad
    assert utils.clip_grad_norm_(params, 100.0).item() == 13.0
    assert params[0].grad is before and before.tolist() == [3.0, 4.0]


def test_other_norms():
    params = params_with_grads()
    assert utils.clip_grad_norm_(params, 1.0, norm_type=float("inf")).item() == 12.0
    assert params[1].grad.tolist() == pytest.approx([1.0])
    assert utils.get_total_norm([torch.tensor([3.0, -4.0])], 1.0).item() == 7.0


def test_no_gradients():
    assert utils.clip_grad_norm_([nn.Parameter(torch.ones(1))], 1.0).item() == 0.0
    assert utils.get_total_norm([]).item() == 0.0


def test_one_tensor_and_an_iterator():
    (p, q, _) = params_with_grads()
    assert utils.clip_grad_norm_(p, 1.0).item() == 5.0
    assert utils.clip_grad_norm_(iter([q]), 1.0).item() == 12.0
    assert q.grad.tolist() == pytest.approx([1.0])


def test_non_finite_norm():
    params = params_with_grads()
    params[0].grad.fill_(float("inf"))
    with pytest.raises(RuntimeError, match="The total norm of order 2.0 for gradients from `parameters` is non-finite"):
        utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert utils.clip_grad_norm_(params, 1.0).item() == float("inf")


def test_clip_with_a_given_norm_and_by_value():
    params = params_with_grads()
    utils.clip_grads_with_norm_(params, 1.0, torch.tensor(2.0))
    assert params[0].grad.tolist() == pytest.approx([1.5, 2.0], rel=1e-6)
    utils.clip_grad_value_(params, 1.75)
    assert params[0].grad.tolist() == pytest.approx([1.5, 1.75], rel=1e-6) and params[1].grad.tolist() == [1.75]


def test_vectors():
    net = nn.Linear(2, 1)
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (3,) and vector.requires_grad
    new = torch.tensor([1.0, 2.0, 3.0])
    utils.vector_to_parameters(new, net.parameters())
    assert net.weight.tolist() == [[1.0, 2.0]] and net.bias.tolist() == [3.0] and net.weight.requires_grad
    with pytest.raises(TypeError, match="expected torch.Tensor, but got: list"):
        utils.vector_to_parameters([1.0], net.parameters())


def test_an_empty_generator_is_suspicious():
    with pytest.warns(UserWarning, match="`parameters` is an empty generator, no gradient clipping will occur."):
        utils.clip_grad_norm_((p for p in ()), 1.0)


def test_old_name_of_clipping():
    p, *_ = params_with_grads()
    with pytest.warns(FutureWarning, match="`torch.nn.utils.clip_grad_norm` is now deprecated"):
        assert utils.clip_grad_norm(p, 0.5).item() == 5.0
    assert p.grad.tolist() == pytest.approx([0.3, 0.4], rel=1e-6)


def test_skip_init_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    net = utils.skip_init(nn.Linear, 3, 2, bias=False)
    assert type(net) is nn.Linear and net.weight.shape == (2, 3) and torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="Module must support a 'device' arg to skip initialization"):
        utils.skip_init(nn.ReLU)
    with pytest.raises(RuntimeError, match="Expected a Module; got <class 'int'>"):
        utils.skip_init(int)
