"""Tags in storage: one document each; while it exists, the files of its snapshot are kept."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.fileio import FileIO, FileStatus, Outcome
from tidelake.io.sequenced import DOCUMENT_BYTES_MAX
from tidelake.spec.documents.tag import Tag, tag_from_json, tag_to_json
from tidelake.spec.layout import TAG_PREFIX, TableLayout, parse_named


@dataclass(frozen=True, slots=True)
class TagStore:
    """The tags of one branch."""

    io: FileIO
    layout: TableLayout

    def files(self) -> dict[str, FileStatus]:
        """The file of each tag, by name."""
        found = ((parse_named(each.name, TAG_PREFIX), each) for each in self.io.list(self.layout.tag_dir))
        return {name: each for name, each in found if name is not None and not each.is_dir}

    def names(self) -> list[str]:
        """The names of all tags, sorted."""
        return sorted(self.files())

    def get(self, name: str) -> Tag:
        """Read one tag.

        Raises:
            InvalidInputError: the name cannot be the name of a tag.
            NotFoundError: the tag does not exist.
            FormatError: its file is damaged.
        """
        tag = self.find(name)
        if tag is None:
            names = ", ".join(self.names()[:20])
            hint = f"tags are {names}" if names else "the table has no tag; create one with create_tag"
            raise NotFoundError("tag does not exist", code="tag-not-found", tag=name, table=self.io.root, hint=hint)
        return tag

    def find(self, name: str) -> Tag | None:
        """Read one tag, or None if it does not exist.

        Raises:
            InvalidInputError: the name cannot be the name of a tag.
            FormatError: its file is damaged.
        """
        path = self.layout.tag_path(name)
        try:
            return tag_from_json(self.io.read(path, limit=DOCUMENT_BYTES_MAX), path=path)
        except NotFoundError:
            return None

    def all(self) -> dict[str, Tag]:
        """Every tag by name; one that is deleted while they are read is left out.

        Raises:
            FormatError: the file of a tag is damaged.
        """
        found = ((name, self._read(each.path)) for name, each in sorted(self.files().items()))
        return {name: tag for name, tag in found if tag is not None}

    def create(self, name: str, tag: Tag) -> Outcome:
        """Create the tag's file if the name is free.

        Raises:
            InvalidInputError: the name cannot be the name of a tag.
            StorageError: the storage failed, and certainly nothing was written.
        """
        return self.io.create_exclusive(self.layout.tag_path(name), tag_to_json(tag))

    def replace(self, name: str, tag: Tag) -> None:
        """Overwrite the tag's file.

        Raises:
            InvalidInputError: the name cannot be the name of a tag.
            StorageError: the storage failed, and the old file or the new one is there.
        """
        self.io.overwrite(self.layout.tag_path(name), tag_to_json(tag))

    def delete(self, name: str) -> None:
        """Delete the tag's file and its success file; missing ones are not an error."""
        self.io.delete(self.layout.tag_path(name))
        self.io.delete(self.layout.tag_success_path(name))

    def _read(self, path: str) -> Tag | None:
        # Other writers may use names that we refuse; so the path comes from the listing.
        try:
            return tag_from_json(self.io.read(path, limit=DOCUMENT_BYTES_MAX), path=path)
        except NotFoundError:
            return None
