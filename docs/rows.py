"""Writes docs/autograd_rows.md: each row of docs/rows.toml with the tests that show it, or the reason why there are none.

A test names its rows by `@pytest.mark.row("A8.detach")`, on itself or, for a whole file, as `pytestmark`. `make rows` runs
this.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import tomllib
from collections.abc import Iterator

DOCS = pathlib.Path(__file__).resolve().parent
TESTS = DOCS.parent / "tests" / "python"
PAGE = DOCS / "autograd_rows.md"
HEAD = """# Rows of autograd, and the tests that show them

Written by `make rows` from [rows.toml](rows.toml) and the marks in `tests/python/`; do not edit.
"""


def marked_rows(expression: ast.expr) -> Iterator[str]:
    """The rows that a decorator or a value of `pytestmark` names: `pytest.mark.row("A1.grad", ...)`."""
    if isinstance(expression, ast.List | ast.Tuple):
        for element in expression.elts:
            yield from marked_rows(element)
    elif isinstance(expression, ast.Call) and ast.unparse(expression.func).endswith("mark.row"):
        for argument in expression.args:
            yield ast.literal_eval(argument)


def module_rows(module: ast.Module) -> list[str]:
    """The rows of all tests in a file."""
    return [
        row
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        for row in marked_rows(statement.value)
    ]


def marks(source: str) -> Iterator[tuple[str, str]]:
    """Pairs of test and row in the source of a test file."""
    module = ast.parse(source)
    for_all = module_rows(module)
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            own = [row for decorator in node.decorator_list for row in marked_rows(decorator)]
            yield from ((node.name, row) for row in for_all + own)


def tests_by_row(sources: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """For each row the tests that name it, as pairs of file and test."""
    found: dict[str, list[tuple[str, str]]] = {}
    for file, source in sorted(sources.items()):
        for test, row in marks(source):
            found.setdefault(row, []).append((file, test))
    return found


def rows() -> dict[str, dict[str, str]]:
    """Each row under its full name, with its section's title beside it."""
    sections = tomllib.loads((DOCS / "rows.toml").read_text(encoding="utf-8"))
    return {
        f"{section}.{name}": {"section": f"{section}. {content['title']}", **row}
        for section, content in sections.items()
        for name, row in content["rows"].items()
    }


def shown(row: dict[str, str], tests: list[tuple[str, str]]) -> str:
    """The last column of a row: its tests by file, or the reason why there are none."""
    by_file: dict[str, list[str]] = {}
    for file, test in tests:
        by_file.setdefault(file, []).append(f"`{test}`")
    listed = "; ".join(f"[{f}](../tests/python/{f}): {', '.join(dict.fromkeys(t))}" for f, t in by_file.items())
    return listed or row.get("reason", "")


def page(sources: dict[str, str]) -> str:
    """The text of the page.

    Raises:
        ValueError: if a mark names a row that is not in rows.toml.
    """
    known, tests = rows(), tests_by_row(sources)
    if unknown := sorted(set(tests) - set(known)):
        raise ValueError(f"marks name rows that docs/rows.toml does not have: {', '.join(unknown)}")
    lines, section = [HEAD], ""
    for name, row in known.items():
        if row["section"] != section:
            section = row["section"]
            lines.append(f"\n## {section}\n\n| row | what | tests |\n|---|---|---|\n")
        lines.append(f"| {name} | {row['what']} | {shown(row, tests.get(name, []))} |\n")
    return "".join(lines)


def read_sources() -> dict[str, str]:
    """The test files by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(TESTS.glob("test_*.py"))}


if __name__ == "__main__":
    try:
        PAGE.write_text(page(read_sources()), encoding="utf-8")
    except ValueError as error:
        sys.exit(str(error))
