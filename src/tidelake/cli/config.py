"""The settings file. It names the lake where neither the command line nor the environment does.

The file is the one that `TIDELAKE_CONFIG` names, else `tidelake.toml` in the current folder, else
`tidelake/config.toml` in the user's settings folder:

    warehouse = "lake"          # a folder (relative to this file) or a URL

    [storage]                   # credentials and endpoints; also taken from the store's own environment variables
    region = "eu-central-1"

Invariant: values of the file are never printed, since some are secrets.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelake.errors import InvalidInputError

LOCAL_FILE = "tidelake.toml"
ENVIRONMENT = "TIDELAKE_CONFIG"


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of a settings file."""

    warehouse: str | None = None
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)


def settings_file(environment: Mapping[str, str], folder: Path) -> Path | None:
    """The file that is read, or None.

    Raises:
        InvalidInputError: the named file does not exist.
    """
    if named := environment.get(ENVIRONMENT):
        if not Path(named).is_file():
            raise InvalidInputError("settings file does not exist", path=named, hint=f"fix {ENVIRONMENT}")
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".config")
    candidates = (folder / LOCAL_FILE, Path(home) / "tidelake" / "config.toml")
    return next((path for path in candidates if path.is_file()), None)


def read_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        InvalidInputError: it is not valid TOML, or has a key or value that is not known.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as cause:
        raise InvalidInputError("settings file cannot be read", path=path, hint="it must be valid TOML") from cause
    unknown = sorted(set(document) - {"warehouse", "storage"})
    if unknown:
        raise InvalidInputError("setting is not known", path=path, key=unknown[0], hint="use warehouse and [storage]")
    warehouse, storage = document.get("warehouse"), document.get("storage", {})
    if not isinstance(warehouse, str | None) or not isinstance(storage, dict):
        raise InvalidInputError(
            "setting has the wrong form", path=path, hint='write warehouse = "lake" and a section [storage]'
        )
    return Settings(None if warehouse is None else _absolute(warehouse, path.parent), storage)


def _absolute(location: str, folder: Path) -> str:
    local = "://" not in location and location[:5].lower() != "file:"
    return str(folder / Path(location).expanduser()) if local else location


def find_settings() -> Settings:
    """The settings in force here.

    Raises:
        InvalidInputError: the file is not usable.
    """
    path = settings_file(os.environ, Path.cwd())
    return Settings() if path is None else read_settings(path)
