"""What every Python test run says about itself: which rustgrad it tests."""

from __future__ import annotations

import rustgrad
from rustgrad import _core


def pytest_report_header() -> str:
    return f"rustgrad {_core.__version__} from {rustgrad.__file__}, {_core.build_info()}"
