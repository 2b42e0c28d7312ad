"""Branches in storage: each is a folder with its own schemas, snapshots, tags and consumers; all else is shared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO, FileStatus
from tidelake.spec.layout import BRANCH_DIR, BRANCH_PREFIX, TableLayout, branch_dir, parse_named
from tidelake.spec.names import MAIN_BRANCH


@dataclass(frozen=True, slots=True)
class BranchStore:
    """The branches of a table."""

    io: FileIO
    layout: TableLayout
    """The layout of any of them."""

    def folders(self) -> dict[str, FileStatus]:
        """The folder of each branch but the main one, by name."""
        found = ((parse_named(each.name, BRANCH_PREFIX), each) for each in self.io.list(BRANCH_DIR))
        return {name: each for name, each in found if name is not None and each.is_dir}

    def names(self) -> list[str]:
        """The names of all branches but the main one, sorted."""
        return sorted(self.folders())

    def check(self, name: str) -> None:
        """Refuse a branch that does not exist.

        Raises:
            InvalidInputError: the name cannot be the name of a branch.
            NotFoundError: the branch does not exist.
        """
        if name != MAIN_BRANCH and not self.io.exists(branch_dir(name)):
            hint = f"branches are {', '.join((MAIN_BRANCH, *self.names()[:20]))}"
            raise NotFoundError("branch does not exist", code="branch-not-found", branch=name, hint=hint)

    def layouts(self) -> Iterator[TableLayout]:
        """The layout of every branch, the main one first."""
        for name in (MAIN_BRANCH, *self.names()):
            yield replace(self.layout, branch=name)

    def delete(self, name: str) -> None:
        """Delete the folder of a branch with everything in it; a missing one is not an error.

        Raises:
            InvalidInputError: it is the main branch, or cannot be the name of a branch.
        """
        self.io.delete_dir(branch_dir(name))
