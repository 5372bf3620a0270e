"""Records result dtypes, integer results and refusals of PyTorch: `python make_dtype_cases.py > dtype_cases.txt`.

Needs PyTorch; the tests need only the text. A line `row NAME ARGUMENTS` (`a:DTYPE` the first operand, `b:DTYPE` the second,
`z:DTYPE` a 0-d 3, `n:` a number as Python writes it, `s:` a string, `m` a mask of alternating truth values) is followed by
`= DTYPE values` or `! CLASS message`.
"""

import sys
from collections.abc import Callable, Iterator

import torch
from torch import nn, special

F = nn.functional
B, U8, I8, I16, I32, I64 = torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
ALL = [B, U8, I8, I16, I32, I64, F16, BF16, F32, F64]
PAIRS = [
    (B, B),
    (U8, I8),
    (U8, U8),
    (I8, I64),
    (I64, B),
    (I32, I32),
    (I64, F16),
    (F16, BF16),
    (F16, F32),
    (F32, F64),
    (I16, F32),
]
NUMBERS = [True, 2, -3, 2.5]
A = [0, 1, 2, 5, 7, -1, -3, -128]
OTHER = [1, 3, -2, 5, 2, -1, 4, 7]


def tensor(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype == B:
        return torch.tensor([v % 2 != 0 for v in values])
    if dtype == U8:
        return torch.tensor([abs(v) for v in values], dtype=U8)
    return torch.tensor(values, dtype=dtype)


OF_TORCH = [
    *[
        "neg",
        "positive",
        "abs",
        "sign",
        "sgn",
        "signbit",
        "reciprocal",
        "square",
        "sqrt",
        "rsqrt",
        "floor",
        "ceil",
        "trunc",
    ],
    *[
        "frac",
        "round",
        "rad2deg",
        "deg2rad",
        "exp",
        "log",
        "sin",
        "atan",
        "sinh",
        "tanh",
        "sigmoid",
        "erf",
        "lgamma",
        "sinc",
    ],
    *["isnan", "isinf", "isfinite", "isneginf", "isposinf", "isreal", "logical_not", "bitwise_not"],
]
OF_FUNCTIONAL = [
    "relu",
    "relu6",
    "selu",
    "silu",
    "mish",
    "softsign",
    "logsigmoid",
    "hardsigmoid",
    "hardswish",
    "tanhshrink",
]
UNARY = {
    **{n: getattr(torch, n) for n in OF_TORCH},
    **{n: getattr(special, n) for n in ("entr", "ndtr", "erfcx")},
    **{n: getattr(F, n) for n in OF_FUNCTIONAL},
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "true_divide": torch.div,
    "floor_divide": torch.floor_divide,
    "remainder_tensor": torch.remainder,
    "fmod_tensor": torch.fmod,
    "rsub_tensor": torch.rsub,
    "pow_tensor": torch.pow,
    "float_power_tensor": torch.float_power,
    "atan2": torch.atan2,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
    "logaddexp": torch.logaddexp,
    "xlogy_tensor": torch.xlogy,
    "hypot": torch.hypot,
    "copysign_tensor": torch.copysign,
    "nextafter": torch.nextafter,
    "heaviside": torch.heaviside,
    "isclose": torch.isclose,
    "clamp_min_tensor": torch.clamp_min,
    "clamp_max_tensor": torch.clamp_max,
    "xlog1py_tensor": special.xlog1py,
}
WITH_NUMBER = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "true_divide": torch.div,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "rsub": torch.rsub,
    "pow": torch.pow,
    "float_power": torch.float_power,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "bitwise_and": torch.bitwise_and,
    "xlogy": torch.xlogy,
    "bitwise_left_shift": torch.bitwise_left_shift,
    "copysign": torch.copysign,
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "fill": torch.fill,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "hardshrink": torch.hardshrink,
    "softshrink": F.softshrink,
}
NUMBER_FIRST = {
    "remainder_of": torch.remainder,
    "floor_divide_of": torch.floor_divide,
    "pow_of": torch.pow,
    "float_power_of": torch.float_power,
    "xlogy_of": torch.xlogy,
    "bitwise_or_of": torch.bitwise_or,
    "bitwise_right_shift_of": torch.bitwise_right_shift,
}


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def calls() -> Iterator[tuple[str, str, Callable[[], torch.Tensor]]]:
    mask = torch.arange(len(A)) % 2 == 1
    for row, f in UNARY.items():
        for d in ALL:
            yield row, f"a:{name(d)}", lambda f=f, d=d: f(tensor(A, d))
    for row, f in BINARY.items():
        for d, e in PAIRS:
            yield row, f"a:{name(d)} b:{name(e)}", lambda f=f, d=d, e=e: f(tensor(A, d), tensor(OTHER, e))
        for d, e in [(I8, I64), (I64, F64), (F16, F64), (F32, I64)]:
            yield row, f"a:{name(d)} z:{name(e)}", lambda f=f, d=d, e=e: f(tensor(A, d), torch.tensor(3, dtype=e))
    for row, f in WITH_NUMBER.items():
        for d in (B, U8, I8, I64, F16, F32):
            for n in NUMBERS:
                yield row, f"a:{name(d)} n:{n}", lambda f=f, d=d, n=n: f(tensor(A, d), n)
    for row, f in NUMBER_FIRST.items():
        for d in (B, U8, I64, F16, F32):
            for n in NUMBERS:
                yield row, f"n:{n} b:{name(d)}", lambda f=f, d=d, n=n: f(n, tensor(OTHER, d))
    for row, f in (("floor_divide", torch.floor_divide), ("remainder", torch.remainder), ("fmod", torch.fmod)):
        yield row, "a:int64 n:0", lambda f=f: f(tensor(A, I64), 0)
        yield row, "a:float32 n:0", lambda f=f: f(tensor(A, F32), 0)
    yield "remainder_tensor", "b:int64 a:int64", lambda: torch.remainder(tensor(OTHER, I64), tensor(A, I64))
    for mode in ("trunc", "floor"):
        for d, e in PAIRS:
            yield (
                "div",
                f"a:{name(d)} b:{name(e)} s:{mode}",
                lambda d=d, e=e, mode=mode: torch.div(tensor(A, d), tensor(OTHER, e), rounding_mode=mode),
            )
    yield "div", "a:int64 b:int64 s:up", lambda: torch.div(tensor(A, I64), tensor(OTHER, I64), rounding_mode="up")
    for d, e in PAIRS:
        a, b = tensor(A, d), tensor(OTHER, e)
        yield "where_", f"m a:{name(d)} b:{name(e)}", lambda a=a, b=b: torch.where(mask, a, b)
        yield (
            "masked_fill_tensor",
            f"a:{name(d)} m z:{name(e)}",
            lambda a=a, e=e: a.masked_fill(mask, torch.tensor(3, dtype=e)),
        )
        yield "addcmul", f"a:{name(d)} b:{name(e)} b:{name(e)} n:2", lambda a=a, b=b: torch.addcmul(a, b, b, value=2)
        yield "addcdiv", f"a:{name(d)} b:{name(e)} b:{name(e)} n:2", lambda a=a, b=b: torch.addcdiv(a, b, b, value=2)
        yield "lerp", f"a:{name(d)} b:{name(e)} n:0.5", lambda a=a, b=b: torch.lerp(a, b, 0.5)
        yield "clamp_tensor", f"a:{name(d)} b:{name(e)} b:{name(e)}", lambda a=a, b=b: torch.clamp(a, b, b)
    for d in (B, U8, I64, F16, F32):
        for n in NUMBERS:
            yield "where_", f"m a:{name(d)} n:{n}", lambda d=d, n=n: torch.where(mask, tensor(A, d), n)
            yield "masked_fill", f"a:{name(d)} m n:{n}", lambda d=d, n=n: tensor(A, d).masked_fill(mask, n)
            yield "clamp", f"a:{name(d)} n:{n} n:4", lambda d=d, n=n: torch.clamp(tensor(A, d), n, 4)
        yield "nan_to_num", f"a:{name(d)}", lambda d=d: torch.nan_to_num(tensor(A, d))
        yield "threshold", f"a:{name(d)} n:1 n:7", lambda d=d: F.threshold(tensor(A, d), 1, 7)
        yield "hardtanh", f"a:{name(d)} n:-1 n:1", lambda d=d: F.hardtanh(tensor(A, d), -1, 1)
    yield "where_", "m n:1 n:2", lambda: torch.where(mask, 1, 2)
    yield "where_", "m n:1.5 n:2", lambda: torch.where(mask, 1.5, 2)
    yield (
        "where_",
        "a:float32 a:float32 b:float32",
        lambda: torch.where(tensor(A, F32), tensor(A, F32), tensor(OTHER, F32)),
    )
    yield "masked_fill", "a:uint8 m n:300", lambda: tensor(A, U8).masked_fill(mask, 300)
    yield "fill", "a:int8 n:200", lambda: torch.fill(tensor(A, I8), 200)
    yield "add", "a:int64 b:int64 n:2.5", lambda: torch.add(tensor(A, I64), tensor(OTHER, I64), alpha=2.5)
    yield "add", "a:bool b:bool n:2", lambda: torch.add(tensor(A, B), tensor(OTHER, B), alpha=2)


def number(v: float | int | bool, digits: int) -> str:
    return str(int(v)) if isinstance(v, bool | int) else f"{v:.{digits}g}"


def main() -> None:
    out = sys.stdout
    out.write(f"# Recorded by make_dtype_cases.py from PyTorch {torch.__version__}, CPU.\n")
    out.write(f"values a {' '.join(map(str, A))}\nvalues b {' '.join(map(str, OTHER))}\n")
    for row, arguments, call in calls():
        out.write(f"row {row} {arguments}\n")
        try:
            y = call()
            digits = 12 if y.dtype == F64 else 8
            out.write(f"= {name(y.dtype)} {' '.join(number(v, digits) for v in y.tolist())}\n")
        except Exception as error:
            out.write(f"! {type(error).__name__} {str(error).splitlines()[0]}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
