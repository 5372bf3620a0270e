"""What every Python test run says about itself, which is which rustgrad it tests, and what no test leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rustgrad
from rustgrad import _core


def pytest_report_header() -> str:
    return f"rustgrad {_core.__version__} from {rustgrad.__file__}, {_core.build_info()}"


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    before = rustgrad.get_num_threads()
    yield
    if rustgrad.get_num_threads() != before:
        rustgrad.set_num_threads(before)
