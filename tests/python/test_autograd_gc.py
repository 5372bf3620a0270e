"""Cycles through the graph are found by Python's garbage collector, and nothing else is taken for garbage."""

import functools
import gc
import random
import resource
import subprocess
import sys
import threading
import time
import weakref

import pytest

import rustgrad as torch
from rustgrad.autograd import graph


class Token:
    """Something to hang a weak reference on."""


class Keeps(torch.autograd.Function):
    """The identity; its context keeps whatever `keep` gives for the output."""

    keep = staticmethod(lambda ctx, output: None)

    @staticmethod
    def forward(ctx, x):
        output = x.clone()
        ctx.kept = Keeps.keep(ctx, output)
        return output

    @staticmethod
    def backward(ctx, grad):
        return grad


def leaf():
    return torch.ones(2, requires_grad=True)


def holding(*objects):
    """A hook of any kind that changes nothing and keeps objects alive."""

    def hook(*grads):
        _ = objects

    return hook


# ---- cycles: each returns what must be collected once nobody holds it, with the token at its end -------------------------


def context_keeps_its_output(token):
    Keeps.keep = staticmethod(lambda ctx, output: (output, token))
    return Keeps.apply(leaf())


def context_is_kept_by_its_output(token):
    y = Keeps.apply(leaf())
    y.grad_fn.result = y, token
    return y


def context_saves_a_tensor_that_leads_back(token):
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = leaf() * 1
    y = Saves.apply(x)
    x.register_hook(holding(y, token))
    del x
    return y


def hook_of_a_leaf(token):
    x = leaf()
    x.register_hook(holding(x, token))
    return x


def hook_of_a_result(token):
    y = leaf() * 2
    y.register_hook(holding(y, token))
    return y


def hook_upstream(token):
    middle = leaf() * 2
    y = middle.exp().sum()
    middle.register_hook(holding(y, token))
    del middle
    return y


def hook_below_a_diamond(token):
    middle = leaf() * 2
    y = (middle.exp() * middle.sin() + middle).sum()
    middle.register_hook(holding(y, token))
    del middle
    return y


def hook_of_an_intermediate_leaf(token):
    x = leaf()
    y = (x * x).sum()
    x.register_hook(holding(y, token))
    del x
    return y


def hook_after_accumulation(token):
    x = leaf()
    x.register_post_accumulate_grad_hook(holding(x, token))
    return x


def hook_of_a_node_keeps_the_tensor(token):
    y = leaf() * 2
    y.grad_fn.register_hook(holding(y, token))
    return y


def hook_of_a_node_keeps_the_node(token):
    node = (leaf() * 2).grad_fn
    node.register_prehook(holding(node, token))
    return node


def builtin_method_of_a_node(token):
    node = (leaf() * 2).grad_fn
    node.token = token
    node.register_hook(functools.partial(holding(), node))
    return node


def metadata(token):
    y = leaf() * 2
    y.grad_fn.metadata["result"] = y, token
    return y


def attribute(token):
    y = leaf() * 2
    y.me = y, token
    return y


def packed_value(token):
    values = []
    with graph.saved_tensors_hooks(lambda value: (values, token), lambda packed: packed[0][0]):
        y = leaf().exp()
    values.append(y)
    return y


def unpack_hook(token):
    values = []
    with graph.saved_tensors_hooks(lambda value: 0, lambda _: (values, token)[0][0]):
        y, other = leaf().exp(), leaf().exp()
    values.append(y)
    del other
    return y


def hooks_of_one_saved_value(token):
    y = leaf().exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda value: (y, token), lambda packed: packed[0])
    return y


def hooks_of_several_tensors(token):
    x = leaf()
    y = (x * 2).sum()
    graph.register_multi_grad_hook((x,), holding(y, token))
    del x
    return y


def hooks_of_a_module(token):
    net = torch.nn.Linear(2, 2)
    net.register_full_backward_hook(holding(net, token))
    net.last = net(torch.ones(1, 2, requires_grad=True)).sum()
    return net


def base_of_a_view(token):
    base = leaf() * 1
    view = base[:1]
    base.register_hook(holding(view, token))
    del base
    return view


def gradient_with_history(token):
    x = leaf()
    (x * x).sum().backward(create_graph=True)
    x.grad.register_hook(holding(x, token))
    return x


CYCLES = [
    context_keeps_its_output,  # pytorch#25340
    context_is_kept_by_its_output,
    context_saves_a_tensor_that_leads_back,
    hook_of_a_leaf,  # pytorch#7343
    hook_of_a_result,  # pytorch#82528
    hook_upstream,  # pytorch#12863
    hook_below_a_diamond,
    hook_of_an_intermediate_leaf,
    hook_after_accumulation,
    hook_of_a_node_keeps_the_tensor,  # pytorch#102174
    hook_of_a_node_keeps_the_node,
    builtin_method_of_a_node,
    metadata,
    attribute,
    packed_value,  # pytorch pull request 189025
    unpack_hook,
    hooks_of_one_saved_value,
    hooks_of_several_tensors,
    hooks_of_a_module,
    base_of_a_view,
    gradient_with_history,
]


