"""The options in force for one use of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from tidelake.options.declare import OptionGroup

_Group = TypeVar("_Group", bound=OptionGroup)


class TableOptions(Mapping[str, str]):
    """The options in force for one use of a table. Immutable; each group is parsed once, when it is first needed.

    Code asks for groups (`options.of(MergeOptions)`). Use the texts only to set or show options, or for keys that
    contain the name of a column.
    """

    __slots__ = ("_groups", "_texts")

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts: Mapping[str, str] = dict(texts or {})
        self._groups: dict[type[OptionGroup], OptionGroup] = {}

    def __getitem__(self, key: str) -> str:
        return self._texts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"TableOptions({self._texts!r})"

    def __reduce__(self) -> tuple[type[TableOptions], tuple[Mapping[str, str]]]:
        return TableOptions, (self._texts,)  # the groups are parsed again where it arrives

    def of(self, group: type[_Group]) -> _Group:
        """The options of one group.

        Raises:
            InvalidInputError: (``option-value``) when a value is not of the declared form.
        """
        found = self._groups.get(group)
        if found is None:
            # Two threads may both parse it: they get equal values, and one of them is kept.
            found = self._groups[group] = group.parse(self._texts)
        assert isinstance(found, group)
        return found
