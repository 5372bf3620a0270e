"""Layers and losses of `rustgrad.nn`: values, gradients, shapes, printed forms. Recorded values: PyTorch 2.13."""

import math

import pytest

import rustgrad as torch
import rustgrad.nn.functional as F
from rustgrad import nn

X = [-3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 4.0]

# printed form, layer, its values at X as PyTorch 2.13 gives them
ACTIVATIONS = [
    ("ReLU()", nn.ReLU(), [0.0, 0.0, 0.0, 0.0, 0.5, 2.0, 4.0]),
    ("LeakyReLU(negative_slope=0.2)", nn.LeakyReLU(0.2), [-0.6, -0.2, -0.05, 0.0, 0.5, 2.0, 4.0]),
    ("ELU(alpha=0.5)", nn.ELU(0.5),
     [-0.475106465816068, -0.31606027941427883, -0.11059960846429756, 0.0, 0.5, 2.0, 4.0]),
    ("SELU()", nn.SELU(),
     [-1.6705687287671118, -1.1113307378125625, -0.388890197478119, 0.0, 0.5253504936777402, 2.101401974710961,
      4.202803949421922]),
    ("CELU(alpha=2.0)", nn.CELU(2.0),
     [-1.5537396797031404, -0.7869386805747332, -0.2350061948308092, 0.0, 0.5, 2.0, 4.0]),
    ("GELU(approximate='none')", nn.GELU(),
     [-0.00404969409489031, -0.15865525393145702, -0.10032341857926907, 0.0, 0.34573123063700656, 1.9544997361036416,
      3.9998733150326675]),
    ("GELU(approximate='tanh')", nn.GELU("tanh"),
     [-0.0036373920817729943, -0.15880800939172324, -0.100324649298315, 0.0, 0.34571400982514394, 1.954597694087775,
      3.9999297540518075]),
    ("SiLU()", nn.SiLU(),
     [-0.14227761953270035, -0.2689414213699951, -0.10945587477855048, 0.0, 0.3112296656009273, 1.7615941559557646,
      3.928055160151634]),
    ("Mish()", nn.Mish(),
     [-0.1456474612756246, -0.30340146137410895, -0.129926963679141, 0.0, 0.3752452113048951, 1.9439589595339946,
      3.9974128069762385]),
    ("Sigmoid()", nn.Sigmoid(),
     [0.04742587317756678, 0.2689414213699951, 0.43782349911420193, 0.5, 0.6224593312018546, 0.8807970779778823,
      0.9820137900379085]),
    ("Tanh()", nn.Tanh(),
     [-0.9950547536867305, -0.7615941559557649, -0.24491866240370913, 0.0, 0.46211715726000974, 0.9640275800758169,
      0.999329299739067]),
    ("Softplus(beta=2.0, threshold=3.0)", nn.Softplus(2.0, 3.0),
     [0.0012378425688652247, 0.06346400552148625, 0.23703849209005334, 0.34657359027997264, 0.6566308437591114, 2.0,
      4.0]),
    ("Softsign()", nn.Softsign(), [-0.75, -0.5, -0.2, 0.0, 1 / 3, 2 / 3, 0.8]),
    ("LogSigmoid()", nn.LogSigmoid(),
     [-3.048587351573742, -1.3132616875182228, -0.8259394198788436, -0.6931471805599453, -0.4740769841801067,
      -0.1269280110429725, -0.018149927917809738]),
    ("Hardtanh(min_val=-0.5, max_val=1.5)", nn.Hardtanh(-0.5, 1.5), [-0.5, -0.5, -0.25, 0.0, 0.5, 1.5, 1.5]),
    ("ReLU6()", nn.ReLU6(), [0.0, 0.0, 0.0, 0.0, 0.5, 2.0, 4.0]),
    ("Hardswish()", nn.Hardswish(), [-0.0, -1 / 3, -0.11458333333333333, 0.0, 0.2916666666666667, 5 / 3, 4.0]),
    ("Hardsigmoid()", nn.Hardsigmoid(), [0.0, 1 / 3, 0.4583333333333333, 0.5, 0.5833333333333334, 5 / 6, 1.0]),
    ("Hardshrink(0.5)", nn.Hardshrink(), [-3.0, -1.0, 0.0, 0.0, 0.0, 2.0, 4.0]),
    ("Softshrink(0.75)", nn.Softshrink(0.75), [-2.25, -0.25, -0.0, 0.0, 0.0, 1.25, 3.25]),
    ("Tanhshrink()", nn.Tanhshrink(),
     [-2.0049452463132695, -0.23840584404423515, -0.005081337596290869, 0.0, 0.03788284273999026, 1.035972419924183,
      3.000670700260933]),
    ("Threshold(threshold=0.1, value=-7.0)", nn.Threshold(0.1, -7.0), [-7.0, -7.0, -7.0, -7.0, 0.5, 2.0, 4.0]),
    ("Softmax(dim=0)", nn.Softmax(0),
     [0.0007562700490880605, 0.005588121818652716, 0.01183005398292145, 0.015190089994859187, 0.025044224478373546,
      0.11224042711981974, 0.8293508125562852]),
    ("LogSoftmax(dim=0)", nn.LogSoftmax(0),
     [-7.187112037779815, -5.187112037779815, -4.437112037779815, -4.187112037779815, -3.6871120377798148,
      -2.1871120377798148, -0.18711203777981456]),
    ("Softmin(dim=0)", nn.Softmin(0),
     [0.7770627094432415, 0.10516400187511077, 0.049675957038195676, 0.038687674241168264, 0.02346526058024324,
      0.005235807351194312, 0.000708589470846221]),
    ("PReLU(num_parameters=1)", nn.PReLU().double(), [-0.75, -0.25, -0.0625, 0.0, 0.5, 2.0, 4.0]),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "layer", "want"), ACTIVATIONS, ids=[row[0] for row in ACTIVATIONS])
