"""Records what PyTorch answers at edge points, through the second derivative: `python make_edge_cases.py > edge_cases.txt`.

Needs PyTorch; the tests need only the text. A block is a line `row NAME DTYPE ARGUMENTS` (`$k` the k-th operand,
`n:` a number, `i:` an integer, `b:` a truth value, `s:` a string, `-` nothing, `m` a mask of alternating truth values) and a
line for the result (`y`), its derivatives (`gI`) and second derivatives (`hIJ`), at each point of the grid that the header
describes: one, two or three operands run over the points of that line, the last fastest.
"""

import math
import sys
from collections.abc import Callable

import torch
from torch import nn, special

F = nn.functional
INF, NAN = math.inf, math.nan
MAX = {torch.float32: torch.finfo(torch.float32).max, torch.float64: torch.finfo(torch.float64).max}

ONE = [
    0.0,
    -0.0,
    1e-30,
    -1e-30,
    20.0,
    -20.0,
    1e4,
    -1e4,
    "max",
    "-max",
    INF,
    -INF,
    NAN,
    0.3,
    -0.5,
    1.0,
    -1.0,
    2.0,
    -3.0,
    6.0,
]
TWO = [0.0, -0.0, 1e-30, -20.0, 20.0, 1e4, "max", INF, -INF, NAN, 0.3, -2.0]
THREE = [0.0, -20.0, 1e-30, INF, NAN, 0.3]
POINTS = {1: ONE, 2: TWO, 3: THREE}

Row = tuple[str, int, str, Callable[..., torch.Tensor]]


def unary(names: str, module: object = torch) -> list[Row]:
    return [(name, 1, "$0", getattr(module, name)) for name in names.split()]


def binary(names: str, module: object = torch, suffix: str = "") -> list[Row]:
    return [(name + suffix, 2, "$0 $1", getattr(module, name)) for name in names.split()]


ROWS: list[Row] = [
    *unary("neg abs sign sgn reciprocal sqrt rsqrt square floor ceil trunc frac round rad2deg deg2rad"),
    *unary("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"),
    *unary("sigmoid erf erfc erfinv lgamma digamma sinc"),
    *unary("erfcx ndtr ndtri log_ndtr entr", special),
    *unary("relu relu6 selu silu mish softsign logsigmoid hardsigmoid hardswish tanhshrink", F),
    *binary("add sub mul atan2 hypot maximum minimum fmax fmin logaddexp logaddexp2 ldexp"),
    *binary("remainder fmod pow copysign xlogy clamp_min clamp_max rsub", torch, "_tensor"),
    *binary("xlog1py", special, "_tensor"),
    ("true_divide", 2, "$0 $1", torch.div),
    ("nextafter", 2, "$0 $1", torch.nextafter),
    ("prelu_kernel", 2, "$0 $1", torch._prelu_kernel),
    ("add", 2, "$0 $1 n:0.5", lambda a, b: torch.add(a, b, alpha=0.5)),
    ("lerp", 2, "$0 $1 n:0.3", lambda a, b: torch.lerp(a, b, 0.3)),
    ("lerp", 2, "$0 $1 n:0.8", lambda a, b: torch.lerp(a, b, 0.8)),
    ("lerp_tensor", 3, "$0 $1 $2", torch.lerp),
    ("addcmul", 3, "$0 $1 $2 n:0.5", lambda a, b, c: torch.addcmul(a, b, c, value=0.5)),
    ("addcdiv", 3, "$0 $1 $2 n:0.5", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5)),
    ("clamp_tensor", 3, "$0 $1 $2", torch.clamp),
    ("clamp_tensor", 2, "$0 $1 -", lambda a, b: torch.clamp(a, min=b)),
    ("clamp_tensor", 2, "$0 - $1", lambda a, b: torch.clamp(a, max=b)),
    ("clamp", 1, "$0 n:-0.5 n:1", lambda x: torch.clamp(x, -0.5, 1.0)),
    ("clamp", 1, "$0 n:-0.5 -", lambda x: torch.clamp(x, min=-0.5)),
    ("clamp", 1, "$0 - n:2", lambda x: torch.clamp(x, max=2.0)),
    ("clamp_min", 1, "$0 n:1", lambda x: torch.clamp_min(x, 1.0)),
    ("clamp_max", 1, "$0 n:1", lambda x: torch.clamp_max(x, 1.0)),
    *(
        ("pow", 1, f"$0 n:{e}", lambda x, e=e: torch.pow(x, e))
        for e in (2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.0, 0.0, 4.0, 2.5, -3.0)
    ),
    *(("pow_of", 1, f"n:{b} $0", lambda x, b=b: torch.pow(b, x)) for b in (2.0, 0.0, 1.0, 0.5)),
    ("div_trunc", 2, "$0 $1", lambda a, b: torch.div(a, b, rounding_mode="trunc")),
    ("div_floor", 2, "$0 $1", lambda a, b: torch.div(a, b, rounding_mode="floor")),
    ("remainder", 1, "$0 n:0.7", lambda x: torch.remainder(x, 0.7)),
    ("fmod", 1, "$0 n:0.7", lambda x: torch.fmod(x, 0.7)),
    ("rsub", 1, "$0 n:2 n:1", lambda x: torch.rsub(x, 2.0)),
    ("copysign", 1, "$0 n:-2", lambda x: torch.copysign(x, -2.0)),
    ("round_decimals", 1, "$0 i:2", lambda x: torch.round(x, decimals=2)),
    ("round_decimals", 1, "$0 i:-1", lambda x: torch.round(x, decimals=-1)),
    ("where_", 2, "m $0 $1", lambda a, b: torch.where(torch.arange(a.numel()) % 2 == 1, a, b)),
    ("masked_fill", 1, "$0 m n:0.5", lambda x: x.masked_fill(torch.arange(x.numel()) % 2 == 1, 0.5)),
    ("nan_to_num", 1, "$0 - - -", torch.nan_to_num),
    ("nan_to_num", 1, "$0 n:0.5 n:2 -", lambda x: torch.nan_to_num(x, 0.5, 2.0)),
    ("logit", 1, "$0 -", torch.logit),
    ("logit", 1, "$0 n:0.35", lambda x: torch.logit(x, 0.35)),
    *(("polygamma", 1, f"$0 i:{n}", lambda x, n=n: torch.polygamma(n, x)) for n in (0, 1, 2)),
    ("xlogy", 1, "$0 n:2", lambda x: torch.xlogy(x, 2.0)),
    ("xlogy", 1, "$0 n:0", lambda x: torch.xlogy(x, 0.0)),
    ("xlogy_of", 1, "n:2 $0", lambda x: torch.xlogy(2.0, x)),
    ("xlogy_of", 1, "n:0 $0", lambda x: torch.xlogy(0.0, x)),
    ("xlog1py", 1, "$0 n:2", lambda x: special.xlog1py(x, 2.0)),
    ("xlog1py_of", 1, "n:2 $0", lambda x: special.xlog1py(2.0, x)),
    ("hardtanh", 1, "$0 n:-1 n:2", lambda x: F.hardtanh(x, -1.0, 2.0)),
    ("leaky_relu", 1, "$0 n:0.1", lambda x: F.leaky_relu(x, 0.1)),
    ("elu", 1, "$0 n:1", F.elu),
    ("elu", 1, "$0 n:1.5", lambda x: F.elu(x, 1.5)),
    ("celu", 1, "$0 n:0.7", lambda x: F.celu(x, 0.7)),
    ("softplus", 1, "$0 n:1 n:20", F.softplus),
    ("softplus", 1, "$0 n:2 n:3", lambda x: F.softplus(x, 2.0, 3.0)),
    ("hardshrink", 1, "$0 n:0.5", F.hardshrink),
    ("softshrink", 1, "$0 n:0.5", F.softshrink),
    ("threshold", 1, "$0 n:1 n:7", lambda x: F.threshold(x, 1.0, 7.0)),
    ("gelu", 1, "$0 s:none", F.gelu),
    ("gelu", 1, "$0 s:tanh", lambda x: F.gelu(x, approximate="tanh")),
]


