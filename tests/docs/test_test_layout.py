"""Test modules share code through modules of their own, as `tests/README.md` says."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def test_no_test_module_imports_another_one() -> None:
    wrong = [
        f"{path.relative_to(TESTS)} imports {module}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] != "soak"
        for module in sorted(imported_modules(path))
        if module.rpartition(".")[2].startswith("test_")
    ]
    assert wrong == []


def test_the_readme_names_every_folder_of_tests() -> None:
    text = (TESTS / "README.md").read_text()
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.glob("**/*.py"))}
    assert {name for name in folders if f"`{name}/`" not in text} == set()
