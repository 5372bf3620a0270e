"""One module, many threads of Python: forwards and backwards at once, the interpreter changing hands as often as
it can, give what one thread gives. Gradients that threads add to one leaf are whole numbers, so that their sum
does not depend on who comes first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import rustgrad as torch
from rustgrad import nn

THREADS = 6
ROUNDS = 8


@pytest.fixture(autouse=True, params=[1, 4])
def _pool_and_switches(request: pytest.FixtureRequest) -> Iterator[None]:
    interval = sys.getswitchinterval()
    torch.set_num_threads(request.param)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(work: Callable[[int], None]) -> None:
    """Runs `work(k)` on several threads that begin together; what one raises is raised."""
    begin = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            begin.wait()
            for _ in range(ROUNDS):
                work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Scale(torch.autograd.Function):
    """Python in the graph; each call has a context of its own."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, by: float) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, grad: torch.Tensor):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        assert x.shape == grad.shape
        return grad * ctx.by, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, 4)
        self.buffer = torch.linspace(0.5, 1.5, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        left, right = self.second(x).relu(), Scale.apply(x, 0.5) * self.buffer
        return self.last(self.norm(left + right))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def inputs(k: int) -> torch.Tensor:
    return torch.arange(300 * 32).reshape(300, 32).float().mul(0.01 * (k + 1)).sin()


def bytes_of(grads: object) -> list[bytes]:
    return [grad.numpy().tobytes() for grad in grads]  # type: ignore[attr-defined]


def test_each_thread_has_the_gradients_that_one_has() -> None:
    model = net()
    parameters = list(model.parameters())

    def gradients(k: int) -> list[bytes]:
        return bytes_of(torch.autograd.grad(model(inputs(k)).pow(2).mean(), parameters))

    alone = [gradients(k) for k in range(THREADS)]

    def work(k: int) -> None:
        assert gradients(k) == alone[k]

    at_once(work)
    assert all(p.grad is None for p in parameters)


def test_hooks_run_on_the_thread_of_their_backward_and_once_each() -> None:
    model = net()
    parameters = list(model.parameters())
    calls: list[tuple[str, int]] = []

    def note(what: str) -> None:
        calls.append((what, threading.get_ident()))

    model.second.register_forward_hook(lambda *_: note("forward"))
    model.second.register_full_backward_hook(lambda *_: note("backward"))
    model.first.weight.register_hook(lambda grad: note("weight"))
    mine: dict[int, int] = {}

    def work(k: int) -> None:
        y = model(inputs(k))
        y.register_hook(lambda grad: note("result"))
        y.pow(2).mean().backward(inputs=parameters)
        mine[threading.get_ident()] = mine.get(threading.get_ident(), 0) + 1

    at_once(work)
    assert sum(mine.values()) == THREADS * ROUNDS
    for what in ("forward", "backward", "weight", "result"):
        for thread, rounds in mine.items():
            assert calls.count((what, thread)) == rounds


def test_what_threads_add_to_one_gradient_is_all_there() -> None:
    weight = torch.nn.Parameter(torch.ones(40, 40))
    seen: list[int] = []
    weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(threading.get_ident()))

    def work(k: int) -> None:
        ((weight * (k + 1)).relu() + Scale.apply(weight, 2.0)).sum().backward()

    at_once(work)
    assert weight.grad is not None
    assert (weight.grad == ROUNDS * sum(k + 1 + 2 for k in range(THREADS))).all()
    assert len(seen) == THREADS * ROUNDS and len(set(seen)) == THREADS


def test_one_retained_graph_is_walked_by_many() -> None:
    model = net()
    x = inputs(0).requires_grad_()
    hidden = model.first(x).tanh()
    loss = model.last(model.norm(hidden)).pow(2).mean()
    wanted = [x, hidden, model.first.weight, model.norm.weight]
    alone = bytes_of(torch.autograd.grad(loss, wanted, retain_graph=True))

    def of_second_order() -> list[bytes]:
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return bytes_of(torch.autograd.grad(first.pow(2).sum(), wanted[2:], retain_graph=True))

    second = of_second_order()

    def work(k: int) -> None:
        if k % 3 == 0:
            assert of_second_order() == second
        else:
            assert bytes_of(torch.autograd.grad(loss, wanted, retain_graph=True)) == alone

    at_once(work)


def test_modes_are_each_threads_own() -> None:
    model = net()
    plain = bytes_of([model(inputs(0)).detach()])

    def work(k: int) -> None:
        x = inputs(0)
        if k % 3 == 0:
            with torch.no_grad():
                y = model(x)
                assert not torch.is_grad_enabled() and y.grad_fn is None
        elif k % 3 == 1:
            with torch.inference_mode():
                y = model(x)
                assert y.is_inference() and y.grad_fn is None
        else:
            y = model(x)
            assert torch.is_grad_enabled() and y.grad_fn is not None
            torch.autograd.grad(y.sum(), [model.first.weight])
        assert bytes_of([y.detach()]) == plain

    at_once(work)
    assert torch.is_grad_enabled()


def test_a_graph_that_all_run_is_freed_by_one() -> None:
    """Who comes too late is told; nobody crashes, and nothing is added twice by one backward."""
    told: list[str] = []
    for _ in range(ROUNDS):
        weight = torch.ones(200, 50, requires_grad=True)
        loss = (weight * 2.0).tanh().exp().pow(2).sum()

        def work(_: int, loss: torch.Tensor = loss) -> None:
            try:
                loss.backward()
            except RuntimeError as error:
                told.append(str(error))

        at_once(work)
    assert told and all("a second time" in text for text in told)


def test_threads_may_change_a_tensor_that_others_read() -> None:
    shared = torch.zeros(3_000)

    def work(k: int) -> None:
        if k % 2:
            shared.add_(1)
        else:
            now = shared.clone()
            assert (now == now[0]).all()

    at_once(work)
    assert (shared == ROUNDS * (THREADS // 2)).all()