def number(x: float, dtype: torch.dtype) -> str:
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    if x == 0:
        return "0" if math.copysign(1, x) > 0 else "-0"
    digits = 17 if abs(x) > 1e300 else 11 if dtype == torch.float64 else 8
    return f"{x:.{digits}g}"


def derivative(of: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    if not of.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    grads = torch.autograd.grad(of, inputs, torch.ones_like(of), create_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(grads, inputs, strict=True)]


def main() -> None:
    out = sys.stdout
    out.write(f"# Recorded by make_edge_cases.py from PyTorch {torch.__version__}, CPU.\n")
    for n, points in POINTS.items():
        out.write(f"points {n} {' '.join(p if isinstance(p, str) else number(p, torch.float64) for p in points)}\n")
    for name, n, arguments, function in ROWS:
        for dtype in (torch.float64, torch.float32):
            sign = {"max": MAX[dtype], "-max": -MAX[dtype]}
            axis = torch.tensor([sign[p] if isinstance(p, str) else p for p in POINTS[n]], dtype=dtype)
            inputs = [g.reshape(-1).clone().requires_grad_() for g in torch.meshgrid(*[axis] * n, indexing="ij")]
            y = function(*inputs)
            lines = {"y": y}
            for i, g in enumerate(derivative(y, inputs)):
                lines[f"g{i}"] = g
                try:
                    second = derivative(g, inputs)
                except RuntimeError as error:
                    # PyTorch has no second derivative of a few functions.
                    if "not implemented" not in str(error):
                        raise
                    continue
                lines.update({f"h{i}{j}": h for j, h in enumerate(second) if j >= i})
            out.write(f"row {name} {str(dtype).removeprefix('torch.')} {arguments}\n")
            for key, t in lines.items():
                # Some zero gradients have no memory of their own, which `tolist` refuses.
                values = torch.empty(t.shape, dtype=dtype).copy_(t.detach()).tolist()
                out.write(f"{key} {' '.join(number(v, dtype) for v in values)}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