def test_activation_values(printed, layer, want):
    assert repr(layer) == printed
    got = layer(torch.tensor(X, dtype=torch.float64))
    assert got.tolist() == pytest.approx(want, rel=1e-12, abs=1e-15)


IN_PLACE = [nn.ReLU, nn.SELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.LeakyReLU, nn.ELU, nn.CELU,
            nn.Hardtanh, nn.ReLU6, lambda inplace: nn.Threshold(0.1, -7.0, inplace)]  # fmt: skip


@pytest.mark.parametrize("make", IN_PLACE)
def test_in_place_activation_changes_its_input_and_keeps_the_gradient(make):
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    make(inplace=False)(x).sum().backward()
    want, x.grad = x.grad, None
    middle = x * 1.0
    out = make(inplace=True)(middle)
    assert out is middle and torch.equal(out, make(inplace=False)(x))
    out.sum().backward()
    assert x.grad.tolist() == pytest.approx(want.tolist())


def test_in_place_shows_in_the_printed_form():
    assert repr(nn.ReLU(True)) == "ReLU(inplace=True)" and repr(nn.ReLU6(True)) == "ReLU6(inplace=True)"
    assert repr(nn.ELU(inplace=True)) == "ELU(alpha=1.0, inplace=True)"
    assert repr(nn.Hardswish(True)) == "Hardswish()"


def test_activation_settings_are_checked():
    with pytest.raises(AssertionError, match=r"max_val \(1\) must be greater than min_val \(2\)"):
        nn.Hardtanh(2, 1)
    with pytest.raises(ValueError, match="min_val cannot be greater than max_val"):
        F.hardtanh(torch.ones(1), 2.0, 1.0)
    with pytest.raises(ValueError, match="expected input to be 3D or 4D, got 2D"):
        nn.Softmax2d()(torch.ones(2, 2))


def test_softmax_guesses_a_dimension_with_a_warning():
    x = torch.zeros(2, 4)
    for layer in (nn.Softmax(), nn.LogSoftmax(), nn.Softmin()):
        with pytest.warns(UserWarning, match="Implicit dimension choice for .* has been deprecated"):
            assert torch.equal(layer(x), type(layer)(1)(x))
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert F.softmax(torch.zeros(2, 1, 1)).flatten().tolist() == [0.5, 0.5]
    assert F.softmax(torch.tensor([0.0, 0.0]), 0, dtype=torch.float64).dtype == torch.float64


def test_softmax2d_and_glu():
    assert nn.Softmax2d()(torch.zeros(1, 4, 2, 2)).flatten().tolist() == [0.25] * 16
    assert nn.GLU(0)(torch.tensor([3.0, 0.0])).tolist() == [1.5] and repr(nn.GLU()) == "GLU(dim=-1)"


def test_linear():
    layer = nn.Linear(2, 3)
    assert repr(layer) == "Linear(in_features=2, out_features=3, bias=True)"
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
        layer.bias.copy_(torch.tensor([0.5, 0.0, -1.0]))
    assert layer(torch.tensor([1.0, 10.0])).tolist() == [21.5, 43.0, 64.0]
    assert layer(torch.ones(4, 5, 2)).shape == (4, 5, 3)
    assert nn.Linear(2, 3, bias=False).bias is None and list(nn.Linear(2, 3, bias=False).state_dict()) == ["weight"]
    assert nn.Linear(2, 3, dtype=torch.float64).weight.dtype == torch.float64
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        layer(torch.ones(1, 4))