@pytest.fixture(autouse=True)
def no_automatic_collections():
    Keeps.keep = staticmethod(lambda ctx, output: None)
    gc.disable()
    while graph.live_payloads() and gc.collect():
        pass
    yield
    gc.enable()
    Keeps.keep = staticmethod(lambda ctx, output: None)


@pytest.mark.row("B2.cycles")
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("make", CYCLES, ids=lambda f: f.__name__)
def test_cycle_is_collected_when_it_is_garbage_and_not_before(make):
    token = Token()
    alive = weakref.ref(token)
    made = make(token)
    Keeps.keep = staticmethod(lambda ctx, output: None)
    del token
    gc.collect()
    assert alive() is not None, "taken for garbage while it was in use"
    del made
    assert alive() is not None, "not a cycle: the test tests nothing"
    gc.collect()
    # The collector clears weak references before it knows whether it can break the cycle.
    assert alive() is None and not any(isinstance(item, Token) for item in gc.get_objects())


# ---- what can still be reached ------------------------------------------------------------------------------------------


def hooked(calls):
    """A graph whose objects are each held by nothing but the graph: its result, and the gradient that it must have."""
    x = leaf()
    middle = x * 3
    middle.register_hook(lambda grad: calls.append("tensor") or grad * 2)
    middle.grad_fn.register_hook(lambda gin, gout: calls.append("node"))
    x.register_post_accumulate_grad_hook(lambda p: calls.append("leaf"))
    with graph.saved_tensors_hooks(lambda value: [value], lambda packed: calls.append("unpack") or packed[0]):
        y = Keeps.apply(middle).exp()
    return x, y


EVERYTHING = {"tensor", "node", "leaf", "unpack"}


@pytest.mark.row("B2.cycles")
@pytest.mark.parametrize("holder", ["result", "both", "downstream", "node", "edge", "gradient of another", "saved"])
def test_what_can_be_reached_still_works(holder):
    calls = []
    x, y = hooked(calls)
    expected = (6 * torch.exp(torch.full((2,), 3.0))).tolist()
    kept = {
        "result": lambda: y,
        "both": lambda: y * 1,
        "downstream": lambda: y.sum(),
        "node": lambda: y.grad_fn,
        "edge": lambda: graph.get_gradient_edge(y),
        "gradient of another": lambda: setattr(other := torch.zeros(2), "grad", y) or other,
        "saved": lambda: y.exp().grad_fn,
    }[holder]()
    if holder != "both":
        del y
    for _ in range(3):
        gc.collect()
    if holder == "saved":
        kept = kept._saved_result.log()
    elif holder == "gradient of another":
        kept = kept.grad
    elif holder == "node":
        kept = graph.GradientEdge(kept, 0)
    torch.autograd.backward(kept, torch.ones(()) if holder == "downstream" else torch.ones(2))
    assert x.grad.tolist() == pytest.approx(expected) and set(calls) == EVERYTHING


@pytest.mark.row("B2.cycles")
def test_a_wrapper_in_garbage_does_not_take_what_another_graph_uses():
    calls = []
    x, y = hooked(calls)
    z = y * 2
    # The wrappers of x and y die in a cycle; their tensors live on behind z.
    x.cycle = [x, y]
    gone = weakref.ref(x)
    del x, y
    gc.collect()
    assert gone() is None
    z.backward(torch.ones(2))
    assert set(calls) == EVERYTHING


@pytest.mark.row("B2.cycles")
def test_hooks_run_while_collections_do():
    def collect(*grads):
        gc.collect()

    x = leaf()
    y = x * 2
    y.register_hook(collect)
    y.grad_fn.register_hook(collect)
    x.register_post_accumulate_grad_hook(collect)
    z = Keeps.apply(y).sum()
    del y
    z.backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.row("B2.cycles")
def test_collections_while_other_threads_work():
    calls, stop = [], threading.Event()
    x = torch.ones(100_000, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: calls.append(1))
    pool, results = [y], []
    del y

    def work():
        # Operations of this size run without the interpreter.
        while not stop.is_set():
            results[:] = [(pool[0] * pool[0]).sum()]

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        gc.collect()
    stop.set()
    for thread in threads:
        thread.join()
    pool.clear()
    gc.collect()
    results[0].backward()
    assert calls == [1]


@pytest.mark.row("B2.cycles")
@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_have_the_same_gradients_with_collections(seed):
    def run(collect):
        rng, calls = random.Random(seed), []
        leaves = [torch.full((3,), 0.1 * k + 0.5, requires_grad=True) for k in range(3)]
        pool, everything = list(leaves), []
        for step in range(60):
            a, b = rng.choice(pool), rng.choice(pool)
            new = rng.choice(
                [
                    lambda a, b: a * b,
                    lambda a, b: a + b,
                    lambda a, b: a.sin(),
                    lambda a, b: b.sigmoid(),
                    lambda a, b: Keeps.apply(a),
                    lambda a, b: torch.stack([a, b]).prod(0),
                    lambda a, b: a[[0, 2, 1]],
                ]
            )(a, b)
            kind = rng.randrange(6)
            keep = rng.choice(pool)
            if kind == 0:
                new.register_hook(lambda grad, keep=keep, step=step: calls.append(step))
            elif kind == 1:
                new.grad_fn.register_hook(lambda gin, gout, new=new, step=step: calls.append(step))
            elif kind == 2:
                new.grad_fn.metadata["kept"] = keep, new
            elif kind == 3:
                everything.append(new.grad_fn)
            pool.append(new)
            if rng.random() < 0.5:
                pool.pop(rng.randrange(len(pool)))
            del a, b, new, keep
            generation = rng.randrange(3)
            if collect:
                gc.collect(generation)
        result = sum(t.sum() for t in pool)
        del pool
        if collect:
            gc.collect()
        result.backward()
        return [None if x.grad is None else x.grad.tolist() for x in leaves], calls

    assert run(True) == run(False)


