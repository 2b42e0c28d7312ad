"""How the tests of the command line call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidelake.cli import run as main_run
from tidelake.cli.commands import cli


def run(*arguments: str, typed: str | None = None) -> Result:
    """A command in this process, with what is typed at its questions."""
    return CliRunner().invoke(cli, list(arguments), input=typed)


def answer(*arguments: str) -> Any:
    """The JSON that a command prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def main_code(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, as a shell sees them."""
    code = main_run(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


def shell(*arguments: str, cwd: Path, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from tidelake.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        input=text,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("TIDELAKE")}, "HOME": str(cwd), **environment},
    )
