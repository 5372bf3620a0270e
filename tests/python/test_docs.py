"""Every Python block in the Markdown files at the top of the repository does what it says.

A block with `>>>` prompts is a doctest, and what it prints is compared; any other is a script that has to run through.
"""

from __future__ import annotations

import doctest
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, tuple[str, int]]:
    """By name of file and line: the text and the line."""
    found = {}
    for path in sorted(REPOSITORY.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            found[f"{path.name}:{line}"] = (match[1], line)
    return found


@pytest.mark.parametrize(("source", "line"), blocks().values(), ids=blocks())
def test_block(source: str, line: int) -> None:
    if ">>>" not in source:
        exec(compile(source, f"line {line}", "exec"), {"__name__": "__main__"})
        return
    test = doctest.DocTestParser().get_doctest(source, {}, f"block at line {line}", None, line)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert result.attempted
    assert not result.failed, "".join(report)


def test_the_readme_has_blocks() -> None:
    assert sum(name.startswith("README.md") for name in blocks()) >= 3


def test_help_is_plain_text() -> None:
    import rustgrad as torch

    assert torch.argsort.__doc__ is not None
    assert "see `sort`." in torch.argsort.__doc__
    for name, entry in [*vars(torch).items(), *vars(torch.Tensor).items()]:
        doc = getattr(entry, "__doc__", None) or ""
        assert "](" not in doc and "# Errors" not in doc, name
