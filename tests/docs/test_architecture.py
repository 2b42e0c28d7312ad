"""The walks of `docs/architecture.md` are those of the code: each arrow is an import, and imports go down."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidelake"
_WALKS = re.compile(r"## Nine walks\n.*?```\n(.*?)```", re.DOTALL)


def arrows() -> list[tuple[str, str]]:
    found = _WALKS.search((ROOT / "docs" / "architecture.md").read_text())
    assert found is not None
    pairs = []
    for line in found[1].splitlines():
        modules = re.findall(r"[a-z_]+(?:\.[a-z_]+)*(?=\s+->)|(?<=-> )[a-z_.]+", line)
        pairs += pairwise(modules)
    return pairs


def path_of(module: str) -> Path:
    return SOURCE / (module.replace(".", "/") + ".py")


def imports_of(module: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return {name.removeprefix("tidelake.") for name in names}


def test_every_module_of_a_walk_exists() -> None:
    assert len(arrows()) > 40
    assert {module for pair in arrows() for module in pair if not path_of(module).exists()} == set()


def test_every_arrow_of_a_walk_is_an_import() -> None:
    assert [(one, other) for one, other in arrows() if path_of(one).exists() and other not in imports_of(one)] == []


def test_every_path_that_the_page_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = "|".join(sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
    named = set(re.findall(rf"`((?:{folders})/[\w/]+)`", text))
    assert len(named) > 60
    assert {each for each in named if not (SOURCE / each).is_dir() and not (SOURCE / f"{each}.py").exists()} == set()
