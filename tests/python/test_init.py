"""`nn.init`: exact values where there are such, moments and bounds where values are random."""

import math

import pytest

import rustgrad as torch
from rustgrad.nn import init


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def big(requires_grad=True):
    return torch.empty(200, 100, dtype=torch.float64, requires_grad=requires_grad)


def test_in_place_without_a_graph():
    w = big()
    for fill in (init.uniform_, init.normal_, init.ones_, init.zeros_, init.eye_, init.trunc_normal_,
                 init.xavier_normal_, init.xavier_uniform_, init.kaiming_normal_, init.kaiming_uniform_):  # fmt: skip
        assert fill(w) is w and w.is_leaf and w.grad_fn is None and w.requires_grad, fill.__name__
    assert torch.is_grad_enabled()


def test_constants():
    w = torch.empty(2, 3)
    assert init.constant_(w, 2.5).tolist() == [[2.5] * 3] * 2
    assert init.ones_(w).tolist() == [[1.0] * 3] * 2 and init.zeros_(w).tolist() == [[0.0] * 3] * 2
    assert init.eye_(w).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions are supported"):
        init.eye_(torch.empty(3))


def test_dirac_hands_its_input_through():
    w = init.dirac_(torch.empty(4, 2, 3), groups=2)
    # channel i of each group reads channel i, at the middle of the kernel
    assert w[:, :, 1].tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]] and w.sum().item() == 4.0
    with pytest.raises(ValueError, match="dim 0 must be divisible by groups"):
        init.dirac_(torch.empty(3, 2, 3), groups=2)
    with pytest.raises(ValueError, match="Only tensors with 3, 4, or 5 dimensions"):
        init.dirac_(torch.empty(3, 2))


def test_uniform_and_normal():
    w = init.uniform_(big(), 2.0, 4.0)
    assert 2.0 <= w.min().item() < 2.01 and 3.99 < w.max().item() < 4.0
    w = init.normal_(big(), 3.0, 0.5)
    assert w.mean().item() == pytest.approx(3.0, abs=0.02) and w.std().item() == pytest.approx(0.5, rel=0.02)


def test_truncated_normal_has_the_right_spread_inside_its_bounds():
    w = init.trunc_normal_(big(), 1.0, 2.0, -1.0, 3.0)
    assert w.min().item() >= -1.0 and w.max().item() <= 3.0
    # a normal cut at one deviation on both sides has the deviation sqrt(1 - 2 f(1) / (F(1) - F(-1))), f the density
    density, inside = math.exp(-0.5) / math.sqrt(2 * math.pi), math.erf(1 / math.sqrt(2))
    assert w.std().item() == pytest.approx(2.0 * math.sqrt(1 - 2 * density / inside), rel=0.02)
    with pytest.warns(UserWarning, match="mean is more than 2 std"):
        init.trunc_normal_(big(), 10.0, 1.0)


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (init.xavier_uniform_, math.sqrt(2 / 300)),
        (init.xavier_normal_, math.sqrt(2 / 300)),
        (lambda w: init.xavier_normal_(w, gain=3.0), 3 * math.sqrt(2 / 300)),
        (init.kaiming_uniform_, math.sqrt(2 / 100)),
        (init.kaiming_normal_, math.sqrt(2 / 100)),
        (lambda w: init.kaiming_normal_(w, mode="fan_out"), math.sqrt(2 / 200)),
        (lambda w: init.kaiming_uniform_(w, a=math.sqrt(5)), math.sqrt(1 / 300)),
        (lambda w: init.kaiming_normal_(w, nonlinearity="tanh"), 5 / 3 / math.sqrt(100)),
    ],
)
def test_spread_follows_the_fans(fill, std):
    w = fill(big())
    assert w.mean().item() == pytest.approx(0.0, abs=0.05 * std) and w.std().item() == pytest.approx(std, rel=0.02)


def test_kernels_count_into_the_fans():
    w = init.kaiming_uniform_(torch.empty(50, 20, 3, 3), a=math.sqrt(5))
    bound = 1 / math.sqrt(20 * 9)
    assert 0.98 * bound < w.abs().max().item() <= bound


def test_errors():
    with pytest.raises(ValueError, match="Fan in and fan out can not be computed"):
        init.xavier_uniform_(torch.empty(3))
    with pytest.raises(ValueError, match="Mode other not supported"):
        init.kaiming_uniform_(big(), mode="other")
    with pytest.raises(ValueError, match="Unsupported nonlinearity other"):
        init.calculate_gain("other")
    with pytest.raises(ValueError, match="negative_slope x not a valid number"):
        init.calculate_gain("leaky_relu", "x")
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        init.kaiming_uniform_(torch.empty(0, 3))


def test_gains():
    assert init.calculate_gain("conv2d") == 1 and init.calculate_gain("conv_transpose3d") == 1
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("selu") == 0.75
    assert init.calculate_gain("leaky_relu", 2.0) == math.sqrt(0.4)


def test_sparse():
    w = init.sparse_(torch.empty(10, 6), 0.25)
    assert (w == 0).sum(0).tolist() == [3] * 6
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        init.sparse_(torch.empty(3), 0.5)


def test_a_generator_of_its_own():
    def draw(fill):
        return fill(torch.empty(3, 3), generator=torch.Generator().manual_seed(3))

    for fill in (init.uniform_, init.normal_, init.xavier_uniform_, init.kaiming_normal_, init.trunc_normal_):
        assert torch.equal(draw(fill), draw(fill)), fill.__name__
