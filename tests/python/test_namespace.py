"""The package as a whole: what importing it costs, lazy parts, names, `Size`, random state."""

import copy
import pickle
import subprocess
import sys

import pytest

import rustgrad as torch


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_only_what_is_needed():
    code = "import sys; before = set(sys.modules); import rustgrad; print(*set(sys.modules) - before)"
    loaded = set(run(code))
    assert "rustgrad.autograd" in loaded
    late = {
        "inspect",
        "numpy",
        "zipfile",
        "rustgrad.nn",
        "rustgrad.optim",
        "rustgrad.serialization",
        "rustgrad.testing",
    }
    assert not loaded & late


def test_import_is_quick():
    # the best of a few: the machine may be busy with other things
    code = "import time; t = time.perf_counter(); import rustgrad; print(time.perf_counter() - t)"
    assert min(float(run(code)[0]) for _ in range(5)) < 0.15


def test_lazy_parts():
    assert run("import rustgrad; print(rustgrad.nn.Linear(1, 1).in_features, rustgrad.optim.SGD.__name__)") == [
        "1",
        "SGD",
    ]
    assert run("import rustgrad; print(rustgrad.utils.data.DataLoader.__name__)") == ["DataLoader"]
    assert run("from rustgrad import testing, save; print(save.__module__)") == ["rustgrad.serialization"]
    assert {"nn", "optim", "save", "load", "Tensor", "no_grad"} <= set(dir(torch))
    with pytest.raises(AttributeError, match="module 'rustgrad' has no attribute 'nothing'"):
        torch.nothing  # noqa: B018


def test_versions():
    assert torch.__version__.startswith("2.13.0+rustgrad.") and torch.version.cuda is None
    assert torch.__version__.endswith(torch.version.rustgrad)


def test_short_names_of_dtypes():
    for short, long in (("float", "float32"), ("double", "float64"), ("half", "float16"), ("long", "int64"),
                        ("int", "int32"), ("short", "int16")):  # fmt: skip
        assert getattr(torch, short) is getattr(torch, long)
    assert torch.is_tensor(torch.ones(1)) and not torch.is_tensor([1])


def test_there_is_no_cuda():
    assert torch.cuda.is_available() is False and torch.cuda.device_count() == 0
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.cuda.synchronize()


def test_size():
    size = torch.Size([2, 3])
    assert size == (2, 3) and isinstance(size, tuple) and size.numel() == 6 and torch.Size().numel() == 1
    assert repr(size) == "torch.Size([2, 3])" and size[0] == 2 and type(size[1:]) is torch.Size
    assert type(size + (4,)) is type((4,) + size) is type(size * 2) is torch.Size
    assert (4,) + size == (4, 2, 3)
    for twin in (copy.copy(size), copy.deepcopy(size), pickle.loads(pickle.dumps(size))):
        assert twin == size and type(twin) is torch.Size
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 1 is 'str'\)"):
        torch.Size([1, "a"])


def test_shapes_are_sizes():
    assert type(torch.ones(2, 3).shape).__name__ == "Size" and torch.ones(2, 3).shape.numel() == 6


def test_seeds_repeat_numbers():
    assert torch.manual_seed(7) is not None and torch.initial_seed() == 7
    first = torch.rand(5)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(5), first)
    assert isinstance(torch.seed(), int)


def test_state_can_be_saved_and_forked():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert state.dtype == torch.uint8
    first = torch.rand(3)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    with torch.random.fork_rng():
        torch.rand(10)
        inside = torch.get_rng_state()
    after = torch.get_rng_state()
    assert not torch.equal(inside, after)
    with torch.random.fork_rng(enabled=False):
        torch.rand(10)
    assert not torch.equal(torch.get_rng_state(), after)
