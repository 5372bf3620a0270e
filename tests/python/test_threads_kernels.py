"""Kernels in slices: whatever the number of threads, the same bits, the same errors, and threads that do take part."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import rustgrad as torch
from digests import digest

F = torch.nn.functional
COUNTS = (1, 2, 4, 8)


def values(*sizes: int) -> torch.Tensor:
    torch.manual_seed(len(sizes))
    return torch.randn(*sizes)


def places(below: int, *sizes: int) -> torch.Tensor:
    torch.manual_seed(below)
    return torch.randint(0, below, sizes)


def drawn(change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(5)
    return change(torch.zeros(100_003, dtype=dtype))


def both(pair: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.stack([part.double() for part in pair])


KERNELS: dict[str, Callable[[], torch.Tensor]] = {
    "add": lambda: values(300_001) + values(300_001),
    "formula": lambda: F.gelu(values(300_001)),
    "broadcast": lambda: values(700, 1) * values(1, 701),
    "strided": lambda: values(700, 701).t().exp(),
    "reversed": lambda: values(500, 501).flip(0) + values(500, 501)[:, ::1],
    "in place": lambda: values(300_001).mul_(3).add_(values(300_001)),
    "in place on a view": lambda: values(600, 600).t().sub_(values(600, 600)),
    "half": lambda: values(300_001).half() * 2,
    "sum": lambda: values(3_000_001).sum(),
    "mean of rows": lambda: values(2_000, 1_001).mean(1),
    "sum of long rows": lambda: values(3, 700_003).sum(1),
    "sum of columns": lambda: values(20_003, 50).sum(0),
    "sum of wide columns": lambda: values(300, 5_003).sum(0),
    "sum of a square": lambda: values(1_025, 1_023).sum(0),
    "sum of a square that lies otherwise": lambda: values(1_023, 1_025).t().sum(0),
    "sum of every second column": lambda: values(1_025, 2_001)[:, ::2].sum(0),
    "sum of columns, half": lambda: values(1_301, 501).half().sum(0),
    "sum of columns, double": lambda: values(1_301, 501).double().sum(0),
    "sum of columns, integers": lambda: places(1_000, 1_301, 501).sum(0),
    "mean of columns": lambda: values(901, 301).mean(0),
    "largest of columns": lambda: values(901, 301).amax(0),
    "product of columns": lambda: values(901, 301).prod(0),
    "logsumexp of columns": lambda: values(901, 301).logsumexp(0),
    "any of columns": lambda: (values(901, 301) > 3).any(0),
    "var of columns": lambda: values(901, 301).var(0),
    "norm of columns": lambda: values(901, 301).norm(dim=0),
    "sum around the middle": lambda: values(130, 5, 701).sum((0, 2)),
    "sum in the middle": lambda: values(7, 4_001, 33).sum(1),
    "max": lambda: values(3_000_001).amax(),
    "any": lambda: (values(3_000_001) > 6).any(),
    "var": lambda: values(400, 3_001).var(1),
    "softmax": lambda: values(800, 1_001).softmax(1),
    "softmax of columns": lambda: values(900, 301).log_softmax(0),
    "layer norm": lambda: F.layer_norm(values(800, 1_001), (1_001,)),
    "cumsum": lambda: values(500, 2_001).cumsum(1),
    "median": lambda: values(500, 1_001).median(1).values,
    "matmul": lambda: values(517, 301) @ values(301, 723),
    "tall matmul": lambda: values(9_001, 33) @ values(33, 17),
    "matrix times vector": lambda: values(3_001, 1_003) @ values(1_003),
    "batched": lambda: values(70, 65, 66) @ values(70, 66, 67),
    "double": lambda: values(400, 301).double() @ values(301, 402).double(),
    "gather": lambda: values(701, 303).gather(0, places(701, 699, 301)),
    "gather along rows": lambda: values(303, 701).t().gather(1, places(303, 701, 300)),
    "gather, half": lambda: values(701, 303).half().gather(1, places(303, 701, 200)),
    "gather, integers": lambda: places(9, 701, 303).gather(0, places(701, 699, 301)),
    "index_select": lambda: values(501, 703).index_select(0, places(501, 603)),
    "index_select of columns": lambda: values(501, 703).index_select(1, places(703, 603)),
    "index_select, double": lambda: values(501, 703).double().t().index_select(0, places(703, 603)),
    "take": lambda: values(501, 703).t().take(places(501 * 703, 90_001)),
    "take_along_dim": lambda: values(501, 303).take_along_dim(places(303, 501, 201), 1),
    "x[i]": lambda: values(5_001, 101)[places(5_001, 4_003)],
    "x[i, j]": lambda: values(501, 301)[places(501, 90_001), places(301, 90_001) - 301],
    "x[:, i]": lambda: values(501, 703)[:, places(703, 601)],
    "x[mask]": lambda: (x := values(501, 703))[x > 0.3],
    "x[i] = y": lambda: values(501, 703).index_put((places(501, 603),), values(603, 703)),
    "x[i] += y": lambda: values(101, 703).index_put((places(101, 603),), values(603, 703), True),
    "x[i, j] += y": lambda: values(51, 71).index_put((places(51, 90_001), places(71, 90_001)), values(90_001), True),
    "x[mask] = 3": lambda: (x := values(501, 703)).index_put((x > 0.3,), torch.tensor(3.0)),
    "put": lambda: values(301, 303).put(places(1_001, 90_001), values(90_001), True),
    "embedding": lambda: F.embedding(places(1_001, 30, 101), values(1_001, 129)),
    "embedding backward": lambda: embedded(torch.float32),
    "embedding backward, half": lambda: embedded(torch.float16),
    "scatter": lambda: values(701, 303).scatter(0, places(701, 699, 301), values(699, 302)),
    "scatter along rows": lambda: values(303, 701).t().scatter(1, places(303, 701, 300), values(701, 302)),
    "scatter_add": lambda: values(71, 303).scatter_add(0, places(71, 699, 301), values(699, 302)),
    "scatter_add along rows": lambda: values(701, 33).scatter_add(1, places(33, 701, 300), values(701, 302)),
    "scatter_add, half": lambda: values(71, 303).half().scatter_add(0, places(71, 699, 301), values(699, 302).half()),
    "scatter_add of a vector": lambda: values(1_001).scatter_add(0, places(1_001, 90_001), values(90_001)),
    "scatter_reduce": lambda: values(71, 303).scatter_reduce(0, places(71, 699, 301), values(699, 302), "amax"),
    "index_add": lambda: values(101, 703).index_add(0, places(101, 603), values(603, 703)),
    "index_add, strided": lambda: values(703, 101).t().index_add(0, places(101, 603), values(703, 603).t()),
    "index_add, double": lambda: values(101, 703).double().index_add(0, places(101, 603), values(603, 703).double()),
    "index_add to columns": lambda: values(703, 101).index_add(1, places(101, 603), values(703, 603)),
    "index_add in the middle": lambda: values(13, 101, 65).index_add(1, places(101, 603), values(13, 603, 65)),
    "index_copy": lambda: values(601, 703).index_copy(0, places(601, 603), values(603, 703)),
    "index_fill": lambda: values(703, 601).index_fill(1, places(601, 603), 2.0),
    "masked_fill": lambda: (x := values(501, 703)).masked_fill(x > 0.3, 2.0),
    "masked_select": lambda: (x := values(501, 703)).masked_select(x > 0.3),
    "masked_select, strided": lambda: (x := values(501, 703).half().t()).masked_select((x > 0.3)[:, ::1]),
    "masked_select of few": lambda: (x := values(90_001)).masked_select(x > 3),
    "masked_scatter": lambda: (x := values(501, 703)).masked_scatter(x.t().reshape(501, 703) > 0.3, values(501, 703)),
    "where": lambda: torch.where((x := values(501, 703)) > 0.3, x, values(703)),
    "nonzero": lambda: (values(501, 703) > 0.3).nonzero(),
    "nonzero of a vector": lambda: (values(90_001) > 0.3).nonzero(),
    "nonzero of one line in many": lambda: (values(3, 70_001)[:, ::2] > 1).nonzero(),
    "nonzero of short lines": lambda: (values(101, 301, 3).transpose(0, 1) > 1).nonzero(),
    "nonzero of numbers": lambda: values(501, 703).round().nonzero(),
    "count_nonzero": lambda: values(501, 703).round().count_nonzero(),
    "cat": lambda: torch.cat([values(501, 703), values(301, 703)]),
    "cat of columns": lambda: torch.cat([values(501, 703), values(501, 301).half()], 1),
    "stack": lambda: torch.stack([values(501, 703), values(703, 501).t()], 1),
    "clone": lambda: values(501, 703).t().clone(),
    "contiguous": lambda: values(501, 703).t().contiguous(),
    "contiguous, half": lambda: values(11, 501, 73).half().permute(2, 0, 1).contiguous(),
    "fill_": lambda: values(700_001).fill_(2.5),
    "fill_ on a view": lambda: (x := values(901, 903), x.t()[::2].fill_(2.5))[0],
    "full, half": lambda: torch.full((700_001,), 2.5, dtype=torch.float16),
    "zeros": lambda: torch.zeros(2_000_001),
    "arange": lambda: torch.arange(200_003),
    "linspace": lambda: torch.linspace(-1, 1, 200_003),
    "eye": lambda: torch.eye(503, 701),
    "tril": lambda: values(3, 501, 303).tril(3),
    "triu, strided": lambda: values(501, 703).half().t().triu(-5),
    "flip": lambda: values(501, 703).flip(1),
    "roll": lambda: values(501, 703).roll(5, 0),
    "rand": lambda: drawn(torch.rand_like),
    "rand, double": lambda: drawn(torch.rand_like, torch.float64),
    "rand, half": lambda: drawn(torch.rand_like, torch.float16),
    "randn": lambda: drawn(torch.randn_like),
    "randn, double": lambda: drawn(torch.randn_like, torch.float64),
    "randint": lambda: drawn(lambda x: torch.randint_like(x, -5, 1_000_000)),
    "randint, integers": lambda: drawn(lambda x: torch.randint_like(x, -5, 2**40), torch.int64),
    "bernoulli_": lambda: drawn(lambda x: x.bernoulli_(0.3)),
    "exponential_": lambda: drawn(lambda x: x.exponential_(2)),
    "cauchy_": lambda: drawn(lambda x: x.cauchy_()),
    "geometric_": lambda: drawn(lambda x: x.geometric_(0.2)),
    "log_normal_": lambda: drawn(lambda x: x.log_normal_()),
    "dropout": lambda: drawn(lambda x: F.dropout(x + 1, 0.3)),
    "randperm": lambda: drawn(lambda x: torch.randperm(x.numel())),
    "sort": lambda: both(values(301, 703).sort(1)),
    "sort of columns": lambda: both(values(301, 703).half().sort(0, descending=True)),
    "sort, integers": lambda: both(places(50, 301, 703).t().sort(1)),
    "sort of few lines": lambda: both(values(3, 70_001).sort(1)),
    "topk": lambda: both(values(301, 703).double().topk(7)),
    "kthvalue": lambda: both(values(301, 703).kthvalue(7)),
    "argmax of columns": lambda: values(301, 703).argmax(0),
    "unique": lambda: places(1_000, 90_001).unique(),
    "searchsorted": lambda: torch.searchsorted(values(1_001).sort().values, values(501, 703)),
    "searchsorted in rows": lambda: torch.searchsorted(values(51, 101).sort(1).values, values(51, 703), right=True),
    "isin": lambda: torch.isin(places(1_000, 501, 703), places(1_000, 101)),
    "bincount": lambda: torch.bincount(places(101, 200_003)),
    "bincount with weights": lambda: torch.bincount(places(101, 200_003), values(200_003)),
    "histc": lambda: torch.histc(values(200_003), 50),
    "cross entropy": lambda: F.cross_entropy(values(3_001, 101), places(101, 3_001), reduction="none"),
    "nll of pictures": lambda: F.nll_loss(values(3, 11, 101, 103), places(11, 3, 101, 103)),
    "nll backward": lambda: derived(lambda x: F.nll_loss(x, places(11, 3, 101, 103)), values(3, 11, 101, 103)),
    "gradients that meet": lambda: derived(lambda x: (x.sin() * x.cos()).sum() + x.exp().sum(), values(300_001)),
    "embedding with a norm": lambda: F.embedding(places(1_001, 3_001), values(1_001, 129), max_norm=1.0),
}


def derived(loss: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss(x.requires_grad_()), x)[0]


def embedded(dtype: torch.dtype) -> torch.Tensor:
    weights = values(30, 101, 129).to(dtype)
    return derived(lambda x: (F.embedding(places(1_001, 30, 101), x) * weights).sum(), values(1_001, 129).to(dtype))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_have_the_same_bits_on_any_number_of_threads(name: str) -> None:
    found = set()
    for n in COUNTS:
        torch.set_num_threads(n)
        found.add(digest(KERNELS[name]()))
    assert len(found) == 1


@pytest.mark.parametrize("threads", COUNTS)
def test_the_first_index_that_is_out_of_range_is_named(threads: int) -> None:
    torch.set_num_threads(threads)
    x, wrong = values(501, 703), places(501, 603, 701)
    wrong[601, 3], wrong[300, 700], wrong[300, 5], wrong[602] = 7_777, 6_666, 5_555, -3
    before = x.clone()
    for call in (
        lambda: x.gather(0, wrong),
        lambda: x.scatter_add(0, wrong, values(603, 703)),
        lambda: x.scatter_(0, wrong, values(603, 703)),
        lambda: x.index_put_((wrong.view(-1), wrong.view(-1)), torch.tensor(1.0)),
        lambda: x[:, wrong.t()[5].contiguous()],
    ):
        with pytest.raises((RuntimeError, IndexError), match="5555"):
            call()
    assert torch.equal(x, before)


# ---- who works ---------------------------------------------------------------------------------------------------------


class Large:
    """Operands that are worth sharing, made once."""

    def __init__(self) -> None:
        self.x, self.y = values(1_001, 1_003), values(1_003, 1_001).t()
        self.rows = places(1_001, 2_003)
        self.table = places(1_001, 1_001, 1_003)
        self.mask = self.x > 0.3
        self.batch = values(40, 64, 65)
        self.pictures = values(16, 3, 64, 64)


LARGE: list[Large] = []

SHARED: dict[str, Callable[[Large], object]] = {
    "elementwise": lambda on: (on.x * on.y).tanh(),
    "strided copy": lambda on: on.y.contiguous(),
    "conversion": lambda on: on.x.double(),
    "in place": lambda on: on.x.clone().mul_(on.y),
    "sum": lambda on: on.x.sum(),
    "sum of rows": lambda on: on.x.sum(1),
    "sum of columns": lambda on: on.x.sum(0),
    "mean of columns": lambda on: on.x.mean(0),
    "amax": lambda on: on.x.amax(0),
    "softmax": lambda on: on.x.softmax(1),
    "softmax of columns": lambda on: on.x.log_softmax(0),
    "layer norm": lambda on: F.layer_norm(on.x, (1_003,)),
    "batch norm": lambda on: F.batch_norm(on.pictures, None, None, training=True),
    "matmul": lambda on: on.x @ on.x.t(),
    "batched matmul": lambda on: on.batch @ on.batch.transpose(1, 2),
    "x[i]": lambda on: on.x[on.rows],
    "x[:, i]": lambda on: on.x[:, on.rows],
    "x[i, j]": lambda on: on.x[on.table, on.table],
    "index_select": lambda on: on.x.index_select(0, on.rows),
    "gather": lambda on: on.x.gather(0, on.table),
    "take": lambda on: on.x.take(on.table),
    "scatter": lambda on: on.x.scatter(0, on.table, on.y),
    "scatter_add": lambda on: on.x.scatter_add(0, on.table, on.y),
    "index_add": lambda on: on.x.index_add(0, on.rows[:1_001], on.y),
    "index_copy": lambda on: on.x.index_copy(1, on.rows[:1_003] % 1_001, on.y),
    "index_put": lambda on: on.x.index_put((on.rows[:1_001],), on.y),
    "index_put and accumulate": lambda on: on.x.index_put((on.rows[:1_001],), on.y, accumulate=True),
    "index_fill": lambda on: on.x.index_fill(0, on.rows, 2.0),
    "embedding": lambda on: F.embedding(on.rows, on.x),
    "masked_fill": lambda on: on.x.masked_fill(on.mask, 2.0),
    "masked_select": lambda on: on.x[on.mask],
    "masked_scatter": lambda on: on.x.masked_scatter(on.mask, on.y.contiguous()),
    "where": lambda on: torch.where(on.mask, on.x, on.y),
    "nonzero": lambda on: on.mask.nonzero(),
    "rand": lambda on: torch.rand(1_000_001),
    "randn": lambda on: torch.randn(1_000_001),
    "randint": lambda on: torch.randint(0, 9, (1_000_001,)),
    "bernoulli_": lambda on: torch.empty(1_000_001).bernoulli_(0.3),
    "dropout": lambda on: F.dropout(on.x, 0.3),
    "fill_": lambda on: torch.empty(3_000_001).fill_(2.5),
    "arange": lambda on: torch.arange(1_000_001),
    "tril": lambda on: on.x.tril(),
    "sort": lambda on: on.x.sort(1),
    "topk": lambda on: on.x.topk(5),
    "searchsorted": lambda on: torch.searchsorted(on.rows.sort().values, on.table),
    "isin": lambda on: torch.isin(on.table, on.rows),
}


def is_shared(run: Callable[[], object]) -> bool:
    """Whether another thread takes slices. It may be kept from working for a while, so this looks more than once."""
    torch.set_num_threads(4)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with torch.autograd.scheduler_trace() as trace:
            run()
        if any(span.kind == "slices" and span.lane != 0 for span in trace.spans):
            return True
    return False


@pytest.mark.parametrize("name", SHARED)
def test_other_threads_take_slices_of_large_kernels(name: str) -> None:
    if not LARGE:
        LARGE.append(Large())
    assert is_shared(lambda: SHARED[name](LARGE[0]))


def test_small_kernels_stay_with_their_caller() -> None:
    torch.set_num_threads(4)
    x, rows = values(30, 30), places(30, 10)
    with torch.autograd.scheduler_trace() as trace:
        for _ in range(100):
            _ = x[rows], x.index_add(0, rows, x[:10]), x[x > 0.3], x.sum(0), torch.randn(30), x.softmax(1), x @ x
    assert trace.spans == []


OPTIMISERS: dict[str, Callable[[list[torch.Tensor]], torch.optim.Optimizer]] = {
    "SGD": lambda given: torch.optim.SGD(given, 0.1),
    "SGD with momentum": lambda given: torch.optim.SGD(given, 0.1, 0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda given: torch.optim.Adam(given, 0.01, weight_decay=0.01),
    "Adam with the largest": lambda given: torch.optim.Adam(given, 0.01, amsgrad=True),
    "AdamW": lambda given: torch.optim.AdamW(given, 0.01),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_of_optimisers_have_the_same_bits_on_any_number_of_threads(name: str) -> None:
    found = set()
    for n in COUNTS:
        torch.set_num_threads(n)
        given = [values(700_001).requires_grad_(), values(601, 503).t().requires_grad_()]
        optimiser = OPTIMISERS[name](given)
        for step in range(3):
            optimiser.zero_grad()
            sum((x.sin() * (step + 1)).sum() for x in given).backward()
            optimiser.step()
        found.add(digest(*given))
    assert len(found) == 1
    assert is_shared(optimiser.step)
