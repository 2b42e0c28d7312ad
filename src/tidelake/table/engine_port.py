"""What a table needs from an engine; `tidelake.engine` finds the one that is installed.

Imported only for types: a table that is used without an engine loads none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypedDict, TypeVar

from tidelake.ops.change.merge import MergePlan, MergeResult
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.steps import StepRunner
from tidelake.ops.write.replay import ReplayRunner
from tidelake.spec.types.data_types import DataType
from tidelake.table.merge_builder import Merge

T_contra = TypeVar("T_contra", contravariant=True)
"""The handle of a table."""


class WriteArguments(TypedDict):
    """The arguments of `Table.write` beside the data."""

    mode: str
    partition: Mapping[str, object] | None
    row_kind: str | None
    commit_user: str | None
    identifier: int | None


class StreamArguments(TypedDict):
    """The arguments of `stream_to` beside the frame and the table."""

    checkpoint: object
    trigger: object
    output_mode: str
    row_kind: str | None
    query_name: str | None


class CompactionRunner(StepRunner, ReplayRunner, Protocol):
    """Runs the steps of a compaction as tasks, and gives staged rows their buckets."""


class TableEngine(Protocol[T_contra]):
    """Runs the methods of a table on many machines. Frames and sessions are the engine's own types."""

    def stream(self, table: T_contra, session: Any | None, options: Mapping[str, object]) -> Any:
        """A streaming frame of a table; the session is by default the active one."""

    def column_types(self, data: object) -> dict[str, DataType]:
        """The columns that a table for a frame of the engine, or for its schema, would have, with their types."""

    def write(self, table: T_contra, frame: object, how: WriteArguments) -> CommitResult:
        """Write a frame of the engine to a table as one commit.

        Where the frame may bring new columns, the caller opened the table with its newest schema.
        """

    def stream_to(self, table: T_contra, frame: object, how: StreamArguments) -> Any:
        """Start the query that writes a streaming frame of the engine to a table, and return it."""

    def merge(self, table: T_contra, merge: Merge, plan_only: bool) -> MergeResult | MergePlan:
        """Merge a frame of the engine into a table as one commit, or plan that.

        The caller opened the table with its newest schema: otherwise rewritten rows would lose columns added since.
        """

    def step_runner(self, session: Any) -> CompactionRunner:
        """What runs the steps of a compaction as tasks of the session."""
