"""Several threads, the same bits: kernels in slices, nodes computed ahead, effects in the order of one thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

import rustgrad as torch
from digests import digest

F = torch.nn.functional
COUNTS = (1, 2, 4, 8)


def test_the_number_of_threads_is_kept_and_checked() -> None:
    for n in COUNTS:
        torch.set_num_threads(n)
        assert torch.get_num_threads() == n
    for wrong in (0, -1, 1000):
        with pytest.raises(RuntimeError):
            torch.set_num_threads(wrong)
    with pytest.raises(TypeError):
        torch.set_num_threads(2.0)  # type: ignore[arg-type]


# ---- backward ----------------------------------------------------------------------------------------------------------


class Half(torch.autograd.Function):
    log: list[str]

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return x * 0.5

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        Half.log.append(f"function {grad.shape}")
        return grad * 0.5


def branches(
    count: int, leaves: list[torch.Tensor], change: Callable[[int, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    outs = []
    for k in range(count):
        x = leaves[k % len(leaves)]
        for _ in range(4):
            x = (x * 0.7).tanh()
        outs.append(change(k, x).sum())
    return torch.stack(outs).sum()


@pytest.mark.parametrize("threads", COUNTS)
def test_hooks_see_the_effects_of_what_came_before_and_no_others(threads: int) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    seen: list[tuple[int, list[bool]]] = []

    def watched(k: int, x: torch.Tensor) -> torch.Tensor:
        x.register_hook(lambda grad: seen.append((k, [leaf.grad is not None for leaf in leaves])))
        return x

    branches(6, leaves, watched).backward()
    assert seen == [(k, [j > k for j in range(6)]) for k in reversed(range(6))]


@pytest.mark.parametrize("threads", COUNTS)
@pytest.mark.parametrize("factor", [None, 3.0])
def test_a_hook_registered_in_backward_is_run_and_heard(threads: int, factor: float | None) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.ones(50_000, requires_grad=True) for _ in range(6)]
    kept: dict[int, torch.Tensor] = {}
    seen: list[int] = []

    def late(grad: torch.Tensor) -> torch.Tensor | None:
        seen.append(0)
        return None if factor is None else grad * factor

    def keep(k: int, x: torch.Tensor) -> torch.Tensor:
        kept[k] = x
        if k == 5:
            x.register_hook(lambda grad: (time.sleep(0.02), kept[0].register_hook(late), None)[2])
        return x

    branches(6, leaves, keep).backward()
    assert seen == [0]
    first, last = leaves[0].grad, leaves[1].grad
    assert first is not None and last is not None and torch.allclose(first, last * (factor or 1.0))


@pytest.mark.parametrize("threads", COUNTS)
def test_zero_that_is_known_reaches_leaves(threads: int) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    inner = [(leaf * 0.7).tanh().exp() for leaf in leaves]
    firsts = torch.autograd.grad(sum((x.relu().sum() for x in inner), torch.zeros(())), inner, create_graph=True)
    sum((first.sum() for first in firsts), torch.zeros(())).backward()
    assert all(leaf.grad is not None and not leaf.grad.any() for leaf in leaves)


@pytest.mark.parametrize("threads", COUNTS)
def test_a_root_that_other_roots_lead_to_has_its_own_gradient_too(threads: int) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    inner = [leaf * 0.5 for leaf in leaves]
    ends = [x * 1.5 * 2.0 for x in inner]
    torch.autograd.backward(ends + inner, [torch.ones(50_000)] * 12)
    assert all(leaf.grad is not None and leaf.grad.eq(2.0).all() for leaf in leaves)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        raise KeyError("third")


@pytest.mark.parametrize("threads", COUNTS)
def test_an_error_leaves_what_one_thread_would_leave(threads: int) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    loss = branches(6, leaves, lambda k, x: Fails.apply(x) if k == 3 else x)
    with pytest.raises(KeyError, match="third"):
        loss.backward()
    assert [leaf.grad is not None for leaf in leaves] == [False] * 4 + [True] * 2
    again = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    branches(6, again, lambda k, x: x).backward()
    assert all(leaf.grad is not None for leaf in again)


@pytest.mark.parametrize("threads", COUNTS)
def test_an_error_of_a_node_that_others_compute_comes_in_its_turn(threads: int) -> None:
    """The third branch was freed before: its nodes do nothing but compute, and fail wherever they run."""
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    ends: list[torch.Tensor] = []

    def kept(k: int, x: torch.Tensor) -> torch.Tensor:
        ends.append(x)
        return x

    loss = branches(6, leaves, kept)
    torch.autograd.grad(ends[3].sum(), [leaves[3]])
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()
    assert [leaf.grad is not None for leaf in leaves] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("threads", COUNTS)
def test_a_saved_value_that_a_hook_changes_is_an_error_on_any_number_of_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    leaves = [torch.randn(50_000, requires_grad=True) for _ in range(6)]
    factor = torch.ones(50_000)

    def change(k: int, x: torch.Tensor) -> torch.Tensor:
        if k == 5:
            x.register_hook(lambda grad: (factor.add_(1), None)[1])
        return x * factor if k == 0 else x

    loss = branches(6, leaves, change)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert [leaf.grad is not None for leaf in leaves] == [False] + [True] * 5


@pytest.mark.parametrize("threads", [1, 4])
def test_collections_in_hooks_take_nothing_that_is_in_use(threads: int) -> None:
    torch.set_num_threads(threads)
    for _ in range(10):
        leaves = [torch.randn(20_000, requires_grad=True) for _ in range(6)]
        calls: list[int] = []

        def collected(k: int, x: torch.Tensor, calls: list[int] = calls) -> torch.Tensor:
            def collect(grad: torch.Tensor) -> None:
                gc.collect()
                calls.append(k)

            x = Half.apply(x)
            x.register_hook(collect)
            return x

        Half.log = []
        branches(6, leaves, collected).backward()
        assert calls == [5, 4, 3, 2, 1, 0] and len(Half.log) == 6


def test_backwards_of_many_threads_share_the_pool() -> None:
    torch.set_num_threads(4)
    wrong: list[object] = []

    def work(seed: int) -> None:
        torch.manual_seed(seed)
        leaves = [torch.randn(30_000, requires_grad=True) for _ in range(4)]
        for _ in range(5):
            for leaf in leaves:
                leaf.grad = None
            branches(8, leaves, lambda k, x: x).backward()
            found = digest(*(leaf.grad for leaf in leaves if leaf.grad is not None))
            results.setdefault(seed, found)
            if results[seed] != found:
                wrong.append(seed)

    results: dict[int, str] = {}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(results) == 6
