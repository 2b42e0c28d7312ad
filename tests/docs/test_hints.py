"""Names in error texts exist: of Python in the library, of commands and their options in the command line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tidelake as tl
from tidelake.cli import WORDS, in_our_words
from tidelake.cli.commands import cli
from tidelake.table.inspecting import Inspect
from tidelake.table.merge_builder import Merge

SOURCE = Path(tl.__file__).parent
CALL = re.compile(r"\b([A-Za-z_]+)\(")
KEYWORD = re.compile(r"(?<![\w.`'-])([a-z_]+)=(?!=)")
COMMAND = re.compile(r"`tidelake ([a-z-]+)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
OURS = (tl.Table, tl.Lake, tl.Scan, Merge, Inspect)
OTHERS = {
    "foreachBatch", "reset_index", "stop", "toArrow", "toDF", "to_frame", "to_spark", "union",  # of other libraries
    "format", "truncate", "TIMESTAMP", "DECIMAL", "Decimal", "filter", "select",
}  # fmt: skip
ARGUMENTS_OF_OTHERS = {"drop", "index_col"}
ENDINGS = {"delete", "spillable", "only", "commit", "skip_signature"}
"""Ends of the names of options (`ignore-delete=true`), and storage options."""


def error_texts(module: Path) -> Iterator[str]:
    """Every text that is written in the making of an error."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).endswith("Error"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


MODULES = [each for each in sorted(SOURCE.rglob("*.py")) if "testing" not in each.parts]
LIBRARY = [each for each in MODULES if "cli" not in each.relative_to(SOURCE).parts]


def test_methods_and_arguments_in_error_texts_of_the_library_exist() -> None:
    public = {name for each in OURS for name in dir(each)} | set(dir(tl)) | OTHERS
    methods = [value for each in OURS for _, value in inspect.getmembers(each, callable)]
    arguments = ARGUMENTS_OF_OTHERS | ENDINGS
    for function in (*methods, *(getattr(tl, name) for name in tl.__all__)):
        try:
            arguments |= set(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue
    wrong = []
    for module in LIBRARY:
        for text in error_texts(module):
            wrong += [(module.name, name) for name in CALL.findall(text) if name not in public]
            wrong += [(module.name, f"{name}=") for name in KEYWORD.findall(text) if name not in arguments]
    assert wrong == []


def test_no_error_text_of_the_library_names_a_command_or_an_option_of_the_command_line() -> None:
    wrong = [
        (module.name, text)
        for module in LIBRARY
        for text in error_texts(module)
        if FLAG.search(text) or COMMAND.search(text) or "fsck" in text
    ]
    assert wrong == []


def test_commands_and_options_in_error_texts_of_the_command_line_exist() -> None:
    known = set(cli.commands)
    flags = {name for command in (cli, *commands(cli)) for each in command.params for name in each.opts}
    for module in sorted((SOURCE / "cli").rglob("*.py")):
        for text in error_texts(module):
            assert set(COMMAND.findall(text)) <= known, (module.name, text)
            assert set(FLAG.findall(text)) <= flags, (module.name, text)


def test_the_command_line_calls_methods_by_commands_that_exist() -> None:
    flags = {name for command in (cli, *commands(cli)) for each in command.params for name in each.opts}
    texts = [text for module in LIBRARY for text in error_texts(module)]
    for python, ours in WORDS.items():
        assert any(python in text for text in texts), f"no error says {python}"
        assert set(COMMAND.findall(ours)) <= set(cli.commands)
        assert set(FLAG.findall(ours)) <= flags
    assert in_our_words("give either where= or partitions=") == "give either --where or --partition"


@pytest.mark.parametrize("text", ["run nothing_there()", "say wrong_name=3"])
def test_the_patterns_find_names(text: str) -> None:
    assert CALL.findall(text) or KEYWORD.findall(text)
