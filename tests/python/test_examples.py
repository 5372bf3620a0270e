"""Every example runs as a user would run it, a script in another folder. Each has a test that knows its result."""

from __future__ import annotations

import math
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"


def run(script: pathlib.Path, *arguments: str, folder: pathlib.Path, **environment: str) -> str:
    """Standard output of a script that has to succeed."""
    command = [sys.executable, str(script), *arguments]
    environment = os.environ | environment
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{script.name} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_train_digits(tmp_path: pathlib.Path) -> None:
    out = run(EXAMPLES / "train_digits.py", "--epochs", "12", "--out", "pictures", folder=tmp_path)
    found = re.search(r"held-out accuracy: (\d\.\d+) on 450 pictures", out)
    assert found, out
    assert float(found[1]) >= 0.96

    assert (tmp_path / "pictures/loss.png").read_bytes().startswith(b"\x89PNG")
    picture = xml.parse(tmp_path / "pictures/graph.svg").getroot()
    words = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"0.weight", "2.bias", "4.weight", "128\N{MULTIPLICATION SIGN}64", "Relu", "result"} <= words


def test_linear_regression(tmp_path: pathlib.Path) -> None:
    x = np.linspace(-1, 1, 101)
    slope, _ = np.polyfit(x, 3 * x - 2 + 0.1 * np.sin(40 * x), 1)
    out = run(EXAMPLES / "linear_regression.py", folder=tmp_path)
    assert out.splitlines()[-1] == f"slope {slope:.4f}, least squares says {slope:.4f}"


def test_second_derivatives(tmp_path: pathlib.Path) -> None:
    out = run(EXAMPLES / "second_derivatives.py", folder=tmp_path).splitlines()
    s, c = math.sin(1), math.cos(1)
    assert out[0].split(": ")[1] == " ".join(f"{value:+.6f}" for value in (s, c, -s, -c, s))
    assert "(+1.000000, +1.000000)" in out[-1]


@pytest.mark.parametrize("name", ["linear_regression", "second_derivatives"])
def test_output_is_the_same_each_time(name: str, tmp_path: pathlib.Path) -> None:
    assert run(EXAMPLES / f"{name}.py", folder=tmp_path) == run(EXAMPLES / f"{name}.py", folder=tmp_path)


def test_every_example_has_a_test() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_comparison_runs_every_case(tmp_path: pathlib.Path) -> None:
    """PyTorch is no dependency of the tests, so rustgrad stands on both sides: every case has to run."""
    (tmp_path / "torch.py").write_text("import sys, rustgrad\nsys.modules[__name__] = rustgrad\n")
    script = REPOSITORY / "benches/compare/compare.py"
    arguments = ("--rounds", "1", "--block", "1e-9", "--any-build")
    names = run(script, "--list", folder=tmp_path, PYTHONPATH=str(tmp_path)).splitlines()
    table = run(script, *arguments, folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert len(names) > 20
    assert all(re.search(rf"^{re.escape(name)} +\d", table, re.MULTILINE) for name in names)
