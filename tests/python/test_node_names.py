"""Names of nodes: PyTorch 2.13 gives these to the same expressions."""

import pytest

import rustgrad as torch
from rustgrad.nn import functional as F

# Node: the expressions whose result it made.
NAMES = {
    "AbsBackward0": ["a.abs()"],
    "AcosBackward0": ["a.acos()"],
    "AddBackward0": ["a + b", "a + 1"],
    "AddcdivBackward0": ["torch.addcdiv(a, a, b)"],
    "AddcmulBackward0": ["torch.addcmul(a, a, b)"],
    "AddmmBackward0": ["torch.addmm(sq, sq, sq)"],
    "AddmvBackward0": ["torch.addmv(a, m, v3)"],
    "AliasBackward0": ["m[...]"],
    "AmaxBackward0": ["m.amax(0)", "m.amax()"],
    "AminmaxBackward0": ["m.aminmax()[0]"],
    "AsStridedBackward0": ["m.as_strided((2,), (1,))"],
    "AsinBackward0": ["a.asin()"],
    "Atan2Backward0": ["a.atan2(b)"],
    "AtanBackward0": ["a.atan()"],
    "BaddbmmBackward0": ["torch.baddbmm(c3, R(2, 2, 2), c3)"],
    "BinaryCrossEntropyBackward0": ["F.binary_cross_entropy(a, b.detach())"],
    "BinaryCrossEntropyWithLogitsBackward0": ["F.binary_cross_entropy_with_logits(a, b.detach())"],
    "BmmBackward0": ["torch.bmm(c3, c3.mT)"],
    "CatBackward0": ["torch.cat([a, b])", "torch.vstack([a, b])", "torch.hstack([a, b])"],
    "CeilBackward0": ["a.ceil()"],
    "CeluBackward0": ["F.celu(a)"],
    "ClampBackward0": ["torch.clamp(a, a, a)"],
    "ClampBackward1": ["a.clamp(0, 1)", "a.clamp(min=0)", "m.corrcoef()"],
    "ClampMinBackward0": ["a.clamp_min(0)"],
    "CloneBackward0": ["m.t().contiguous()", "m.clone()"],
    "ConstantPadNdBackward0": ["F.pad(m, (1, 1))", "F.pad(m, (1, 1), mode='constant', value=2)"],
    "CopysignBackward0": ["a.copysign(b)"],
    "CosBackward0": ["a.cos()"],
    "CoshBackward0": ["a.cosh()"],
    "CummaxBackward0": ["m.cummax(0)[0]"],
    "CumprodBackward0": ["m.cumprod(0)"],
    "CumsumBackward0": ["m.cumsum(0)"],
    "DiagEmbedBackward0": ["a.diag()"],
    "DiagonalBackward0": ["m.diagonal()"],
    "DiagonalBackward0_copy": ["sq.diag()"],
    "DigammaBackward0": ["a.digamma()"],
    "DistBackward0": ["m.dist(m)"],
    "DivBackward0": ["a / b", "a / 2", "F.softsign(a)", "F.normalize(m)", "m.nanmean()"],
    "DotBackward0": ["a @ b", "a.dot(b)"],
    "EluBackward0": ["F.elu(a)", "F.selu(a)"],
    "EmbeddingBackward0": ["F.embedding(torch.tensor([0]), e)"],
    "ErfBackward0": ["a.erf()"],
    "ErfcBackward0": ["a.erfc()"],
    "ErfinvBackward0": ["a.erfinv()"],
    "Exp2Backward0": ["a.exp2()"],
    "ExpBackward0": ["a.exp()"],
    "ExpandBackward0": [
        "a.expand(3, 2)",
        "m.expand_as(m)",
        "m.broadcast_to((2, 2, 3))",
        "torch.meshgrid(a, b, indexing='ij')[0]",
    ],
    "Expm1Backward0": ["a.expm1()"],
    "FlipBackward0": ["m.flip(0)"],
    "FloorBackward0": ["a.floor()"],
    "FmaxBackward0": ["torch.fmax(a, b)"],
    "FmodBackward0": ["a.fmod(2)"],
    "FracBackward0": ["a.frac()"],
    "GatherBackward0": ["m.gather(0, torch.tensor([[0]]))"],
    "GeluBackward0": ["F.gelu(a)"],
    "GluBackward0": ["F.glu(a)"],
    "HardshrinkBackward0": ["F.hardshrink(a)"],
    "HardsigmoidBackward0": ["F.hardsigmoid(a)"],
    "HardswishBackward0": ["F.hardswish(a)"],
    "HardtanhBackward0": ["F.hardtanh(a)", "F.relu6(a)"],
    "HuberLossBackward0": ["F.huber_loss(a, b)"],
    "HypotBackward0": ["torch.hypot(a, b)"],
    "IndexAddBackward0": ["m.index_add(0, torch.tensor([0]), m[:1])"],
    "IndexBackward0": ["m[torch.tensor([0])]", "m[m > 0]"],
    "IndexCopyBackward0": ["m.index_copy(0, torch.tensor([0]), m[:1])"],
    "IndexFillBackward0": ["m.index_fill(0, torch.tensor([0]), 1.0)"],
    "IndexPutBackward0": ["torch.index_put(m, (torch.tensor([0]),), torch.tensor(1.0))"],
    "IndexSelectBackward0": ["m.index_select(0, torch.tensor([0]))"],
    "KthvalueBackward0": ["m.kthvalue(1)[0]"],
    "LeakyReluBackward0": ["F.leaky_relu(a)"],
    "LerpBackward0": ["a.lerp(b, 0.5)"],
    "LerpBackward1": ["a.lerp(b, a)"],
    "LgammaBackward0": ["a.lgamma()"],
    "LinalgCholeskyExBackward0": ["torch.linalg.cholesky(sq @ sq.T + 3 * torch.eye(3))"],
    "LinalgCrossBackward0": ["m.cross(m, 1)"],
    "LinalgDetBackward0": ["torch.linalg.det(sq)"],
    "LinalgInvExBackward0": ["torch.linalg.inv(sq)", "sq.inverse()"],
    "LinalgSlogdetBackward0": ["torch.linalg.slogdet(sq)[1]"],
    "LinalgVectorNormBackward0": ["m.norm()", "torch.linalg.norm(m)", "torch.linalg.vector_norm(m)"],
    "Log10Backward0": ["a.log10()"],
    "Log1PBackward0": ["a.log1p()"],
    "Log2Backward0": ["a.log2()"],
    "LogBackward0": ["a.log()"],
    "LogSigmoidBackward0": ["F.logsigmoid(a)"],
    "LogSoftmaxBackward0": ["a.log_softmax(0)"],
    "LogaddexpBackward0": ["torch.logaddexp(a, b)"],
    "LogcumsumexpBackward0": ["m.logcumsumexp(0)"],
    "LogitBackward0": ["a.logit()"],
    "LogsumexpBackward0": ["a.logsumexp(0)"],
    "MaskedFillBackward0": ["m.masked_fill(m > 0, 1)"],
    "MaskedSelectBackward0": ["m.masked_select(m > 0)"],
    "MaxBackward0": ["m.max(0)[0]"],
    "MaxBackward1": ["m.max()"],
    "MaximumBackward0": ["a.maximum(b)"],
    "MeanBackward0": ["m.mean()"],
    "MeanBackward1": ["m.mean(0)"],
    "MedianBackward0": ["m.median()"],
    "MedianBackward1": ["m.median(0)[0]"],
    "MinBackward1": ["m.min()"],
    "MinimumBackward0": ["a.minimum(b)"],
    "MishBackward0": ["F.mish(a)"],
    "MmBackward0": ["m @ n", "m.mm(n)", "torch.linalg.matrix_power(sq, 2)"],
    "ModeBackward0": ["m.mode()[0]"],
    "MseLossBackward0": ["F.mse_loss(a, b)"],
    "MulBackward0": [
        "a * b",
        "a * 2",
        "2 / a",
        "torch.outer(a, b)",
        "torch.einsum('i,j->ij', a, b)",
        "F.rms_norm(m, (3,))",
    ],
    "MvBackward0": ["m @ v3", "m.mv(v3)"],
    "NanToNumBackward0": ["a.nan_to_num()"],
    "NansumBackward0": ["m.nansum()"],
    "NativeBatchNormBackward0": ["F.batch_norm(m, None, None, training=True)"],
    "NativeGroupNormBackward0": ["F.group_norm(p, 2)"],
    "NativeLayerNormBackward0": ["F.layer_norm(m, (3,))"],
    "NegBackward0": ["-a", "a.neg()"],
    "NllLossBackward0": ["F.cross_entropy(m, torch.tensor([0, 1]))", "F.nll_loss(m, torch.tensor([0, 1]))"],
    "NotImplemented": ["a.heaviside(b)"],
    "PermuteBackward0": ["m.T", "m.permute(1, 0)", "m.movedim(0, 1)"],
    "PowBackward0": ["a ** 2", "a.square()", "a.pow(2)"],
    "PowBackward1": ["a ** b"],
    "PowBackward2": ["2 ** a"],
    "PreluKernelBackward0": ["F.prelu(a, a[:1])"],
    "ProdBackward0": ["m.prod()"],
    "ProdBackward1": ["m.prod(0)"],
    "ReciprocalBackward0": ["a.reciprocal()"],
    "ReluBackward0": ["a.relu()"],
    "RemainderBackward0": ["a.remainder(2)"],
    "RepeatBackward0": ["m.repeat(2, 1)", "torch.tile(m, (2,))"],
    "RollBackward0": ["m.roll(1)"],
    "Rot90Backward0": ["m.rot90()"],
    "RoundBackward0": ["a.round()"],
    "RsqrtBackward0": ["a.rsqrt()"],
    "RsubBackward1": ["1 - a"],
    "ScatterAddBackward0": ["m.scatter_add(0, torch.tensor([[0]]), m)"],
    "ScatterBackward1": ["m.scatter(0, torch.tensor([[0]]), 1.0)"],
    "SelectBackward0": ["m[0]", "m[:, 0]", "m[0, 0]", "m.select(0, 0)"],
    "SigmoidBackward0": ["a.sigmoid()"],
    "SignBackward0": ["a.sign()"],
    "SiluBackward0": ["F.silu(a)"],
    "SinBackward0": ["a.sin()"],
    "SincBackward0": ["a.sinc()"],
    "SinhBackward0": ["a.sinh()"],
    "SliceBackward0": ["m[0:1]", "m[:]", "m.narrow(0, 0, 1)", "m.tensor_split(2)[0]", "m.hsplit(3)[0]"],
    "SmoothL1LossBackward0": ["F.smooth_l1_loss(a, b)"],
    "SoftmaxBackward0": ["a.softmax(0)", "F.softmin(a, 0)"],
    "SoftplusBackward0": ["F.softplus(a)"],
    "SoftshrinkBackward0": ["F.softshrink(a)"],
    "SortBackward0": ["m.sort()[0]"],
    "SpecialEntrBackward0": ["torch.special.entr(a)"],
    "SplitBackward0": ["m.split(1)[0]", "m.chunk(2)[0]"],
    "SplitWithSizesBackward0": ["m.split([1, 1])[0]"],
    "SqrtBackward0": ["a.sqrt()"],
    "SqueezeBackward0": ["m.squeeze()", "m.cov()"],
    "SqueezeBackward1": ["R(1, 2).squeeze(0)"],
    "SqueezeBackward4": ["torch.matmul(v3, n)"],
    "StackBackward0": ["torch.stack([a, b])"],
    "StdBackward0": ["m.std()", "m.std(0)"],
    "SubBackward0": ["a - b", "F.tanhshrink(a)", "m.diff()"],
    "SumBackward0": ["m.sum()"],
    "SumBackward1": ["m.sum(0)"],
    "TBackward0": ["m.t()"],
    "TakeBackward0": ["m.take(torch.tensor([0]))"],
    "TanBackward0": ["a.tan()"],
    "TanhBackward0": ["a.tanh()"],
    "ThresholdBackward0": ["F.threshold(a, 0, 0)"],
    "ToCopyBackward0": ["m.double()", "m.to(torch.float64)"],
    "TopkBackward0": ["m.topk(1)[0]"],
    "TransposeBackward0": ["m.mT", "m.transpose(0, 1)", "m.swapaxes(0, 1)"],
    "TrilBackward0": ["m.tril()"],
    "TriuBackward0": ["m.triu()"],
    "TruncBackward0": ["a.trunc()"],
    "UnbindBackward0": ["m.unbind()[0]"],
    "UnfoldBackward0": ["m.unfold(1, 2, 1)"],
    "UnsafeViewBackward0": ["c3 @ c3.transpose(1, 2)", "m.t().reshape(6)", "m.t().flatten()"],
    "UnsqueezeBackward0": ["m[None]", "m.unsqueeze(0)", "m[..., None]"],
    "VarBackward0": ["m.var()", "m.var(0)"],
    "ViewBackward0": [
        "m.view(6)",
        "m.reshape(6)",
        "m.flatten()",
        "m.view_as(m)",
        "m.unflatten(0, (1, 2))",
        "m.ravel()",
        "m.repeat_interleave(2)",
        "torch.tensordot(m, n, 1)",
        "F.instance_norm(p)",
        "F.bilinear(m, m, R(2, 3, 3))",
    ],
    "WhereBackward0": ["torch.where(m > 0, m, m)"],
    "XlogyBackward0": ["a.xlogy(b)"],
}

