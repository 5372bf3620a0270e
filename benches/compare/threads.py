"""What a second thread gives: ceilings of the machine, large kernels, wide backwards; PyTorch's best time beside the latter.

    python benches/compare/threads.py [--rounds 25]

All in one run, one thread and two in turn, best of the rounds. Ceilings are plain C loops (`ceilings.c`, made by
`cc`): bound by arithmetic, by writing memory, by reading it. Needs the extra `rustgrad[bench]`.
"""

from __future__ import annotations

import argparse
import ctypes
import pathlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import rustgrad

Loop = Callable[[], object]


def seconds(loops: list[Loop]) -> float:
    """The time in which each of the loops ends, run by a thread each."""
    others = [threading.Thread(target=loop) for loop in loops[1:]]
    begin = time.perf_counter()
    for thread in others:
        thread.start()
    loops[0]()
    for thread in others:
        thread.join()
    return time.perf_counter() - begin


def ceilings() -> dict[str, Callable[[int], list[Loop]]]:
    """For each ceiling the loops of so many threads, which together do the same."""
    source = pathlib.Path(__file__).with_name("ceilings.c")
    made = pathlib.Path(tempfile.mkdtemp()) / "ceilings.so"
    subprocess.run(
        ["cc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", str(source), "-o", str(made)], check=True
    )
    library = ctypes.CDLL(str(made))
    size, rounds = 10_000_000, 20_000_000
    a, b, c = (np.ones(size, np.float32) for _ in range(3))

    def at(array: Any, first: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data + 4 * first)

    def parts(loop: Callable[[int, int], Loop], total: int) -> Callable[[int], list[Loop]]:
        return lambda threads: [loop(k * (total // threads), total // threads) for k in range(threads)]

    def count(n: int) -> ctypes.c_size_t:
        return ctypes.c_size_t(n)

    return {
        "multiply-add": parts(lambda _, n: lambda: library.fma_loop(count(n)), rounds),
        "triad": parts(lambda k, n: lambda: library.triad(at(a, k), at(b, k), at(c, k), count(n)), size),
        "read": parts(lambda k, n: lambda: library.read_sum(at(a, k), count(n)), size),
    }


def kernels() -> dict[str, Loop]:
    """Large kernels."""
    ten, square, rows = rustgrad.randn(10_000_000), rustgrad.randn(1024, 1024), rustgrad.randn(4096, 1024)
    return {
        "matmul 1024": lambda: square @ square,
        "exp 10M": ten.exp,
        "softmax 4096x1024": lambda: rows.softmax(1),
        "add 10M": lambda: ten + ten,
        "sum 10M": ten.sum,
        "sum(0) 4096x1024": lambda: rows.sum(0),
    }


def matrices(lib: Any) -> Any:
    """64 branches of 10 x (96x96 matmul + tanh)."""
    outs = []
    for _ in range(64):
        w, x = lib.randn(96, 96, requires_grad=True), lib.randn(96, 96)
        for _ in range(10):
            x = (x @ w * 0.1).tanh()
        outs.append(x.sum())
    return lib.stack(outs).sum()


def elements(lib: Any) -> Any:
    """64 branches of 20 elementwise operations on 4,096 elements."""
    outs = []
    for _ in range(64):
        x = lib.randn(4096, requires_grad=True)
        for k in range(10):
            x = (x * 0.99).sin() if k % 2 else (x + 0.01).tanh()
        outs.append(x.sum())
    return lib.stack(outs).sum()


def backward(lib: Any, build: Callable[[Any], Any]) -> float:
    loss = build(lib)
    begin = time.perf_counter()
    loss.backward()
    return time.perf_counter() - begin


def show(name: str, one: float, two: float, more: str = "") -> None:
    print(f"{name:24} {one * 1e3:9.2f} ms {two * 1e3:9.2f} ms  x {one / two:.2f}{more}", flush=True)


def main() -> None:
    """Prints a line for each: one thread, two threads, how many times as fast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = range(parser.parse_args().rounds)
    warm = rustgrad.zeros(1_000_000)

    def on(threads: int, measure: Callable[[], float]) -> float:
        rustgrad.set_num_threads(threads)
        warm.exp()  # The workers are there, and awake.
        return measure()

    for name, loops in ceilings().items():
        times = [(seconds(loops(1)), seconds(loops(2))) for _ in rounds]
        show(name, min(t[0] for t in times), min(t[1] for t in times))
    for name, kernel in kernels().items():
        times = [(on(1, lambda: seconds([kernel])), on(2, lambda: seconds([kernel]))) for _ in rounds]  # noqa: B023
        show(name, min(t[0] for t in times), min(t[1] for t in times))
    for build in (matrices, elements):
        times = []
        best = float("inf")
        for _ in rounds:
            times.append((on(1, lambda: backward(rustgrad, build)), on(2, lambda: backward(rustgrad, build))))  # noqa: B023
            for threads in (1, 2):
                torch.set_num_threads(threads)
                best = min(best, backward(torch, build))
        one, two = min(t[0] for t in times), min(t[1] for t in times)
        show(f"backward, {build.__name__}", one, two, f"   of PyTorch's best, {best * 1e3:.2f} ms: {two / best:.2f}")


if __name__ == "__main__":
    main()