# ---- what it costs ------------------------------------------------------------------------------------------------------


def seconds(f):
    gc.collect()
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def chain(length, keep):
    y = leaf()
    y.register_hook(lambda grad: None)
    kept = [y]
    for _ in range(length):
        y = y * 1.5
        kept.append(y) if keep else None
    return kept, y


@pytest.mark.row("B2.cycles")
@pytest.mark.parametrize("keep", [True, False], ids=["all kept", "one kept"])
def test_a_collection_takes_time_in_proportion_to_the_graph(keep):
    small, large = chain(10_000, keep), chain(100_000, keep)
    quick = min(seconds(gc.collect) for _ in range(3))
    del large
    base = min(seconds(gc.collect) for _ in range(3))
    # Ten times the length: quadratic time would be a hundred times as much, here minutes.
    assert quick < 1 + 50 * base
    assert small


@pytest.mark.row("B2.cycles")
def test_a_graph_without_python_objects_costs_a_collection_nothing():
    # In a process of its own: what other tests left behind may hold Python objects.
    code = """if True:
        import gc, time
        import rustgrad as torch

        def milliseconds():
            start = time.perf_counter()
            gc.collect()
            return 1_000 * (time.perf_counter() - start)

        y = torch.ones(2, requires_grad=True)
        for _ in range(1_000_000):
            y = y * 1.0
        print(min(milliseconds() for _ in range(5)))
        y.register_hook(print)
        print(min(milliseconds() for _ in range(2)))
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    without, with_objects = map(float, done.stdout.split())
    # A walk of a million nodes takes some 200 ms.
    assert without < 20 < with_objects


@pytest.mark.row("B2.cycles")
def test_collections_of_young_objects_do_not_walk_a_graph_that_grows():
    y = leaf()
    y.register_hook(lambda grad: None)
    kept = []
    gc.enable()

    def build():
        nonlocal y
        for _ in range(200_000):
            y = y * 1.0
            kept.append([])

    # 290 collections of young objects: with a walk of the whole graph each, half a minute.
    assert seconds(build) < 10


# ---- what the collector cannot see --------------------------------------------------------------------------------------


@pytest.mark.row("B2.cycles")
def test_objects_held_by_the_graph_are_listed():
    before = len(graph.live_payloads())
    x = leaf()
    y = x * 2

    def hook(grad):
        return grad

    y.register_hook(hook)
    mine = [held for held in graph.live_payloads() if held.object is hook]
    assert [(held.holder, held.collectable) for held in mine] == [("MulBackward0", True)]
    del mine
    # Two results own the node together: the collector is not told of its hook.
    z = y * 3
    (held,) = (held for held in graph.live_payloads() if held.object is hook)
    assert held.holder == "MulBackward0" and not held.collectable
    del x, y, z, held
    assert len(graph.live_payloads()) == before


# ---- leaks --------------------------------------------------------------------------------------------------------------


@pytest.mark.row("B2.cycles", "A9.freeing")
def test_ten_thousand_steps_leave_nothing_behind():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    net[1].register_full_backward_hook(lambda module, gin, gout: None)
    net.register_forward_hook(lambda module, args, output: None)
    accumulated, before = holding(), {id(held.object) for held in graph.live_payloads()}
    net[0].weight.register_post_accumulate_grad_hook(accumulated)
    data = torch.ones(8, 4)

    def step():
        x = data.clone().requires_grad_()
        x.register_hook(lambda grad: grad)
        with graph.saved_tensors_hooks(lambda value: value, lambda value: value):
            y = net(x)
        y.register_hook(lambda grad: (y, grad)[1])
        y.grad_fn.register_hook(lambda gin, gout: (y, gin)[1])
        Keeps.keep = staticmethod(lambda ctx, output: output)
        Keeps.apply(y).sum().backward()
        net.zero_grad()

    def tensors():
        # What several wrappers shared belongs to one of them when the others are gone: it takes more than one collection.
        for _ in range(3):
            gc.collect()
        return sum(isinstance(item, torch.Tensor) for item in gc.get_objects())

    gc.enable()
    for _ in range(500):
        step()
    count, memory = tensors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(9_500):
        step()
    assert tensors() == count
    assert [held.object for held in graph.live_payloads() if id(held.object) not in before] == [accumulated]
    # The peak, in kilobytes: what 9,500 graphs leave behind if each leaves 500 bytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 5_000
