"""The pages that are made from the code are those in the repository; `make docs` writes them anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = load()


@pytest.mark.parametrize("name", ["options.md", "procedures.md", "error-codes.md", "public-api.txt"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    path = ROOT / "docs" / name
    assert path.read_text() == MAKE.pages()[path], "run `make docs` and look at what changed"


def test_every_key_of_the_format_is_on_the_page_of_options() -> None:
    from tidelake.options.catalogue import KNOWN

    page = MAKE.options_page()
    assert [key for key in KNOWN if f"| `{key}` |" not in page] == []


def test_a_changed_signature_changes_the_listing() -> None:
    def before(a: int, /, b: str = "x", *, c: bool = False) -> None: ...

    def after(a: int, /, b: str = "x", *, c: bool = True) -> None: ...

    assert MAKE._signature(before) == "(a: int, /, b: str = 'x', *, c: bool = False) -> None"
    assert MAKE._signature(before) != MAKE._signature(after)


def test_errors_raised_with_a_code_are_found_with_their_sentence() -> None:
    import ast

    tree = ast.parse('raise NotFoundError(f"no {x} here", code="a-code", path=1)\nother("b", code="no")')
    assert list(MAKE._raised(tree, {})) == [("NotFoundError", "a-code", "no … here")]


def test_a_code_that_is_a_constant_of_a_module_is_found() -> None:
    import ast

    tree = ast.parse('GONE = "is-gone"\nraise NotFoundError("file is gone", code=GONE)')
    constants = dict(MAKE._text_constants(tree))
    assert list(MAKE._raised(tree, constants)) == [("NotFoundError", "is-gone", "file is gone")]