WITHOUT_HISTORY = [
    "m.contiguous()",
    "m.detach()",
    "m.count_nonzero()",
    "F.one_hot(torch.tensor([0]))",
    "m == m",
    "m > 0",
    "m.argmax()",
    "m.argsort()",
    "m.isnan()",
    "m.bool()",
    "m.long()",
]

IN_PLACE = {
    "AddBackward0": lambda x: x.add_(1),
    "FillBackward2": lambda x: x.fill_(1),
    "ZeroBackward0": lambda x: x.zero_(),
    "TBackward1": lambda x: x.t_(),
    "TransposeBackward1": lambda x: x.transpose_(0, 1),
    "UnsqueezeBackward1": lambda x: x.unsqueeze_(0),
    "SqueezeBackward3": lambda x: x.squeeze_(),
    "SqueezeBackward4": lambda x: x.squeeze_(0),
    "SqueezeBackward5": lambda x: x.squeeze_((0, 1)),
    "IndexPutBackward0": lambda x: x.__setitem__((slice(None), [0]), 1.0),
    "FillBackward3": lambda x: x.__setitem__(slice(None), 1.0),
    "CopySlices": lambda x: x.__setitem__(0, 1.0),
    "CopyBackwards": lambda x: x.__setitem__(..., torch.ones(2, 3)),
}


