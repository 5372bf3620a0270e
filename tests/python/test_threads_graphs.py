"""Graphs of all shapes on 1, 2, 4 and 8 threads: the same gradients to the bit, hooks in the same order, seeing
the same. A graph is drawn by number, and so is the way in which it is differentiated. What comes of it is
hashed: all gradients, and what each hook saw when it was called, other leaves' gradients included. Graphs are
wide, deep, of diamonds or mixed; their branches share leaves and results."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable

import pytest

import rustgrad as torch
from digests import digest
from rustgrad.utils.checkpoint import checkpoint

F = torch.nn.functional
COUNTS = (1, 2, 4, 8)


class Half(torch.autograd.Function):
    """Python in the graph, which says when it runs."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, log: list[str]) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.log = log
        return x * 0.5

    @staticmethod
    def backward(ctx, grad: torch.Tensor):  # type: ignore[no-untyped-def]
        ctx.log.append(f"function {digest(grad)}")
        return grad * 0.5, None


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        raise KeyError("on purpose")


Way = Callable[["Graph"], list[torch.Tensor | None]]


class Graph:
    """A graph that was drawn: its leaves, its ends, what is inside, and what its hooks say."""

    def __init__(self, seed: int, way: Way) -> None:
        self.draw = random.Random(seed)
        self.may_reenter = way not in NOT_REENTRANT
        # With some ways something goes wrong, at this branch.
        self.accident = way if way in (with_an_error, with_a_change) else None
        self.accident_at = self.draw.randint(1, 4)
        self.branches = 0
        self.log: list[str] = []
        # What hooks look at: all leaves, once they are known.
        self.seen: list[weakref.ref[torch.Tensor]] = []
        self.n = self.draw.choice((6_400, 19_200, 38_400))
        torch.manual_seed(seed)
        self.leaves = [torch.randn(self.n, requires_grad=True) for _ in range(self.draw.randint(1, 5))]
        self.weight = torch.randn(64, 64, requires_grad=True)
        self.factor = torch.ones(self.n)
        self.pool: list[torch.Tensor] = list(self.leaves)
        shared = len(self.leaves)
        self.kept: list[torch.Tensor] = []
        getattr(self, self.draw.choice(("wide", "deep", "diamonds", "mixed")))()
        self.inner = self.pool[shared:]
        self.leaves.append(self.weight)
        self.seen += [weakref.ref(leaf) for leaf in self.leaves]
        for leaf in self.leaves:
            if self.draw.random() < 0.3:
                leaf.register_post_accumulate_grad_hook(self.says("accumulated"))
            if self.draw.random() < 0.2:
                leaf.register_hook(self.says("leaf"))

    # ---- shapes

    def wide(self) -> None:
        for _ in range(self.draw.randint(12, 30)):
            self.branch(self.draw.choice(self.leaves), self.draw.randint(1, 3))

    def deep(self) -> None:
        for _ in range(self.draw.randint(5, 6)):
            self.branch(self.draw.choice(self.pool), self.draw.randint(10, 25))

    def diamonds(self) -> None:
        x = self.leaves[0]
        for _ in range(self.draw.randint(3, 6)):
            ends = [self.branch(x, self.draw.randint(1, 4)) for _ in range(self.draw.randint(2, 4))]
            x = torch.stack(ends).mean(0)
        self.pool.append(x)

    def mixed(self) -> None:
        for _ in range(self.draw.randint(5, 12)):
            self.branch(self.draw.choice(self.pool), self.draw.randint(1, 12))

    def branch(self, x: torch.Tensor, length: int) -> torch.Tensor:
        if self.draw.random() < 0.3:
            # It ends at a leaf of its own, where nothing is added up: only hooks can tell when that was reached.
            x = torch.randn(self.n, requires_grad=True)
            self.leaves.append(x)
        for _ in range(length):
            x = self.draw.choice(STEPS)(self, x)
        if self.accident is with_an_error and self.branches == self.accident_at:
            x = Fails.apply(x)
        if self.accident is with_a_change and self.branches == 0:
            x = x * self.factor
        if self.accident is with_a_change and self.branches == self.accident_at:
            factor = self.factor
            x.register_hook(lambda grad: (factor.add_(1), None)[1])
        self.branches += 1
        self.pool.append(x)
        return x

    # ---- steps

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.draw.choice(self.pool).tanh()

    def sum_with_a_leaf(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.draw.choice(self.leaves)

    def product_with_a_leaf_of_its_own(self, x: torch.Tensor) -> torch.Tensor:
        self.leaves.append(torch.randn(self.n, requires_grad=True))
        return x * self.leaves[-1]

    def wave(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() * x.cos() + x.relu()

    def dear(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0.3).tanh().sigmoid().exp()

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 8).softmax(1).view(-1)

    def matmul(self, x: torch.Tensor) -> torch.Tensor:
        return (x.view(-1, 64) @ self.weight).tanh().reshape(-1)

    def views(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(8, -1).t().contiguous()[::2].repeat(2, 1).t().reshape(-1)

    def parts(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part * k for k, part in enumerate(x.split(self.n // 4), 1)])

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[: self.n // 2].mul_(0.5)
        return x.add_(self.draw.choice(self.leaves))

    def reduced(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean()) * 0.9

    def cumulative(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 32).cumsum(1).tanh().view(-1)

    def selected(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, x * 0.1).flip(0)

    def function(self, x: torch.Tensor) -> torch.Tensor:
        return Half.apply(x, self.log)

    def again(self, x: torch.Tensor) -> torch.Tensor:
        reentrant = self.may_reenter and self.draw.random() < 0.5
        return checkpoint(lambda y: (y * 0.7).tanh().sin(), x, use_reentrant=reentrant)

    def hooked(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1.5
        x.register_hook(self.says("hook"))
        return x

    def replaced(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 0.5
        x.register_hook(lambda grad: grad * 2)
        return x

    def node_hooked(self, x: torch.Tensor) -> torch.Tensor:
        x = (x * 0.8).tanh()
        assert x.grad_fn is not None
        say = self.says("node")
        x.grad_fn.register_prehook(lambda grads: say(grads[0]))
        x.grad_fn.register_hook(lambda grads, _: say(grads[0]))
        return x

    def retained(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1.1
        x.retain_grad()
        self.kept.append(x)
        return x

    # ---- what is seen

    def says(self, what: str) -> Callable[[torch.Tensor | None], None]:
        """A hook that notes its gradient, and how those of all leaves begin at that moment. It does not keep the graph."""
        log, seen, number = self.log, self.seen, self.draw.randrange(1_000)

        def hook(grad: torch.Tensor | None) -> None:
            leaves = [leaf() for leaf in seen]
            grads = [None if leaf is None or leaf.grad is None else leaf.grad.reshape(-1)[:16] for leaf in leaves]
            log.append(f"{what} {number} {digest(grad)} {digest(*grads)}")

        return hook

    def ends(self) -> list[torch.Tensor]:
        return [x.mean() for x in self.inner]

    def loss(self) -> torch.Tensor:
        """Its branches joined at once, or one after the other."""
        if self.draw.random() < 0.5:
            return torch.stack(self.ends()).sum()
        total = self.inner[0]
        for x in self.inner[1:]:
            total = total + x * 0.5
        return total.mean()

    def state(self) -> str:
        return digest(*(x.grad for x in self.leaves + self.kept))


STEPS = (
    *(
        Graph.product,
        Graph.sum_with_a_leaf,
        Graph.product_with_a_leaf_of_its_own,
        Graph.wave,
        Graph.dear,
        Graph.dear,
        Graph.softmax,
        Graph.matmul,
        Graph.views,
    ),
    *(Graph.parts, Graph.in_place, Graph.reduced, Graph.cumulative, Graph.selected, Graph.function, Graph.again),
    *(Graph.hooked, Graph.replaced, Graph.node_hooked, Graph.retained),
)


# ---- ways to differentiate


def whole(graph: Graph) -> list[torch.Tensor | None]:
    graph.loss().backward()
    return []


def several_roots(graph: Graph) -> list[torch.Tensor | None]:
    """Some of which lead to others."""
    ones = torch.ones(graph.n)
    torch.autograd.backward([*graph.ends(), *graph.inner], [*(None for _ in graph.inner), *(ones for _ in graph.inner)])
    return []


def twice(graph: Graph) -> list[torch.Tensor | None]:
    loss = graph.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    return []


def some_inputs(graph: Graph) -> list[torch.Tensor | None]:
    graph.loss().backward(inputs=[graph.leaves[-1], graph.leaves[0]])
    return []


def captured(graph: Graph) -> list[torch.Tensor | None]:
    wanted = [*graph.leaves, *graph.inner[::2]]
    return list(torch.autograd.grad(graph.loss(), wanted, allow_unused=True))


def second_order(graph: Graph) -> list[torch.Tensor | None]:
    firsts = torch.autograd.grad(graph.loss(), graph.leaves, create_graph=True, allow_unused=True)
    torch.stack([(first * first).sum() for first in firsts if first is not None]).sum().backward()
    return list(firsts)


def with_an_error(graph: Graph) -> list[torch.Tensor | None]:
    """A function fails in the middle."""
    with pytest.raises(KeyError, match="on purpose"):
        graph.loss().backward()
    return []


def with_a_change(graph: Graph) -> list[torch.Tensor | None]:
    """A hook changes what a branch further on had saved."""
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        graph.loss().backward()
    return []


WAYS = (whole, several_roots, twice, some_inputs, captured, second_order, with_an_error, with_a_change)
# Checkpoints that run a backward of their own cannot do these.
NOT_REENTRANT = (some_inputs, captured, second_order)


def outcome(seed: int, threads: int) -> tuple[str, list[str]]:
    torch.set_num_threads(threads)
    way = WAYS[seed % len(WAYS)]
    graph = Graph(seed, way)
    results = way(graph)
    return graph.state() + digest(*results), graph.log


@pytest.mark.parametrize("seed", range(96))
def test_gradients_and_hooks_do_not_depend_on_the_number_of_threads(seed: int) -> None:
    first = outcome(seed, 1)
    for threads in COUNTS[1:]:
        assert outcome(seed, threads) == first


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(96, 296))
def test_nor_do_they_in_many_runs(seed: int) -> None:
    first = outcome(seed, 1)
    for run in range(99):
        assert outcome(seed, COUNTS[1 + run % 3]) == first


@pytest.mark.row("A1.multithreading")
def test_sharing_can_be_forbidden() -> None:
    torch.set_num_threads(2)
    with torch.autograd.set_multithreading_enabled(False):
        assert outcome(0, 2) == outcome(0, 1)
