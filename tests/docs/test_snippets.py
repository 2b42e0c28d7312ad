"""What the pages show is what happens: every snippet runs in a fresh folder and prints what stands below it.

A `python` block runs in one namespace with those before it on the page; a `text` block right after it is its output.
A `console` block holds commands (`$ …`) with what they print, errors included. `…` stands for any text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelake.cli import run

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
WANTED = [
    "quick-start", "append-tables", "primary-key-tables", "time-travel", "schema-changes", "delete-update",
    "compaction", "errors", "following", "maintenance", "statistics", "spark", "streaming", "system-tables",
]  # fmt: skip
ON_SPARK = ("spark", "streaming")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(each[1], each[2], text.count("\n", 0, each.start()) + 2) for each in found]


def assert_printed(wanted: str, printed: str, where: str) -> None:
    pattern = re.escape(wanted.strip()).replace("…", ".*")
    assert re.fullmatch(pattern, printed.strip()), f"{where}\nwanted:\n{wanted.strip()}\nprinted:\n{printed.strip()}"


def shell(command: str) -> str:
    if command.startswith("tidelake ") and not set(command) & set("|;>"):
        out = io.StringIO()  # in this process: starting one for each command takes longer than the command
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            run(shlex.split(command)[1:])
        return out.getvalue()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(Path.cwd())}
    environment.pop("TIDELAKE_WAREHOUSE", None)
    done = subprocess.run(
        ["sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    return done.stdout


def run_console(block: Block, page: Path) -> None:
    for each in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, wanted = each.partition("\n")
        assert_printed(wanted, shell(command), f"{page.name}:{block.line} {command}")


def test_every_guide_is_there() -> None:
    assert sorted(WANTED) == [page.stem for page in GUIDES]


@pytest.mark.parametrize("page", [page for page in GUIDES if page.stem not in ON_SPARK], ids=lambda page: page.stem)
def test_the_snippets_of_a_guide_do_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.cluster
@pytest.mark.parametrize("page", ON_SPARK)
def test_the_snippets_of_a_guide_to_spark_do_what_it_says(page: str, tmp_path: Path) -> None:
    """In a process of its own: each has one session, and that of other tests is another."""
    command = [sys.executable, __file__, str(ROOT / "docs" / "guide" / f"{page}.md")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def run_page(page: Path) -> None:
    """Run the blocks of a page in the current folder, and compare what they print."""
    namespace: dict[str, object] = {"__name__": "guide"}
    listed = blocks(page)
    assert any(block.language == "python" for block in listed)
    for block, after in zip(listed, [*listed[1:], None], strict=True):
        if block.language == "console":
            run_console(block, page)
        if block.language != "python":
            continue
        out = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, namespace)
        wanted = after.text if after is not None and after.language == "text" else ""
        assert_printed(wanted, out.getvalue(), f"{page.name}:{block.line}")


def test_every_block_of_a_guide_is_of_a_kind_that_is_tested() -> None:
    kinds = {(page.stem, block.language) for page in GUIDES for block in blocks(page)}
    assert {kind for _, kind in kinds} == {"python", "text", "console", "toml"}


def test_the_quick_start_of_the_readme_works_as_pasted(tmp_path: Path) -> None:
    listed = blocks(ROOT / "README.md")
    start = next(number for number, block in enumerate(listed) if block.language == "python")
    code, wanted = listed[start], listed[start + 1]
    assert len(code.text.strip().splitlines()) <= 10
    assert wanted.language == "text"
    done = subprocess.run(
        [sys.executable, "-c", code.text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert_printed(wanted.text, done.stdout, "README.md")


def test_the_longer_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, longer, _ = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    rows = [{"id": n, "status": "new", "amount": n, "dt": "2026-11-15"} for n in range(20)]
    exec(compile(longer.text, "README.md", "exec"), {"rows": rows})


def test_the_primary_key_table_of_the_readme_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = blocks(ROOT / "README.md")
    last = max(number for number, block in enumerate(listed) if block.language == "python")
    exec(compile(listed[last].text, "README.md", "exec"), {})
    assert_printed(listed[last + 1].text, capsys.readouterr().out, "README.md")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