def operands() -> dict[str, object]:
    def random(*sizes):
        return torch.rand(*sizes).requires_grad_()

    return {
        "a": random(2), "b": random(2), "v3": random(3), "m": random(2, 3), "n": random(3, 2), "sq": random(3, 3),
        "c3": random(2, 2, 3), "p": random(1, 4, 4, 4), "img": random(1, 2, 5, 5), "e": random(5, 3), "R": random,
        "torch": torch, "F": F,
    }  # fmt: skip


def expressions() -> list[tuple[str, str]]:
    return [(expression, name) for name, listed in NAMES.items() for expression in listed]


@pytest.mark.row("A10.node_names")
@pytest.mark.parametrize(("expression", "name"), expressions(), ids=[e for e, _ in expressions()])
def test_name(expression, name):
    node = eval(expression, operands()).grad_fn
    assert type(node).__name__ == name and node.name() == name


@pytest.mark.row("A10.node_names")
@pytest.mark.parametrize("expression", WITHOUT_HISTORY)
def test_no_node(expression):
    assert eval(expression, operands()).grad_fn is None


@pytest.mark.row("A10.node_names")
@pytest.mark.parametrize(("name", "change"), IN_PLACE.items(), ids=IN_PLACE)
def test_name_in_place(name, change):
    y = torch.ones(2, 3, requires_grad=True) * 1
    change(y)
    assert type(y.grad_fn).__name__ == name


@pytest.mark.row("A10.node_names")
def test_nodes_written_by_hand_say_their_namespace():
    x = torch.ones(2, requires_grad=True)
    y, z = x * 1, x * 1
    y[0] = 1.0
    z.copy_(x)
    accumulate = (x * 1).grad_fn.next_functions[0][0]
    assert [node.name() for node in (accumulate, y.grad_fn, z.grad_fn)] == [
        "torch::autograd::AccumulateGrad",
        "torch::autograd::CopySlices",
        "torch::autograd::CopyBackwards",
    ]


@pytest.mark.row("A10.repr")
def test_repr_says_where_a_tensor_comes_from():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr((x * 2).detach()) == "tensor([2., 4.])"
    assert repr(torch.nn.Parameter(torch.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"


@pytest.mark.row("A10.repr")
def test_repr_of_a_view_whose_history_cannot_follow():
    base = torch.ones(2, requires_grad=True) * 1
    part = base.unbind()[0]
    base.add_(1)
    assert repr(part) == "tensor(2., grad_fn=<Invalid>)"
