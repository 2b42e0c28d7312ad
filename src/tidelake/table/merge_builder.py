"""The builder of a MERGE: a source, the condition that matches its rows with the table's, clauses, and `run`.

A `Merge` is immutable: each clause returns a new one, so that an unfinished merge can be kept and reused. Nothing is
read before `run` or `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from tidelake.expr.tree import Predicate
from tidelake.notebook import html_pre
from tidelake.ops.change.merge_rules import ALL, Action, Clause, When

if TYPE_CHECKING:
    from tidelake.ops.change.merge import MergePlan, MergeResult

Condition = Predicate | str | None
Values = Mapping[str, object] | Literal["*"]
"""New values by column, as SQL texts or expressions over `t` and `s`; `"*"` takes the source's columns by name."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that has not run yet.

    Clauses are tried in the order they are added, and the first whose condition is true decides. Expressions name
    columns of the table as `t.name` (or `target.name`) and of the source as `s.name` (or `source.name`); a name that
    only one side has needs no side.
    """

    _act: Callable[[Merge, bool], Any]
    source: Any
    on: object
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Values = ALL, *, condition: Condition = None) -> Merge:  # noqa: A002
        """Update rows that match a source row; by default every column, from the source column of the same name."""
        return self._with(When.MATCHED, Action.UPDATE, condition, set)

    def when_matched_delete(self, condition: Condition = None) -> Merge:
        """Delete rows that match a source row."""
        return self._with(When.MATCHED, Action.DELETE, condition)

    def when_not_matched_insert(self, values: Values = ALL, *, condition: Condition = None) -> Merge:
        """Insert source rows that match no row; by default every column, from the source column of the same name."""
        return self._with(When.NOT_MATCHED, Action.INSERT, condition, values)

    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, object],  # noqa: A002
        *,
        condition: Condition = None,
    ) -> Merge:
        """Update rows that match no source row."""
        return self._with(When.BY_SOURCE, Action.UPDATE, condition, set)

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> Merge:
        """Delete rows that match no source row."""
        return self._with(When.BY_SOURCE, Action.DELETE, condition)

    def when_matched_update_all(self, condition: Condition = None) -> Merge:
        """Update every column of rows that match a source row, from the source column of the same name."""
        return self.when_matched_update(condition=condition)

    def when_not_matched_insert_all(self, condition: Condition = None) -> Merge:
        """Insert source rows that match no row, every column from the source column of the same name."""
        return self.when_not_matched_insert(condition=condition)

    @overload
    def run(self, *, plan_only: Literal[False] = False) -> MergeResult: ...

    @overload
    def run(self, *, plan_only: Literal[True]) -> MergePlan: ...

    def run(self, *, plan_only: bool = False) -> MergeResult | MergePlan:
        """Merge, and commit the change as one; `plan_only` returns how it would be done.

        Raises:
            InvalidInputError: a clause is wrong, a value does not fit, or several source rows change one row of the
                table; nothing was changed.
            CommitConflictError: other jobs changed the same rows first, at every attempt.
            CommitUnknownError: the storage did not say whether the commit was published.
            UnsupportedError: the table is of a kind that cannot be written yet.
        """
        found: MergeResult | MergePlan = self._act(self, plan_only)
        return found

    def explain(self) -> str:
        """How the merge would be done, for a person."""
        return str(self.run(plan_only=True))

    def __repr__(self) -> str:
        return f"Merge(on={self.on!r}, {len(self.clauses)} clauses)"

    def _repr_html_(self) -> str:
        return html_pre(repr(self))

    def _with(self, when: When, action: Action, condition: Condition, values: Values = ALL) -> Merge:
        return replace(self, clauses=(*self.clauses, Clause(when, action, condition, values)))
