"""What a user installs: a wheel that is small, quick to import, typed, and honest about its build."""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys

import pytest

import rustgrad
from rustgrad import _core

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(rustgrad.__file__).resolve().parent
EXTENSION_LIMIT = 15_000_000  # unpacked; the wheel itself is held by `make size`
IMPORT_SECONDS = 0.15
# What `import rustgrad` must leave for later: each costs more than the whole import may.
HEAVY = ("numpy", "torch", "matplotlib", "tensorboard", "tensorboardX", "asyncio", "unittest")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_installed_package_is_tested() -> None:
    inside = REPOSITORY / "python"
    assert inside not in PACKAGE.parents, "run `make test`: this run imports the source tree"


def test_version_is_the_wheel_s() -> None:
    assert _core.__version__ == importlib.metadata.version("rustgrad")


def test_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_core" / "__init__.pyi").is_file()


def test_extension_is_small() -> None:
    assert pathlib.Path(_core.__file__).stat().st_size <= EXTENSION_LIMIT


def test_extension_is_optimised() -> None:
    assert _core.build_info()["profile"] in {"release", "ci"}


@pytest.mark.parametrize("module", HEAVY)
def test_import_leaves_heavy_modules_alone(module: str) -> None:
    loaded = python("import sys, rustgrad; print(*sys.modules, sep='\\n')").split()
    assert module not in loaded


def test_import_is_quick() -> None:
    # The quickest of several: what the import costs, not what the machine was busy with.
    code = "import time; began = time.perf_counter(); import rustgrad; print(time.perf_counter() - began)"
    assert min(float(python(code)) for _ in range(5)) <= IMPORT_SECONDS
