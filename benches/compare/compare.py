"""The same work in rustgrad and in PyTorch, interleaved in one process on one thread; prints both and the ratio.

    python benches/compare/compare.py [-k TEXT] [--rounds 31] [--threads 1] [--json out.json] [--list]

Each case is run by both libraries in turn, round after round, so that a slow minute of the machine slows both. Printed
are medians over the rounds, and the median of the rounds' own ratios. Before it is timed, a case has to give the same
numbers in both. Needs the extra `rustgrad[bench]`, and a release build: anything else is refused.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import rustgrad
from rustgrad import _core

Work = Callable[[], Any]
CASES: dict[str, Callable[[Any], Work]] = {}


def case(name: str) -> Callable[[Callable[[Any], Work]], Callable[[Any], Work]]:
    """Registers a function that prepares a case for a library and returns the work to be timed."""

    def register(prepare: Callable[[Any], Work]) -> Callable[[Any], Work]:
        CASES[name] = prepare
        return prepare

    return register


def data(lib: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    """The same float32 numbers for either library, in memory of its own."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return lib.tensor(array).requires_grad_(grad)


# ---- the cost of being called --------------------------------------------------------------------------------------


@case("a + b, 2 elements")
def add_small(lib: Any) -> Work:
    a, b = data(lib, 2), data(lib, 2, seed=1)
    return lambda: a + b


@case("a + b, 2 elements, with grad")
def add_small_grad(lib: Any) -> Work:
    a, b = data(lib, 2, grad=True), data(lib, 2, seed=1)
    return lambda: a + b


@case("a + 1.0, 2 elements")
def add_scalar(lib: Any) -> Work:
    a = data(lib, 2)
    return lambda: a + 1.0


@case("sum().backward(), 2 elements")
def sum_backward(lib: Any) -> Work:
    a = data(lib, 2, grad=True)

    def work() -> Any:
        a.grad = None
        a.sum().backward()
        return a.grad

    return work


@case("chain of 1,000 scalar ops, forward and backward")
def chain(lib: Any) -> Work:
    x = lib.tensor(0.5, requires_grad=True)
    factor, term = lib.tensor(0.999), lib.tensor(0.001)

    def work() -> Any:
        x.grad = None
        y = x
        for _ in range(500):
            y = y * factor
            y = y + term
        y.backward()
        return x.grad

    return work


@case("x[3, 1:5], a view")
def index_view(lib: Any) -> Work:
    x = data(lib, 64, 64)
    return lambda: x[3, 1:5]


# ---- memory and arithmetic -----------------------------------------------------------------------------------------


@case("a + b, 10M elements")
def add_large(lib: Any) -> Work:
    a, b = data(lib, 10_000_000), data(lib, 10_000_000, seed=1)
    # Reading an element makes sure that the sum has been written.
    return lambda: (a + b)[-1].item()


def unary(name: str) -> None:
    def prepare(lib: Any) -> Work:
        x, function = data(lib, 1_000_000), getattr(lib, name)
        return lambda: function(x)[-1].item()

    case(f"{name}, 1M elements")(prepare)


for _name in ("exp", "tanh", "sin"):
    unary(_name)


@case("sum, 1M elements")
def sum_large(lib: Any) -> Work:
    x = data(lib, 1_000_000)
    return lambda: x.sum().item()


@case("(x * 2 + 1).sin() * x, 1M elements, forward and backward")
def formula(lib: Any) -> Work:
    x = data(lib, 1_000_000, grad=True)

    def work() -> Any:
        x.grad = None
        ((x * 2 + 1).sin() * x).sum().backward()
        return x.grad[-1].item()

    return work


@case("gelu, 1M elements, forward and backward")
def gelu(lib: Any) -> Work:
    x = data(lib, 1_000_000, grad=True)

    def work() -> Any:
        x.grad = None
        lib.nn.functional.gelu(x).sum().backward()
        return x.grad[-1].item()

    return work


@case("softmax, 256 x 1000")
def softmax(lib: Any) -> Work:
    x = data(lib, 256, 1000)
    return lambda: x.softmax(dim=1)[-1, -1].item()


@case("softmax, 256 x 1000, forward and backward")
def softmax_backward(lib: Any) -> Work:
    x, weight = data(lib, 256, 1000, grad=True), data(lib, 256, 1000, seed=1)

    def work() -> Any:
        x.grad = None
        x.softmax(dim=1).backward(weight)
        return x.grad[-1, -1].item()

    return work


@case("x[rows], 1,000 of 10,000 x 64")
def index_rows(lib: Any) -> Work:
    x = data(lib, 10_000, 64)
    rows = lib.tensor(np.random.default_rng(1).integers(0, 10_000, 1_000))
    return lambda: x[rows]


