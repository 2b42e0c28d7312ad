"""Data files outside the table: only below the roots that the table's options name.

A manifest may contain the full address of a file. A forged manifest could so read any file of the machine. Therefore an
address is used only if it is below a root of `data-file.external-paths`, and through a `FileIO` that cannot leave it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import FormatError, UnsupportedError
from tidelake.io.fileio import FileIO
from tidelake.io.local import LocalFileIO
from tidelake.options import parse_list
from tidelake.store.paths import PathOptions

OPTION = "data-file.external-paths"


def open_external(io: FileIO, options: Mapping[str, str], address: str) -> tuple[FileIO, str]:
    """The `FileIO` of the root that contains a file, and the file's path in it.

    Args:
        io: the storage of the table.
        options: the table options.
        address: the address in the manifest.

    Raises:
        FormatError: the address is below no root of the table's options, or leads out of its root.
        UnsupportedError: the table or the root is not on a local disk.
    """
    folder = _local(address)
    for root in parse_list(PathOptions.parse(options).external_paths or ""):
        if address.startswith(root.rstrip("/") + "/") and (folder is None or not io.root.startswith("/")):
            raise UnsupportedError(
                "data file outside the table cannot be read from this storage yet",
                code="external-path",
                path=address,
                option=OPTION,
                hint="read the table with Apache Paimon",
            )
        top = (_local(root) or "").rstrip("/")
        if top and folder is not None and folder.startswith(top + "/") and io.root.startswith("/"):
            return LocalFileIO(top), _inside(folder.removeprefix(top + "/"), address)
    raise FormatError(
        "data file is outside the table and its external roots",
        code="external-path",
        path=address,
        table=io.root,
        hint=f"add its root to the option {OPTION} if you trust the table",
    )


def _inside(path: str, address: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise FormatError("address of a data file leads out of its root", code="external-path", path=address)
    return path


def _local(address: str) -> str | None:
    """The path of `file:/folder`, `file:///folder` or `/folder`, as Java writes it: not escaped."""
    if address.startswith("file:"):
        address = "/" + address.removeprefix("file:").lstrip("/")
    return address if address.startswith("/") else None
