"""The documentation says what is there: links resolve, commands and modules are described."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidelake.cli.commands import cli

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in cli.commands if name not in readme] == []


def every_command(group: click.Group = cli) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from every_command(command)


def test_every_command_explains_itself_with_an_example() -> None:
    assert [command.name for command in every_command() if not (command.help or "").strip()] == []
    assert [command.name for command in every_command() if "tidelake " not in (command.epilog or "")] == []


def test_every_make_target_in_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    named |= {name for page in PAGES for name in re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert sorted(name for name in named if name not in targets and name not in ("and", "git")) == []


@pytest.mark.parametrize(
    "module", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT / "src"))
)
def test_every_module_opens_with_what_it_is_for(module: Path) -> None:
    text = ast.get_docstring(ast.parse(module.read_text()))
    assert text
    assert len(text) > 20


def test_every_option_of_ours_is_known_to_the_catalogue_of_the_format() -> None:
    import tidelake.ops.commit.options  # noqa: F401 - declares the options
    from tidelake.options import all_options
    from tidelake.options.catalogue import is_known

    ours = [spec.key for spec in all_options() if "test" not in spec.key]
    assert ours
    assert [key for key in ours if not is_known(key)] == []
