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


# ---- inference mode, against PyTorch 2.13 --------------------------------------------------------------------------------

FROZEN_SAVED = "Inference tensors cannot be saved for backward"
FROZEN_CHANGED = "Inplace update to inference tensor outside InferenceMode is not allowed"
VIEW_OF_INFERENCE = "A view was created in inference mode and is being modified inplace in normal mode"


@pytest.fixture
def frozen():
    with torch.inference_mode():
        return torch.ones(2)


@pytest.mark.row("A4.inference_mode")
def test_everything_made_in_inference_mode_is_an_inference_tensor():
    numpy = pytest.importorskip("numpy")
    normal = torch.ones(2)
    with torch.inference_mode():
        made = {
            "ones": torch.ones(2),
            "tensor": torch.tensor([1.0]),
            "as_tensor": torch.as_tensor([1.0]),
            "from_numpy": torch.from_numpy(numpy.ones(2)),
            "randn": torch.randn(2),
            "arange": torch.arange(3),
            "mul": normal * 2,
            "comparison": normal > 0,
            "clone": normal.clone(),
            "mm": torch.ones(2, 2).mm(torch.ones(2, 2)),
            "cat": torch.cat([normal, normal]),
            "indices": normal.sort()[1],
            "to": normal.to(torch.float64),
            "split": torch.ones(4).split(2)[0],
        }
        views = {"view": normal.view(2), "slice": normal[:1]}
    assert {name for name, t in made.items() if not t.is_inference()} == set()
    assert {name for name, t in views.items() if t.is_inference() or not t._is_view()} == set()
    assert not normal.is_inference()


@pytest.mark.row("A4.inference_mode")
def test_what_comes_of_an_inference_tensor_outside(frozen):
    assert frozen.view(2).is_inference() and frozen.detach().is_inference() and frozen.data.is_inference()
    assert not frozen.clone().is_inference() and not (frozen * 2).is_inference()
    copy = frozen.clone().requires_grad_()
    (copy * copy).sum().backward()
    assert copy.grad.tolist() == [2, 2]


@pytest.mark.row("A4.inference_mode")
@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_(1),
        lambda t: t.view(2).add_(1),
        lambda t: t.zero_(),
        lambda t: t.__setitem__(0, 5.0),
        lambda t: t.unsqueeze_(0),
        lambda t: torch.add(torch.ones(2), 1, out=t),
    ],
    ids=["add_", "view", "zero_", "setitem", "unsqueeze_", "out"],
)
def test_an_inference_tensor_changes_in_inference_mode_only(frozen, change):
    for mode in (torch.enable_grad(), torch.no_grad()):
        with mode, pytest.raises(RuntimeError, match=FROZEN_CHANGED):
            change(frozen)
    with torch.inference_mode():
        change(frozen)
    assert frozen.is_inference()