@case("x[mask], 1M elements")
def index_mask(lib: Any) -> Work:
    x = data(lib, 1_000_000)
    mask = x > 0
    return lambda: x[mask]


# ---- matrices ------------------------------------------------------------------------------------------------------


def matmul(n: int) -> None:
    def prepare(lib: Any) -> Work:
        a, b = data(lib, n, n), data(lib, n, n, seed=1)
        return lambda: a @ b

    case(f"matmul, {n} x {n}")(prepare)


for _n in (16, 32, 64, 128, 256, 512):
    matmul(_n)


def mlp(batch: int) -> None:
    def prepare(lib: Any) -> Work:
        nn = lib.nn
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        with lib.no_grad():
            for seed, parameter in enumerate(model.parameters()):
                parameter.copy_(data(lib, *parameter.shape, seed=seed) * 0.1)
        optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
        x = data(lib, batch, 64, seed=10)
        y = lib.tensor(np.random.default_rng(11).integers(0, 10, batch))

        def work() -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return work

    case(f"training step of a 64-128-10 network with Adam, batch {batch}")(prepare)


for _batch in (8, 64):
    mlp(_batch)


# ---- the measurement -----------------------------------------------------------------------------------------------


@dataclass
class Result:
    """Median seconds of one run in each library, and the median over rounds of PyTorch's time by rustgrad's."""

    name: str
    rustgrad: float
    torch: float
    ratio: float
    rounds: int


def same(name: str, works: list[Work]) -> None:
    """Refuses a case whose two sides do not compute the same numbers."""
    ours, theirs = (r.detach().numpy() if hasattr(r, "detach") else np.asarray(r) for r in (work() for work in works))
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-4, atol=1e-4):
        raise SystemExit(f"{name}: the libraries disagree, nothing to compare:\n{ours}\n{theirs}")


def timed(work: Work, count: int) -> float:
    """Seconds a run, over `count` runs."""
    began = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - began) / count


def measure(name: str, rounds: int, block: float) -> Result:
    works = [CASES[name](lib) for lib in (rustgrad, torch)]
    same(name, works)
    counts = []
    for work in works:
        count = 1
        while (took := timed(work, count) * count) < block and count < 1_000_000:
            count = max(count + 1, min(10 * count, int(1.2 * count * block / max(took, 1e-7))))
        counts.append(count)
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for i in range(rounds):
            for side in (0, 1) if i % 2 == 0 else (1, 0):
                times[side].append(timed(works[side], counts[side]))
    finally:
        gc.enable()
    ratio = statistics.median(theirs / ours for ours, theirs in zip(*times, strict=True))
    return Result(name, statistics.median(times[0]), statistics.median(times[1]), ratio, rounds)


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description="The same work in rustgrad and PyTorch, interleaved.")
    parser.add_argument("-k", default="", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--block", type=float, default=0.005, help="least seconds of one timed block (default 0.005)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument(
        "--any-build", action="store_true", help="accept a slow build: to try the script, not to measure"
    )
    options = parser.parse_args()

    names = [name for name in CASES if options.k.lower() in name.lower()]
    if options.list:
        print("\n".join(names))
        return
    if not names:
        parser.error(f"no case contains {options.k!r}")
    if options.rounds < 1:
        parser.error("--rounds must be positive")
    build = _core.build_info()
    if build["profile"] != "release" and not options.any_build:
        raise SystemExit(f"this is a {build['profile']} build of rustgrad; measure a release build (`make compare`)")
    rustgrad.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)

    print(f"rustgrad {_core.__version__} {build}")
    print(
        f"PyTorch {torch.__version__}, Python {platform.python_version()}, {processor()}, {options.threads} thread(s)"
    )
    print(f"medians of {options.rounds} interleaved rounds; ratio: how many times faster rustgrad is\n")
    width = max(map(len, names))
    print(f"{'':{width}}  {'rustgrad':>10}  {'PyTorch':>10}  {'ratio':>6}")
    results = []
    for name in names:
        result = measure(name, options.rounds, options.block)
        results.append(result)
        print(
            f"{name:{width}}  {duration(result.rustgrad):>10}  {duration(result.torch):>10}  {result.ratio:6.2f}",
            flush=True,
        )

    if options.json:
        machine = {"processor": processor(), "python": platform.python_version(), "threads": options.threads}
        versions = {"rustgrad": str(_core.__version__), "torch": str(torch.__version__)}
        head = {"versions": versions, "build": build, "machine": machine, "arguments": sys.argv[1:]}
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(head | {"results": [vars(result) for result in results]}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
