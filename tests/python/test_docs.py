"""Every Python block in the Markdown files of the repository does what it says.

A block with `>>>` prompts is a doctest, and what it prints is compared; any other is a script that has to run through.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, tuple[str, int]]:
    """By name of file and line: the text and the line."""
    found = {}
    for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]):
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


# ---- the rows of autograd and the differences --------------------------------------------------------------------------

DOCS = REPOSITORY / "docs"


def rows_script():
    """docs/rows.py as a module."""
    spec = importlib.util.spec_from_file_location("rows", DOCS / "rows.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_rows_is_current() -> None:
    script = rows_script()
    assert script.PAGE.read_text(encoding="utf-8") == script.page(script.read_sources()), "run `make rows`"


def test_each_row_has_a_test_or_a_reason() -> None:
    script = rows_script()
    tests = script.tests_by_row(script.read_sources())
    assert [name for name, row in script.rows().items() if name not in tests and not row.get("reason")] == []


def test_marks_are_found_on_tests_and_files() -> None:
    script = rows_script()
    source = """
import pytest
pytestmark = [pytest.mark.row("A1.grad"), pytest.mark.slow]

@pytest.mark.row("A2.apply", "A3.node")
@pytest.mark.parametrize("x", [1])
def test_one(x): ...

def test_two(): ...
def helper(): ...
"""
    assert script.tests_by_row({"f.py": source}) == {
        "A1.grad": [("f.py", "test_one"), ("f.py", "test_two")],
        "A2.apply": [("f.py", "test_one")],
        "A3.node": [("f.py", "test_one")],
    }


def test_a_mark_that_names_no_row_is_an_error() -> None:
    source = '@pytest.mark.row("A1.no_such_row")\ndef test_one(): ...'
    with pytest.raises(ValueError, match="A1.no_such_row"):
        rows_script().page({"f.py": source})


def test_each_difference_has_a_test_and_each_test_a_difference() -> None:
    entries = (DOCS / "differences.md").read_text(encoding="utf-8").split("\n## ")[1:]
    named = [re.findall(r"Test:\s`(test_\w+)`\.", entry) for entry in entries]
    assert all(len(tests) == 1 for tests in named), [
        e.partition("\n")[0] for e, t in zip(entries, named, strict=True) if len(t) != 1
    ]
    module = ast.parse((REPOSITORY / "tests/python/test_differences.py").read_text(encoding="utf-8"))
    there = {node.name for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}
    assert {tests[0] for tests in named} == there and len(named) == len(there)