def test_linear_starts_within_its_bound():
    torch.manual_seed(0)
    layer = nn.Linear(100, 200)
    for param in (layer.weight, layer.bias):
        greatest = param.abs().max().item()
        assert 0.095 < greatest <= 0.1
    assert layer.weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.02)


def test_bilinear():
    # the value is PyTorch 2.13's
    layer = nn.Bilinear(2, 3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(12.0).reshape(2, 2, 3) / 10)
        layer.bias.copy_(torch.tensor([0.5, -0.5]))
    a = torch.tensor([[0.5, -1.0], [0.25, 0.75]])
    b = torch.tensor([[0.2, 0.9, -1.0], [0.3, 0.1, 0.6]])
    assert layer(a, b).flatten().tolist() == pytest.approx([0.525, -0.505, 0.855, 0.455], abs=1e-6)
    with pytest.raises(ValueError, match="in1_features must be > 0"):
        nn.Bilinear(0, 1, 1)


def test_identity_flatten_unflatten():
    x = torch.ones(2, 3, 4)
    assert nn.Identity(54, unused=True)(x) is x
    assert nn.Flatten()(x).shape == (2, 12) and nn.Flatten(0, 1)(x).shape == (6, 4)
    assert nn.Unflatten(1, (3, -1))(torch.ones(2, 12)).shape == (2, 3, 4)
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
    with pytest.raises(TypeError, match="unflattened_size must be a tuple of ints, but found type int"):
        nn.Unflatten(1, 3)


def test_embedding():
    layer = nn.Embedding(4, 2, padding_idx=-1)
    assert repr(layer) == "Embedding(4, 2, padding_idx=3)" and layer.weight[3].tolist() == [0.0, 0.0]
    layer(torch.tensor([[0, 3], [0, 1]])).sum().backward()
    assert layer.weight.grad.tolist() == [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    frozen = nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad and frozen(torch.tensor(1)).tolist() == [3.0, 4.0]
    with pytest.raises(AssertionError, match="Padding_idx must be within num_embeddings"):
        nn.Embedding(3, 2, padding_idx=3)
    with pytest.raises(AssertionError, match="expected to be 2-dimensional"):
        nn.Embedding.from_pretrained(torch.ones(3))


def test_embedding_max_norm_scales_the_rows_that_are_used():
    weight = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 2.0]], requires_grad=True)
    got = F.embedding(torch.tensor([0, 1, 0]), weight, max_norm=1.0)
    assert got.flatten().tolist() == pytest.approx([0.6, 0.8, 0.3, 0.4, 0.6, 0.8])
    assert weight.flatten().tolist() == pytest.approx([0.6, 0.8, 0.3, 0.4, 0.0, 2.0])
    got.sum().backward()
    assert weight.grad.tolist() == [[2.0, 2.0], [1.0, 1.0], [0.0, 0.0]]


def test_layer_norm():
    # values are PyTorch 2.13's
    a = torch.tensor([[0.5, -1.0, 2.0], [0.25, 0.75, -0.5]], dtype=torch.float64)
    layer = nn.LayerNorm(3).double()
    want = [0.0, -1.2247407889290967, 1.2247407889290967, 0.16221834754908468, 1.1355284328435928, -1.2977467803926779]
    assert layer(a).flatten().tolist() == pytest.approx(want)
    assert repr(layer) == "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)"
    plain = nn.LayerNorm((2, 3), elementwise_affine=False)
    assert not list(plain.parameters()) and plain.weight is None and plain.bias is None
    assert nn.LayerNorm(3, bias=False).bias is None


def test_dropout_layers():
    for layer in (nn.Dropout(0.5), nn.Dropout1d(0.5), nn.Dropout2d(0.5), nn.Dropout3d(0.5)):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1, but got 2"):
            type(layer)(2)
        assert repr(layer) == f"{type(layer).__name__}(p=0.5, inplace=False)"
    x = torch.ones(50, 40)
    torch.manual_seed(1)
    y = nn.Dropout(0.25)(x)
    kept = (y != 0).float().mean().item()
    assert 0.70 < kept < 0.80 and y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert nn.Dropout(0.25).eval()(x) is x or torch.equal(nn.Dropout(0.25).eval()(x), x)
    z = x.clone()
    assert nn.Dropout(0.25, inplace=True)(z) is z and (z == 0).any()


