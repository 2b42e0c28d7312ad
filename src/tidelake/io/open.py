"""Opens the storage at a location, which is a folder or a URL.

A location never contains credentials: those go into the storage options, where they are wrapped before anything can
print them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.local import LocalFileIO
from tidelake.io.memory import MemoryFileIO
from tidelake.io.object_store import SCHEMES, ObjectStoreFileIO

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_KNOWN = "a folder, file://, memory://, s3://, gs://, az://"


def open_fileio(
    location: str | os.PathLike[str], storage: Mapping[str, object] | None = None, env: Env | None = None
) -> FileIO:
    """Open the storage at a location without reading or writing anything.

    Args:
        location: a folder, `file:///folder`, `s3://bucket/path`, `gs://bucket/path`, `az://container/path`,
            `memory://name`; a bare `memory://` is a new private store.
        storage: options of the store: credentials, endpoint, region; for a folder only `durability` (`fsync`, `none`).
        env: the clock and identifiers to use; by default those of the machine.

    Raises:
        InvalidInputError: the location or an option is not valid, or an extra is not installed.
    """
    text: object = os.fspath(location)
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError("location is empty or not text", hint=f"use {_KNOWN}")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise InvalidInputError("location has a control character", hint=f"use {_KNOWN}")
    options = dict(storage or {})
    if text[:5].lower() == "file:":
        return _open_folder(_folder_of_url(text), options, env)
    url = _URL.fullmatch(text)
    if url is None:
        return _open_folder(str(Path(text).expanduser()), options, env)
    scheme, rest = url.group(1).lower(), url.group(2)
    if scheme == "memory":
        return _open_memory(rest, options, env)
    if scheme in SCHEMES:
        return _open_bucket(scheme, rest, options, env)
    raise InvalidInputError("scheme of the location is not known", scheme=scheme, hint=f"use {_KNOWN}")


def reopening(io: FileIO) -> tuple[str, dict[str, object]]:
    """Return the location and the options with which another process can open the same storage.

    Raises:
        InvalidInputError: the storage exists in this process only.
    """
    if isinstance(io, LocalFileIO):
        return io.root, {"durability": io.durability}
    if isinstance(io, ObjectStoreFileIO):
        return io.root, io.storage_options
    raise InvalidInputError(
        "storage exists in this process only, so no other can open it",
        location=io.root,
        hint="put the lake into a folder or an object store",
    )


def _folder_of_url(url: str) -> str:
    """Return the folder of `file:///folder`, or of `file:/folder`, which is how Java writes it."""
    rest = url[5:]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            # Drop what is before the host, which may be a password.
            host = host.rpartition("@")[2]
            raise InvalidInputError("file location has a host", host=host, hint="use file:///folder")
        rest = slash + path
    folder = unquote(rest)
    if not folder.startswith("/") or "\0" in folder:
        raise InvalidInputError("file location is not an absolute folder", hint="use file:///folder")
    return folder


def _open_folder(folder: str, options: dict[str, object], env: Env | None) -> FileIO:
    durability = str(options.pop("durability", "fsync"))
    _refuse_rest(options, "durability")
    if durability not in ("fsync", "none"):
        raise InvalidInputError("durability is not known", durability=durability, hint='use "fsync" or "none"')
    return LocalFileIO(folder, durability="fsync" if durability == "fsync" else "none", ids=env.ids if env else None)


def _open_memory(rest: str, options: dict[str, object], env: Env | None) -> FileIO:
    _refuse_rest(options, "none")
    name, _, path = rest.partition("/")
    if "@" in name:
        raise _credentials_error("memory")
    store = MemoryFileIO(name or None, clock=env.clock if env else None)
    return store.sub(path.strip("/")) if path.strip("/") else store


def _open_bucket(scheme: str, rest: str, options: dict[str, object], env: Env | None) -> FileIO:
    place, _, path = rest.partition("/")
    if scheme in ("abfs", "abfss") and "@" in place:
        place, _, host = place.partition("@")
        options.setdefault("account_name", host.partition(".")[0])
    if "@" in place or "?" in rest or "#" in rest:
        raise _credentials_error(scheme)
    if not place:
        raise InvalidInputError("location has no bucket", scheme=scheme, hint=f"use {scheme}://bucket/path")
    return ObjectStoreFileIO(
        scheme,
        place,
        path.strip("/"),
        storage=options,
        clock=env.clock if env else None,
        ids=env.ids if env else None,
    )


def _credentials_error(scheme: str) -> InvalidInputError:
    # Do not show the location, because it may contain a password.
    return InvalidInputError(
        "location has credentials or parameters", scheme=scheme, hint="give credentials as storage options"
    )


def _refuse_rest(options: Mapping[str, object], known: str) -> None:
    if options:
        raise InvalidInputError(
            "storage option does not apply to this location", option=min(options), hint=f"valid here: {known}"
        )
