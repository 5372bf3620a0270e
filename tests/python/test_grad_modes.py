"""The grad modes as context managers, as functions and as decorators."""

import asyncio
import threading

import pytest

import rustgrad as torch

pytestmark = pytest.mark.row("A1.grad_modes")


@pytest.fixture
def x():
    return torch.ones(2, requires_grad=True)


def test_context_managers_set_and_restore(x):
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not torch.is_grad_enabled() and not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_mode_is_restored_after_an_exception():
    with pytest.raises(KeyError), torch.no_grad():
        raise KeyError
    assert torch.is_grad_enabled()


def test_one_guard_may_be_entered_twice():
    guard = torch.no_grad()
    with guard:
        with guard:
            assert not torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("decorate", [torch.no_grad, torch.no_grad(), torch.inference_mode, torch.inference_mode()])
def test_decorator_with_and_without_parentheses(x, decorate):
    @decorate
    def double(value):
        """Doubles."""
        return value * 2

    assert not double(x).requires_grad
    assert torch.is_grad_enabled() and double.__name__ == "double" and double.__doc__ == "Doubles."


def test_enable_grad_decorator(x):
    @torch.enable_grad
    def double(value):
        return value * 2

    with torch.no_grad():
        assert double(x).requires_grad
        assert not torch.is_grad_enabled()


def test_decorated_function_may_call_itself():
    @torch.no_grad()
    def depth(n):
        assert not torch.is_grad_enabled()
        return 0 if n == 0 else 1 + depth(n - 1)

    assert depth(5) == 5 and torch.is_grad_enabled()


def test_generator_runs_in_the_mode_and_its_caller_does_not():
    seen = []

    @torch.no_grad()
    def steps():
        try:
            while True:
                seen.append(torch.is_grad_enabled())
                try:
                    got = yield "item"
                    seen.append(got)
                except ValueError:
                    seen.append("caught")
        finally:
            seen.append(("closing", torch.is_grad_enabled()))

    running = steps()
    assert next(running) == "item" and torch.is_grad_enabled()
    assert running.send("sent") == "item" and torch.is_grad_enabled()
    assert running.throw(ValueError()) == "item" and torch.is_grad_enabled()
    running.close()
    assert torch.is_grad_enabled()
    assert seen == [False, "sent", False, "caught", False, ("closing", False)]


def test_generator_returns_its_value():
    @torch.no_grad()
    def three():
        yield 1
        return 3

    def outer():
        return (yield from three())

    running = outer()
    assert next(running) == 1
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value == 3


def test_coroutine_runs_outside_the_mode():
    @torch.no_grad()
    async def mode():
        return torch.is_grad_enabled()

    assert asyncio.run(mode()) is True


def test_set_grad_enabled_acts_at_once():
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_set_grad_enabled_as_decorator_changes_only_the_calls():
    @torch.set_grad_enabled(False)
    def mode():
        return torch.is_grad_enabled()

    assert torch.is_grad_enabled()
    assert mode() is False and torch.is_grad_enabled()


def test_inference_mode_can_be_switched_off_inside():
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
        with torch.inference_mode(False):
            assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_a_new_thread_starts_enabled():
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_factories_under_no_grad_still_take_requires_grad():
    with torch.no_grad():
        assert torch.ones(1, requires_grad=True).requires_grad