def test_channel_dropout_drops_whole_channels():
    torch.manual_seed(1)
    y = nn.Dropout2d(0.5)(torch.ones(8, 16, 3, 3))
    channels = y.flatten(2)
    assert torch.equal(channels.amax(2), channels.amin(2)) and set(y.unique().tolist()) == {0.0, 2.0}
    assert nn.Dropout1d(0.5)(torch.ones(4, 5)).shape == (4, 5)
    with pytest.raises(RuntimeError, match="Expected 3D or 4D input"):
        nn.Dropout2d()(torch.ones(2))


A = [[0.5, -1.0, 2.0], [0.25, 0.75, -0.5]]
B = [[0.2, 0.9, -1.0], [0.3, 0.1, 0.6]]


def _losses():
    double = torch.float64
    a, b, c = torch.tensor(A, dtype=double), torch.tensor(B, dtype=double), torch.tensor([2, 0])
    w = torch.tensor([1.0, 2.0, 0.5], dtype=double)
    logs = a.log_softmax(1)
    # layer, its inputs, and PyTorch 2.13's value
    return [
        (nn.MSELoss(), (a, b), 2.3891666666666667),
        (nn.L1Loss(reduction="sum"), (a, b), 7.0),
        (nn.SmoothL1Loss(beta=0.7), (a, b), 0.8863095238095237),
        (nn.HuberLoss(delta=0.8), (a, b), 0.6829166666666667),
        (nn.CrossEntropyLoss(weight=w, label_smoothing=0.1), (a, c), 1.0153740203722768),
        (nn.CrossEntropyLoss(), (a, b.softmax(1)), 1.9223666070629675),
        (nn.NLLLoss(weight=w), (logs, c), 0.8392248338273754),
        (nn.NLLLoss(ignore_index=0), (logs, c), 0.24131129665715703),
        (nn.BCELoss(), (a.sigmoid(), b.sigmoid()), 0.9224644812407838),
        (nn.BCEWithLogitsLoss(pos_weight=w), (a, b.sigmoid()), 1.0566702139680322),
        (nn.KLDivLoss(reduction="batchmean"), (logs, b.softmax(1)), 0.9426665859361395),
        (nn.KLDivLoss(reduction="sum", log_target=True), (logs, b.log_softmax(1)), 1.8853331718722786),
    ]


@pytest.mark.parametrize("number", range(12))
def test_loss_values(number):
    layer, inputs, want = _losses()[number]
    assert layer(*inputs).item() == pytest.approx(want, rel=1e-12)


def test_loss_weights_belong_to_the_module():
    layer = nn.CrossEntropyLoss(weight=torch.ones(3))
    assert list(layer.state_dict()) == ["weight"] and layer.double().weight.dtype == torch.float64
    assert nn.BCEWithLogitsLoss().weight is None and repr(nn.MSELoss()) == "MSELoss()"


def test_reductions_and_their_old_names():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    assert F.mse_loss(x, y, reduction="none").tolist() == [1.0, 4.0]
    for flags, want in (({"size_average": False}, 5.0), ({"reduce": True}, 2.5), ({"reduce": False}, [1.0, 4.0])):
        with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
            assert F.mse_loss(x, y, **flags).tolist() == want
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert nn.L1Loss(size_average=False).reduction == "sum"
    with pytest.raises(ValueError, match="other is not a valid value for reduction"):
        F.mse_loss(x, y, reduction="other")


def test_sizes_that_differ():
    x, y = torch.ones(2, 1, requires_grad=True), torch.zeros(2)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match=r"Using a target size \(torch.Size\(\[2\]\)\) that is different"):
            assert loss(x, y, reduction="none").shape == (2, 2)
    with pytest.raises(
        ValueError, match=r"Using a target size .* that is different to the input size .* is deprecated"
    ):
        F.binary_cross_entropy(x.sigmoid(), y)
    with pytest.raises(ValueError, match=r"Target size .* must be the same as input size"):
        F.binary_cross_entropy_with_logits(x, y)


def test_kl_div_mean_warns():
    with pytest.warns(UserWarning, match="reduction: 'mean' divides the total loss"):
        F.kl_div(torch.zeros(2), torch.ones(2))


def test_cosine_similarity():
    a, b = torch.tensor(A, dtype=torch.float64), torch.tensor(B, dtype=torch.float64)
    # PyTorch 2.13's values
    assert nn.CosineSimilarity()(a, b).tolist() == pytest.approx([-0.8984471087421937, -0.2364331218717302])


def test_functional_finds_the_core_by_name():
    assert F.gelu is F.gelu and "gelu" in dir(F) and "relu" in dir(F)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_function'"):
        F.no_such_function  # noqa: B018