@pytest.mark.row("A4.inference_mode")
def test_inference_tensors_in_a_graph(x, frozen):
    (x + frozen).sum().backward()
    assert x.grad.tolist() == [1, 1]
    y = x * 1
    for save in (lambda: x * frozen, lambda: y.mul_(frozen), lambda: torch.nn.functional.linear(x, frozen[None])):
        with pytest.raises(RuntimeError, match=FROZEN_SAVED):
            save()
    y.copy_(frozen).sum().backward()
    for wrong in (frozen.requires_grad_, lambda: setattr(frozen, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
            wrong()
    with torch.inference_mode():
        assert frozen.requires_grad_().requires_grad and torch.ones(1, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        _ = frozen._version


@pytest.mark.row("A4.inference_mode")
def test_recording_switched_on_inside_inference_mode_records_nothing(x):
    with torch.inference_mode():
        with torch.enable_grad():
            assert torch.is_grad_enabled()
            y, z = x * 2, (x * 2).softmax(0)
        torch.set_grad_enabled(True)
        u = x.exp()
    assert not (y.requires_grad or z.requires_grad or u.requires_grad) and y.is_inference()
    assert torch.is_grad_enabled() and (x * 2).requires_grad
    with torch.no_grad(), torch.inference_mode(False):
        assert (x * 2).requires_grad
    with torch.inference_mode(), torch.no_grad():
        assert torch.ones(1).is_inference() and torch.is_inference_mode_enabled()


@pytest.mark.row("A4.inference_mode")
def test_normal_tensors_changed_in_inference_mode(x):
    plain, y = torch.ones(2), x.exp()
    with torch.inference_mode():
        plain.add_(1)
        x.add_(1)
        y.mul_(2)
    assert plain._version == 1 and not plain.is_inference() and x.requires_grad
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.row("A4.inference_mode", "A4.views_under_no_grad")
def test_views_made_in_inference_mode_are_changed_there(x):
    base = x * 1
    with torch.inference_mode():
        view = base.view(2)
        view.mul_(2)
    with pytest.raises(RuntimeError, match=VIEW_OF_INFERENCE):
        view.mul_(2)
    with torch.no_grad():
        view.mul_(2)
    assert base.tolist() == [4, 4]
    plain = torch.ones(2)
    with torch.inference_mode():
        view = plain.view(2)
    assert view.mul_(2) is view and plain.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=VIEW_OF_INFERENCE):
        view.mul_(x)


@pytest.mark.row("A4.inference_mode")
def test_custom_functions_and_inference(x, frozen):
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(b)
            return a * 2

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    with torch.inference_mode():
        y = Keeps.apply(x, x)
    assert not y.requires_grad and y.is_inference() and y.grad_fn is None
    with pytest.raises(RuntimeError, match=FROZEN_SAVED):
        Keeps.apply(x, frozen)


@pytest.mark.row("A4.inference_mode", "A4.managers_and_decorators")
def test_inference_mode_of_threads_and_generators():
    seen = []

    @torch.inference_mode()
    def steps():
        while True:
            yield torch.is_inference_mode_enabled() and torch.ones(1).is_inference()

    running = steps()
    assert next(running) and not torch.is_inference_mode_enabled() and next(running)
    with torch.inference_mode():
        thread = threading.Thread(
            target=lambda: seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        )
        thread.start()
        thread.join()
    assert seen == [(False, True)]


@pytest.mark.row("A4.inference_mode")
@pytest.mark.parametrize("wrong", [3, None, "x"])
def test_is_inference_takes_tensors(wrong):
    with pytest.raises(TypeError, match=r"is_inference\(\): argument 'input' \(position 1\) must be Tensor, not"):
        torch.is_inference(wrong)


# ---- the other modes ----------------------------------------------------------------------------------------------------


@pytest.mark.row("A4.managers_and_decorators")
@pytest.mark.parametrize("decorate", [torch.no_grad(), torch.enable_grad(), torch.inference_mode()])
def test_a_decorated_class_warns_and_makes_its_instances_inside(decorate):
    class Made:
        def __init__(self):
            self.mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with pytest.warns(FutureWarning, match="Decorating classes is deprecated and will be disabled in future versions"):
        make = decorate(Made)
    with decorate:
        expected = Made().mode
    assert make().mode == expected


@pytest.mark.row("A4.managers_and_decorators")
def test_decorated_methods():
    class Modes:
        @torch.no_grad()
        def method(self):
            return torch.is_grad_enabled()

        @staticmethod
        @torch.no_grad()
        def static():
            return torch.is_grad_enabled()

        @classmethod
        @torch.no_grad()
        def of_class(cls):
            return torch.is_grad_enabled()

    assert not (Modes().method() or Modes.static() or Modes.of_class())


@pytest.mark.row("A4.set_grad_enabled")
@pytest.mark.parametrize("wrong", [1, 0, None, "no"])
def test_set_grad_enabled_takes_a_bool(wrong):
    text = rf"set_grad_enabled\(\): argument 'enabled' \(position 1\) must be bool, not {type(wrong).__name__}"
    with pytest.raises(TypeError, match=text):
        torch.set_grad_enabled(wrong)
    assert torch.is_grad_enabled()


@pytest.mark.row("A4.set_grad_enabled")
def test_set_grad_enabled_shows_its_mode():
    with torch.set_grad_enabled(False) as nothing:
        assert nothing is None
    guard = torch.set_grad_enabled(True)
    assert guard.mode is True and repr(guard) == "torch.autograd.grad_mode.set_grad_enabled(mode=True)"


@pytest.mark.row("A4.views_under_no_grad")
def test_views_made_under_no_grad(x):
    with torch.no_grad():
        view, y = x[:1], x * 1
    assert view.requires_grad and view.grad_fn is None and view._is_view() and view._base is x
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        view.add_(1)
    with torch.no_grad():
        view.add_(1)
    assert x.tolist() == [2, 1]
    with torch.no_grad():
        view = y[:1]
    view.add_(1)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        view.mul_(x[:1])


@pytest.mark.row("A4.factories_under_no_grad")
def test_factories_and_results_under_no_grad(x):
    with torch.no_grad():
        made = [
            torch.ones(1, requires_grad=True),
            torch.tensor([1.0], requires_grad=True),
            torch.rand(2, requires_grad=True),
            torch.zeros_like(x, requires_grad=True),
            torch.ones(2).requires_grad_(),
            torch.nn.Parameter(torch.ones(1)),
        ]
        assert all(t.requires_grad for t in made) and not (x * 2).requires_grad
