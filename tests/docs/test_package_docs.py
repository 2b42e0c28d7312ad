"""The docstring of every package names its modules, and only modules that exist.

A module is named at the start of a line of a list, as `    name   phrase`, or in backticks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tidelake"
PACKAGES = sorted(path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/__init__.py"))
_LINE = re.compile(r" {0,4}(\w+) {2,}\S.*")
"""A line of the list: at most four blanks, the name of the module, at least two blanks and a phrase."""


def docstring_of(package: str) -> str:
    return ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""


def listed(package: str) -> list[str]:
    return [found[1] for line in docstring_of(package).splitlines() if (found := _LINE.fullmatch(line))]


def existing(package: str) -> set[str]:
    """Modules and subpackages of the package."""
    modules = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_docstring_of_a_package_names_its_modules(package: str) -> None:
    named = set(listed(package)) | set(re.findall(r"`(\w+)`", docstring_of(package)))
    assert existing(package) - named == set(), "name each module, as `    name   phrase` or in backticks"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_of_a_package_names_modules_that_exist_once(package: str) -> None:
    names = listed(package)
    assert set(names) - existing(package) == set()
    assert len(names) == len(set(names))
