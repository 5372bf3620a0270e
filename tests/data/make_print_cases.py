"""Records how PyTorch prints tensors, for `src/tensor/format/tests.rs` to replay.

Provenance: `print_cases.txt` was written by `python tests/data/make_print_cases.py` under PyTorch 2.13.0 (CPU),
Python 3.11. It is run by hand; nothing else in the project needs PyTorch for it. A larger random batch, which need not
be kept, is compared with

    python tests/data/make_print_cases.py --random 3000 --seed 7 --out /tmp/batch.txt
    PRINT_CASES=/tmp/batch.txt cargo test --release tensor::format

A case is a block of lines ended by an empty line: `tensor DTYPE SIZES [DEFAULT_DTYPE]`, then as far as they apply
`options PRECISION THRESHOLD EDGEITEMS LINEWIDTH SCI_MODE`, `prefix TEXT`, `device TEXT`, `suffix TEXT` (repeated; `\\n`
is a line break), then `values ...` (in row-major order, used again from the start where the tensor has more elements),
then the lines of the recorded text, each behind a `|`. Lines that start with `#` are comments.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.autograd.forward_ad as forward_ad

Number = float | int | bool

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NAN, INF = math.nan, math.inf
DEFAULTS: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def literal(value: Number, dtype: torch.dtype) -> str:
    """The shortest text that reads back as `value`, which `dtype` holds exactly; narrow floats read as float32."""
    if not dtype.is_floating_point:
        return str(int(value))
    if dtype == torch.float64 or not math.isfinite(value):
        return repr(float(value))
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    return next(text for text in texts if ctypes.c_float(float(text)).value == value)


def build(values: Sequence[Number], sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    pattern = torch.tensor(values, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype)
    if len(values) == 1:
        return pattern[0].expand(tuple(sizes))
    count = math.prod(sizes)
    return pattern.repeat(-(-count // len(values)) if count else 0)[:count].reshape(tuple(sizes))


def with_node(x: torch.Tensor, node: str) -> torch.Tensor:
    """`x` as the result of a function whose node has that name, which ends in `Backward`."""
    members = {
        "forward": staticmethod(lambda ctx, y: y.view_as(y)),
        "backward": staticmethod(lambda ctx, gradient: gradient),
    }
    function: Any = type(node.removesuffix("Backward"), (torch.autograd.Function,), members)
    result: torch.Tensor = function.apply(x.detach().requires_grad_())
    assert type(result.grad_fn).__name__ == node
    return result


class Recorder:
    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.count = 0

    def case(
        self,
        values: Iterable[Number],
        sizes: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        default: torch.dtype = torch.float32,
        subclass: str | None = None,
        device: bool = False,
        requires_grad: bool = False,
        node: str | None = None,
        tangent: bool = False,
        **options: Any,
    ) -> None:
        """Records one tensor. `device` makes PyTorch believe that the default device is another one; `subclass`, `node`
        and `tangent` say what the tensor is or carries."""
        values = list(values) or [0]
        sizes = [len(values)] if sizes is None else list(sizes)
        x = build(values, sizes, dtype)
        pattern = x.reshape(-1)[: len(values)].tolist() if x.numel() <= 10**8 else [x.reshape(-1)[0].item()]
        suffixes = []
        if node is not None:
            x = with_node(x, node)
            suffixes.append(f"grad_fn=<{node}>")
        elif requires_grad:
            x = x.detach().requires_grad_()
            suffixes.append("requires_grad=True")
        if subclass is not None:
            x = x.as_subclass(type(subclass, (torch.Tensor,), {}))

        changed = DEFAULTS | options
        torch.set_printoptions(**changed)
        torch.set_default_dtype(default)
        default_device = torch._C._get_default_device
        try:
            if device:
                torch._C._get_default_device = lambda: "elsewhere"
            if tangent:
                with forward_ad.dual_level():
                    direction = torch.ones_like(x)
                    suffixes.append(f"tangent={direction}")
                    text = repr(forward_ad.make_dual(x, direction))
            else:
                text = repr(x)
        finally:
            torch._C._get_default_device = default_device
            torch.set_default_dtype(torch.float32)
            torch.set_printoptions(**DEFAULTS)

        shape = ",".join(map(str, sizes)) or "-"
        lines = [f"tensor {name(dtype)} {shape}" + ("" if default == torch.float32 else f" {name(default)}")]
        if options:
            sci_mode = {None: "auto", True: "always", False: "never"}[changed["sci_mode"]]
            lines.append("options {precision} {threshold} {edgeitems} {linewidth} ".format(**changed) + sci_mode)
        if subclass is not None:
            lines.append(f"prefix {subclass}(")
        if device:
            lines.append("device cpu")
        lines += ["suffix " + suffix.replace("\n", "\\n") for suffix in suffixes]
        if pattern:
            lines.append(" ".join(["values", *(literal(value, dtype) for value in pattern)]))
        lines += ["|" + line for line in text.split("\n")]
        self.out.write("\n".join(lines) + "\n\n")
        self.count += 1

    def title(self, text: str) -> None:
        self.out.write(f"# {text}\n\n")


def record_chosen(r: Recorder) -> None:
    rng = random.Random(0)

    def normals(count: int, scale: float = 1.0) -> list[float]:
        return [rng.gauss(0, scale) for _ in range(count)]

    r.title("Mixes of values, in every float dtype")
    mixes: list[list[Number]] = [
        [1, 2, 3],
        [1, 2.5, 3],
        [0.0],
        [-0.0, 0.0],
        [-0.0, 1.5],
        [-0.0, 1.0, -3.0],
        [NAN],
        [INF, -INF],
        [-INF, NAN, 0.0],
        [NAN, 1, 2],
        [INF, 1, -2],
        [-INF, 0.5, NAN, -0.0, 0.0],
        [-INF, 123456.0, 0.25],
        [0.00005, 0.5],
        [2.5e-5, 0.5],
        [1e-4],
        [0.0001, 0.09],
        [0.00011, 0.1],
        [0.12345, 0.5, 0.25],
        [0.03125, 0.09375, 0.15625, 0.21875],
        [1.00005, 2.00015, 3.00025, 0.99995],
        [999.0, 1.0],
        [1000.0, 1.0],
        [1001.0, 1.0],
        [1000.0, 1.0, 0.5],
        [1000.5, 1.0],
        [0.001, 1.0],
        [0.5, 500.0],
        [0.5, 500.5],
        [99999.5, 100.0],
        [1e8],
        [100000008.0],
        [1e8, 1e8 + 0.5],
        [1.5e9, 1e9],
        [65504.0, 65000.0],
        [6e-8, 6e-8],
        [5.9604645e-08, 6.1035e-05],
        [1e-40, 2e-40],
        [1e-45],
        [5e-324, 1e-323],
        [2.2250738585072014e-308],
        [1.7976931348623157e308, -1.7976931348623157e308],
        [3.4028234663852886e38],
        [1e300, 1e-300],
        [1e100, 1.0],
        [2.0**k for k in range(-12, 13, 3)],
        [2.0**k for k in range(11)],
        [10.0**k for k in range(-5, 6)],
        [0.1, 0.2, 0.3, 1 / 3, 2 / 3, math.pi, math.e],
        [9.99995, 9.99994, 99.99995],
        [9999.9999, 9999.99],
        [0.99999, 1.0],
        [-1.0, -10.0, -100.0],
        [-1.5, 22.25, -333.125],
        [16777216.0, 16777217.0, 3.0e7],
    ]
    for mix, dtype in itertools.product(mixes, FLOATS):
        r.case(mix, dtype=dtype)

    r.title("No dimension")
    for dtype in FLOATS:
        for value in [0.0, -0.0, 1.0, 1.5, -2.25e-7, 12345678.9, NAN, INF, -INF, 1 / 3]:
            r.case([value], [], dtype)
    for dtype in [*INTS, torch.bool]:
        r.case([1], [], dtype)
        r.case([0], [], dtype, threshold=0)

    r.title("Integers and truth values")
    for dtype in INTS:
        info = torch.iinfo(dtype)
        r.case([info.min, info.max, 0, 1], dtype=dtype)
        r.case(range(40), [4, 10], dtype)
        r.case([1, 2, 3, 100], dtype=dtype, sci_mode=True)
    r.case([1], [1], torch.int64)
    r.case([-1, -10, 5], [3, 1], torch.int32)
    for pattern in [[1], [0], [1, 0], [1, 1], [0, 0, 1, 0, 0]]:
        r.case(pattern, [len(pattern)], torch.bool)
    r.case([1, 0, 0], [5, 9], torch.bool)
    r.case([1, 0, 0], [40, 40], torch.bool)
    r.case([1], [30], torch.bool)

    r.title("Empty tensors")
    for sizes in [[0], [0, 3], [3, 0], [0, 0], [2, 0, 4], [1, 1, 0, 1]]:
        for dtype in [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16]:
            r.case([], sizes, dtype)
    r.case([], [0], torch.float64, default=torch.float64)
    r.case([], [0], torch.float32, default=torch.float64)
    r.case([], [0, 3], torch.float64, requires_grad=True)
    r.case([], [0, 3], torch.float64, requires_grad=True, linewidth=30)
    r.case([], [0, 3], edgeitems=0)

    r.title("Shapes")
    shapes = [[1], [1, 1], [2, 3], [3, 1], [1, 3], [2, 1, 2], [2, 2, 2], [2, 1, 2, 1, 2], [1, 1, 1, 1, 1], [3, 2, 2, 2]]
    for sizes in shapes:
        r.case(range(100), sizes)
        r.case(normals(24), sizes, torch.float64)

    r.title("Default dtypes")
    for default, dtype in itertools.product(FLOATS, [torch.float32, torch.float64, torch.float16, torch.int64]):
        r.case([1, 2], dtype=dtype, default=default)

    r.title("Rows that wrap")
    for count in [7, 8, 9, 10, 11, 20, 33]:
        r.case(normals(count))
        r.case(range(count * 3), [3 * count], torch.int64)
    r.case(normals(30), [2, 15])
    r.case(normals(36), [2, 1, 18])
    r.case([1e-9, 1.0, -1.0], [20])
    for width in [1, 8, 20, 40, 79, 81, 120, 200]:
        r.case(normals(24), [2, 12], linewidth=width)
        r.case([10, 200, 3], [30], torch.int16, linewidth=width)

    r.title("Edges only")
    for sizes in [[1001], [1000], [2000], [26, 40], [3, 400], [400, 3], [7, 150], [6, 170], [11, 10, 10], [2, 2, 300]]:
        r.case(range(1013), sizes, torch.int64)
    for sizes in [[1001], [40, 40], [3, 400], [400, 3], [12, 10, 10], [8, 2, 9, 9]]:
        r.case(normals(11), sizes)
    r.case([0.5, *([1e-9] * 1999), 0.25], [2001])
    r.case([5, *([10**9] * 1999), 7], [2001], torch.int64)
    r.case([0.5, 1.5, 2.25], [3000, 3000], torch.float64)
    r.case(normals(7), [3000, 3000])
    r.case([1.5], [10**6, 10**6])
    r.case([7], [10**4, 10**4, 10**4], torch.int64)
    r.case([1], [10**12], torch.bool)
    r.case([NAN], [10**12], torch.bfloat16)

    r.title("Print options")
    for precision in [0, 1, 2, 3, 6, 10, 17, 25]:
        r.case([0.5, 1.5, 2.5, -0.125, 0.1], precision=precision)
        r.case([2.5, 1e9, 35.0, 1e-7], precision=precision)
        r.case([2.5, 3.5, 1e-9, 0.05], dtype=torch.float64, precision=precision)
    for sci_mode in [True, False]:
        for forced in ([1.0, 2, 3], [0.5, 1e-9, NAN], [1e20, 1e-20, -0.0], [NAN, 0.0], [INF, 1e30], [15.0, -25.0]):
            r.case(forced, sci_mode=sci_mode)
            r.case(forced, dtype=torch.float64, sci_mode=sci_mode, precision=0)
    for edgeitems in [0, 1, 2, 4, 10]:
        for sizes in [[], [5], [30], [5, 6], [21, 2], [3, 4, 5]]:
            r.case(range(60), sizes, torch.int64, edgeitems=edgeitems, threshold=4)
        r.case(normals(60), [60], edgeitems=edgeitems, threshold=59)
        r.case(normals(60), [60], edgeitems=edgeitems, threshold=60)
    r.case([2.5], [], edgeitems=0, threshold=0)
    r.case(normals(40), [1100], edgeitems=15)
    r.case([0.5, 2.0], [2, 3], torch.float64, edgeitems=0, requires_grad=True)

    r.title("Suffixes where the line ends")
    for length in range(1, 12):
        r.case([1.5] * length, dtype=torch.float64)
        r.case([1.5] * length, dtype=torch.float64, requires_grad=True)
        r.case([1.5] * length, node="A" * length + "Backward")
    for letters in range(26, 36):
        r.case([1.0, 2.0], [2, 2], torch.float64, node="A" * letters + "Backward")
        r.case([0.5, 1.0, 2.0], node="A" * letters + "Backward")
    for width in range(44, 62, 2):
        r.case([1, 2, 3], dtype=torch.float16, linewidth=width, requires_grad=True)
    for letters in range(12, 19):
        r.case([1.0] * 8, dtype=torch.float16, device=True, node="A" * letters + "Backward", linewidth=60)
    for letters in range(24, 30):
        r.case([1.0], [1], node="Größe" * 4 + "A" * letters + "Backward")
    r.case(normals(2000), requires_grad=True)
    r.case([1.25, 2.0], [50, 50], torch.bfloat16, node="MulBackward")
    r.case([1.25], [], node="SumBackward")

    r.title("Prefix, device and tangent")
    for subclass in ["T", "Weights", "Größe", "A" * 60]:
        r.case(normals(12), [2, 6], subclass=subclass)
        r.case([1, 2, 3], [3], torch.int32, subclass=subclass)
    r.case([1, 2], dtype=torch.float64, device=True, requires_grad=True)
    r.case([1, 2], [3, 2], torch.int32, device=True)
    r.case([], [0, 2], torch.int64, device=True)
    r.case([1.0], [], device=True)
    r.case(normals(5), device=True, node="AddBackward")
    r.case([1.0, 2.0], tangent=True)
    r.case([0.5, 2.0], [2, 2], torch.float64, tangent=True)


def random_value(rng: random.Random, kind: str) -> float:
    match kind:
        case "whole":
            return float(rng.randint(-200, 200))
        case "unit":
            return rng.uniform(-1, 1)
        case "tie":
            return math.ldexp(2 * rng.randint(-3000, 3000) + 1, -rng.randint(1, 7))
        case "decimal":
            return rng.randint(-99999, 99999) * math.pow(10.0, -rng.randint(0, 7))
        case "wide":
            return rng.choice([-1, 1]) * math.pow(10.0, rng.uniform(-12, 12))
        case "extreme":
            return rng.choice([-1, 1]) * math.pow(10.0, rng.uniform(-323, 308))
        case "power":
            return rng.choice([-1, 1]) * math.pow(rng.choice([2.0, 10.0]), rng.randint(-9, 9))
        case "bound":
            return rng.choice([1.0, -1.0, 1e-4, 1e8, 1e3, 0.1, 1e-1, 1e5]) * rng.choice([1, 1 + 2e-7, 1 - 2e-7, 1.01])
        case _:
            return rng.choice([NAN, INF, -INF, 0.0, -0.0])


def record_random(r: Recorder, count: int, seed: int) -> None:
    rng = random.Random(seed)
    kinds = ["whole", "unit", "tie", "decimal", "wide", "extreme", "power", "bound"]
    for _ in range(count):
        dtype = rng.choice(FLOATS * 3 + INTS + [torch.bool])
        rank = rng.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5])
        largest = [0, 60, 14, 8, 5, 4][rank]
        if rng.random() < 0.15:
            largest = [0, 3000, 70, 20, 9, 6][rank]
        sizes = [rng.randint(1, largest) for _ in range(rank)]
        if rank and rng.random() < 0.04:
            sizes[rng.randrange(rank)] = 0
        chosen = rng.sample(kinds, rng.choice([1, 1, 1, 2, 3]))
        if rng.random() < 0.3:
            chosen.append("special")
        length = rng.choice([1, 2, 3, 5, 13, 40])
        values: list[Number]
        if dtype.is_floating_point:
            values = [random_value(rng, rng.choice(chosen)) for _ in range(length)]
        elif dtype == torch.bool:
            values = [rng.randint(0, 1) for _ in range(length)]
        else:
            info = torch.iinfo(dtype)
            low, high = rng.choice([(info.min, info.max), (0, 9), (max(-99, info.min), 99)])
            values = [rng.randint(low, high) for _ in range(length)]
        options: dict[str, Any] = {}
        if rng.random() < 0.6:
            options["precision"] = rng.choice([0, 1, 2, 3, 4, 5, 8, 12])
        if rng.random() < 0.5:
            options["threshold"] = rng.choice([0, 1, 5, 20, 100, 10000])
        if rng.random() < 0.4:
            options["edgeitems"] = rng.choice([0, 1, 2, 3, 4, 7])
        if rng.random() < 0.5:
            options["linewidth"] = rng.randint(1, 160)
        if rng.random() < 0.4:
            options["sci_mode"] = rng.choice([True, False])
        extras: dict[str, Any] = {"device": rng.random() < 0.1, "default": rng.choice([torch.float32] * 4 + FLOATS)}
        if rng.random() < 0.15:
            extras["subclass"] = "S" * rng.randint(1, 40)
        elif dtype.is_floating_point and rng.random() < 0.5:
            extras |= rng.choice([{"requires_grad": True}, {"node": "N" * rng.randint(1, 40) + "Backward"}])
        r.case(values, sizes, dtype, **extras, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("print_cases.txt"))
    parser.add_argument("--random", type=int, metavar="COUNT", help="record so many random cases instead of the chosen")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with arguments.out.open("w", encoding="utf-8", newline="\n") as out:
        out.write(f"# PyTorch {torch.__version__}, {Path(__file__).name}. Do not edit.\n\n")
        recorder = Recorder(out)
        if arguments.random is None:
            record_chosen(recorder)
            recorder.title("Everything mixed")
            record_random(recorder, 120, 0)
        else:
            record_random(recorder, arguments.random, arguments.seed)
    print(f"{recorder.count} cases, {arguments.out.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
