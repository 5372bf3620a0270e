"""Threads and processes: how the interpreter ends while workers are at work, and what a child that is forked off
can do. Every case runs in a process of its own, and a child that hangs is ended by an alarm."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_environment_says_how_many() -> None:
    assert run("import rustgrad; print(rustgrad.get_num_threads())", RUSTGRAD_NUM_THREADS="3") == "3"


@pytest.mark.parametrize("given", ["many", "0", "-2", "513"])
def test_it_is_told_what_is_no_number_of_threads(given: str) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import rustgrad
print(rustgrad.get_num_threads() >= 1, *(f"{w.category.__name__}: {w.message}" for w in caught))
"""
    said = run(code, RUSTGRAD_NUM_THREADS=given)
    assert said.startswith(f"True RuntimeWarning: RUSTGRAD_NUM_THREADS is '{given}', which is no number from 1 to 512")


# One step whose backward is shared, and a child's end that says how it went.
BUSY = """
import os, signal, sys, threading, time, rustgrad as torch
torch.set_num_threads(4)
def loss_of(leaves, hook=None):
    outs = []
    for x in leaves:
        for _ in range(4):
            x = (x * 0.7).tanh()
        if hook is not None and len(outs) == 4:
            x.register_hook(hook)
        outs.append(x.sum())
    return torch.stack(outs).sum()
def leaves():
    return [torch.randn(50_000, requires_grad=True) for _ in range(6)]
def step():
    mine = leaves()
    loss_of(mine).backward()
    assert all(leaf.grad is not None for leaf in mine)
def child_of_fork():
    child = os.fork()
    if child == 0:
        signal.alarm(30)
    return child
def end_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
step()
"""


# ---- the end -----------------------------------------------------------------------------------------------------------


def test_the_interpreter_ends_with_workers_asleep() -> None:
    assert run(BUSY + "print('done')") == "done"


def test_the_interpreter_ends_while_another_thread_runs_a_backward() -> None:
    code = """
def forever():
    while True:
        step()
for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
print('done', flush=True)
"""
    for _ in range(3):
        assert run(BUSY + code) == "done"


def test_a_hook_may_end_the_interpreter() -> None:
    code = """
def leave(grad):
    print('left', flush=True)
    sys.exit(0)
loss_of(leaves(), leave).backward()
print('went on')
"""
    assert run(BUSY + code) == "left"


# ---- forks -------------------------------------------------------------------------------------------------------------


@forks
def test_a_child_starts_a_pool_of_its_own() -> None:
    code = """
child = child_of_fork()
if child == 0:
    step()
    grandchild = child_of_fork()
    if grandchild == 0:
        step()
        os._exit(8)
    os._exit(end_of(grandchild) - 1)
step()
print(end_of(child))
"""
    assert run(BUSY + code) == "7"


@forks
def test_a_child_that_is_forked_off_in_a_backward_is_told_and_goes_on_with_another() -> None:
    code = """
for attempt in range(10):
    child = None
    def fork(grad):
        global child
        child = child_of_fork()
    mine = leaves()
    try:
        loss_of(mine, fork).backward()
    except RuntimeError as error:
        assert child == 0 and "was forked while this backward ran on several threads" in str(error), error
        step()
        os._exit(7)
    assert child != 0, "the child's backward went on as if it had the threads"
    assert all(leaf.grad is not None for leaf in mine) and end_of(child) == 7
print('done')
"""
    assert run(BUSY + code) == "done"


@forks
def test_a_child_may_have_more_threads_than_its_parent_had_asleep() -> None:
    code = """
torch.set_num_threads(8)
for _ in range(4):
    step()
time.sleep(0.05)
for attempt in range(5):
    child = child_of_fork()
    if child == 0:
        torch.set_num_threads(64)
        for _ in range(4):
            step()
        os._exit(7)
    assert end_of(child) == 7, attempt
print('done')
"""
    assert run(BUSY + code) == "done"


@forks
@pytest.mark.parametrize("threads", [1, 4])
def test_what_another_thread_reads_or_writes_at_a_fork_is_free_in_the_child(threads: int) -> None:
    code = f"""
torch.set_num_threads({threads})
read, written = torch.zeros(3_000_000), torch.zeros(3_000_000)
going = True
def use():
    while going:
        read.sum()
        written.add_(1.0)
thread = threading.Thread(target=use)
thread.start()
for attempt in range(20):
    time.sleep(0.001 * attempt)
    child = child_of_fork()
    if child == 0:
        for _ in range(3):
            read[0] = 1.0
            assert read.sum() == 1.0
            written.fill_(2.0)
            assert (written == 2.0).all()
        if attempt % 5 == 0:
            grandchild = child_of_fork()
            if grandchild == 0:
                read.fill_(0.0)
                os._exit(6)
            assert end_of(grandchild) == 6
        os._exit(7)
    assert end_of(child) == 7, attempt
going = False
thread.join()
print('done')
"""
    assert run(BUSY + code) == "done"


@forks
def test_a_child_that_is_forked_off_in_a_backward_on_one_thread_goes_on() -> None:
    code = """
child = None
def fork(grad):
    global child
    child = child_of_fork()
mine = leaves()
with torch.autograd.set_multithreading_enabled(False):
    loss_of(mine, fork).backward()
assert all(leaf.grad is not None for leaf in mine)
if child == 0:
    step()
    os._exit(7)
print(end_of(child))
"""
    assert run(BUSY + code) == "7"


@forks
def test_a_process_may_fork_while_another_of_its_threads_runs_a_backward() -> None:
    code = """
going = True
def steps():
    while going:
        step()
threads = [threading.Thread(target=steps) for _ in range(2)]
for thread in threads:
    thread.start()
for attempt in range(20):
    child = child_of_fork()
    if child == 0:
        step()
        os._exit(7)
    assert end_of(child) == 7, attempt
going = False
for thread in threads:
    thread.join()
print('done')
"""
    assert run(BUSY + code) == "done"


@forks
def test_a_collection_in_a_child_sees_graphs_though_a_backward_was_shared_when_it_was_forked_off() -> None:
    code = """
import gc, weakref
class Thing:
    pass
def cycle():
    x = torch.ones(3, requires_grad=True) * 2
    thing = Thing()
    thing.x = x
    x.register_hook(lambda grad: thing)
    return weakref.ref(thing)
child = None
def fork(grad):
    global child
    child = child_of_fork()
try:
    loss_of(leaves(), fork).backward()
except RuntimeError:
    pass
if child == 0:
    gone = cycle()
    gc.collect()
    os._exit(7 if gone() is None else 8)
print(end_of(child))
"""
    assert run(BUSY + code) == "7"


@forks
def test_processes_of_a_pool_compute_gradients() -> None:
    code = """
import multiprocessing
def gradient(k):
    leaf = torch.full((60_000,), float(k), requires_grad=True)
    loss_of([leaf * 1.0 for _ in range(6)]).backward()
    return leaf.grad[0].item()
with multiprocessing.get_context("fork").Pool(2) as pool:
    there = pool.map(gradient, range(6))
assert there == [gradient(k) for k in range(6)]
print('done')
"""
    assert run(BUSY + code) == "done"
